import numpy as np
import pandas as pd
import pytest

import pgbb
from tests.helpers import pgbb_command, pgbb_here

SCHEMA = """
[columns]
x = { range = [-1, 1] }
y = { range = [-5, 5] }
g = { levels = ["north", "south"] }
"""
BASE = ["--epsilon", "1", "--delta", "1e-6"]
PGBB = ["--method", "pgbb", "--steps", "40", "--blocks", "5", "-q", "0.2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("fit")
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 500)
    data = pd.DataFrame({"x": x, "y": x + rng.normal(0, 0.3, 500), "g": rng.choice(["north", "south"], 500)})
    data.loc[3, "y"] = np.nan
    data.to_csv(path / "d.csv", index=False)
    data.to_parquet(path / "d.parquet")
    (path / "s.toml").write_text(SCHEMA)
    return path


def run(*arguments, cwd):
    return pgbb_here(*arguments, cwd=cwd)


@pytest.mark.parametrize("method, fit", [([], pgbb_command), (PGBB, pgbb_here)], ids=["default", "pgbb"])
def test_fit_show_sample_plot_verify_go_round(folder, method, fit):
    model = ["-f", "y ~ x + g", "--taus", ".2,.8", *BASE, *method]
    done = fit("fit", "d.csv", "-s", "s.toml", *model, "-o", "r.pgbb", "--force", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "g[T.south]" in done.stdout and "written to r.pgbb" in done.stdout
    for command in (
        ["show", "r.pgbb", "--tau", ".2"],
        ["sample", "r.pgbb", "-m", "10", "--tau", ".2,.8", "--out", "draws.csv"],
        ["plot", "r.pgbb", "--out", "r.png"],
        ["verify", "r.pgbb"],
        ["check", "d.csv", "-s", "s.toml"],
    ):
        step = run(*command, cwd=folder)
        assert step.returncode == 0, (command, step.stderr)
    assert (folder / "r.png").stat().st_size > 10_000 and len(pd.read_csv(folder / "draws.csv")) == 10


@pytest.mark.parametrize(
    "extra",
    [
        ["-f", "y ~ x", "--family", "huber"],
        ["--family", "mean", "--column", "y", "--scale", "0.5"],
        ["-f", "y ~ x", "--interval", ".1,.9"],
    ],
)
def test_other_families_fit_from_the_command_line(folder, extra, tmp_path):
    out = tmp_path / "r.pgbb"
    done = run("fit", "d.parquet", "-s", "s.toml", *extra, *BASE, "-o", str(out), "--quiet", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert pgbb.load(out).verify().ok and done.stdout == ""


@pytest.mark.parametrize(
    "change, word",
    [
        (["-f", "y ~ nope"], "nope"),
        (["-f", "y ~ scale(x)"], "scale"),
        (["-f", "y ~~ x"], "formula"),
        (["-f", "y ~ x", "--taus", "0,.5"], "taus"),
        (["-f", "y ~ x", "--taus", "a"], "taus"),
        (["-f", "y ~ x", "--epsilon", "0"], "epsilon"),
        (["-f", "y ~ x", *PGBB, "--blocks", "501"], "blocks"),
        (["-f", "y ~ x", "--blocks", "5"], "blocks"),
        (["-f", "y ~ x", "--method", "pgbb", "--settings", "printed"], "accountant"),
        (
            ["-f", "y ~ x", "--method", "pgbb", "--settings", "printed", "--accountant", "paper", "-q", ".2"],
            "sampling_rate",
        ),
        (["-f", "y ~ x", "--family", "cox"], "family"),
        (["-f", "y ~ x", "--insecure-seed", "1"], "not private"),
        (["--family", "mean"], "column"),
        (["--family", "mean", "--column", "y", "-f", "y ~ x"], "--formula"),
        (["-f", "y ~ x", "--family", "huber", "--taus", ".5"], "--family quantile"),
        (["-f", "y ~ x", "--column", "y"], "--family mean"),
        (["-f", "y ~ x", "--scale", "2"], "--family mean"),
        (["-f", "y ~ x", "--expectile", ".8"], "--family expectile"),
        (["-f", "y ~ x", "--taus", ".5", "--interval", ".1,.9"], "--interval"),
        (["-f", "y ~ x", "--method", "sgld", "--persons", "x", "--group-size", "2"], "'calibrated'"),
        ([], "formula"),
    ],
)
def test_a_mistake_gets_one_paragraph_exit_code_two_and_no_file(folder, change, word, tmp_path):
    out = tmp_path / "r.pgbb"
    done = run("fit", "d.csv", "-s", "s.toml", *BASE, "-o", str(out), *change, cwd=folder)
    assert done.returncode == 2, done.stderr
    assert word in done.stderr and "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_or_a_missing_folder_is_noticed_before_spending(folder, tmp_path):
    (tmp_path / "r.pgbb").write_bytes(b"keep me")
    for out in (tmp_path / "r.pgbb", tmp_path / "none" / "r.pgbb", tmp_path / "r.zip"):
        done = run("fit", "d.csv", "-s", "s.toml", "-f", "y ~ x", *BASE, "-o", str(out), cwd=folder)
        assert done.returncode == 2 and "--out" in done.stderr
    assert (tmp_path / "r.pgbb").read_bytes() == b"keep me"


def test_a_corrupt_release_fails_in_one_line(folder, tmp_path):
    (tmp_path / "bad.pgbb").write_bytes(b"PK\x03\x04 nonsense")
    for command in ("show", "verify"):
        done = run(command, str(tmp_path / "bad.pgbb"), cwd=folder)
        assert done.returncode == 2 and done.stderr.startswith("error: ") and "Traceback" not in done.stderr


def test_names_of_levels_are_printed_whole(folder, tmp_path):
    out = tmp_path / "r.pgbb"
    done = run(
        "fit", "d.csv", "-s", "s.toml", "-f", "y ~ g - 1", "--family", "huber", *BASE, "-o", str(out), cwd=folder
    )
    assert done.returncode == 0, done.stderr
    assert "g[north]" in done.stdout and "g[south]" in done.stdout


def test_a_bad_key_is_noticed_before_spending(folder, tmp_path):
    key = tmp_path / "key.pem"
    key.write_text("nonsense")
    for path in (key, tmp_path / "none.pem"):
        bad = ["--key", str(path), "--epsilon", "0"]
        done = run(
            "fit", "d.csv", "-s", "s.toml", "-f", "y ~ x", *BASE, "-o", str(tmp_path / "r.pgbb"), *bad, cwd=folder
        )
        assert done.returncode == 2 and "key" in done.stderr  # before the bad epsilon is even seen


def test_the_older_name_of_a_method_is_understood_with_a_note(folder, tmp_path):
    out = tmp_path / "r.pgbb"
    quick = ["--method", "paper", "--steps", "10", "--blocks", "1", "-q", "1", "--quiet"]
    mean = ["--family", "mean", "--column", "y", "--scale", "0.5"]
    done = run("fit", "d.csv", "-s", "s.toml", *mean, *BASE, *quick, "-o", str(out), cwd=folder)
    assert done.returncode == 0 and "note: method = 'paper' is called 'pgbb'" in done.stderr
    assert pgbb.load(out).verify().ok
