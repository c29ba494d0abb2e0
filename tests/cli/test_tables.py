"""Tables of eighty columns keep names and heads whole; less important columns go first."""

import random
from types import SimpleNamespace

import pytest
from rich.console import Console

from pgbb.cli import compare, show
from pgbb.cli.tables import fitting, number

pytestmark = pytest.mark.quick

NAMES = ["Intercept", "region[T.south]", "education:region[T.south]"]


def printed(versions):
    console = Console(width=80, highlight=False)
    with console.capture() as capture:
        console.print(fitting(console, versions))
    text = capture.get()
    assert max(map(len, text.splitlines())) <= 80
    return text


def row(name, **more):
    return {"name": name, "mean": -0.0012345, "sd": 0.0012345, "lower": -12345.6, "upper": 0.00012345, **more}


@pytest.mark.parametrize("index", [None, "tau"])
@pytest.mark.parametrize("count", [2, 3])
def test_show_keeps_names_and_heads_whole(index, count):
    more = {"sampling_sd": 0.00012345, "privacy_sd": 0.00012345, "identified": False}
    rows = [row(name, **more, **({} if index is None else {index: 0.25})) for name in NAMES[:count]]
    text = printed(show._tables(rows, index, 0.95))
    assert all(word in text for word in (*NAMES[:count], "coefficient", "mean", "0.95 lower", "upper"))


def test_show_drops_no_column_that_fits():
    rows = [row("x", tau=0.25, sampling_sd=0.1, privacy_sd=0.2)]
    assert all(word in printed(show._tables(rows, "tau", 0.95)) for word in ("sampling", "privacy"))


@pytest.mark.parametrize(("name", "taus", "parts"), [
    ("educ", [0.1, 0.9], ["sampling", "privacy"]), ("experience", [0.25, 0.75], ["sampling", "privacy"]),
    ("education:south", [0.25, 0.75], ["privacy"]), ("education:region[south]", [0.25, 0.75], []),
])  # fmt: skip
def test_columns_depend_on_names_and_levels_and_not_on_numbers(name, taus, parts):
    rng, heads = random.Random(1), set()
    for _ in range(100):
        rows = []
        for tau in taus:
            sizes = {key: 10 ** rng.uniform(-7, 7) for key in ("sd", "sampling_sd", "privacy_sd")}
            signed = {key: rng.choice((-1, 1)) * 10 ** rng.uniform(-7, 7) for key in ("mean", "lower", "upper")}
            rows.append({"tau": tau, "name": name, "identified": rng.random() < 0.9, **sizes, **signed})
        heads.add(printed(show._tables(rows, "tau", 0.95)).splitlines()[0])
    assert len(heads) == 1
    assert heads.pop().split() == ["tau", "coefficient", "mean", "sd", "0.95", "lower", "upper", *parts]


@pytest.mark.parametrize("digits", [3, 4])
def test_a_number_is_as_wide_as_it_may_be_and_loses_one_digit_at_most(digits):
    for power in range(-8, 9):
        for value in (1.23456 * 10.0**power, -9.99996 * 10.0**power):
            text = number(value, digits, digits + 5)
            assert len(text) <= digits + 5
            assert abs(float(text) - value) <= 0.5 * 10.0 ** (2 - digits) * 10.0**power * 1.001 + 1e-15
    assert len(number(-1.234e-100, 4, 9)) == 9


def test_a_name_wider_than_the_terminal_is_folded_and_no_number_is():
    text = printed(show._tables([row("x" * 90)], None, 0.95))
    assert text.count("x") == 90 and "-12346" in text


@pytest.mark.parametrize("reference", [False, True])
def test_compare_keeps_names_and_heads_whole(reference):
    methods = ("calibrated", "noisy_gibbs", "dp_bootstrap")
    rows = [
        {"tau": 0.25, "coefficient": name, "method": method, "estimate": -0.0012345, "lower": -12345.6}
        | {"upper": 0.00012345, "width": 12345.6, "identified": method != "noisy_gibbs"}
        for name in NAMES[:2]
        for method in methods
    ]
    exact = {(0.25, name): -0.0012345 for name in NAMES} if reference else None
    found = SimpleNamespace(index_name="tau", level=0.95, reference=exact, rows=lambda: rows)
    text = printed(compare._table(found, width, digits) for width, digits in compare.VERSIONS)
    assert all(word in text for word in (*NAMES[:2], *methods, "coefficient", "method", "estimate", "0.95 lower"))
    assert "noisy_gibbs *" in text and "dp_bootstrap *" not in text
    assert ("PRIVATE)" in text) == reference
