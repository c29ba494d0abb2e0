"""What makes a fit what it is, all of it public: processes that fit together and resumed fits must agree on it."""

import hashlib
import json
from dataclasses import fields, replace
from importlib.metadata import version

import pgbb
from pgbb.methods.registry import Constants
from pgbb.methods.request import Planned, Request, prepared
from pgbb.private.door import Together, agreed_listing
from pgbb.release.certificate import describe
from pgbb.release.payloads import summary_of

__all__ = ["agreed", "facts", "identity"]


def agreed(request: Request, method: str, settings: Constants, together: Together) -> Request:
    """The request of one of several processes, which reads its part of the records; all have given the same facts."""
    listing = agreed_listing(request.data, together, facts(request, method, settings))
    return replace(request, data=listing, together=together)


def facts(request: Request, method: str, settings: Constants) -> dict[str, object]:
    """What processes that fit together must agree on, beside the data, before anything is reserved; public."""
    return {
        "the version of pgbb": pgbb.__version__,
        "the version of jax": version("jax"),
        "the version of numpy": version("numpy"),
        "method": method,
        "the model": summary_of(prepared(request.model, request.schema)).to_dict(),
        "the schema": request.schema.to_dict(),
        "epsilon": request.epsilon,
        "delta": request.delta,
        "accountant": request.accountant,
        "weights": request.weights,
        "group_size": request.group_size,
        "insecure_seed": request.insecure_seed,
        "non_private": request.non_private,
        **{f.name: getattr(settings, f.name) for f in fields(settings)},
    }


def identity(request: Request, method: str, settings: Constants, planned: Planned, n: int) -> str:
    """A digest of all that decides what a fit asks and makes of the answers, but for the code of a custom loss."""
    whole = {
        "version": pgbb.__version__,
        "method": method,
        "model": summary_of(prepared(request.model, request.schema)).to_dict(),
        "schema": request.schema.to_dict(),
        "settings": {f.name: getattr(settings, f.name) for f in fields(settings)},
        "budget": [request.epsilon, request.delta, request.accountant, request.group_size],
        "weights": request.weights,
        "mechanism": describe(planned.mechanism),
        "sigma": planned.sigma,
        "n": n,
    }
    text = json.dumps(whole, sort_keys=True, default=lambda value: type(value).__name__)  # pseudo-samples: by type only
    return hashlib.sha256(text.encode()).hexdigest()
