"""A schema that speaks of the data: labels and units, days, flags of words, logarithms in formulas."""

import datetime
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import pgbb
from pgbb.model.formula import Design
from pgbb.model.schema import Date, Flag, Levels, Range, Schema
from pgbb.release.payloads import ModelSummary
from pgbb.release.predictions import design_at
from tests.helpers import pgbb_here
from tests.private.loaded import load, load_columns

pytestmark = pytest.mark.quick

SPEAKING = Schema(
    wage=Range(1, 5000, label="weekly wage", unit="$"), born=Date("1950-01-01", "2000-12-31", label="day of birth"),
    union=Flag("no", "yes", label="union member"), plain=Flag(), region=Levels("north", "south", label="region"),
)  # fmt: skip


def test_declarations_go_round_through_files(tmp_path):
    (tmp_path / "s.toml").write_text(SPEAKING.to_toml(), encoding="utf-8")
    for again in (Schema.from_dict(SPEAKING.to_dict()), Schema.from_toml(tmp_path / "s.toml")):
        assert again == SPEAKING and again.to_dict() == SPEAKING.to_dict()
        assert again["wage"].unit == "$" and again["union"].words == ("no", "yes") and again["region"].label == "region"
    assert Schema(a=Flag(), b=Range(0, 1)).to_dict() == {"columns": {"a": "flag", "b": {"range": [0, 1]}}}


@pytest.mark.parametrize(
    "text, word",
    [
        ("x = { range = [0, 1], label = 3 }", "label"), ('x = { levels = ["a", "b"], unit = "$" }', "levels"),
        ('x = { flag = ["no"] }', "flag"), ('x = { flag = ["no", "no"] }', "flag|levels"),
        ('x = { date = ["2000", "x"] }', "date"), ('x = { date = ["2020-01-01", "2000-01-01"] }', "below"),
        ('x = { range = [0, 1], levels = ["a", "b"] }', "range"), ('x = { range = [0, 1], label = "a\\nb" }', "label"),
        ("x = {}", "range"), ('x = { date = ["2000-01-01", "2001-01-01"], step = 1 }', "date"),
    ],
)  # fmt: skip
def test_a_declaration_that_means_nothing_is_refused(text, word, tmp_path):
    (tmp_path / "s.toml").write_text(f"[columns]\n{text}\n")
    with pytest.raises(pgbb.InvalidValue, match=word):
        Schema.from_toml(tmp_path / "s.toml")


def read(cells, declared):
    found = load_columns({"c": cells}, Schema(c=declared), ["c"])
    return found.values["c"].round(3).tolist(), found.valid.tolist()


def test_a_missing_cell_counts_as_the_level_that_is_declared_for_it_and_an_unknown_one_voids_its_record(tmp_path):
    region = Levels("north", "south", missing="unknown", label="region")
    assert region.levels[-1] == region.missing == "unknown" and Levels("?", "a", missing="?").levels == ("?", "a")
    schema = Schema(c=region)
    (tmp_path / "s.toml").write_text(schema.to_toml())
    assert (
        Schema.from_toml(tmp_path / "s.toml")
        == schema
        == Schema.from_dict(schema.to_dict())
        != Schema(c=Levels("north", "south", "unknown", label="region"))
    )
    cells = ["north", None, float("nan"), "", pd.NA, "unknown", "east", [1]]
    assert read(cells, region) == ([0.0, 2, 2, 2, 2, 2, 0, 0], [True] * 6 + [False] * 2)
    coded = Levels(1, 2, missing=9)
    assert read(pa.array([1, None, 3, 9], pa.int8()), coded) == ([0.0, 2, 0, 2], [True, True, False, True])
    for missing in (True, 1.5, "a\x00b"):
        with pytest.raises(pgbb.InvalidValue, match="levels"):
            Levels("a", "b", missing=missing)


def test_days_are_years_whatever_holds_them_and_one_bad_cell_voids_its_record_alone(tmp_path):
    day = datetime.date(1990, 7, 2)
    held = [day, "1990-07-02", pd.Timestamp(day), np.datetime64(day), datetime.datetime(1990, 7, 2, 5)]
    values, valid = read([*held, "x", 3, None, "1800-01-01"], Date("1950-01-01", "2000-12-31"))
    assert len(set(values[:5])) == 1 and abs(values[0] - 1990.5) < 0.01 and values[8] == pytest.approx(1950, abs=0.01)
    assert valid == [True] * 5 + [False] * 3 + [True]
    frame = pd.DataFrame({"c": pd.to_datetime([day] * 3)})
    frame.to_parquet(tmp_path / "d.parquet")
    frame.to_csv(tmp_path / "d.csv", index=False)
    schema = Schema(c=Date("1950-01-01", "2000-12-31"))
    for source in (frame, tmp_path / "d.parquet", tmp_path / "d.csv"):
        assert load_columns(source, schema, ["c"]).values["c"].round(3).tolist() == values[:3]
    with pytest.raises(pgbb.InvalidValue, match="text, codes or days"):
        load_columns({"c": pa.array([[1]])}, schema, ["c"])


def test_words_of_a_flag_are_zero_and_one():
    assert read(["yes", "no", "Yes", 1, None, "no"], Flag("no", "yes")) == (
        [1, 0, 0, 0, 0, 0], [True, True, False, False, False, True])  # fmt: skip


def test_a_logarithm_has_the_bounds_of_its_range():
    schema = Schema(y=Range(0, 1), x=Range(1, np.e**2), z=Range(-1, 1))
    design = Design.parse("y ~ log(x) + x + z:log(x)", schema)
    assert design.names == ("Intercept", "x", "log(x)", "z:log(x)") or set(design.names) == {
        "Intercept", "log(x)", "x", "z:log(x)"}  # fmt: skip
    term = next(t for t in design.terms if t.name == "log(x)")
    assert (term.low, term.high) == pytest.approx((0, 2)) and term.evaluate({"x": np.array([np.e])})[0] == 1
    rng = np.random.default_rng(0)
    data = {"y": rng.uniform(0, 1, 400), "x": rng.uniform(0.1, 9, 400), "z": rng.uniform(-2, 2, 400)}
    rows = load(data, design, schema).x
    assert abs(rows).max() <= 1 and np.linalg.norm(rows, axis=1).max() <= design.norm_bound + 1e-6
    for wrong in ("log(z)", "log(x, 2)", "log(x + z)", "x:log(x)", "log(none)", "log(2)"):
        with pytest.raises(pgbb.InvalidValue):
            Design.parse(f"y ~ {wrong}", schema)


def test_the_logarithm_of_a_response_is_that_of_the_clamped_cell():
    schema = Schema(y=Range(1, 100, step=1), x=Range(-1, 1), logs=Range(0, np.log(100)), u=Range(1, 100))
    y = np.array([0.0, 1, 7, 100, 1e9, np.nan])
    data = {"x": np.linspace(-1, 1, 6), "y": y, "u": y, "logs": np.log(y.clip(1, 100))}
    design = Design.parse("log(u) ~ x", schema)
    assert (design.response, design.answer.name, design.response_bounds) == ("u", "log(u)", (0, np.log(100)))
    written = load(data, Design.parse("logs ~ x", schema), schema)
    for name in ("u", "y"):
        design = Design.parse(f"log( {name} ) ~ x", schema)
        found = load(data, design, schema)
        assert np.array_equal(found.y[:5], written.y[:5]) and found.valid.tolist() == [True] * 5 + [False]
        assert design.response_step == 0 and not np.array_equal(
            found.y, load(data, Design.parse(f"{name} ~ x", schema), schema).y
        )
    model = pgbb.LinearRegression("log(u) ~ x").prepare(schema)
    assert model.response == "log(u)" and model.offset[0] == np.log(100) / 2
    with pytest.raises(pgbb.InvalidValue, match="a logarithm of its own"):
        pgbb.PoissonRegression("log(y) ~ x").prepare(schema)
    with pytest.raises(pgbb.InvalidValue, match="0/1 response"):
        pgbb.LogisticRegression("log(y) ~ x").prepare(schema)


def test_check_says_that_no_cell_can_be_read_and_ends_with_status_one(tmp_path):
    (tmp_path / "s.toml").write_text("[columns]\nx = { range = [0, 9] }\n")
    for text, status in (("x\n1,5\n2,5\n", 0), ("x;y\n1,5;1\n2,5;1\n", 2), ('x\n"1,5"\n"2,5"\n', 1), ("x\na\n3\n", 0)):
        (tmp_path / "d.csv").write_text(text)
        done = pgbb_here("check", "d.csv", "-s", "s.toml", cwd=tmp_path)
        if status == 1:
            assert "no cell can be read as Range(0, 9)" in done.stdout and "PRIVATE" in done.stdout
            done = pgbb_here("check", "d.csv", "-s", "s.toml", "--json", cwd=tmp_path)
            assert json.loads(done.stdout)["columns"][0]["unreadable"] is True
        assert done.returncode == status, done.stdout


def test_a_prediction_takes_levels_by_value_and_nothing_as_the_missing_level():
    schema = Schema(y=Range(0, 1), g=Levels(1, 2, missing=9))
    model = ModelSummary("linear", "y ~ g", ("Intercept", "g[T.2]", "g[T.9]"), None, None, np.eye(3), np.zeros(3))
    rows, _ = design_at(model, schema.to_dict(), pd.DataFrame({"g": [2.0, None, 1]}))
    assert rows.tolist() == [[1, 1, 0], [1, 0, 1], [1, 0, 0]]
    with pytest.raises(pgbb.InvalidValue, match="declared levels 1, 2, 9"):
        design_at(model, schema.to_dict(), {"g": [1.5]})
