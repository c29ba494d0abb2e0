"""Draws as labelled tables, and tables as LaTeX and as a small picture for notebooks. Knows no payload and no model.

The picture is SVG made of text, so that showing a release imports no plotting.
"""

import html
import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from pgbb._numerics import Floats

WIDTH, LEFT, RIGHT, ROW, GAP = 600, 190, 90, 15, 9  # pixels
MOST = 60
"""Bars drawn at most; the rest is in the table."""


def moments(values: Floats, level: float) -> dict[str, Floats]:
    """Mean, sd and equal-tailed interval over the second-last axis."""
    lower, upper = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=-2)
    ddof = 1 if values.shape[-2] > 1 else 0
    return {"mean": values.mean(axis=-2), "sd": values.std(axis=-2, ddof=ddof), "lower": lower, "upper": upper}


def table(
    values: Floats,
    level: float,
    rows: Sequence[Hashable],
    levels: Sequence[float] | None,
    names: tuple[str | None, str],
) -> pd.DataFrame:
    """The moments of draws (levels, m, rows): one row each, labelled (level, row) where there are several levels."""
    columns = {k: v.ravel() for k, v in moments(values, level).items()}
    if levels is None or len(levels) == 1:
        return pd.DataFrame(columns, index=pd.Index(rows))
    return pd.DataFrame(columns, index=pd.MultiIndex.from_product([levels, rows], names=names))


def text(value: object) -> str:
    """A label: 0.1 rather than 0.1000."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def cell(value: float, digits: int = 4) -> str:
    """A number with so many digits; larger ones are whole, and have an exponent from ten million on.

    >>> cell(0.00123456), cell(12345.6), cell(1093.4, 2), cell(1.5e9)
    ('0.001235', '12346', '1093', '1.5e+09')
    """
    return f"{value:.0f}" if 10**digits <= abs(value) < 1e7 else f"{value:.{digits}g}"


def latex(frame: pd.DataFrame) -> str:
    """A LaTeX tabular, with booktabs rules."""
    heads = [_escape(n or "") for n in frame.index.names] + [_escape(str(c)) for c in frame.columns]
    lines = [f"\\begin{{tabular}}{{{'l' * frame.index.nlevels}{'r' * len(frame.columns)}}}", "\\toprule"]
    lines += [" & ".join(heads) + " \\\\", "\\midrule"]
    for label, row in zip(frame.index, frame.to_numpy(), strict=True):
        cells = [_escape(text(p)) for p in (label if isinstance(label, tuple) else (label,))]
        lines.append(" & ".join(cells + [_latex_number(v) for v in row]) + " \\\\")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}"])


def _latex_number(value: float | bool) -> str:
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if np.isnan(value):
        return "--"
    digits, _, power = cell(value).partition("e")
    return f"${digits}$" if not power else f"${digits} \\times 10^{{{int(power)}}}$"


def _escape(words: str) -> str:
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(special.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in words)


def picture(frame: pd.DataFrame, level: float) -> str:
    """The intervals of a summary, by coefficient, as SVG."""
    several = frame.index.nlevels > 1
    groups: dict[str, list[Bar]] = {}
    for key, row in zip(frame.index, frame.to_dict("records"), strict=True):
        at, name = (f"{key[0]:g}", key[1]) if several else ("", key)
        bar = Bar(at, row["mean"], row["lower"], row["upper"], bool(row.get("identified", True)))
        groups.setdefault(str(name), []).append(bar)
    over = f" by {frame.index.names[0]}" if several else ""
    return intervals(list(groups.items()), f"posterior means and {level:g} intervals{over}")


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
