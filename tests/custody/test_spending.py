"""The steps of a release under a ledger, in their order."""

import numpy as np
import pandas as pd
import pytest

import pgbb
from pgbb.custody.ledger import Ledger
from pgbb.custody.spending import spending
from pgbb.methods.registry import settings_for
from pgbb.methods.request import Request

N = 400
SCHEMA = pgbb.Schema(y=pgbb.Range(-5, 5))
MODEL = pgbb.Mean("y", scale=0.5)
DATA = pd.DataFrame({"y": np.random.default_rng(0).normal(1, 0.5, N)})
pytestmark = pytest.mark.filterwarnings("ignore::pgbb.PgbbWarning")
METHOD, SETTINGS = settings_for("noisy_gibbs", {"iterations": 400, "thin": 1})


@pytest.fixture
def ledger(tmp_path):
    made = Ledger(tmp_path / "ledger.db")
    made.set("d", n=N, epsilon=1.0, delta=1e-6)
    return made


def states(ledger):
    return [e.state for e in ledger.dataset("d").entries]


def begun(ledger):
    return spending(Request(MODEL, DATA, SCHEMA, 0.5, 1e-6), METHOD, SETTINGS, ledger=ledger, dataset="d")


def test_each_step_is_on_disk_before_the_next(ledger, tmp_path):
    with begun(ledger) as spent:
        assert states(ledger) == ["reserved"]
        release = METHOD.load().run(spent.request, SETTINGS)
        assert states(ledger) == ["answering"]
        spent.by(release)
        release.save(tmp_path / "r.pgbb")
        assert states(ledger) == ["answering"]
    (entry,) = ledger.dataset("d").entries
    assert entry.state == "settled" and entry.certificate == pgbb.load(tmp_path / "r.pgbb").certificate_hash


def test_fit_saves_the_release_before_the_ledger_settles(ledger, tmp_path, monkeypatch):
    seen, save = [], pgbb.Release.save
    monkeypatch.setattr(pgbb.Release, "save", lambda *a, **k: (seen.append(states(ledger)), save(*a, **k))[1])
    pgbb.fit(
        MODEL, DATA, schema=SCHEMA, epsilon=0.5, delta=1e-6, method="noisy_gibbs", iterations=400, thin=1,
        ledger=ledger, dataset="d", out=tmp_path / "r.pgbb",
    )  # fmt: skip
    assert seen == [["answering"]] and states(ledger) == ["settled"] and (tmp_path / "r.pgbb").exists()


def test_a_block_that_ends_without_a_release_is_closed_and_says_so(ledger):
    with pytest.raises(pgbb.PgbbError, match="without a release"), begun(ledger):
        pass
    with pytest.raises(pgbb.PgbbError, match="without a release"), begun(ledger) as spent:
        METHOD.load().run(spent.request, SETTINGS)  # answered, but never said to be the release
    assert states(ledger) == ["refunded", "spent"]


def test_a_release_may_be_signed_as_it_is_saved(tmp_path):
    fingerprint = pgbb.generate_key(tmp_path / "k.pem")
    pgbb.fit(
        MODEL, DATA, schema=SCHEMA, epsilon=0.5, delta=1e-6, method="noisy_gibbs", iterations=400, thin=1,
        out=tmp_path / "r.pgbb", key=tmp_path / "k.pem",
    )  # fmt: skip
    assert pgbb.load(tmp_path / "r.pgbb").verify(signer=fingerprint).ok
