import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from pgbb.cli import app
from pgbb.errors import InvalidValue, PgbbError
from pgbb.model.schema import Flag, Levels, Range, Schema

pytestmark = pytest.mark.quick

FRAME = pd.DataFrame(
    {"educ": [12.5, 3777.25], "union": [True, False], "region": ["Secretshire", "b"], "weekly wage": [7, 8]}
)


def init(data, out):
    return CliRunner().invoke(app, ["init", str(data), "--out", str(out)])


def fails(data, out):
    result = init(data, out)
    assert isinstance(result.exception, PgbbError), result.output
    assert not out.exists()
    return str(result.exception)


def saved(frame, folder, kind):
    path = folder / f"data.{kind}"
    if kind == "csv":
        frame.to_csv(path, index=False)
    elif kind == "parquet":
        frame.to_parquet(path)
    else:
        frame.rename(columns={"weekly wage": "wage"}).to_stata(path, write_index=False)
    return path


@pytest.mark.parametrize("kind", ["csv", "parquet", "dta"])
def test_a_template_names_every_column_holds_no_value_and_is_refused_until_filled(kind, tmp_path):
    out = tmp_path / "s.toml"
    assert "4 columns" in init(saved(FRAME, tmp_path, kind), out).output
    text = out.read_text()
    assert "public knowledge" in text
    assert not re.search(r"Secretshire|3777|12\.5", text)
    with pytest.raises(InvalidValue, match=r"'educ'.*Write \{ range = \[low, high\] \}"):
        Schema.from_toml(out)
    lines = dict(line.split(" = ", 1) for line in text.split("[columns]\n")[1].splitlines())
    wage = "wage" if kind == "dta" else '"weekly wage"'
    assert list(lines) == ["educ", "union", "region", wage]
    if kind == "csv":
        assert all(value.startswith('""') for value in lines.values())
    else:
        assert lines["educ"].startswith("{ range = [] }") and lines["region"].startswith("{ levels = [] }")
    assert (kind == "parquet") == lines["union"].startswith('"flag"')

    answers = {"educ": "{ range = [0, 20] }", "union": '"flag"', "region": '{ levels = ["a", "b"] }'}
    filled = "\n".join(f"{k} = {answers.get(k, '{ range = [0, 9] }')}" for k in lines)
    out.write_text(text.split("[columns]")[0] + "[columns]\n" + filled)
    assert list(Schema.from_toml(out).values()) == [Range(0, 20), Flag(), Levels("a", "b"), Range(0, 9)]


def test_every_kind_of_blank_is_refused_with_what_to_write(tmp_path):
    for blank, said in (("{ range = [] }", "range = "), ('""', "flag"), ("{ levels = [] }", "at least two distinct")):
        path = tmp_path / "s.toml"
        path.write_text(f"[columns]\nx = {blank}\n")
        with pytest.raises(InvalidValue, match=said) as error:
            Schema.from_toml(path)
        assert "'x'" in str(error.value)


def test_the_types_of_a_parquet_file_do_not_depend_on_its_values(tmp_path):
    a, b = tmp_path / "a.toml", tmp_path / "b.toml"
    init(saved(FRAME, tmp_path, "parquet"), a)
    other = FRAME.assign(educ=[0.0, 1.0], region=["x", "y"])
    init(saved(other.set_index(np.array([5, 9])), tmp_path, "parquet"), b)
    assert a.read_text() == b.read_text()


def test_a_file_is_never_replaced(tmp_path):
    out = tmp_path / "s.toml"
    out.write_text("mine")
    result = init(saved(FRAME, tmp_path, "csv"), out)
    assert "exists" in str(result.exception) and out.read_text() == "mine"


@pytest.mark.parametrize(
    "head, said",
    [
        ("a,b,a", "columns 1, 3 with the name of another"),
        ("a,,c", "column 2 without a name"),
        (",,c", "columns 1, 2 without a name"),
        ("1.5,2,x", "columns 1, 2 named by a number"),
        ("a, b,c", "spaces at the ends"),
        ("name,2024-02-29,x", "column 2 named by a number, a date"),
        ('"1,234",$5,12:30', "columns 1, 2, 3 named by a number"),
        ("True,NA,name", "columns 1, 2 named by"),
        ("", "cannot be read|without a name|no columns"),
    ],
)
def test_a_header_without_proper_names_is_refused(head, said, tmp_path):
    data = tmp_path / "d.csv"
    data.write_text(head + "\n1,2,3\n" if head else "")
    message = fails(data, tmp_path / "s.toml")
    assert re.search(said, message) and "1.5" not in message


def test_files_that_cannot_be_read_are_named(tmp_path):
    assert "unknown ending" in fails(tmp_path / "d.docx", tmp_path / "s.toml")
    assert "does not exist" in fails(tmp_path / "d.csv", tmp_path / "s.toml")
    (tmp_path / "d.parquet").write_text("no")
    assert "cannot be read as parquet" in fails(tmp_path / "d.parquet", tmp_path / "s.toml")
    assert "ends in .toml" in fails(saved(FRAME, tmp_path, "csv"), tmp_path / "s.txt")


def test_odd_names_survive_as_toml_keys(tmp_path):
    names = ['a"b', "Größe", "x.y", "tab\tname", "[columns]"]
    out = tmp_path / "s.toml"
    init(saved(pd.DataFrame([range(5)], columns=names), tmp_path, "parquet"), out)
    out.write_text(out.read_text().replace("= { range = [] }", "= { range = [0, 1] }"))
    assert list(Schema.from_toml(out)) == names


def test_a_first_line_of_words_is_called_what_it_is_and_not_a_header_without_values(tmp_path):
    """Words may be names or a record: the template must not claim that no value was read."""
    data, out = tmp_path / "d.csv", tmp_path / "s.toml"
    data.write_text("Anna,north,union\nBert,south,none\n")
    said = init(data, out).output
    text = out.read_text()
    assert "No value was read" not in text and "If the names below are the cells of a record, delete" in text
    assert "first line of the file" in said and "Bert" not in text
    init(saved(FRAME, tmp_path, "parquet"), tmp_path / "p.toml")
    assert "No value was read" in (tmp_path / "p.toml").read_text()
