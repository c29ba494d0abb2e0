"""One process of a fit, as the tests start it: runs the jobs given as JSON one after another, and prints what came."""

import hashlib
import json
import os
import sys
import warnings

import jax
import numpy as np

import pgbb
from pgbb.custody import checkpoint
from pgbb.private import hosts, session

SCHEMA = pgbb.Schema(y=pgbb.Range(-8, 8), a=pgbb.Range(-1, 1), g=pgbb.Levels("p", "q", "r"))
MODEL = pgbb.QuantileRegression("y ~ a + g", taus=[0.3, 0.7])
PGBB = {
    "method": "pgbb", "steps": 60, "draws_per_step": 2, "sampling_rate": 0.1, "accountant": "paper",
    "keep_transcript": True,
}  # fmt: skip
CHUNK = 20


def fit(data, **changes):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pgbb.PgbbWarning)
        return pgbb.fit(MODEL, data, schema=SCHEMA, epsilon=1.0, delta=1e-7, **changes)


def digest(release):
    """Of each tensor of a release: the posterior, and the transcript where it is kept."""
    return {
        name: f"{tensor.dtype} {tensor.shape} {hashlib.sha256(np.ascontiguousarray(tensor).tobytes()).hexdigest()}"
        for name, tensor in release.payload.tensors.items()
    }


def device_batches():
    """The way of other devices than CPUs to draw batches, tried on this one."""
    make = session.Session.__init__
    session.Session.__init__ = lambda self, *a, **k: make(self, *a, **{**k, "device_batches": True})
    return lambda: setattr(session.Session, "__init__", make)


def killed(number):
    """End this process as SIGKILL does when it has done so many chunks."""
    check, chunks = hosts.Together.check, iter(range(1, 10**6))

    def last(self):
        check(self)
        if next(chunks) > number:
            os.kill(os.getpid(), 9)

    hosts.Together.check = last


def main(jobs):
    for job in jobs:
        undo = device_batches() if job.pop("device_batches", False) else (lambda: None)
        if job.pop("often", False):  # a checkpoint after every chunk
            checkpoint.SECONDS, session._chunk = 0.0, lambda sessions: CHUNK
        if (number := job.pop("kill", None)) is not None:
            killed(number)
        try:
            said = {"digest": digest(fit(**job)), "devices": len(jax.local_devices())}
        except pgbb.PgbbError as error:
            said = {"error": type(error).__name__, "text": str(error)}
        undo()
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
