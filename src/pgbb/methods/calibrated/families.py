"""Chooses the fit for a kind of model, and writes the notes of its certificate."""

from importlib import import_module

import numpy as np
from numpy.typing import NDArray

from pgbb._numerics.threads import one_blas_thread
from pgbb.methods.calibrated.asking import Asker
from pgbb.methods.calibrated.custom import fit_custom
from pgbb.methods.calibrated.frame import Cut
from pgbb.methods.calibrated.huber import fit_huber
from pgbb.methods.calibrated.logistic import fit_logistic
from pgbb.methods.calibrated.mean import fit_mean
from pgbb.methods.calibrated.quantile import fit_quantile
from pgbb.model.models import Problem
from pgbb.release.local_gaussian import LocalGaussian

WEIGHTED = (
    "Records whose covariates are far out are weighted down: where the linear model is wrong, this moves its target."
)
SMOOTHED = (
    "Curvature comes from differences of gradients over a public distance: a loss with kinks is smoothed over it."
)

NOTED = {"linear": "linear", "means": "groups", "poisson": "poisson", "expectile": "expectile", "iv": "instruments"}
"""Kinds of model whose fit returns its own notes, and the modules of those fits. They weight no record down."""


@one_blas_thread()
def fit(asker: Asker, problem: Problem, levels: NDArray[np.float64] | None) -> tuple[LocalGaussian, list[str]]:
    """Ask all stages of a model. Returns the posterior, and notes for the certificate."""
    design = problem.design
    if problem.kind == "mean":
        return fit_mean(asker, problem)
    if design is None:
        return fit_custom(asker, problem), [SMOOTHED]
    if problem.kind in NOTED:
        module = import_module(f"pgbb.methods.calibrated.{NOTED[problem.kind]}")
        fitted: tuple[LocalGaussian, list[str]] = getattr(module, f"fit_{NOTED[problem.kind]}")(asker, problem, design)
        return fitted
    if problem.kind == "quantile":
        assert levels is not None
        posterior, cut = fit_quantile(asker, problem, design, levels)
    else:
        posterior, cut = (fit_huber if problem.kind == "huber" else fit_logistic)(asker, problem, design)
    return posterior, [f"{WEIGHTED} {_weighted_down(cut)}"]


def _weighted_down(cut: Cut) -> str:
    """A sentence on how many records are weighted down: an estimate, or an upper bound where noise hides it."""
    if cut.clear:
        return f"Here {cut.share:.1%} of the records are clearly weighted down (± {2 * cut.sd:.1%})."
    return f"Here at most {min(max(cut.share, 0.0) + 2 * cut.sd, 1.0):.1%} of the records are clearly weighted down."
