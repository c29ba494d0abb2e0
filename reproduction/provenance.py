"""Where a result comes from: revisions of its study and method, versions of the libraries, commit and device.

A study and a method each have a revision, a number that is raised by hand when a change of the code moves their figures
by more than other random numbers would. tests/reproduction/test_quick.py runs a short seeded version of every study, so
that no figure moves unnoticed. A rename, or a faster way to the same figures, leaves results as good as they are.
"""

import importlib.metadata
import os
import platform
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import Any

import pgbb
from reproduction.study import Settings, Study

__all__ = ["METHODS", "commit", "device", "revision", "versions"]

ROOT = Path(__file__).resolve().parents[1]
METHODS = {"calibrated": 14, "augmented": 2} | dict.fromkeys(
    (
        "pgbb", "sgld", "noisy_gibbs", "dp_bootstrap", "abc", "repro", "posterior_sampling", "dp_mcmc",
        "reference",
    ), 1,
)  # fmt: skip
"""Revision of each method; that of a study is `Study.revision`."""


def revision(study: Study, settings: Settings) -> dict[str, int]:
    """The revisions that the figures of a cell depend on.

    >>> from reproduction.registry import get
    >>> revision(get("linear"), {"method": "sgld"})
    {'linear': 1, 'sgld': 1}
    """
    found = {study.name: study.revision}
    method = settings.get("method")
    return found if method is None else found | {method: METHODS[method]}


def versions() -> dict[str, str]:
    """Of Python, pgbb and the libraries that compute."""
    found = {"python": platform.python_version(), "pgbb": pgbb.__version__}
    for name in ("numpy", "scipy", "jax", "pandas"):
        found[name] = importlib.metadata.version(name)
    return found


@lru_cache(maxsize=1)
def commit() -> str | None:
    """The commit of this checkout, with "+" where files have changed since; None outside of git.

    A machine that has a copy of the files without their history can be told by PGBB_COMMIT.
    """
    told = os.environ.get("PGBB_COMMIT")
    if told:
        return told

    def ask(*words: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    if ask("ls-files", "--error-unmatch", str(Path(__file__))) is None:
        return None
    head = ask("rev-parse", "HEAD")
    changed = ask("status", "--porcelain", "--", "src", "reproduction/*.py")
    return None if head is None else head + ("+" if changed else "")


def device() -> str:
    """What JAX computes on, such as "cpu" or "gpu: NVIDIA H200"."""
    import jax

    first: Any = jax.devices()[0]
    return "cpu" if first.platform == "cpu" else f"{first.platform}: {first.device_kind}"
