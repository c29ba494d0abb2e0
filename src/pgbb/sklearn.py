"""scikit-learn estimators whose coefficients are a private posterior. Needs the extra `sklearn`.

An estimator that looks at X to find a range, or at y to find classes, has published something about a record. So both
are parameters here, and `fit` refuses nothing for the sake of a value: cells outside a range are clamped, and a record
with an unusable cell stays in n and contributes nothing.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias, cast

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.exceptions import DataConversionWarning
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError:
    raise ImportError("pgbb.sklearn needs scikit-learn 1.6 or later: pip install 'pgbb[sklearn]'.") from None

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from scipy.special import expit, logit

from pgbb import _validate
from pgbb._numerics import Floats
from pgbb.custody.run import fit
from pgbb.errors import InvalidValue
from pgbb.model import models
from pgbb.model.schema import Column, Flag, Range, Schema
from pgbb.private.door import columns_of, single, table

if TYPE_CHECKING:
    import pandas as pd
    from sklearn.utils import Tags

    from pgbb.custody.ledger import Ledger

__all__ = [
    "PrivateHuberRegressor",
    "PrivateLinearRegression",
    "PrivateLogisticClassifier",
    "PrivatePoissonRegressor",
    "PrivateQuantileRegressor",
]


def __dir__() -> list[str]:
    return __all__


Rows: TypeAlias = "ArrayLike | pd.DataFrame"

RESPONSE, WEIGHT = "y", "sample_weight"  # what they are called in the release
DRAWS = 4000
"""Draws behind means and intervals; their seed is fixed, so that a prediction is the same when asked again."""
ROWS = 1000
"""Rows predicted at once, which bounds the memory."""


@dataclass(kw_only=True, eq=False, repr=False)
class _PrivateLinearModel(BaseEstimator):
    """What the estimators share: their arguments, bounds to schema, arrays to frame, draws to predictions."""

    epsilon: float | None = None
    delta: float | None = None
    feature_range: Sequence[Any] | Mapping[str, Any] | None = None
    fit_intercept: bool = True
    weight_range: tuple[float, float] | None = None
    method: str = "calibrated"
    settings: Mapping[str, Any] | None = None
    accountant: str = "exact"
    group_size: int = 1
    ledger: "str | Path | Ledger | None" = None
    dataset: str | None = None
    insecure_seed: int | None = None

    def fit(self, X: Rows, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the private posterior; every call spends (ε, δ) anew.

        Args:
          X: (n, p) records. Cells outside `feature_range` are clamped.
          y: (n,) responses.
          sample_weight: (n,) survey weights, which need `weight_range`; or None.
        """
        if y is None:
            raise InvalidValue(
                f"{type(self).__name__} requires y to be passed, but the target y is None: give the responses."
            )
        for name in ("epsilon", "delta"):
            if getattr(self, name) is None:
                raise InvalidValue(f"{name} = None is not allowed: a budget has no default. Choose one: {name}=….")
        assert self.epsilon is not None and self.delta is not None
        # scikit-learn is shown the shape and the names: a check that reads cells would reveal what it refuses.
        features = None if issparse(X) else table(X, self._features())
        validate_data(self, X if features is None else features.stub(), dtype=None, ensure_all_finite=False)
        assert features is not None  # what is sparse was refused by its type
        n, wide, y = single("y", y)
        if wide:
            text = "A column-vector y was passed when a 1d array was expected. Change its shape to (n_samples, )."
            warnings.warn(text, DataConversionWarning, stacklevel=2)
        if n != features.n:
            raise InvalidValue(
                f"Found input variables with inconsistent numbers of samples: [{features.n}, {n}]. X and y must have "
                "one row a record each."
            )
        weight = None
        if sample_weight is not None:
            if self.weight_range is None:
                raise InvalidValue("sample_weight needs public bounds: construct with weight_range=(0, largest).")
            size, wide, weight = single("sample_weight", sample_weight)
            if wide or size != n:
                raise InvalidValue(
                    f"sample_weight has {size} cells, but X has {n} records: it must be of shape ({n},)."
                )
        names = self._names()
        columns = dict(zip(names, self._declared(), strict=True)) | {RESPONSE: self._response()}
        if weight is not None:
            columns[WEIGHT] = Range(*_pair("weight_range", self.weight_range))
        quoted = [name if name.isidentifier() else f"`{name}`" for name in names]
        terms = " + ".join(quoted) + ("" if self.fit_intercept else " - 1")
        data = columns_of(
            features, names, y=y, response=RESPONSE, classes=self._classes(), weight=weight, weight_name=WEIGHT
        )
        how: dict[str, Any] = {"method": self.method, "accountant": self.accountant, **(self.settings or {})}
        self.release_ = fit(
            self._model(f"{RESPONSE} ~ {terms}"), data, schema=Schema(**columns), epsilon=self.epsilon,
            delta=self.delta, weights=None if weight is None else WEIGHT, group_size=self.group_size,
            insecure_seed=self.insecure_seed, ledger=self.ledger, dataset=self.dataset, **how,
        )  # fmt: skip
        return self._fitted()

    def sample_coef(self, draws: int = 2000, seed: int | None = None) -> "pd.DataFrame":
        """Draws of intercept and coefficients in original units, one a row; they cost no privacy."""
        check_is_fitted(self)
        return self.release_.sample(draws, seed=seed)

    def predict_interval(self, X: Rows, level: float = 0.95) -> Floats:
        """Equal-tailed posterior intervals of the fit at each row of X: not of a new response.

        Returns:
          (n, 2): lower and upper end; with a list of quantiles (n, quantiles, 2).
        """
        level = _validate.level(level)
        ends = [(1 - level) / 2, (1 + level) / 2]
        found = self._over_draws(X, lambda values: np.moveaxis(np.quantile(values, ends, axis=-1), 0, -1))
        return found if self._joint() else found[:, 0]

    def __sklearn_tags__(self) -> "Tags":
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.insecure_seed is None
        return tags

    def _model(self, formula: str) -> models.Model:
        raise NotImplementedError

    def _response(self) -> Column:
        raise NotImplementedError

    def _classes(self) -> Sequence[object] | None:
        return None

    def _joint(self) -> bool:
        """Whether predictions have an axis for levels."""
        return False

    def _fitted(self) -> Self:
        """Posterior means as coef_ and intercept_; `summary` warns of what is not identified."""
        values = self.release_.summary(draws=DRAWS)["mean"].to_numpy().reshape(-1, len(self.release_.model.names))
        shift = int(self.fit_intercept)
        coef, intercept = values[:, shift : shift + self.n_features_in_], values[:, 0] * shift
        self.coef_: Floats = coef if self._joint() else coef[0]
        self.intercept_: Floats | float = intercept if self._joint() else float(intercept[0])
        return self

    def _draws(self) -> Floats:
        """(levels, draws, parameters), the same at every call."""
        frame = self.release_.sample(DRAWS, seed=0)
        levels = frame.shape[1] // len(self.release_.model.names)
        return np.moveaxis(frame.to_numpy().reshape(DRAWS, levels, -1), 0, 1)

    def _inputs(self, X: Rows) -> Floats:
        """The rows to predict at: of the caller's choosing, hence validated like any other estimator's."""
        check_is_fitted(self)
        return np.asarray(validate_data(self, X, reset=False, dtype=np.float64))

    def _over_draws(self, X: Rows, reduce: Callable[[Floats], Floats]) -> Floats:
        """`reduce` over the last axis of (rows, levels, draws), some rows at a time."""
        rows = self._inputs(X)
        theta = self._draws()
        shift = int(self.fit_intercept)
        slopes, level = theta[..., shift : shift + rows.shape[1]], theta[..., 0] * shift
        parts = [
            reduce(self._mean(np.einsum("rp,lmp->rlm", rows[i : i + ROWS], slopes) + level))
            for i in range(0, len(rows), ROWS)
        ]
        return np.concatenate(parts)

    def _mean(self, linear: Floats) -> Floats:
        """What the linear predictor predicts."""
        return linear

    def _names(self) -> list[str]:
        """Names of the features in the release: those of X where it has some, and all different."""
        plain = [f"x{i}" for i in range(self.n_features_in_)]
        given = list(getattr(self, "feature_names_in_", plain))
        reserved = {"Intercept", "scale", RESPONSE, WEIGHT}
        usable = all(name and name == name.strip() and "`" not in name and name not in reserved for name in given)
        return given if usable and len(set(given)) == len(plain) else plain

    def _features(self) -> int | None:
        """How many features are declared; None where one pair stands for all."""
        given = self.feature_range
        return None if given is None or (not isinstance(given, Mapping) and _for_all(given)) else len(given)

    def _declared(self) -> list[Column]:
        """The declaration of each feature, in the order of X."""
        given, p = self.feature_range, self.n_features_in_
        if given is None:
            raise InvalidValue(
                "feature_range = None is not allowed: bounds are public knowledge, and never learnt from X. Pass "
                "(low, high) for all features, a list with a pair for each, or a dict by feature name."
            )
        if isinstance(given, Mapping):
            names = list(getattr(self, "feature_names_in_", []))
            if sorted(map(str, given)) != sorted(names):
                raise InvalidValue(
                    f"feature_range declares {', '.join(map(str, given)) or 'nothing'}, but X has "
                    f"{', '.join(names) or 'no names for its features'}: declare every feature, and no other."
                )
            return [_column(f"feature_range[{name!r}]", given[name]) for name in names]
        if _for_all(given):
            return [_column("feature_range", given)] * p
        if len(given) != p:
            raise InvalidValue(f"feature_range has {len(given)} entries, but X has {p} features: give one for each.")
        return [_column(f"feature_range[{i}]", pair) for i, pair in enumerate(given)]


def _for_all(given: Sequence[Any]) -> bool:
    """Whether it is one (low, high) for every feature."""
    return len(given) == 2 and all(np.ndim(end) == 0 and not isinstance(end, Range | Flag) for end in given)


def _column(name: str, value: object) -> Column:
    if isinstance(value, Range | Flag):
        return value
    return Range(*_pair(name, value))


def _pair(name: str, value: Any) -> tuple[Any, Any]:
    try:
        low, high = value
    except (TypeError, ValueError):
        raise _validate.fail(name, value, "a pair (low, high)", "Declare it from public knowledge.") from None
    return low, high


@dataclass(kw_only=True, eq=False, repr=False)
class _PrivateRegressor(RegressorMixin, _PrivateLinearModel):
    """What regressions share: a response with public bounds."""

    response_range: tuple[float, float] | None = None

    def _response(self) -> Column:
        return Range(*_pair("response_range", self.response_range))

    def predict(self, X: Rows) -> Floats:
        """Posterior mean of the fit at each row of X: (n,), or (n, quantiles) with a list, levels ascending."""
        return self._inputs(X) @ self.coef_.T + self.intercept_


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateQuantileRegressor(_PrivateRegressor):
    """Private quantile regression: `pgbb.QuantileRegression` as a scikit-learn estimator.

    Args:
      epsilon, delta: the budget of one `fit`, for replacing one record.
      feature_range: public bounds of the features: (low, high) for all; a list with a pair, `pgbb.Range` or `pgbb.Flag`
        for each; or a dict of these by feature name.
      response_range: public (low, high) of y.
      quantile: a level in (0, 1), or a list of levels, which share one budget.
      bandwidth: smoothing of the check loss, in units of y; method "calibrated" has no use for it.
      fit_intercept: whether there is one.
      weight_range: public (low, high) of sample_weight, low ≥ 0; needed where weights are given.
      method, settings, accountant, group_size, ledger, dataset: as for `pgbb.fit`; settings is a dict.
      insecure_seed: makes a fit reproducible and therefore NOT private.

    Attributes:
      release_: the `pgbb.Release`: save it, share it, verify it.
      coef_, intercept_: posterior means, in original units; with a list of quantiles, a row for each.
      n_features_in_, feature_names_in_: as usual.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, (20_000, 1))
    >>> y = 3 + 2 * X[:, 0] + rng.normal(0, 1, 20_000)
    >>> model = PrivateQuantileRegressor(epsilon=1.0, delta=1e-6, feature_range=(0, 10), response_range=(0, 30))
    >>> bool(abs(model.fit(X, y).predict([[5.0]])[0] - 13) < 1), model.predict_interval([[5.0]]).shape
    (True, (1, 2))
    """

    quantile: float | Sequence[float] = 0.5
    bandwidth: float | None = None

    def _model(self, formula: str) -> models.Model:
        taus: Any = self.quantile if self._joint() else [self.quantile]
        return models.QuantileRegression(formula, taus=list(taus), bandwidth=self.bandwidth)

    def _joint(self) -> bool:
        return np.ndim(self.quantile) > 0

    def score(self, X: Rows, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """R² of one level; of several, the mean over levels of D², the share of the check loss that is explained.

        NOT private: computed from the records given to it, without noise.
        """
        if not self._joint():
            return float(super().score(X, y, sample_weight))
        from sklearn.metrics import d2_pinball_score

        fitted = self.predict(X)
        each = (
            d2_pinball_score(y, fitted[:, j], alpha=tau, sample_weight=sample_weight)
            for j, tau in enumerate(sorted(cast(Sequence[float], self.quantile)))
        )
        return float(np.mean(list(each)))


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateLinearRegression(_PrivateRegressor):
    """Private least squares: `pgbb.LinearRegression` as a scikit-learn estimator.

    Arguments and attributes are those of `PrivateQuantileRegressor`, without its levels.
    """

    def _model(self, formula: str) -> models.Model:
        return models.LinearRegression(formula)


@dataclass(kw_only=True, eq=False, repr=False)
class PrivatePoissonRegressor(_PrivateRegressor):
    """Private Poisson regression: `pgbb.PoissonRegression` as a scikit-learn estimator; `predict` gives means.

    Arguments and attributes are those of `PrivateQuantileRegressor`, without its levels; `response_range` begins at 0
    or above, and coefficients are those of the logarithm of the mean.
    """

    def _model(self, formula: str) -> models.Model:
        return models.PoissonRegression(formula)

    def _mean(self, linear: Floats) -> Floats:
        return np.asarray(np.exp(np.minimum(linear, 300.0)))

    def predict(self, X: Rows) -> Floats:
        """The mean at each row of X by the posterior means of the coefficients, (n,)."""
        return self._mean(super().predict(X))

    def __sklearn_tags__(self) -> "Tags":
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # the checks' responses are no counts
        return tags


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateHuberRegressor(_PrivateRegressor):
    """Private Huber regression with its scale: `pgbb.HuberRegression` as a scikit-learn estimator.

    Arguments and attributes are those of `PrivateQuantileRegressor`, without its levels, and:

    Args:
      c: Huber's constant.

    Attributes:
      scale_: posterior mean of the scale, in original units.
    """

    c: float = 1.345

    def _model(self, formula: str) -> models.Model:
        return models.HuberRegression(formula, c=self.c)

    def _fitted(self) -> Self:
        self.scale_ = float(self._draws()[0, :, -1].mean())
        return super()._fitted()


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateLogisticClassifier(ClassifierMixin, _PrivateLinearModel):
    """Private logistic regression of two declared classes: `pgbb.LogisticRegression` as a scikit-learn estimator.

    Other arguments and attributes are those of `PrivateQuantileRegressor`.

    Args:
      classes: the two labels that y may have. A record with any other label stays in n and contributes nothing.
      bound: largest absolute coefficient of a feature mapped to [−1, 1]; default as in `LogisticRegression`.

    Attributes:
      classes_: the declared labels, sorted.
      coef_, intercept_: posterior means of the log odds of classes_[1], (1, p) and (1,), in original units.
    """

    classes: Sequence[object] | None = None
    bound: float | None = None

    def _model(self, formula: str) -> models.Model:
        return models.LogisticRegression(formula, bound=self.bound)

    def _response(self) -> Column:
        return Flag()

    def _classes(self) -> Sequence[object]:
        given = [] if self.classes is None else list(self.classes)
        alike = all(isinstance(c, str) for c in given) or not any(isinstance(c, str) for c in given)
        found = np.unique(np.array(given)) if alike else np.array([])
        if len(given) != 2 or len(found) != 2:
            raise _validate.fail(
                "classes", self.classes, "two different labels of one type, such as (0, 1) or ('no', 'yes')",
                "They are declared, because learning them from y would reveal which labels occur.",
            )  # fmt: skip
        return list(found.tolist())

    def _fitted(self) -> Self:
        self.classes_ = np.array(self._classes())
        super()._fitted()
        self.coef_, self.intercept_ = self.coef_[np.newaxis], np.array([self.intercept_])
        return self

    def _mean(self, linear: Floats) -> Floats:
        return np.asarray(expit(linear))

    def predict_proba(self, X: Rows) -> Floats:
        """Posterior mean of the probability of each class, (n, 2)."""
        ones = self._over_draws(X, lambda values: values.mean(axis=-1))[:, 0]
        return np.column_stack([1 - ones, ones])

    def decision_function(self, X: Rows) -> Floats:
        """Log odds of the posterior mean probability of classes_[1], (n,)."""
        edge = np.finfo(np.float64).eps
        return np.asarray(logit(self.predict_proba(X)[:, 1].clip(edge, 1 - edge)))

    def predict(self, X: Rows) -> np.ndarray:
        """The more probable class at each row of X, (n,)."""
        likely = self.predict_proba(X)[:, 1] > 0.5
        return np.asarray(self.classes_[likely.astype(int)])

    def __sklearn_tags__(self) -> "Tags":
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags
