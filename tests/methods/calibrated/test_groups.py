"""Means and proportions by groups: exact without noise, marked where empty; coverage, with a twin that fails."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import pgbb
from pgbb import Flag, Levels, Mean, Range, Schema
from pgbb.cli import app
from pgbb.methods.calibrated import groups
from pgbb.methods.calibrated.groups import BEYOND, CLEAR, LAZY, UNEVEN, UNSEEN, End
from pgbb.methods.calibrated.pareto import Tail

pytestmark = pytest.mark.filterwarnings("ignore:not identified")
NAMES = [f"g{j}" for j in range(20)]
SIZES = np.round(np.geomspace(40, 4000, 19)).astype(int)  # the last group has no record
SCHEMA = Schema(
    pay=Range(0, 500), works=Flag(), w=Range(0, 2), group=Levels(*NAMES), sex=Levels("f", "m"), city=Levels(0, 1)
)
MEANS = 20 + 5 * np.sin(np.arange(19))
RATES = np.linspace(0.05, 0.9, 19)


def frame(seed):
    """Skewed pay, whose mean differs by group; a share of those who work; weights that go with neither."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(19), SIZES)
    pay = MEANS[group] * rng.gamma(4.0, 0.25, len(group))
    return pd.DataFrame(
        {
            "pay": np.clip(pay, 0, 500),
            "works": (rng.random(len(group)) < RATES[group]).astype(int),
            "w": rng.uniform(0.5, 2, len(group)),
            "group": np.array(NAMES)[group],
            "sex": rng.choice(["f", "m"], len(group)),
            "city": rng.integers(2, size=len(group)),
        }
    )


def fit(model, data, epsilon=2.0, seed=0, **more):
    return pgbb.fit(model, data, schema=SCHEMA, epsilon=epsilon, delta=1e-6, insecure_seed=seed, **more)


def test_without_noise_the_means_are_those_of_the_groups_and_the_empty_one_is_marked():
    data = frame(1)
    exact = data.groupby("group")["pay"].mean().reindex(NAMES)
    release = fit(Mean("pay", by="group"), data, non_private=True)
    table = release.summary(draws=20_000)
    assert list(table.index) == [f"group[{name}]" for name in NAMES]
    assert not table["identified"].iloc[-1] and table["identified"].iloc[:-1].all()
    off = (table["mean"].to_numpy() - exact.to_numpy())[:-1]
    assert np.abs(off / table["sd"].to_numpy()[:-1]).max() < 0.05
    error = data.groupby("group")["pay"].sem().reindex(NAMES).to_numpy()[:-1]
    assert table["sd"].to_numpy()[:-1] == pytest.approx(error, rel=0.35)
    both = fit(Mean("pay", by=["city", "sex"]), data, non_private=True, weights="w").summary(draws=20_000)
    some = data[(data.city == 1) & (data.sex == "m")]
    assert both.loc["city[1]:sex[m]", "mean"] == pytest.approx(np.average(some.pay, weights=some.w), rel=1e-3)


@pytest.mark.parametrize("column, truth", [("pay", MEANS), ("works", RATES)])
def test_intervals_of_groups_cover_and_narrower_ones_do_not(column, truth):
    hits, narrow, marked = [], [], []
    for seed in range(8):
        table = fit(Mean(column, by="group"), frame(seed), seed=seed).summary()
        known = table["identified"].to_numpy()
        away = np.abs(table["mean"].to_numpy()[:-1] - truth) / table["sd"].to_numpy()[:-1]
        hits += list(away[known[:-1]] < 1.96)
        narrow += list(away[known[:-1]] < 0.8)
        marked.append(~known)
    assert 0.89 < np.mean(hits) <= 1 and np.mean(narrow) < 0.75
    share = np.mean(marked, axis=0)
    assert share[-1] == 1 and share[8:-1].max() == 0  # the empty group always, groups of 300 never


def far_off(data, group, shift, factor=1.0):
    """The data with the pay of a group so much higher, and so many times as spread; and the mean of the group."""
    own = data["group"] == group
    pay = (20 + shift + factor * (data["pay"] - 20)).clip(0, 500)
    data = data.assign(pay=data["pay"].where(~own, pay))
    return data, data.loc[own, "pay"].mean()


def test_a_group_beyond_the_first_window_is_covered_and_a_twin_that_overlooks_it_misses_it(monkeypatch):
    data, truth = far_off(frame(4), "g10", 100, 4)  # 517 of 17,000 records
    found = fit(Mean("pay", by="group"), data).summary().loc["group[g10]"]
    assert found["identified"] and abs(found["mean"] - truth) < 2 * found["sd"] < 5
    farther = far_off(frame(4), "g10", 250)[0]
    assert not fit(Mean("pay", by="group"), farther).summary().loc["group[g10]", "identified"]
    monkeypatch.setattr(groups, "OUTSIDE", 9.0)
    twin = fit(Mean("pay", by="group"), data).summary().loc["group[g10]"]
    assert twin["identified"] and abs(twin["mean"] - truth) > 4 * twin["sd"]


def test_a_record_in_another_group_moves_those_two_groups_alone():
    data = frame(2)
    at = int(np.flatnonzero(data["group"] == "g18")[0])
    other = data.copy()
    other.loc[at, ["group", "works"]] = ["g3", 1 - data.loc[at, "works"]]
    first, second = (fit(Mean("works", by="group"), d).payload.tensors["center"][0] for d in (data, other))
    moved = np.flatnonzero(first != second)
    assert set(moved) == {3, 18}


def test_the_certificate_says_how_small_a_group_may_be():
    notes = [fit(Mean("works", by="group"), frame(3), epsilon=e).certificate.notes[0] for e in (0.5, 2.0)]
    least = [int(note.split("about ")[1].split(" ")[0]) for note in notes]
    assert least[0] > 3 * least[1] > 0


def test_an_end_of_the_law_knows_its_tail_and_doubts_what_few_records_may_hide():
    end = End(Tail(2.0, 0.05, 0.5), extreme=0.02, farthest=40.0, reaches=40.0)
    mean, doubt = end.at(np.array([2.0, 3.0, BEYOND + 20, BEYOND + 40]), np.array(60.0))
    assert mean[:2] == pytest.approx([0.05 * 0.5, 0.05 * 0.5 * np.exp(-2)])
    assert doubt[2:] == pytest.approx([UNEVEN * 0.01, 0.0], abs=1e-9) and doubt[0] == pytest.approx(UNEVEN * 0.02)
    assert CLEAR > 3


def test_records_that_no_answer_shows_are_doubted_where_the_range_goes_far_beyond_the_tail():
    end = End(Tail(2.0, 0.05, 0.5), extreme=0.0, farthest=60.0, reaches=10.0)
    rooms = np.array([8.0, 20.0, 60.0, 1000.0])
    assert end.unseen(5.0, rooms) == pytest.approx(UNSEEN / 2 * np.array([0, 15.0, 55.0, 55.0]) ** 2)
    assert end.at(np.array(8.0), rooms)[:, 0] == pytest.approx([0, 0])  # the window is the range
    assert end.at(np.array(30.0), rooms)[1][2:] == pytest.approx(UNSEEN / 2 * 30.0**2)


def extremes(seed, most):
    """Pay in twenty groups; in the largest, of 4,000, one record in 300 has twenty times as much as others."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(20), [1000] * 19 + [4000])
    pay = 10 * rng.lognormal(0, 0.5, len(group))
    pay[(group == 19) & (rng.random(len(group)) < 1 / 300)] = 200.0
    data = pd.DataFrame({"pay": pay.clip(0, most), "group": np.array(NAMES)[group]})
    schema = Schema(pay=Range(0, most), group=Levels(*NAMES))
    return pgbb.fit(Mean("pay", by="group"), data, schema=schema, epsilon=2.0, delta=1e-6, insecure_seed=seed)


def test_a_group_that_a_few_extreme_records_move_is_covered_and_would_not_be_without_the_doubt(monkeypatch):
    usual = 10 * np.exp(0.125)
    truth = np.append(np.full(19, usual), usual + (200 - usual) / 300)

    def hits(releases):
        tables = [release.summary() for release in releases]
        return np.array([(t["lower"].to_numpy() <= truth) & (truth <= t["upper"].to_numpy()) for t in tables])

    fits = [extremes(seed, 300.0) for seed in range(4)]
    found = hits(fits)
    assert found[:, 19].sum() >= 3 and found.mean() > 0.88
    assert LAZY in fits[0].certificate.notes and LAZY not in extremes(0, 60.0).certificate.notes
    monkeypatch.setattr(groups, "UNSEEN", 0.0)
    assert hits([extremes(seed, 300.0) for seed in range(4)])[:, 19].sum() <= 1


@pytest.mark.parametrize(
    "model, said",
    [
        (lambda: Mean("pay", by="sex", scale=1.0), "scale"),
        (lambda: Mean("pay", by="sex", clip=1.0), "clip"),
        (lambda: Mean("pay", by="sex", family="exponential"), "family"),
        (lambda: Mean("pay", by=[]), "by"),
        (lambda: Mean("pay", by=["sex", "sex"]), "by"),
        (lambda: Mean("pay", by="works").prepare(SCHEMA), r"Levels\(0, 1\)"),
        (lambda: Mean("pay", by="in").prepare(pgbb.Schema(**SCHEMA, **{"in": Flag("no", "yes")})), r"'no', 'yes'\)"),
        (lambda: Mean("pay", by="age").prepare(SCHEMA), "not declared"),
        (lambda: Mean("group", by="sex").prepare(SCHEMA), "Range"),
        (lambda: fit(Mean("pay", by="sex"), frame(1), method="sgld"), "'calibrated'"),
    ],
)
def test_what_groups_cannot_be_is_refused_before_anything_is_asked(model, said):
    with pytest.raises(pgbb.InvalidValue, match=said):
        model()


def test_the_command_line_writes_a_table_of_groups(tmp_path):
    frame(4).to_csv(tmp_path / "d.csv", index=False)
    (tmp_path / "s.toml").write_text(SCHEMA.to_toml())
    call = ["fit", tmp_path / "d.csv", "-s", tmp_path / "s.toml", "-e", "2", "-d", "1e-6", "-o", tmp_path / "r.pgbb",
            "--json", "--by", "sex", "--column", "pay", "--family"]  # fmt: skip
    done = CliRunner().invoke(app, [str(a) for a in [*call, "mean"]])
    assert [row["name"] for row in json.loads(done.stdout)["summary"]] == ["sex[f]", "sex[m]"]
    release = pgbb.load(tmp_path / "r.pgbb")
    assert release.title == "means of pay by sex"
    assert release.predict({"sex": ["m"]})["mean"].iloc[0] == pytest.approx(release.summary()["mean"].iloc[1], rel=0.02)
    refused = CliRunner().invoke(app, [str(a) for a in [*call, "linear", "-f", "pay ~ sex", "--force"]])
    assert refused.exit_code != 0 and "--family mean" in str(refused.exception)
