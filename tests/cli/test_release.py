import json

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from pgbb.cli.report import plot_command
from pgbb.cli.show import sample_command, show_command, verify_command
from pgbb.errors import PgbbError
from pgbb.release.figures import coefficient_intervals, quantile_process
from pgbb.release.file import load
from pgbb.release.signing import generate_key
from tests.release.builders import certificate, non_private, stored_draws
from tests.release.builders import generator_release as release

app = typer.Typer()
for name, command in (
    ("show", show_command),
    ("sample", sample_command),
    ("verify", verify_command),
    ("plot", plot_command),
):
    app.command(name)(command)


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, (result.output, result.exception)
    return result.stdout


def fails(*arguments):
    """The error that `pgbb.cli.main` turns into one paragraph and exit code 2."""
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert isinstance(result.exception, PgbbError), (result.output, result.exception)
    return str(result.exception)


@pytest.fixture
def quantiles(tmp_path):
    return release().save(tmp_path / "q.pgbb")


@pytest.fixture
def plain(tmp_path):
    return release(None).save(tmp_path / "p.pgbb")


def test_show_prints_every_level_and_the_claim_within_eighty_columns(quantiles):
    text = run("show", quantiles)
    assert "quantile regression: logwk ~ educ + black" in text and "replace one record" in text
    assert text.count("educ") == 4 and all(f"\n{tau} " in text for tau in ("0.1", "0.5", "0.9"))
    assert max(map(len, text.splitlines())) <= 80
    summary = load(quantiles).summary(tau=0.5)
    assert f"{summary.loc['educ', 'mean']:.4g}" in run("show", quantiles, "--tau", ".5")


def test_show_json_holds_the_numbers_that_the_library_gives(quantiles, plain):
    data = json.loads(run("show", quantiles, "--tau", ".1,.9", "--level", ".8", "--json"))
    table = load(quantiles).summary(tau=[0.1, 0.9], level=0.8)
    assert [(r["tau"], r["name"]) for r in data["summary"]] == list(table.index)
    assert np.allclose([r["lower"] for r in data["summary"]], table["lower"])
    assert data["certificate"]["accountant"] == "paper" and data["private"] is True
    assert data["diagnostics"]["crossing"] is not None
    (one,) = {r["tau"] for r in json.loads(run("show", quantiles, "--tau", ".5", "--json"))["summary"]}
    assert one == 0.5
    assert "tau" not in json.loads(run("show", plain, "--json"))["summary"][0]


@pytest.mark.parametrize("claim", [non_private(), certificate(randomness="insecure seed")])
def test_show_and_verify_mark_what_is_not_private(claim, tmp_path):
    path = release(claim=claim).save(tmp_path / "n.pgbb")
    assert "NOT PRIVATE" in run("show", path)
    assert json.loads(run("show", path, "--json"))["private"] is False
    assert "NOT PRIVATE" in run("verify", path, code=1)


def test_show_works_for_intervals_and_stored_draws(tmp_path):
    assert run("show", release("interval").save(tmp_path / "i.pgbb")).count("educ") == 6
    assert run("show", release(payload=stored_draws()).save(tmp_path / "d.pgbb")).count("educ") == 4


def test_sample_writes_csv_parquet_or_prints(quantiles, plain, tmp_path):
    run("sample", quantiles, "-m", 30, "--tau", ".1,.9", "--seed", 1, "--out", tmp_path / "d.csv")
    frame = pd.read_csv(tmp_path / "d.csv")
    assert frame.shape == (30, 6) and "educ[0.9]" in frame.columns
    expected = load(quantiles).sample(30, tau=[0.1, 0.9], seed=1)
    assert np.allclose(frame, expected)
    run("sample", quantiles, "-m", 30, "--tau", ".1,.9", "--seed", 1, "--out", tmp_path / "d.parquet")
    assert np.allclose(pd.read_parquet(tmp_path / "d.parquet"), expected)
    lines = run("sample", plain, "-m", 5).splitlines()
    assert lines[0] == "Intercept,educ,black" and len(lines) == 6


def test_verify_prints_epsilon_by_accountant_and_exits_with_one_on_failure(quantiles, tmp_path):
    text = run("verify", quantiles)
    assert all(part in text for part in ("ε by exact", "ε by paper", "ε by worst-case", "unsigned", "verified"))
    assert max(map(len, text.splitlines())) <= 80
    data = json.loads(run("verify", quantiles, "--json"))
    assert data["ok"] and data["epsilon_by_accountant"]["exact"] < data["epsilon_by_accountant"]["paper"]
    liar = release(claim=certificate(epsilon=0.1)).save(tmp_path / "liar.pgbb")
    assert "claim is false" in " ".join(run("verify", liar, code=1).split())
    assert json.loads(run("verify", liar, "--json", code=1))["ok"] is False


def test_verify_names_the_signer_and_can_insist_on_one(tmp_path):
    fingerprint = generate_key(tmp_path / "key.pem")
    path = release().save(tmp_path / "s.pgbb", key=tmp_path / "key.pem")
    assert fingerprint in run("verify", path, "--signer", fingerprint)
    run("verify", path, "--signer", "SHA256:other", code=1)


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_plot_draws_the_quantile_process(quantiles, tmp_path, suffix):
    target = tmp_path / f"figure.{suffix}"
    assert str(target) in run("plot", quantiles, "--out", target).replace("\n", "")
    assert target.stat().st_size > 5_000


def test_plot_draws_intervals_for_a_model_without_levels(plain, tmp_path):
    run("plot", plain, "--out", tmp_path / "p.png", "--level", ".9")
    assert (tmp_path / "p.png").read_bytes()[:4] == b"\x89PNG"


def test_the_quantile_process_shows_the_summary_over_the_grid():
    r = release("interval")
    figure = quantile_process(r, 0.9, ["educ"])
    (axis,) = figure.axes
    x, y = axis.lines[0].get_data()
    assert len(x) == 21 and (x[0], x[-1]) == (0.1, 0.9)
    table = r.summary(list(x), 0.9).xs("educ", level=1)
    assert np.allclose(y, table["mean"])
    band = axis.collections[0].get_paths()[0].vertices[:, 1]
    assert band.min() == pytest.approx(table["lower"].min()) and band.max() == pytest.approx(table["upper"].max())
    assert "ε = " in figure.get_suptitle()
    assert sum(a.get_visible() for a in quantile_process(release()).axes) == 3


def test_intervals_on_the_figure_are_those_of_the_summary():
    r = release(None, claim=non_private())
    figure = coefficient_intervals(r, 0.8)
    lower, upper = figure.axes[1].lines[0].get_xdata()
    assert (lower, upper) == tuple(r.summary(level=0.8).loc["educ", ["lower", "upper"]])
    assert "NOT PRIVATE" in figure.get_suptitle()


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["show", "FILE", "--tau", "half"], "--tau"),
        (["show", "FILE", "--tau", ".2"], "tau = 0.2"),
        (["show", "FILE", "--level", "95"], "level"),
        (["show", "absent.pgbb"], "no such file"),
        (["sample", "FILE", "-m", "0"], "m = 0"),
        (["sample", "FILE", "--out", "draws.xls"], "--out"),
        (["sample", "FILE", "--out", "no/where/draws.csv"], "folder"),
        (["verify", "absent.pgbb"], "no such file"),
        (["plot", "FILE", "--out", "figure.xyz"], "must end in"),
        (["plot", "FILE", "--out", "figure.png", "--coef", "age"], "age"),
        (["plot", "FILE", "--out", "figure.png", "--level", "0"], "level"),
    ],
)
def test_a_mistake_says_what_is_allowed_and_writes_nothing(arguments, said, quantiles, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert said in fails(*[quantiles if a == "FILE" else a for a in arguments])
    assert list(tmp_path.iterdir()) == [quantiles]
