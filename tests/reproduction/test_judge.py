import math

import pandas as pd
import pytest

from reproduction.judge import average, beside, judged, summarise
from reproduction.printed import TABLES, lookup, table

PRINTED = {"mae": 0.010, "mae_se": 0.0005, "coverage": 0.90, "width": 0.050, "width_se": math.nan}


@pytest.mark.parametrize("ours, verdict", [(0.0080, "better"), (0.0105, "same"), (0.0125, "worse")])
def test_an_error_is_judged_by_two_standard_errors_of_the_difference(ours, verdict):
    line = beside({}, "mae", (ours, 0.0005), PRINTED)
    assert line.verdict == verdict
    assert line.difference == pytest.approx((ours - 0.010) / math.hypot(0.0005, 0.0005))


@pytest.mark.parametrize(
    "ours, printed, verdict",
    [
        (0.86, 0.90, "same"), (0.84, 0.90, "worse"), (0.95, 0.90, "better"), (0.97, 0.90, "same"), (0.93, 1.0, "same"),
        (0.90, 1.0, "worse"),
    ],
)  # fmt: skip
def test_coverage_is_worse_below_the_printed_or_nominal_one_and_better_nearer_to_nominal(ours, printed, verdict):
    assert beside({}, "coverage", (ours, 0.02), {"coverage": printed}).verdict == verdict


def test_a_printed_error_of_about_zero_counts_as_half_a_digit():
    assert beside({}, "width", (0.0500, 0.0), PRINTED).difference == 0
    assert beside({}, "width", (0.0508, 0.0), PRINTED).verdict == "same"


def test_a_single_replicate_is_not_judged():
    assert beside({}, "mae", average([0.2]), PRINTED).verdict == "not comparable"
    assert beside({}, "mae", (0.2, 0.1), {}).verdict == ""


def test_nothing_is_better_that_covers_too_little():
    found = {"coverage": (0.5, 0.02), "width": (0.01, 0.0001)}
    assert [line.verdict for line in judged({}, found, PRINTED)] == ["worse", "not comparable"]
    found["coverage"] = (0.94, 0.02)
    assert [line.verdict for line in judged({}, found, PRINTED)][1] == "better"
    found["coverage"] = (0.92, 0.02)
    assert [line.verdict for line in judged({}, found, PRINTED)][1] == "not comparable"


def test_over_coverage_by_needless_width_is_worse():
    found = {"coverage": (0.999, 0.001), "width": (0.08, 0.0001)}
    assert [line.verdict for line in judged({}, found, PRINTED)] == ["worse", "worse"]
    found["width"] = (0.05, 0.0001)
    assert [line.verdict for line in judged({}, found, PRINTED)] == ["same", "same"]


@pytest.mark.parametrize(
    "measure, ours, verdict",
    [
        ("mae", (0.0113, 0.0005), "agrees"), ("mae", (0.0085, 0.0005), "differs"), ("mae", (0.0115, 0.0005), "differs"),
        ("width", (0.0524, 0.0001), "agrees"), ("width", (0.0526, 0.0001), "differs"),
        ("width", (0.04, 0.0001), "differs"),
        ("coverage", (0.92, 0.001), "agrees"), ("coverage", (0.99, 0.01), "differs"),
        ("width", (0.04, math.nan), "not comparable"),
    ],
)  # fmt: skip
def test_the_same_algorithm_agrees_with_the_printed_figure_or_differs_on_either_side(measure, ours, verdict):
    (line,) = judged({}, {measure: ours}, PRINTED, reproduce=True)
    assert line.verdict == verdict


def test_coefficients_are_averaged_within_a_replicate_first():
    rows = pd.DataFrame({"replicate": [0, 0, 1, 1], "mae": [1, 3, 2, 4], "coverage": [1, 0, 1, 1], "width": [1.0] * 4})
    found = summarise(rows)
    assert found["mae"] == pytest.approx((2.5, 0.5))
    assert found["coverage"] == pytest.approx((0.75, 0.25))


@pytest.mark.parametrize("name", TABLES)
def test_a_printed_table_is_complete(name):
    rows = table(name)
    label, count = TABLES[name]
    assert len(rows) == count and label.startswith("Table ")
    values = [c for c in rows.columns if c in ("mae", "coverage", "width", "sgld_ess", "gibbs_ess", "scaling_free")]
    assert values and not rows[values].isna().any().any()
    keys = [c for c in rows.columns if c in ("noise", "n", "epsilon", "K", "method", "variable", "year", "case")]
    assert not rows.duplicated(keys).any()


def test_the_summary_is_the_mean_of_the_coefficient_tables():
    parts = [table(f"linreg_beta{j}") for j in (1, 2, 3)]
    mean = sum(part["mae"] for part in parts) / 3
    assert (mean - table("linreg_summary")["mae"]).abs().max() < 2e-4


def test_a_lookup_gives_one_row_or_nothing():
    assert lookup("census", year=1980, variable="educ", method="PGBB", epsilon=1)["width"] == 1.29
    assert lookup("census", year=1990, variable="educ", method="PGBB", epsilon=1) == {}
    assert lookup("census", year=1980) == {}
