"""A small picture of intervals for notebooks: SVG made of text, so that showing a release imports no plotting."""

import html
import math
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Bar", "intervals"]

WIDTH, LEFT, RIGHT, ROW, GAP = 600, 190, 90, 15, 9  # pixels
MOST = 60
"""Bars drawn at most; the rest is in the table."""


class Bar(NamedTuple):
    """One interval; `known` is False where the coefficient is not identified."""

    label: str
    mean: float
    lower: float
    upper: float
    known: bool = True


def intervals(groups: Sequence[tuple[str, Sequence[Bar]]], caption: str) -> str:
    """Bars by group, each group on a scale of its own, with a tick at zero where zero is in sight.

    >>> text = intervals([("educ", [Bar("0.5", .1, .05, .15)])], "0.95 intervals")
    >>> text.startswith("<svg") and "educ" in text and len(text) < 2000
    True
    """
    parts, y, left_over = [], 0.0, MOST
    for name, bars in groups:
        shown = [bar for bar in bars[:left_over] if all(map(math.isfinite, bar[1:4]))]
        left_over -= len(shown)
        if not shown:
            continue
        low, high = min(bar.lower for bar in shown), max(bar.upper for bar in shown)
        span = (high - low) or abs(high) or 1.0
        low, high = low - 0.05 * span, high + 0.05 * span

        def x(value: float, low: float = low, high: float = high) -> float:
            return LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT)

        parts.append(_text(0, y + 11, name, "font-weight='bold'"))
        if low < 0 < high:
            bottom = y + ROW * len(shown)
            parts.append(f"<path d='M{x(0):.1f} {y:.0f}V{bottom:.0f}' stroke='currentColor' opacity='.3'/>")
        for bar in shown:
            middle, dash = y + ROW / 2, "" if bar.known else " stroke-dasharray='2 3' opacity='.6'"
            parts.append(_text(LEFT - 6, y + 11, bar.label, "text-anchor='end'"))
            parts.append(
                f"<path d='M{x(bar.lower):.1f} {middle:.1f}H{x(bar.upper):.1f}' stroke='#2a6fb0' stroke-width='2'"
                f"{dash}/><circle cx='{x(bar.mean):.1f}' cy='{middle:.1f}' r='3' stroke='#2a6fb0' "
                f"fill='{'#2a6fb0' if bar.known else 'none'}'/>"
            )
            parts.append(_text(WIDTH - RIGHT + 8, y + 11, f"{bar.mean:.4g}"))
            y += ROW
        y += GAP
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{y:.0f}' viewBox='0 0 {WIDTH} {y:.0f}' "
        f"role='img' aria-label='{html.escape(caption, quote=True)}' font-family='sans-serif' font-size='11' "
        f"fill='currentColor' style='max-width:100%'>{''.join(parts)}</svg>"
    )


def _text(x: float, y: float, words: str, more: str = "") -> str:
    short = words if len(words) <= 26 else words[:25] + "…"
    return f"<text x='{x:.0f}' y='{y:.0f}' {more}>{html.escape(short)}</text>"
