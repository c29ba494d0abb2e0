import itertools
import math

import formulaic
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.interpolate import BSpline

from pgbb.errors import InvalidValue
from pgbb.model.formula import Design
from pgbb.model.schema import Flag, Levels, Range, Schema

pytestmark = pytest.mark.quick

SCHEMA = Schema(
    y=Range(0, 12),
    d=Flag(),
    a=Range(-2, 3),
    b=Range(1, 4),
    c=Range(-5, -1),
    f=Flag(),
    r=Levels("north", "south"),
    q=Levels("u", "v", "w"),
    k=Levels(10, 20, 30),
)
FORMULAS = [
    "y ~ 1",
    "y ~ a",
    "y ~ a + b + c + f",
    "y ~ a*b",
    "y ~ a*b*c",
    "y ~ a + I(a**2) + I(a**3)",
    "y ~ I(a*b) + I(b**2 * c)",
    "y ~ I(a**2):b + f:a",
    "y ~ (a + b + f)**2",
    "y ~ r + q",
    "y ~ r*q",
    "y ~ r:q",
    "y ~ a:r",
    "y ~ a + a:r + b:q",
    "y ~ b/q",
    "y ~ k",
    "y ~ b:a + a",
    "y ~ a - 1",
    "y ~ 0 + a + b + I(a**2)",
    "y ~ r + q - 1",
    "y ~ 0 + q + r",
    "y ~ 0 + a:r + q",
    "y ~ 0 + a + a:r",
    "y ~ 0 + r:q",
    "y ~ 0 + r*q + b:q",
    "y ~ 0 + a:b:r + f",
]


def draw(n, seed=0, schema=SCHEMA):
    """Columns as `Design` wants them, within their declarations."""
    rng = np.random.default_rng(seed)
    columns = {}
    for name, column in schema.items():
        if isinstance(column, Range):
            columns[name] = rng.uniform(column.low, column.high, n)
        else:
            columns[name] = rng.integers(2 if isinstance(column, Flag) else len(column.levels), size=n)
    return columns


def corners(names, schema=SCHEMA, points=2):
    """Every corner of the box (and a grid between, for points > 2) as columns."""
    states = [
        np.arange(len(schema[n].levels)) if isinstance(schema[n], Levels)
        else np.array([0, 1]) if isinstance(schema[n], Flag)
        else np.linspace(*schema[n].bounds, points)
        for n in names
    ]  # fmt: skip
    grid = np.array(list(itertools.product(*states)), dtype=float)
    return {name: grid[:, i] for i, name in enumerate(names)}


def raw(design, columns):
    return np.column_stack([term.evaluate(columns) for term in design.terms])


@pytest.mark.parametrize("formula", FORMULAS)
def test_names_and_values_are_those_that_formulaic_computes_from_the_same_data(formula):
    columns = draw(300)
    frame = pd.DataFrame(columns)
    for name in ("r", "q", "k"):
        frame[name] = pd.Categorical.from_codes(columns[name], categories=list(SCHEMA[name].levels))
    oracle = formulaic.model_matrix(formula, frame).rhs
    design = Design.parse(formula, SCHEMA)
    assert list(design.names) == list(oracle.columns)
    np.testing.assert_allclose(raw(design, columns), oracle.to_numpy(dtype=float), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("formula", FORMULAS)
def test_bounds_are_attained_and_contain_every_term(formula):
    design = Design.parse(formula, SCHEMA)
    if not design.columns:
        return
    values = raw(design, corners(design.columns, points=6))  # of a = [−2, 3] in 6 points, 0 is one
    for j, term in enumerate(design.terms):
        assert values[:, j].min() == pytest.approx(term.low, abs=1e-12)
        assert values[:, j].max() == pytest.approx(term.high, abs=1e-12)


@st.composite
def problems(draw_):
    ends = st.integers(-30, 30).map(lambda i: i / 4)
    box = {n: Range(*sorted(draw_(st.lists(ends, min_size=2, max_size=2, unique=True)))) for n in ("y", "a", "b")}
    schema = Schema(**box, f=Flag(), r=Levels("n", "s"), q=Levels(1, 2, 3))
    pool = ["a", "b", "f", "r", "q", "a:b", "a:r", "b:q", "r:q", "f:a", "I(a**2)", "I(a**3)", "I(a**2*b)", "I(b**2):q"]
    terms = draw_(st.lists(st.sampled_from(pool), min_size=1, max_size=5, unique=True))
    return schema, "y ~ " + draw_(st.sampled_from(["", "0 + "])) + " + ".join(terms)


@settings(max_examples=60)
@given(problems(), st.integers(0, 2**31))
def test_no_row_within_the_declaration_leaves_the_bounds_the_cube_or_the_norm(problem, seed):
    schema, formula = problem
    design = Design.parse(formula, schema)
    columns = draw(200, seed, schema)
    ends = corners([n for n in schema if n != "y"], schema)
    for given_columns in (columns, ends):
        values = raw(design, given_columns)
        low, high = np.array([t.low for t in design.terms]), np.array([t.high for t in design.terms])
        slack = 1e-9 * (1 + np.abs([low, high]).max(axis=0))
        assert np.all(values >= low - slack) and np.all(values <= high + slack)
        mapped = (values - design.shift) / design.scale
        assert np.abs(mapped).max() <= 1 + 1e-9
        assert np.linalg.norm(mapped, axis=1).max() <= design.norm_bound * (1 + 1e-9)
        np.testing.assert_allclose(design.matrix(given_columns), mapped, atol=1e-6)


@pytest.mark.parametrize("formula", FORMULAS)
def test_the_norm_bound_is_attained(formula):
    design = Design.parse(formula, SCHEMA)
    columns = corners(design.columns) if design.columns else {"y": np.zeros(1)}
    largest = np.linalg.norm(design.matrix(columns), axis=1).max()
    assert largest == pytest.approx(design.norm_bound, rel=1e-6)


def test_exclusive_dummies_count_once_without_an_intercept():
    assert Design.parse("y ~ 0 + q", SCHEMA).norm_bound == pytest.approx(1)
    assert Design.parse("y ~ 0 + q + a", SCHEMA).norm_bound == pytest.approx(math.sqrt(2))
    assert Design.parse("y ~ 0 + b:q + q", SCHEMA).norm_bound == pytest.approx(math.sqrt(2))
    assert Design.parse("y ~ q", SCHEMA).norm_bound == pytest.approx(math.sqrt(3)), "centred dummies are all ±1"


def test_a_box_with_very_many_corners_still_has_a_bound():
    many = Schema(y=Flag(), **{f"x{i}": Range(-1, 1) for i in range(20)})
    product = ":".join(f"x{i}" for i in range(20))
    assert Design.parse(f"y ~ 0 + x0 + {product}", many).norm_bound == pytest.approx(math.sqrt(2))
    levels = Schema(y=Flag(), **{f"g{i}": Levels(*range(20)) for i in range(3)})
    design = Design.parse("y ~ 0 + g0 + g0:g1 + g0:g2", levels)
    assert design.norm_bound >= math.sqrt(3) - 1e-9


@pytest.mark.parametrize("formula", [f for f in FORMULAS if f != "y ~ 1"])
def test_coefficients_of_the_mapped_design_become_those_of_the_raw_design(formula):
    design = Design.parse(formula, SCHEMA)
    columns = draw(400, seed=3)
    y = np.random.default_rng(4).normal(size=400)
    plain = raw(design, columns)
    mapped = (plain - design.shift) / design.scale
    in_mapped, *_, rank = np.linalg.lstsq(mapped, y, rcond=None)[:3]
    in_raw = np.linalg.lstsq(plain, y, rcond=None)[0]
    assert rank == len(design.terms), "the coding of dummies leaves no redundant column"
    np.testing.assert_allclose(design.to_original @ in_mapped, in_raw, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(plain @ design.to_original @ in_mapped, mapped @ in_mapped, atol=1e-8)


def test_the_map_is_centred_with_an_intercept_and_only_scaled_without():
    design = Design.parse("y ~ a + f", SCHEMA)
    np.testing.assert_allclose(design.shift, [0, 0.5, 0.5])
    np.testing.assert_allclose(design.scale, [1, 2.5, 0.5])
    design = Design.parse("y ~ 0 + a + c + f", SCHEMA)
    np.testing.assert_allclose(design.shift, 0)
    np.testing.assert_allclose(design.scale, [3, 5, 1])
    np.testing.assert_allclose(design.to_original, np.diag([1 / 3, 1 / 5, 1]))


def test_what_the_design_says_about_itself():
    design = Design.parse("y ~ b:q + a", SCHEMA)
    assert (design.formula, design.response, design.response_bounds) == ("y ~ b:q + a", "y", (0.0, 12.0))
    assert design.columns == ("a", "b", "q") and design.has_intercept
    assert Design.parse("d ~ a", SCHEMA).response_bounds == (0.0, 1.0)
    assert Design.parse("y ~ b:q + a", SCHEMA) == design
    with pytest.raises(ValueError):
        design.shift[0] = 1


def test_an_even_power_over_zero_starts_at_zero_and_an_odd_one_does_not():
    square, cube = Design.parse("y ~ 0 + I(a**2) + I(a**3)", SCHEMA).terms
    assert (square.low, square.high) == (0, 9)
    assert (cube.low, cube.high) == (-8, 27)


@pytest.mark.parametrize("term", ["a**2", "a^2", "b + a**3", "(a)**2"])
def test_a_power_of_one_column_is_not_taken_for_its_interaction_with_itself(term):
    with pytest.raises(InvalidValue, match=r"Write I\(a\*\*[23]\)"):
        Design.parse(f"y ~ {term}", SCHEMA)
    assert Design.parse("y ~ (a + b)**2", SCHEMA).names == ("Intercept", "a", "b", "a:b")


def test_factor_of_r_is_told_that_levels_have_dummies_by_themselves():
    with pytest.raises(InvalidValue, match=r"dummies by itself. Write r\."):
        Design.parse("y ~ factor(r)", SCHEMA)


def test_c_of_a_levels_column_is_the_column():
    assert Design.parse("y ~ C(r)", SCHEMA).terms == Design.parse("y ~ r", SCHEMA).terms
    assert Design.parse("y ~ C(k)", SCHEMA).names == ("Intercept", "k[T.20]", "k[T.30]")


def test_names_with_spaces_stand_in_backticks():
    schema = Schema(**{"y": Flag(), "years of school": Range(0, 20)})
    assert Design.parse("y ~ `years of school`", schema).names == ("Intercept", "years of school")


def test_a_column_called_1_is_refused_where_formulaic_would_read_the_intercept():
    schema = Schema(**{"1": Range(0, 1), "2": Range(0, 1), "y": Range(0, 1)})
    for formula in ("y ~ `1`", "y ~ `2` + `1`", "y ~ `2` - `1`", "y ~ `2`:`1`"):
        with pytest.raises(InvalidValue, match="Give the column another name"):
            Design.parse(formula, schema)
    assert Design.parse("`1` ~ 1 + `2`", schema).names == ("Intercept", "2")


def test_missing_codes_have_no_dummy():
    columns = {"q": np.array([-1, 0, 1, 2])}
    assert raw(Design.parse("y ~ 0 + q", SCHEMA), columns).sum(axis=1).tolist() == [0, 1, 1, 1]


DATA_DEPENDENT = ["center(a)", "scale(a)", "standardize(a)", "ns(a, df=3)", "cc(a, 4)", "cr(a, 3)", "cs(a, 3)",
                  "hashed(q)", "lag(a)", "a:center(b)", "np.poly(a)", "patsy.bs(a)"]  # fmt: skip
UNKNOWN = ["log(a)", "np.exp(a)", "a.mean()", "f(a, b)", "__import__('os').system('true')", "Q('a')"]
BAD_INSIDE_I = ["I(a + b)", "I(a - 1)", "I(a / b)", "I(2 * a)", "I(a**b)", "I(log(a))", "I((a + b)**2)", "I(a.b)",
                "I(a**0)", "I(a**-1)", "I(a**0.5)", "I(a**True)", "I(a**99)", "I(r)", "I(r*a)", "I(1)", "{a + b}",
                "{a}", "I(a, b)", "I(a if b else c)", "I([a for a in b])", "I(lambda: a)"]  # fmt: skip


@pytest.mark.parametrize("term", DATA_DEPENDENT)
def test_transforms_that_look_at_the_data_are_refused_with_the_reason(term):
    with pytest.raises(InvalidValue, match="computes something from the confidential data") as error:
        Design.parse(f"y ~ b + {term}", SCHEMA)
    assert "Declare public bounds" in str(error.value) and "I(x**2)" in str(error.value)


@pytest.mark.parametrize("term", UNKNOWN)
def test_unknown_functions_are_refused_and_never_run(term):
    with pytest.raises(InvalidValue, match=r"unknown|not allowed"):
        Design.parse(f"y ~ b + {term}", SCHEMA)


@pytest.mark.parametrize("term", BAD_INSIDE_I)
def test_only_powers_and_products_are_allowed_inside_i(term):
    with pytest.raises(InvalidValue, match="is not allowed"):
        Design.parse(f"y ~ b + {term}", SCHEMA)


CURVES = {  # ours: with public knots and centres, the same as formulaic's
    "y ~ bs(a, knots=[0, 1.5])": "y ~ bs(a, knots=[0, 1.5], lower_bound=-2, upper_bound=3)",
    "y ~ bs(b, knots=(2,), degree=2):r": "y ~ bs(b, knots=[2], degree=2, lower_bound=1, upper_bound=4):r",
    "y ~ 0 + bs(a, [0], degree=1)*b": "y ~ 0 + bs(a, knots=[0], degree=1, lower_bound=-2, upper_bound=3)*b",
    "y ~ poly(a, 3, centre=1)": "y ~ poly(I(a - 1), degree=3, raw=True)",
    "y ~ poly(b, degree=2):q + c": "y ~ poly(I(b - 2.5), degree=2, raw=True):q + c",
    "y ~ C(q, base='w')*r": "y ~ C(q, contr.treatment('w'))*r",
    "y ~ a:C(k, base=20) + k": "y ~ a:C(k, contr.treatment(20)) + C(k, contr.treatment(20))",
}


@pytest.mark.parametrize("formula", CURVES)
def test_curves_and_bases_have_the_values_that_formulaic_computes_and_stay_within_their_bounds(formula):
    columns = draw(300)
    frame = pd.DataFrame(columns)
    for name in ("r", "q", "k"):
        frame[name] = pd.Categorical.from_codes(columns[name], categories=list(SCHEMA[name].levels))
    oracle = formulaic.model_matrix(CURVES[formula], frame).rhs.to_numpy(dtype=float)
    design = Design.parse(formula, SCHEMA)
    np.testing.assert_allclose(raw(design, columns), oracle, rtol=1e-10, atol=1e-10)
    ends = raw(design, corners(design.columns, points=151))
    for j, term in enumerate(design.terms):
        assert term.low - 1e-9 <= ends[:, j].min() and ends[:, j].max() <= term.high + 1e-9
        assert ends[:, j].max() - ends[:, j].min() >= 0.999 * (term.high - term.low), "and are attained"
    assert np.linalg.norm(design.matrix(corners(design.columns, points=31)), axis=1).max() <= design.norm_bound + 1e-6
    assert np.linalg.matrix_rank(raw(design, columns)) == len(design.terms)


def test_curves_are_named_as_they_are_written_and_another_base_holds_in_the_whole_formula():
    names = Design.parse("y ~ bs(a, knots=[0], degree=1) + poly(b, 2)", SCHEMA).names[1:]
    assert names == (*(f"bs(a, knots=[0], degree=1)[{k}]" for k in (1, 2)), "poly(b, 2)[1]", "poly(b, 2)[2]")
    assert Design.parse("y ~ q + a:C(q, base='v')", SCHEMA).names[1:3] == ("q[T.u]", "q[T.w]")


BAD_CURVES = {
    "bs(a)": "public knots", "bs(a, df=5)": "public knots", "bs(a, knots=3)": "public", "bs(a, knots=[])": "knots",
    "bs(a, knots=[b])": "written out", "bs(a, knots=[1, 0])": "increase", "bs(a, knots=[3])": "inside",
    "bs(a, knots=[0], degree=9)": "degree", "bs(a, knots=[True])": "knots", "bs(a, knots=[1e999])": "knots",
    "bs(f, knots=[.5])": "Range", "bs(q, knots=[1])": "Range", "bs(a + b, knots=[1])": "must be",
    "bs(a, knots=[.1 ** .5])": "written out", "bs(a, [0], 3, 4)": "must be", "bs(**a)": "must be", "bs(*a)": "must be",
    "poly(a)": "public centre", "poly(a, 2, center=1)": "centre", "poly(a, 99)": "degree", "poly(a, 2.0)": "degree",
    "poly(a, 2, centre='x')": "centre", "C(q, base='z')": "no declared level", "C(q, base=)": "not allowed|parse",
    "C(q, base='u') + C(q, base='v'):a": "one base", "a + bs(a, knots=[0])": "in common",
    "bs(a, knots=[0]) + bs(a, knots=[1])": "in common", "poly(a, 2) + I(a**2)": "in common",
    "b:bs(a, knots=[0]) + b:q:a": "in common", "a:bs(a, knots=[0])": "multiplied",
    "poly(a, 2):bs(a, knots=[0])": "multiplied", f"bs(a, knots=[{10**400}])": "knots",
    "bs(a, knots={[]: 1})": "written",
    f"poly(a, 2, centre={10**400})": "centre", f"bs(a, knots={'[' * 90}{']' * 90})": "knots|written|not allowed",
    "poly(a, 2, centre=nan)": "written out", "poly(a, 2, centre=1e200)": "finite",
    "bs(a, knots=[0], knots=[1])": "must be", "bs(a, [0], knots=[1])": "must be",
    "poly(a, 2) + poly(a, degree=2)": "same column",
}  # fmt: skip


@pytest.mark.parametrize("term", BAD_CURVES)
def test_a_curve_that_is_not_public_or_not_apart_is_refused_with_the_reason(term):
    with pytest.raises(InvalidValue, match=BAD_CURVES[term]):
        Design.parse(f"y ~ {term}", SCHEMA)


def test_splines_are_those_of_scipy_but_the_first_up_to_both_ends_of_the_range():
    x = np.linspace(-2, 3, 41)
    knots = np.array([-2.0] * 4 + [0, 1.5] + [3.0] * 4)
    oracle = BSpline.design_matrix(x, knots, 3).toarray()[:, 1:]
    np.testing.assert_allclose(
        raw(Design.parse("y ~ bs(a, knots=[0, 1.5])", SCHEMA), {"a": x})[:, 1:], oracle, atol=1e-12
    )


def test_a_power_that_no_curve_spans_may_stand_beside_it():
    design = Design.parse("y ~ bs(a, knots=[0], degree=2) + I(a**3) + b:a + log(b) + poly(b, 1)", SCHEMA)
    columns = draw(300)
    assert np.linalg.matrix_rank(raw(design, columns)) == len(design.terms) == 8
    with pytest.raises(InvalidValue, match="unit"):
        Design.parse("y ~ bs(x, knots=[1e-200])", Schema(y=Flag(), x=Range(0, 2e-200)))


@pytest.mark.parametrize("term", ["C(r, contr.sum)", "C(q, levels=['u'])", "C(a)", "C(f)", "C(r + q)"])
def test_contrasts_and_levels_from_data_are_refused(term):
    with pytest.raises(InvalidValue, match=r"C\("):
        Design.parse(f"y ~ {term}", SCHEMA)


@pytest.mark.parametrize("formula", ["y ~ age", "age ~ a", "y ~ a:age", "y ~ I(age**2)", "y ~ C(age)", "y ~ a*age"])
def test_an_undeclared_column_is_named_with_the_declared_ones(formula):
    with pytest.raises(InvalidValue, match="'age' is not declared") as error:
        Design.parse(formula, SCHEMA)
    assert "y, d, a, b, c, f, r, q, k" in str(error.value)


def test_a_misspelt_column_is_told_the_nearest_name():
    schema = Schema(logwage=Range(0, 12), educ=Range(0, 20), exper=Range(0, 60))
    for formula, near in (("logwage ~ edcu", "educ"), ("logwgae ~ educ", "logwage"), ("logwage ~ log(expr)", "exper")):
        with pytest.raises(InvalidValue, match=f"Did you mean '{near}'?"):
            Design.parse(formula, schema)
    with pytest.raises(InvalidValue) as error:
        Design.parse("logwage ~ union", schema)
    assert "Did you mean" not in str(error.value)


@pytest.mark.parametrize(
    "formula",
    ["y + d ~ a", "y:d ~ a", "r ~ a", "1 ~ a", "I(y**2) ~ a", "y ~ y + a", "y ~ a:y", "log(b) + y ~ a", "log(b):y ~ a",
     "2*log(b) ~ a", "log(b) ~ a + b", "log(b) ~ log(b)", "exp(y) ~ a", "log(b).mean() ~ a", "poly(b, 1) ~ a",
     "log1p(b) ~ a"],
)  # fmt: skip
def test_the_response_must_be_one_numeric_column_that_is_no_covariate(formula):
    with pytest.raises(InvalidValue, match="response"):
        Design.parse(formula, SCHEMA)


@pytest.mark.parametrize(
    "formula", ["log(y) ~ a", "log(d) ~ a", "log(r) ~ a", "log(b + y) ~ a", "log(b, 2) ~ a", "log() ~ a"]
)
def test_the_logarithm_of_a_response_needs_a_range_of_positive_numbers(formula):
    with pytest.raises(InvalidValue, match="a Range of positive numbers"):
        Design.parse(formula, SCHEMA)


@pytest.mark.parametrize(
    "formula",
    ["", "  ", None, 3, "a + b", "y", "~ a", "y ~", "y ~ (a", "y ~ a +* b", "y ~ a | b", "y ~ .", "y ~ 2", "y ~ 2*a",
     "y ~ 'a'", "y ~ 0", "y ~ a - a - 1", "y ~ 3:a", "y ~ a ~ b", "y ~ I(a**)", "y ~ I(a", "y ~ `a", "y ~ [a ~ b]",
     "y ~ a + a:1"],
)  # fmt: skip
def test_a_formula_that_is_none_is_refused_in_one_paragraph(formula):
    with pytest.raises(InvalidValue) as error:
        Design.parse(formula, SCHEMA)
    assert "\n" not in str(error.value) and "\x1b" not in str(error.value)


@pytest.mark.parametrize("formula", ["y ~ a:b + I(a*b)", "y ~ f + I(f**2)", "y ~ I(a**2) + a:I(a)", "y ~ r + C(r)"])
def test_the_same_column_twice_is_refused(formula):
    with pytest.raises(InvalidValue, match="same column"):
        Design.parse(formula, SCHEMA)


def test_bounds_that_overflow_or_vanish_are_refused():
    with pytest.raises(InvalidValue, match="finite"):
        Design.parse("y ~ I(x**11)", Schema(y=Flag(), x=Range(0, 1e29)))
    with pytest.raises(InvalidValue, match="positive length"):
        Design.parse("y ~ I(x**12)", Schema(y=Flag(), x=Range(0, 1e-29)))


def test_a_mapping_is_no_schema_and_a_missing_column_is_named():
    with pytest.raises(InvalidValue, match="dict"):
        Design.parse("y ~ a", dict(SCHEMA))
    with pytest.raises(InvalidValue, match="'b'"):
        Design.parse("y ~ a:b", SCHEMA).matrix({"a": np.zeros(2)})
