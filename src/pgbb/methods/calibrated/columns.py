"""Locates the columns of a design, and makes up a reference design with independent columns that lie there.

The distributions of single columns already explain much: powers and interactions of a column are nearly collinear with
it, a declared range may be far too wide, and a skewed column has records far from all others. So a reference design is
drawn from the located distributions, with a fixed seed, and the formula is evaluated on it. No record is seen.
Whitening it gives the coordinates in which the frame starts. Public arithmetic on answers.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from pgbb._numerics import Floats
from pgbb.methods.calibrated.algebra import prefixes
from pgbb.methods.calibrated.column_terms import Own, many_levels
from pgbb.methods.calibrated.pareto import heaviest, tail_of
from pgbb.methods.calibrated.response import UNSEEN, Distribution, distribution
from pgbb.methods.calibrated.stages import BINS
from pgbb.model.formula import Design, Dummy

if TYPE_CHECKING:
    from pgbb.methods.calibrated.asking import Asker


ROWS = 4_000  # rows of the reference design
SCORES = ndtri((np.arange(ROWS) + 0.5) / ROWS)
HALF = np.array([0.25, 0.5, 0.75])  # a column has an atom if these quantiles lie in one bin
LEAST_SHARE = 0.01  # least share of a flag or level in the reference design (or half of the noise of the share)
CLEAR = 3.0  # a column may be constant if quantiles so many standard deviations from 0 and 1 are less than a bin apart
OTHERS = np.array([1.5, 0.75])  # least shares that are looked for beyond an atom, in standard deviations of noise
PARTS = np.array([0.5, 0.25])  # of the others: a typical one lies between their median and their upper quartile
RARE = 2.0  # a flag may be constant if its share lies within so many standard deviations of 0 or 1
LIGHTEST = -1.0  # least shape of the tail of a column: that of a uniform distribution
WINDOW = 0.005, 0.995  # a column is cut at these quantiles for its means by level
LEFT = 0.1  # least part of the variance of a column that differences between levels leave
LEAST_CORRELATION = 1e-11  # least eigenvalue of correlations that single precision shows


class Atom(NamedTuple):
    """The value of a mapped column that most records have, and a typical distance of the others from it."""

    value: float
    step: float


class Apart(NamedTuple):
    """A term that few records may have: x_j of the others, and the step to those.

    `others` are the terms of other levels of its column, and their shares among the other records.
    """

    value: float
    step: float
    others: Mapping[int, float] = MappingProxyType({})


@dataclass(frozen=True)
class Columns:
    """Where the columns of a design lie, in mapped coordinates.

    Args:
      values: `ROWS` quantiles of each numeric column.
      means: mean of each 0/1 term.
      noise: standard deviation of the noise of the means, at most.
      still: numeric columns that may be constant, as far as the answers show.
      atoms: numeric columns of which at least half of the records have one value.
      lone: 0/1 terms that may be 0, or 1, for all records.
      rest: by column, the share of records whose level has no term of its own.
      moved: by numeric column and column of levels, how far the mean at each level lies from that of all; by the code
        of the level, -1 for the one that has no term.
    """

    values: dict[Own, Floats]
    means: dict[int, float]
    noise: float
    still: frozenset[str] = frozenset()
    atoms: Mapping[str, Atom] = field(default_factory=dict)
    lone: tuple[int, ...] = ()
    rest: Mapping[str, float] = field(default_factory=dict)
    moved: Mapping[tuple[Own, str], Mapping[int, float]] = field(default_factory=dict)

    def apart(self, design: Design) -> dict[int, Apart]:
        """The terms that few records may have: x_j for the records without it, and its step for those with it.

        Only terms whose column is in no other term are among them, since a step of one moves the others.
        """
        flags = lone_flags(design)
        if not design.has_intercept:
            return {j: Apart(0.0, 1.0) for j in flags}  # x_j = d
        found = {j: Apart(1.0, -2.0) if self.means.get(j, 0.0) > 0 else Apart(-1.0, 2.0) for j in flags}  # x_j = 2d − 1
        columns = [f.column for t in design.terms for f in t.factors]
        for name, rest in self.rest.items():
            share = self._levels(name, design)
            if not share.keys() <= set(flags):
                continue
            most = max(share, key=lambda j: share[j])
            if share[most] > rest:
                share[most], rest = rest, share[most]
            for j in share:
                others = max(rest + sum(share.values()) - share[j], 1e-12)
                found[j] = Apart(-1.0, 2.0, {i: s / others for i, s in share.items() if i != j})
        for j, term in enumerate(design.terms):
            name = term.factors[0].column if len(term.factors) == 1 else ""
            if name in self.atoms and columns.count(name) == 1:
                found[j] = Apart(*self.atoms[name])
        return found

    def based(self, design: Design) -> Floats:
        """T, its own inverse: in the rows xT, the most frequent level of a column is the one without a term.

        The level that has none in x has the term of that one.
        """
        turn = np.eye(len(design.terms))
        for name, rest in self.rest.items():
            share = self._levels(name, design)
            most = max(share, key=lambda j: share[j])
            if share[most] > rest:
                turn[[*share], most], turn[0, most] = -1.0, 1.0 - len(share)  # x = 2d − 1
        return turn

    def _levels(self, name: str, design: Design) -> dict[int, float]:
        """The shares of the levels of a column that have terms of their own."""
        return {j: (1 + mean) / 2 for j, mean in self.means.items() if design.terms[j].factors[0].column == name}

    def doubtful(self, design: Design) -> NDArray[np.bool_]:
        """Which terms have a factor that may be constant."""
        flags = [design.terms[j].factors[0] for j in self.lone]
        return np.array([any(f.column in self.still or f in flags for f in t.factors) for t in design.terms])


def locate_columns(asker: "Asker", numeric: tuple[Own, ...], shares: tuple[int, ...], design: Design) -> Columns:
    """Ask the stage "columns": histograms of each numeric column, which zoom in, and the mean of each 0/1 term."""
    found: dict[Own, Floats] = {}
    still: set[str] = set()
    first: dict[Own, Distribution] = {}
    atoms: dict[str, Atom | None] = {}
    a, b = prefixes(BINS)
    if numeric:
        pick = np.column_stack([own.weights for own in numeric])
        low, high = np.full(len(numeric), -1.0), np.full(len(numeric), 1.0)
        for _ in range(asker.question("columns", "column_histograms").times):
            edges = np.linspace(low, high, BINS + 1).T
            answer, sd = asker.ask("columns", "column_histograms", pick, edges, a)
            root = np.sqrt(len(numeric))
            for k, part in enumerate((answer * root).reshape(len(numeric), -1)):
                law, _, _ = distribution(edges[k], b @ part, sd * root * np.sqrt(np.sum(b**2, axis=1)))
                tail, width = float(np.clip(2 * law.sd, 0.1, 0.3)), edges[k, 1] - edges[k, 0]
                left, middle, right = law.quantile(np.array([tail, 0.5, 1 - tail]))
                if law.sd > UNSEEN:
                    found[numeric[k]] = np.mean(edges[k]) + (edges[k, -1] - edges[k, 0]) / 4 * SCORES
                    continue
                spread = max((right - left) / (-2 * float(ndtri(tail))), width / 2)
                ends = float(np.clip(CLEAR * law.sd, 0.01, 0.3))
                outer = law.quantile(np.array([ends, 1 - ends]))
                (still.add if outer[1] - outer[0] < width else still.discard)(numeric[k].column)
                found[numeric[k]] = _values(law, float(middle), float(spread))
                atoms[numeric[k].column] = _atom(law, first.setdefault(numeric[k], law))
                low[k] = max(-1.0, min(middle - 4 * spread, outer[0]) - width)
                high[k] = min(1.0, max(middle + 4 * spread, outer[1]) + width)
    means, noise, rest = _shares(asker, shares, design) if shares else ({}, {}, {})
    most = 1.0 if design.has_intercept else 0.0  # x_j = 2d − 1, or d
    lone = tuple(j for j, mean in means.items() if abs(most - abs(mean)) < RARE * noise[j])
    kept = {name: atom for name, atom in atoms.items() if atom}
    known = Columns(found, means, max(noise.values(), default=0.0), frozenset(still), kept, lone, rest)
    return replace(known, moved=_moved(asker, known, design)) if asker.asks("by level") else known


def _shares(
    asker: "Asker", shares: tuple[int, ...], design: Design
) -> tuple[dict[int, float], dict[int, float], dict[str, float]]:
    """The mean of each 0/1 term, its noise, and by column the share of records whose level has no term of its own.

    A record has one of the k levels of a column. So its k indicators, less 1/k, are a corner of a simplex in k − 1
    dimensions, and are asked as such: however many levels there are, the noise of a share is at most twice a flag's.
    """
    groups, order = _exclusive(design, shares), {j: at for at, j in enumerate(shares)}
    pick = np.zeros((len(design.terms), len(shares)))
    for terms in groups:
        at, k = [order[j] for j in terms], len(terms) + 1
        if k == 2:
            pick[terms, at] = 1.0
            continue
        pick[:, at] = _indicators(terms, len(pick)) @ _corners(k) * np.sqrt(k / (k - 1))
    answer, sd = asker.ask("columns", "column_means", pick * np.sqrt(len(shares) / len(groups)))
    answer, sd = answer * np.sqrt(len(groups)), float(sd * np.sqrt(len(groups)))
    means: dict[int, float] = {}
    noise: dict[int, float] = {}
    rest = {}
    for terms in groups:
        found, k = answer[[order[j] for j in terms]], len(terms) + 1
        if k > 2:
            parts = 1 / k + np.sqrt((k - 1) / k) * _corners(k) @ found
            rest[design.terms[terms[0]].factors[0].column] = float(np.clip(parts[0], 0, 1))
            found = 2 * parts[1:] - 1
        means |= dict(zip(terms, np.clip(found, -1, 1).tolist(), strict=True))
        noise |= dict.fromkeys(terms, 2 * sd * (k - 1) / k)
    return means, noise, rest


def _moved(asker: "Asker", at: Columns, design: Design) -> dict[tuple[Own, str], dict[int, float]]:
    """Ask the stage "by level": the mean of each numeric column at each of many levels, shrunk to that of all.

    A record has one level and adds to its means alone. Second moments would tell the same at several times the noise.
    """
    many, owns = many_levels(design), list(at.values)
    ends = np.array([np.quantile(values, WINDOW) for values in at.values.values()])
    middle, half = ends.mean(axis=1), np.maximum(np.ptp(ends, axis=1) / 2, 1e-9)
    indicators = np.concatenate([_indicators(terms, len(design.terms)) for terms in many], axis=1)
    pick, unit = np.column_stack([own.weights for own in owns]), np.sqrt(len(many))
    answer, sd = asker.ask("by level", "level_means", pick, middle, half, indicators / unit)
    scale = half * np.sqrt(len(owns)) * unit
    found, noise = answer.reshape(len(owns), -1) * scale[:, None], sd * scale
    moved, start = {}, 0
    for terms in many:
        factors = [design.terms[j].factors[0] for j in terms]
        codes = [-1, *(f.code for f in factors if isinstance(f, Dummy))]
        name = factors[0].column
        share = np.maximum([at.rest.get(name, 0.0), *((1 + at.means[j]) / 2 for j in terms)], at.noise)
        for own, sums, each in zip(owns, found[:, start : start + len(codes)], noise, strict=True):
            mean, error = sums / share, (each / share) ** 2
            away = mean - share @ mean / share.sum()
            between = max(float(share @ (away**2 - error) / share.sum()), 0.0)
            moved[own, name] = dict(zip(codes, (away * between / (between + error)).tolist(), strict=True))
        start += len(codes)
    return moved


def _indicators(terms: list[int], dim: int) -> Floats:
    """The matrix that makes indicators of a row of the design: of the level without a term, then of the others."""
    found = np.zeros((dim, len(terms) + 1))
    found[terms, range(1, len(terms) + 1)], found[0, 1:] = 0.5, 0.5  # x_j = 2d − 1
    found[terms, 0], found[0, 0] = -0.5, 1 - len(terms) / 2
    return found


def _exclusive(design: Design, shares: tuple[int, ...]) -> list[list[int]]:
    """The 0/1 terms, those of the levels of a column together; each alone without an intercept."""
    groups: dict[str | int, list[int]] = {}
    for j in shares:
        factor = design.terms[j].factors[0]
        together = isinstance(factor, Dummy) and design.has_intercept
        groups.setdefault(factor.column if together else j, []).append(j)
    return list(groups.values())


def _corners(k: int) -> Floats:
    """An orthonormal basis (k, k − 1) of the vectors whose k entries add up to 0."""
    return np.asarray(np.linalg.svd(np.eye(k) - 1 / k)[0][:, :-1])


def _atom(law: Distribution, first: Distribution) -> Atom | None:
    """The bin that holds at least half of the records, and a typical distance of the others by the `first` histogram.

    None if there is no such bin, or if noise may have made the others: nearly all records then lie in a smaller part of
    the range.
    """
    low, middle, high = law.quantile(HALF)
    others = 1 - first.share[np.searchsorted(first.edges, middle, side="right") - 1]
    beyond = np.maximum(first.sd * OTHERS, others * PARTS)
    near, far = (float(np.max(np.abs(first.quantile(np.array([s, 1 - s])) - middle))) for s in beyond)
    if high - low > law.edges[1] - law.edges[0] or near < 2 * (first.edges[1] - first.edges[0]):
        return None
    return Atom(float(middle), math.sqrt(near * far))


def lone_flags(design: Design) -> list[int]:
    """The 0/1 terms whose column is in no product."""
    products = {f.column for t in design.terms for f in t.factors if len(t.factors) > 1}
    return [j for j, t in enumerate(design.terms) if design.is_flag(j) and t.factors[0].column not in products]


def _values(law: Distribution, middle: float, spread: float) -> Floats:
    """`ROWS` quantiles of a column: normal in the middle, with generalised Pareto tails as far as they are seen."""
    shares, around = ndtr(SCORES), replace(law, edges=law.edges - middle)
    below, above = (tail_of(around, heaviest(law), LIGHTEST, side) for side in (-1, 1))
    ends = np.where(shares < 0.5, -below.lengths(shares), above.lengths(1 - shares))
    seen = np.where(shares < 0.5, shares > below.share, 1 - shares > above.share)
    return middle + np.where(seen, spread * SCORES, ends)


def reference_design(design: Design, at: Columns) -> Floats:
    """`ROWS` rows of the design, for independent columns with the located distributions."""
    rng = np.random.default_rng(0)
    columns: dict[str, Floats] = {}
    levels: dict[str, dict[int, float]] = {}
    least = min(max(LEAST_SHARE, at.noise / 2), 0.5)
    lines = {own: rng.permutation(values) for own, values in at.values.items()}
    for j, mean in at.means.items():
        factor = design.terms[j].factors[0]
        share = float(np.clip(design.shift[j] + design.scale[j] * mean, least, 1 - least))
        if isinstance(factor, Dummy):
            levels.setdefault(factor.column, {})[factor.code] = share
        else:
            columns[factor.column] = (rng.random(ROWS) < share).astype(np.float64)
    for name, found in levels.items():
        codes = np.array([-1, *found])  # −1 is the level that has no term of its own
        rest = max(at.rest.get(name, 1 - sum(found.values())), least)
        chances = np.array([rest, *found.values()])
        columns[name] = rng.choice(codes, ROWS, p=chances / chances.sum()).astype(np.float64)
    for (own, name), moved in at.moved.items():
        away = np.array([moved[int(code)] for code in columns[name]])
        left = max(1 - float(np.var(away) / max(np.var(at.values[own]), 1e-300)), LEFT)
        lines[own] = np.median(at.values[own]) * (1 - math.sqrt(left)) + math.sqrt(left) * lines[own] + away
    for own, line in lines.items():
        read = own.shift + own.scale * np.clip(line, -1, 1)
        columns[own.column] = np.exp(read) if own.log else read
    return design.matrix(columns).astype(np.float64)


def whitening(rows: Floats, last: NDArray[np.bool_] | None = None) -> Floats:
    """F with E uuᵀ = I over these rows, for u = xF; the axes of the `last` terms are their residuals on the others."""
    if last is None or not last.any() or last.all():
        return _symmetric(rows)
    first, frame = ~last, np.zeros((len(last), len(last)))
    others = _symmetric(rows[:, first])
    line = others @ (others.T @ (rows[:, first].T @ rows[:, last] / len(rows)))
    own = _symmetric(rows[:, last] - rows[:, first] @ line)
    frame[np.ix_(first, first)], frame[np.ix_(last, last)], frame[np.ix_(first, last)] = others, own, -line @ own
    return frame


def _symmetric(rows: Floats) -> Floats:
    """The whitening matrix that is symmetric for standardised terms, so that its axes stay near the terms."""
    moment = rows.T @ rows / len(rows)
    scale = np.sqrt(np.maximum(np.diag(moment), 1e-12))
    values, vectors = np.linalg.eigh(moment / np.outer(scale, scale))
    return np.asarray((vectors / np.sqrt(np.maximum(values, LEAST_CORRELATION))) @ vectors.T / scale[:, None])
