"""Draws as labelled tables, and tables as HTML, LaTeX and a small picture. Knows no payload and no model."""

from collections.abc import Hashable, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pgbb.release.bars import Bar, intervals

__all__ = ["cell", "latex", "moments", "picture", "table", "text"]

Floats = NDArray[np.float64]


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
