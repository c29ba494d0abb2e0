"""Where the columns of a design lie, and the coordinates that would whiten it were they independent.

Squares, powers and interactions of a column are nearly collinear with it, and a declared range may be far too wide;
both follow from the median and the spread of each column alone. A reference design with such columns is made up from
the answers, with a fixed seed, and the formula is evaluated on it: no record is seen. Public arithmetic.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from pgbb.methods.calibrated.algebra import prefixes
from pgbb.methods.calibrated.own import Own
from pgbb.methods.calibrated.questions import BINS
from pgbb.methods.calibrated.response import UNSEEN, distribution
from pgbb.model.formula import Design, Dummy

if TYPE_CHECKING:
    from pgbb.methods.calibrated.asking import Asker

Floats = NDArray[np.float64]

__all__ = ["locate_columns", "reference_frame"]

ROWS = 4_000  # of the reference design
LEAST_SHARE = 0.01  # of a flag or level in it, or half of the noise of that
LEAST_CORRELATION = 1e-11  # eigenvalue of its correlations: what single precision leaves


def locate_columns(
    asker: "Asker", numeric: tuple[Own, ...], shares: tuple[int, ...], terms: int
) -> tuple[dict[Own, tuple[float, float]], dict[int, float], float]:
    """Median and spread of each numeric column, mean of each 0/1 term (all mapped), and the noise of the means."""
    found: dict[Own, tuple[float, float]] = {}
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
                    found[numeric[k]] = float(np.mean(edges[k])), (edges[k, -1] - edges[k, 0]) / 4
                    continue
                spread = max((right - left) / (-2 * float(ndtri(tail))), width / 2)
                found[numeric[k]] = float(middle), spread
                low[k], high[k] = max(-1.0, middle - 4 * spread - width), min(1.0, middle + 4 * spread + width)
    means, noise = {}, 0.0
    if shares:
        answer, sd = asker.ask("columns", "column_means", np.eye(terms)[:, list(shares)])
        root = np.sqrt(len(shares))
        means, noise = dict(zip(shares, np.clip(answer * root, -1, 1).tolist(), strict=True)), float(sd * root)
    return found, means, noise


def reference_frame(
    design: Design, numeric: dict[Own, tuple[float, float]], means: dict[int, float], noise: float
) -> Floats:
    """F with E uuᵀ = I for u = xF, were the columns independent: normal, or 0/1, with these medians and means."""
    rng = np.random.default_rng(0)
    columns: dict[str, Floats] = {}
    levels: dict[str, dict[int, float]] = {}
    least = min(max(LEAST_SHARE, noise / 2), 0.5)
    for own, (middle, spread) in numeric.items():
        values = own.shift + own.scale * np.clip(middle + spread * rng.standard_normal(ROWS), -1, 1)
        columns[own.column] = np.exp(values) if own.log else values
    for j, mean in means.items():
        factor = design.terms[j].factors[0]
        share = float(np.clip(design.shift[j] + design.scale[j] * mean, least, 1 - least))
        if isinstance(factor, Dummy):
            levels.setdefault(factor.column, {})[factor.code] = share
        else:
            columns[factor.column] = (rng.random(ROWS) < share).astype(np.float64)
    for name, found in levels.items():
        codes = np.array([-1, *found])  # the level that has no term of its own
        chances = np.array([max(1 - sum(found.values()), 0.02), *found.values()])
        columns[name] = rng.choice(codes, ROWS, p=chances / chances.sum()).astype(np.float64)
    if not columns:
        return np.eye(len(design.terms))
    rows = design.matrix(columns).astype(np.float64)
    moment = rows.T @ rows / ROWS
    scale = np.sqrt(np.maximum(np.diag(moment), 1e-12))
    values, vectors = np.linalg.eigh(moment / np.outer(scale, scale))
    return (vectors / np.sqrt(np.maximum(values, LEAST_CORRELATION))) @ vectors.T / scale[:, None]
