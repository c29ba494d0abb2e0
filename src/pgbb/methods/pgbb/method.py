"""Algorithm 1 (one target) and Algorithm 2 (jointly over an index), with a neural generator.

By default what is released are noise-aware draws: a local posterior from the answers that the generator was trained
with (`noise_aware`). `intervals="printed"` releases the generator itself, as the paper does.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pgbb._numerics.threads import FEW, mapped, one_blas_thread
from pgbb.errors import InvalidValue
from pgbb.methods.pgbb.session_setup import Opened, open_for
from pgbb.methods.pgbb.settings import Settings, plan, problem_of
from pgbb.methods.request import Request, prepared
from pgbb.model.models import Problem
from pgbb.release.file import Release
from pgbb.release.payloads import Payload, summary_of

__all__ = ["Settings", "plan", "run", "run_many"]


PARTIAL = (
    "Intervals are those of the printed algorithm: they carry only part of the privacy noise, and can be too narrow."
)


def run(request: Request, settings: Settings) -> Release:
    """Train the generator under the budget and pack what is drawn from."""
    from pgbb.methods.pgbb import training  # JAX is needed from here on

    problem, settings = problem_of(request, settings)
    opened = open_for(request, settings, problem)
    problem = opened.problem
    trained = training.train(
        opened.session,
        _learning(settings, opened, problem),
        problem=problem,
        second=opened.second,
        joint=opened.joint,
        public_part=opened.public_part,
        keep_transcript=settings.keep_transcript,
        progress=request.progress,
        checkpoint=request.checkpoint,
        begin=lambda: request.begin(opened.planned),
    )
    return _packed(request, settings, problem, opened, trained)


@one_blas_thread()  # fits have threads of their own
def run_many(requests: Sequence[Request], settings: Settings) -> list[Release]:
    """The same for data sets of one size, model and budget, trained side by side on the device: for replicates."""
    if len(requests) == 1:
        return [run(requests[0], settings)]
    from pgbb.methods.pgbb import training

    if settings.keep_transcript:
        raise InvalidValue("keep_transcript = True is not allowed for fits side by side: fit one data set at a time.")
    problem, settings = problem_of(requests[0], settings)
    opened = [open_for(requests[0], settings, problem)]  # which finds the noise scale for all
    opened += mapped(lambda request: open_for(request, settings, problem), requests[1:], FEW)
    problem = opened[0].problem
    for request, one in zip(requests, opened, strict=True):
        request.begin(one.planned)
    seconds = [one.second for one in opened if one.second is not None]
    trained = training.train_many(
        [one.session for one in opened],
        _learning(settings, opened[0], problem),
        problem=problem,
        seconds=seconds or None,
        joint=opened[0].joint,
        public_part=opened[0].public_part,
    )
    fits = list(zip(requests, opened, trained, strict=True))
    return mapped(lambda fit: _packed(fit[0], settings, problem, *fit[1:]), fits, FEW)


def _learning(settings: Settings, opened: Opened, problem: Problem) -> Any:
    """With noise-aware intervals the generator comes to rest early: points that follow the noise cost precision."""
    from pgbb.methods.pgbb import dither, training

    return training.Learning(
        decay=1.0 if opened.second is None else dither.phases_of(problem).rest,
        learning_rate=settings.rate,
        slope=settings.slope,
        average_from=settings.average_from,
        operator_norm=settings.operator_norm,
        dither=settings.dither,
        printed=settings.network == "printed",
    )


def _packed(request: Request, settings: Settings, problem: Problem, opened: Opened, trained: Any) -> Release:
    """The release of a training."""
    session, planned, second = opened.session, opened.planned, opened.second
    notes = [] if request.non_private else [PARTIAL]
    payload, diagnostics = None, None
    if second is not None:
        posterior, diagnostics, notes = second.posterior(trained.moments, trained.transcript)
        kept_settings, tensors = posterior.to_tensors()
        payload = Payload(kind="local", settings=kept_settings, tensors=tensors)
    if settings.reshuffle:
        notes.append(
            "The partition was reshuffled for every answer: γ* is not calibrated for this variant, and what the draws "
            "of a generator vary with its weights is noise alone."
        )
    return Release(
        model=summary_of(prepared(request.model, request.schema)),
        schema=request.schema.to_dict(),
        certificate=request.certify(planned.mechanism, planned.sigma, session.randomness.source, notes),
        payload=_generator(settings, session, trained) if payload is None else payload,
        diagnostics=diagnostics,
    )


def _generator(settings: Settings, session: Any, trained: Any) -> Payload:
    """The generator, as the paper releases it."""
    problem, mechanism = session.problem, session.mechanism
    tensors = {f"average/{k}": v for k, v in trained.average.items()} | {
        f"last/{k}": v for k, v in trained.last.items()
    }
    tensors |= {
        "input_shift": trained.input_shift,
        "input_scale": trained.input_scale,
        "center": problem.center.astype(np.float32),
        "radius": problem.radius.astype(np.float32),
    }
    if trained.transcript is not None:
        tensors |= {f"transcript/{k}": v for k, v in trained.transcript.items()}
    return Payload(
        kind="generator",
        settings={
            "blocks": mechanism.blocks,
            "pseudo_blocks": session.pseudo_blocks,
            "concentration": None if mechanism.blocks == 1 else mechanism.concentration,
            "alpha": mechanism.alpha,
            "index": problem.index is not None,
            "default_iterate": settings.iterate or "average",
            **({"clipped": True} if settings.network == "printed" else {}),
        },
        tensors=tensors,
    )
