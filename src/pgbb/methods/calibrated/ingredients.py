"""Ingredients of the method that a study may leave out, to show what each is worth. No setting: a release made without
one says so in its diagnostics."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

__all__ = ["INGREDIENTS", "Ingredient", "left_out", "uses", "without"]

Ingredient = Literal["whitening", "shrinkage", "redrawing"]
INGREDIENTS: tuple[Ingredient, ...] = ("whitening", "shrinkage", "redrawing")
"""The frame found by rounds; matrices pulled to their targets; matrices drawn again with their noise in every draw."""

_LEFT_OUT: ContextVar[frozenset[Ingredient]] = ContextVar("left_out", default=frozenset())


@contextmanager
def without(*names: Ingredient) -> Iterator[None]:
    """Fits in this context leave these ingredients out."""
    token = _LEFT_OUT.set(frozenset(names))
    try:
        yield
    finally:
        _LEFT_OUT.reset(token)


def uses(name: Ingredient) -> bool:
    """Whether fits use an ingredient; they do unless `without` says otherwise."""
    return name not in _LEFT_OUT.get()


def left_out() -> list[Ingredient]:
    """What fits leave out, in the order of `INGREDIENTS`."""
    return [name for name in INGREDIENTS if not uses(name)]
