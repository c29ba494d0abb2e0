import json
import sys
import warnings

import numpy as np
import pandas as pd
import pytest

import pgbb
from pgbb.cli import main
from tests.helpers import pgbb_here

SCHEMA = """
[columns]
x = { range = [-1, 1] }
y = { range = [-5, 5] }
"""
BASE = ["d.csv", "-s", "s.toml", "-f", "y ~ x", "--taus", ".2,.8", "--epsilon", "1", "--delta", "1e-6"]
QUICK = [
    "--methods",
    "pgbb,sgld",
    "--set",
    "pgbb.steps=20",
    "--set",
    "pgbb.sampling_rate=.2",
    "--set",
    "sgld.steps=20",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("compare")
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 300)
    pd.DataFrame({"x": x, "y": x + rng.normal(0, 0.3, 300)}).to_csv(path / "d.csv", index=False)
    (path / "s.toml").write_text(SCHEMA)
    return path


@pytest.fixture
def run(folder, monkeypatch, capsys):
    """A command in this process, as `pgbb` runs it: (exit code, output, errors)."""

    def call(*arguments):
        monkeypatch.chdir(folder)
        monkeypatch.setenv("PGBB_NO_CACHE", "1")
        monkeypatch.setattr(sys, "argv", ["pgbb", *arguments])
        monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
        with pytest.raises(SystemExit) as stopped:
            main()
        return stopped.value.code or 0, *capsys.readouterr()

    return call


def test_a_table_the_joint_cost_files_and_a_figure(folder, run):
    done = pgbb_here("compare", *BASE, *QUICK, "--save", "out", "--plot", "c.png", cwd=folder)
    assert done.returncode == 0, done.stderr
    for word in ("pgbb", "sgld", "width", "assumes:", "Intercept", "0.8"):
        assert word in done.stdout
    assert "All 2 together cost ε = 2, δ = 2e-06 by basic composition; ε = 1." in done.stdout
    assert "at the same δ by exact composition" in done.stdout and "NOT PRIVATE" not in done.stdout
    assert sorted(p.name for p in (folder / "out").iterdir()) == ["pgbb.pgbb", "sgld.pgbb"]
    assert all(pgbb.load(p).verify().ok for p in (folder / "out").iterdir())
    assert (folder / "c.png").stat().st_size > 10_000
    code, _, error = run("compare", *BASE, *QUICK, "--save", "out")
    assert code == 2 and "pgbb.pgbb, sgld.pgbb" in error and "--force" in error


def test_json_with_a_reference_that_is_marked(run):
    extra = ["--family", "huber", "--reference", "--i-know-this-is-not-private", "--json", "--level", ".9"]
    one = [a for a in BASE if a not in ("--taus", ".2,.8")]
    code, output, error = run("compare", *one, *extra, "--methods", "sgld", "--set", "sgld.steps=20")
    assert code == 0, error
    report = json.loads(output)
    assert report["private"] is False and report["level"] == 0.9
    assert report["cost"]["epsilon"] == 1.0 and report["cost"]["tighter_epsilon"] == pytest.approx(1.0, abs=1e-3)
    names = ["Intercept", "x", "scale"]
    assert [row["coefficient"] for row in report["rows"]] == names
    assert all("reference (NOT PRIVATE)" in row for row in report["rows"])
    assert report["rows"][1]["reference (NOT PRIVATE)"] == pytest.approx(1.0, abs=0.1)
    assert report["methods"][0]["certificate"]["mechanism"]["steps"] == 20


@pytest.mark.parametrize(
    "change, word",
    [
        (["--methods", "pgbb,noisy_gibbs"], "noisy_gibbs' does not serve quantile"),
        (["--methods", "magic"], "magic"),
        (["--set", "sgld=5"], "METHOD.SETTING=VALUE"),
        (["--set", "sgld.temperature=5"], "temperature"),
        (["--set", "noisy_gibbs.thin=5"], "noisy_gibbs"),
        (["--reference"], "not private"),
        (["--insecure-seed", "1"], "not private"),
        (["--plot", "c.docx"], "c.docx"),
        (["--plot", "none/c.png"], "folder"),
        (["--save", "none/deeper"], "--save"),
        (["--save", "s.toml"], "a folder"),
        (["--tau", ".4"], "tau = 0.4"),
    ],
)
def test_a_mistake_gets_one_paragraph_and_exit_code_two_before_data_are_read(run, change, word):
    code, output, error = run("compare", "never-opened.csv", *BASE[1:], *change)
    assert code == 2 and output == ""
    assert word in error and error.startswith("error: ") and "never-opened" not in error


def test_fit_takes_every_method(run, tmp_path):
    out = tmp_path / "r.pgbb"
    code, _, error = run("fit", *BASE, "--method", "sgld", "--steps", "20", "-o", str(out), "--quiet")
    assert code == 0, error
    assert pgbb.load(out).stored_diagnostics["method"] == "sgld"
