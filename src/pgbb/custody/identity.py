"""What makes a fit what it is, all of it public: a fit that goes on after a checkpoint must agree on it."""

import hashlib
import json
from dataclasses import fields

import pgbb
from pgbb.methods.registry import Constants
from pgbb.methods.request import Planned, Request, prepared
from pgbb.release.certificate import describe
from pgbb.release.payloads import summary_of

__all__ = ["identity"]


def identity(request: Request, method: str, settings: Constants, planned: Planned, n: int) -> str:
    """A digest of all that decides what a fit asks and makes of the answers, but for the code of a custom loss."""
    whole = {
        "version": pgbb.__version__,
        "method": method,
        "model": summary_of(prepared(request.model, request.schema)).to_dict(),
        "schema": request.schema.to_dict(),
        "settings": {f.name: getattr(settings, f.name) for f in fields(settings)},
        "budget": [request.epsilon, request.delta, request.accountant, request.group_size, request.persons],
        "weights": request.weights,
        "mechanism": describe(planned.mechanism),
        "sigma": planned.sigma,
        "n": n,
    }
    text = json.dumps(whole, sort_keys=True, default=lambda value: type(value).__name__)  # pseudo-samples: by type only
    return hashlib.sha256(text.encode()).hexdigest()
