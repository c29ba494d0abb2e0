import inspect
import json

import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from pgbb.cli.check import check_command
from pgbb.cli.compare import compare_command
from pgbb.cli.fit import fit_command
from pgbb.cli.init import init_command
from pgbb.errors import PgbbError

pytestmark = pytest.mark.quick

FILE_OPTIONS = {"data", "separator", "decimal", "thousands", "encoding", "names", "sheet", "sql", "currency"}
app = typer.Typer()
app.command("check")(check_command)

SCHEMA = '[columns]\neduc = { range = [5, 20] }\nblack = "flag"\nregion = { levels = ["north", "south"] }\n'


@pytest.fixture
def files(tmp_path):
    (tmp_path / "schema.toml").write_text(SCHEMA)
    frame = pd.DataFrame({"educ": [12.0, 99.0, None], "black": [0, 1, 3], "region": ["north", "south", "west"]})
    frame.to_csv(tmp_path / "data.csv", index=False)
    return tmp_path


def run(files, *arguments, data="data.csv"):
    return CliRunner().invoke(app, [str(files / data), "--schema", str(files / "schema.toml"), *arguments])


def test_check_counts_bad_cells_says_it_is_private_and_succeeds(files):
    done = run(files)
    assert done.exit_code == 0, done.output
    assert "PRIVATE" in done.output and "Do not publish" in done.output
    assert "3 records" in done.output
    for word in ("educ", "black", "region", "Range(5, 20)", "Flag()"):
        assert word in done.output
    assert "99" not in done.output and "west" not in done.output, "counts, never cells"


def test_a_header_alone_fails_the_check(files):
    (files / "data.csv").write_text("educ,black,region\n")
    done = run(files)
    assert done.exit_code == 1 and "no records; a fit would refuse" in done.output
    assert run(files, "--json").exit_code == 1


def test_check_json_holds_the_counts_and_the_notice(files):
    done = run(files, "--json")
    data = json.loads(done.output)
    assert done.exit_code == 0 and data["private"] is True and "Do not publish" in data["notice"]
    counts = {row["column"]: (row["missing"], row["outside"]) for row in data["columns"]}
    assert counts == {"educ": (1, 1), "black": (0, 1), "region": (0, 1)}


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_a_missing_declared_column_fails_the_check(files, arguments):
    pd.DataFrame({"educ": [12.0], "black": [1]}).to_csv(files / "data.csv", index=False)
    done = run(files, *arguments)
    assert done.exit_code == 1 and "missing from the data" in " ".join(done.output.split())


def test_a_text_column_under_a_range_fails_the_check(files):
    pd.DataFrame({"educ": ["12"], "black": [1], "region": ["north"]}).to_parquet(files / "data.parquet")
    done = run(files, "--json", data="data.parquet")
    assert done.exit_code == 1 and "must be numeric" in done.output


def test_an_absent_file_is_an_error_of_ours(files):
    done = run(files, data="absent.csv")
    assert isinstance(done.exception, PgbbError) and "absent.csv" in str(done.exception)


def test_all_commands_that_read_a_file_are_told_how_in_the_same_words():
    told = [{p for p in inspect.signature(command).parameters if p in FILE_OPTIONS}
            for command in (check_command, init_command, fit_command, compare_command)]  # fmt: skip
    assert told == [FILE_OPTIONS] * 4
