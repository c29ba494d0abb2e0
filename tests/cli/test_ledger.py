import json

import numpy as np
import pandas as pd
import pytest

import pgbb
from pgbb.custody.ledger import Ledger
from tests.helpers import pgbb_here

MEAN = ["--family", "mean", "--column", "y", "--scale", ".5", "--method", "noisy_gibbs", "--delta", "1e-6", "--quiet"]
SET = ["--n", "300", "--epsilon", "1", "--delta", "1e-6"]


def run(*arguments, cwd):
    return pgbb_here(*arguments, cwd=cwd)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("ledger")
    pd.DataFrame({"y": np.random.default_rng(0).normal(1, 0.5, 300)}).to_csv(path / "d.csv", index=False)
    (path / "s.toml").write_text("[columns]\ny = { range = [-5, 5] }\n")
    return path


def fit(folder, epsilon, out, *more):
    return run("fit", "d.csv", "-s", "s.toml", *MEAN, "-e", epsilon, "-o", out, *more, cwd=folder)


def test_set_fit_refuse_show_and_history_go_round(folder):
    done = run("ledger", "set", "l.db", "births", *SET, cwd=folder)
    assert done.returncode == 0 and "births: n = 300, ε = 1" in done.stdout, done.stderr
    paid = ["--ledger", "l.db", "--dataset", "births"]
    done = fit(folder, "0.8", "a.pgbb", *paid)
    assert done.returncode == 0, done.stderr
    refused = fit(folder, "0.8", "b.pgbb", *paid)
    assert refused.returncode == 2 and "would fit" in refused.stderr and not (folder / "b.pgbb").exists()

    shown = json.loads(run("ledger", "show", "l.db", "--json", cwd=folder).stdout)
    (births,) = shown["datasets"]
    assert births["entries"]["settled"] == 1 and 0.6 < births["share_used"] < 0.7
    assert births["left"]["epsilon"] == pytest.approx(Ledger(folder / "l.db").dataset("births").left)
    text = run("ledger", "show", "l.db", "births", cwd=folder).stdout
    assert "births" in text and shown["digest"][:16] in text

    (entry,) = json.loads(run("ledger", "history", "l.db", "--json", cwd=folder).stdout)["entries"]
    assert entry["certificate_sha256"] == pgbb.load(folder / "a.pgbb").certificate_hash
    assert entry["method"] == "noisy_gibbs" and entry["mechanism"]["n"] == 300
    assert entry["certificate_sha256"][:8] in run("ledger", "history", "l.db", "births", cwd=folder).stdout


@pytest.mark.parametrize(
    "arguments, word",
    [
        (["show", "none.db"], "no such ledger"),
        (["history", "d.csv"], "not a readable ledger"),
        (["show", "s.toml"], "not a readable ledger"),
        (["set", "x.db", "a", "--n", "0", "-e", "1", "-d", "1e-6"], "n = 0"),
        (["set", "no/folder/x.db", "a", *SET], "folder"),
    ],
)
def test_a_mistake_gets_one_paragraph_and_exit_code_two(folder, arguments, word):
    done = run("ledger", *arguments, cwd=folder)
    assert done.returncode == 2 and word in done.stderr and "Traceback" not in done.stderr
    assert not (folder / "x.db").exists()


def test_a_seeded_fit_is_not_paid_for(folder, tmp_path):
    Ledger(tmp_path / "l.db").set("d", n=300, epsilon=1.0, delta=1e-6)
    seeded = ["--insecure-seed", "1", "--i-know-this-is-not-private"]
    done = fit(folder, "0.5", "c.pgbb", "--ledger", str(tmp_path / "l.db"), "--dataset", "d", *seeded)
    assert done.returncode == 2 and "no privacy" in done.stderr and not (folder / "c.pgbb").exists()
