import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import pgbb
from pgbb import Flag, HuberRegression, Levels, LinearRegression, PgbbWarning, QuantileRegression, Range, Schema
from pgbb.methods.calibrated import columns, frame, statistics
from pgbb.methods.calibrated.algebra import prefixes
from pgbb.methods.calibrated.column_terms import own_terms
from pgbb.methods.calibrated.columns import SCORES, Columns, _values, reference_design, whitening
from pgbb.methods.calibrated.response import Distribution
from pgbb.methods.calibrated.stages import BINS

SCHEMA = Schema(x=Range(0, 1000), f=Flag(), g=Levels("a", "b", "c"), y=Range(-20, 20))
MODEL = QuantileRegression("y ~ x + I(x ** 2) + f + g", taus=[0.5])
DESIGN = MODEL.prepare(SCHEMA).design


def data(n, seed=0):
    """x lies between 40 and 60 of a declared 0 to 1,000, and its square is almost a line there."""
    rng = np.random.default_rng(seed)
    found = pd.DataFrame({"x": rng.uniform(40, 60, n), "f": rng.random(n) < 0.2, "g": rng.choice(list("abc"), n)})
    found["y"] = 1 + 0.2 * (found["x"] - 50) - 0.02 * (found["x"] - 50) ** 2 + found["f"] + rng.standard_normal(n)
    return found


def test_terms_of_one_column_are_told_from_others():
    (own,), shares = own_terms(DESIGN)
    assert (own.column, np.flatnonzero(own.weights).tolist(), shares) == ("x", [1], (3, 4, 5))
    assert own_terms(QuantileRegression("y ~ I(x ** 2) + f").prepare(SCHEMA).design) is None


@pytest.mark.parametrize("term", ["x", "log(x)", "bs(x, knots=[2, 5])", "poly(x, 3, centre=-40)", "bs(x, [3], 1)"])
def test_a_column_is_read_off_its_curves(term):
    x = np.linspace(0.5, 9, 50)  # logarithms of both signs
    design = QuantileRegression(f"y ~ {term}").prepare(Schema(x=Range(0.5, 9), y=Range(0, 1))).design
    (own,), _ = own_terms(design)
    found = own.shift + own.scale * (design.matrix({"x": x}) @ own.weights)
    np.testing.assert_allclose(np.exp(found) if own.log else found, x, rtol=1e-4)
    frame = whitening(reference_design(design, Columns({own: 0.3 * SCORES}, {}, 0.0)))
    assert np.isfinite(frame).all(), "logarithms are taken of the column, and not of its logarithm"


def test_without_an_intercept_a_spline_that_drops_its_first_has_no_line():
    schema = Schema(x=Range(0.5, 9), y=Range(0, 1))
    assert own_terms(QuantileRegression("y ~ 0 + bs(x, knots=[2, 5])").prepare(schema).design) is None


def test_a_reference_design_whitens_squares_and_lazy_ranges():
    rows = data(20_000)
    x = DESIGN.matrix(
        {
            "x": rows["x"].to_numpy(),
            "f": rows["f"].to_numpy(float),
            "g": rows["g"].map({"a": 0, "b": 1, "c": 2}).to_numpy(),
        }
    ).astype(float)
    moment = x.T @ x / len(x)
    scale = float(DESIGN.scale[1])
    own, means = own_terms(DESIGN)[0][0], {3: -0.6, 4: -1 / 3, 5: -1 / 3}
    found = whitening(reference_design(DESIGN, Columns({own: (50 - 500 + 6 * SCORES) / scale}, means, 0.0)))
    assert np.linalg.cond(found.T @ moment @ found) < 10
    assert np.linalg.cond(moment) > 1e6  # in the declared box
    wrong = whitening(reference_design(DESIGN, Columns({own: 0.3 * SCORES}, means, 0.0)))
    assert np.linalg.cond(wrong.T @ moment @ wrong) > 1e3


@pytest.mark.parametrize("law, far", [("lognormal", 12.0), ("normal", 3.5), ("uniform", 1.8)])
def test_values_of_a_column_have_the_tails_that_are_seen(law, far):
    draw = getattr(np.random.default_rng(1), law)
    known = {"lognormal": (0.0, 0.75), "normal": (0.0, 1.0), "uniform": (-(3**0.5), 3**0.5)}[law]
    numbers = draw(*known, 200_000)
    edges = np.linspace(numbers.min(), np.quantile(numbers, 0.99), BINS + 1)
    share = np.histogram(np.clip(numbers, edges[0], edges[-1]), edges)[0] / len(numbers)
    middle = float(np.median(numbers))
    spread = float(np.diff(np.quantile(numbers, [0.1, 0.9]))[0]) / 2.563
    found = _values(Distribution(edges, share, 0.01), middle, spread)
    assert found.max() == pytest.approx(far, rel=0.3)  # the quantile of 1 − 1/8,000: 13.7, 3.7 and 1.73


def test_statistics_of_columns_have_norm_at_most_one():
    rng, (a, _) = np.random.default_rng(0), prefixes(BINS)
    pick = np.eye(6)[:, [1, 3, 4]]
    edges = np.sort(rng.uniform(-1, 1, (3, BINS + 1)), axis=1)
    for _ in range(200):
        x = rng.choice([-1.0, 1.0], 6) * rng.choice([1.0, rng.random()], 6)
        assert np.linalg.norm(statistics.column_histograms(x, 0.0, pick, edges, a)) <= 1 + 1e-6
        assert np.linalg.norm(statistics.column_means(x, 0.0, pick)) <= 1 + 1e-6
    assert np.linalg.norm(statistics.column_means(np.ones(6), 0.0, pick)) == pytest.approx(1, abs=1e-6)  # attained


class Noisy:
    """Answers the mean of a statistic over these rows, with noise; remembers the longest statistic of a record."""

    def __init__(self, rows, sd):
        self.rows, self.sd, self.rng, self.longest = rows, sd, np.random.default_rng(5), 0.0

    def asks(self, _):
        return False

    def ask(self, stage, statistic, pick):
        each = np.array(statistics.column_means(self.rows, 0.0, pick))
        self.longest = max(self.longest, float(np.linalg.norm(each, axis=1).max()))
        return each.mean(axis=0) + self.sd * self.rng.standard_normal(pick.shape[1]), self.sd


def test_shares_of_many_levels_have_the_noise_of_a_few(monkeypatch):
    schema = Schema(y=Range(0, 1), f=Flag(), g=Levels(*range(40)), h=Levels("a", "b", "c"))
    design = HuberRegression("y ~ f + g + h").prepare(schema).design
    rng, n = np.random.default_rng(0), 4_000
    codes = {"f": rng.integers(2, size=n), "g": rng.integers(40, size=n), "h": rng.integers(3, size=n)}
    rows = design.matrix({name: v.astype(float) for name, v in codes.items()}).astype(float)
    _, shares = own_terms(design)

    def far():
        asker = Noisy(rows, 1e-3)
        found = columns.locate_columns(asker, (), shares, design)
        away = np.array([found.means[j] - rows[:, j].mean() for j in shares])
        assert found.rest.keys() <= {"g", "h"}
        for name, share in found.rest.items():
            assert share == pytest.approx(np.mean(codes[name] == 0), abs=5 * found.noise)
        assert np.sqrt(np.mean(away**2)) == pytest.approx(found.noise, rel=0.4)
        return found.noise, asker.longest

    noise, longest = far()
    assert longest == pytest.approx(1, abs=1e-6) and noise < 2 * 1e-3 * np.sqrt(3)
    monkeypatch.setattr(columns, "_exclusive", lambda _, shares: [[j] for j in shares])
    assert far() == (pytest.approx(1e-3 * np.sqrt(42)), pytest.approx(1, abs=1e-6))


def levels_and_line(levels, shares, n, seed):
    """y = effect of the level + x/2 + noise, with x that differs between levels; and the effects."""
    rng = np.random.default_rng(seed)
    effects, at = rng.normal(size=levels), rng.choice(levels, size=n, p=shares)
    x = (0.7 * effects[at] + rng.normal(size=n)).clip(-5, 5)
    y = (effects[at] + 0.5 * x + rng.normal(size=n)).clip(-12, 12)
    return pd.DataFrame({"x": x, "at": at, "y": y}), effects


@pytest.mark.filterwarnings("ignore::pgbb.errors.PgbbWarning")
def test_a_rare_first_level_is_found(monkeypatch):
    rows, effects = levels_and_line(6, [0.01] + 5 * [0.198], 6_000, 4)
    schema = Schema(y=Range(-12, 12), x=Range(-5, 5), at=Levels(*range(6)))

    def found():
        model = LinearRegression("y ~ x + at")
        first = pgbb.fit(model, rows, schema=schema, epsilon=4.0, delta=1e-6, insecure_seed=4).summary(seed=0).iloc[0]
        return first["identified"] and abs(first["mean"] - effects[0]) < 4 * first["sd"] < 1.2

    assert found()
    monkeypatch.setattr(columns, "_exclusive", lambda _, shares: [[j] for j in shares])
    assert not found()


def test_a_covariate_that_differs_between_levels_is_white_from_the_start(monkeypatch):
    levels, n, kept, least = 40, 12_000, frame.reference_design, []
    rows, _ = levels_and_line(levels, None, n, 3)
    schema, model = Schema(y=Range(-12, 12), x=Range(-5, 5), at=Levels(*range(levels))), LinearRegression("y ~ x + at")
    x = model.prepare(schema).design.matrix({name: rows[name].to_numpy(float) for name in ("x", "at")}).astype(float)

    def seen(*given):
        made = kept(*given)
        start = x @ whitening(made)
        least.append(np.linalg.eigvalsh(start.T @ start / n)[0])
        return made

    monkeypatch.setattr(frame, "reference_design", seen)
    for _ in range(2):
        pgbb.fit(model, rows, schema=schema, epsilon=4.0, delta=1e-6, insecure_seed=3)
        monkeypatch.setattr(columns, "_moved", lambda *_: {})
    assert least[0] > 0.65 and least[1] < 0.5


def test_a_level_without_a_term_is_taken_for_one_and_back():
    design = HuberRegression("y ~ x + g").prepare(SCHEMA).design  # g is a, b or c
    at = Columns({}, {2: -0.9, 3: 0.4}, 0.0, rest={"g": 0.25})
    turn = at.based(design)
    assert turn @ turn == pytest.approx(np.eye(4))
    a, c = np.array([1, 0.3, -1, -1]), np.array([1, 0.3, -1, 1])  # c, the most frequent, is the one without a term
    assert (a @ turn).tolist() == [1, 0.3, -1, 1] and (c @ turn).tolist() == [1, 0.3, -1, -1]
    assert at.apart(design)[3].others == pytest.approx({2: 0.05 / 0.75}) and 1 not in at.apart(design)
    common = Columns({}, {2: -0.9, 3: 0.4}, 0.0, rest={"g": 0.8})
    assert common.based(design) == pytest.approx(np.eye(4))


def test_a_square_over_a_lazy_range_is_identified_and_right(monkeypatch):
    def table():
        release = pgbb.fit(MODEL, data(20_000), schema=SCHEMA, epsilon=2.0, delta=1e-6, insecure_seed=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PgbbWarning)
            return release.summary(tau=0.5, seed=0)

    found = table().loc[["x", "I(x ** 2)"]]
    assert found["identified"].all()
    assert (np.abs(found["mean"] - [2.2, -0.02]) < 4 * found["sd"]).all() and found["sd"].iloc[1] < 0.002
    monkeypatch.setattr(frame, "whitening", lambda rows, _: np.eye(rows.shape[1]))
    assert not table().loc[["x", "I(x ** 2)"], "identified"].all()


@pytest.mark.filterwarnings("ignore::pgbb.errors.PgbbWarning")
def test_a_count_that_few_records_have_costs_other_coefficients_nothing(monkeypatch):
    rng, n = np.random.default_rng(3), 20_000
    rows = pd.DataFrame({"a": rng.normal(0, 1, n), "k": np.where(rng.random(n) < 0.02, rng.integers(1, 4, n), 0)})
    rows["y"] = 1 + 0.5 * rows["a"] + 0.8 * rows["k"] + rng.standard_normal(n)
    schema = Schema(a=Range(-5, 5), k=Range(0, 10), y=Range(-20, 20))

    def table():
        model = HuberRegression("y ~ a + k")
        return pgbb.fit(model, rows, schema=schema, epsilon=4.0, delta=1e-6, insecure_seed=2).summary(seed=0)

    found = table()
    assert found["identified"].all() and found.loc["a", "sd"] < 0.02 and found.loc["k", "sd"] < 0.1
    assert (np.abs(found["mean"].iloc[:3] - [1.0, 0.5, 0.8]) < 4 * found["sd"].iloc[:3]).all()
    monkeypatch.setattr(columns, "_atom", lambda *_: None)
    assert not table()["identified"].any()  # its records lie far out, and no line explains them


@pytest.mark.parametrize("width", [50, 5000])
def test_a_narrow_column_in_a_wide_range_has_no_atom(width):
    inside = np.histogram(np.random.default_rng(0).normal(0, 1, 100_000), np.linspace(-width, width, BINS + 1))[0]
    for sd in (1e-4, 0.02):
        law = Distribution(np.linspace(-1, 1, BINS + 1), inside / inside.sum(), sd)
        assert columns._atom(law, law) is None
    count = np.histogram([0] * 90 + [1, 2, 3] * 3 + [4], np.linspace(0, 10, BINS + 1))[0] / 100
    law = Distribution(np.linspace(-1, 1, BINS + 1), count, 0.02)
    assert columns._atom(law, law) == pytest.approx(
        (-1.0, 0.5), abs=0.05
    )  # two to three of ten: typical of one to four
    assert columns._atom(law, replace(law, sd=0.08)) is None  # noise may have made the others


def test_terms_with_a_factor_that_may_be_constant_are_doubtful():
    design = QuantileRegression("y ~ x + I(x ** 2) + f + g + f:x").prepare(SCHEMA).design
    names = np.array(design.names)
    flag = design.names.index("f")
    assert names[Columns({}, {}, 0.0, frozenset({"x"})).doubtful(design)].tolist() == ["x", "I(x ** 2)", "f:x"]
    assert names[Columns({}, {}, 0.0, lone=(flag,)).doubtful(design)].tolist() == ["f", "f:x"]
    assert not Columns({}, {}, 0.0).doubtful(design).any()


def test_the_axes_of_last_terms_are_what_the_others_leave_of_them():
    rng = np.random.default_rng(0)
    rows = np.column_stack([np.ones(500), rng.standard_normal((500, 3)) @ rng.standard_normal((3, 3))])
    rows[:, 2] = 0.7 + 1e-4 * rng.standard_normal(500)  # hardly varies: nearly the first column
    last = np.array([False, False, True, False])
    found, plain = whitening(rows, last), whitening(rows)
    for frame_ in (found, plain):
        assert frame_.T @ (rows.T @ rows / 500) @ frame_ == pytest.approx(np.eye(4), abs=1e-6)
    assert not found[2, ~last].any() and np.abs(found[0, ~last]).max() < 2
    assert np.abs(plain[2, 0]) > 100  # otherwise the axis of the intercept has it too
