"""The studies by name, each in its own module and imported when it is first asked for."""

import importlib

from pgbb import _validate
from reproduction.study import Study

__all__ = ["NAMES", "every", "get"]

NAMES = (
    "budget",
    "blocking",
    "linear",
    "gamma",
    "k",
    "ess",
    "families",
    "census",
    "natality",
    "births",
    "comparison",
    "floor",
    "ablation",
    "every_row",
    "noise_aware",
    "alpha",
)


def get(name: str) -> Study:
    """A study; an unknown name is an error that lists the known ones.

    >>> get("comparison").labels
    ('Table S1',)
    """
    module = importlib.import_module(f"reproduction.studies.{_validate.one_of('study', name, NAMES)}")
    study: Study = module.STUDY
    return study


def every() -> list[Study]:
    """All of them, in the order of the paper."""
    return [get(name) for name in NAMES]
