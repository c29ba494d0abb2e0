"""The door: what other rooms may touch, and what its handles refuse. Import contracts are in tests/test_house.py."""

import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from pgbb import Mean, PgbbError, QuantileRegression, Range, Schema
from pgbb.accountant import Mechanism, Resampling, compose
from pgbb.private import door

ROOT = Path(__file__).parents[2]
N = 60
SCHEMA = Schema(y=Range(-4, 4), a=Range(-1, 1))
PROBLEM = QuantileRegression("y ~ a", taus=[0.5]).prepare(SCHEMA)
FRAME = pd.DataFrame({"y": np.linspace(-4, 4, N), "a": np.cos(np.arange(N))})


@pytest.mark.parametrize(("code", "offends"), [("s._data", True), ("data._records", True), ("data.n", False)])
def test_other_rooms_do_not_look_behind_a_handle(code, offends):
    asked = ["--select", "SLF", "--stdin-filename", "src/pgbb/methods/offence.py", "-"]
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--no-cache", *asked], input=f"{code}\n", cwd=ROOT, capture_output=True,
        text=True,
    )  # fmt: skip
    assert ("SLF001" in done.stdout) == offends


# Handles --------------------------------------------------------------------------------------------------------------


def full_batch(asks=3):
    return compose([Mechanism(n=N, blocks=1, sampling_rate=1.0, steps=asks, clip=1.0)])


def batches():
    return Mechanism(n=N, blocks=5, sampling_rate=0.5, steps=2, clip=PROBLEM.clip)


def test_a_data_set_shows_its_size_and_nothing_else():
    data = door.open_dataset(FRAME, PROBLEM, SCHEMA)
    assert (repr(data), data.n, set(vars(data)) - {"n"}) == (f"Dataset(n={N})", N, {"_held", "_problem"})


def test_records_that_a_handle_has_taken_over_are_not_there_for_another():
    random = door.Randomness.create(0)
    for first in (lambda d: d.sums(full_batch(), ["all"], 0.1, random), lambda d: d.session(batches(), 0.1, random)):
        data = door.open_dataset(FRAME, PROBLEM, SCHEMA)
        first(data)
        for second in (
            lambda data=data: data.sums(full_batch(), ["all"], 0.1, random),
            lambda data=data: data.session(batches(), 0.1, random),
        ):
            with pytest.raises(PgbbError, match="but 0 were loaded"):
                second()


def test_records_that_are_kept_are_those_that_were_read():
    data = door.open_dataset(FRAME, PROBLEM, SCHEMA)

    def mean():
        return data.sums(full_batch(), ["all"], 0.0, door.Randomness.create(0), keep=True).ask(
            "all", lambda x, y: y / 4
        )

    first = mean()[0]
    data.session(batches(), 0.1, door.Randomness.create(0), keep=True)
    assert np.array_equal(mean()[0], first)
    shifted = FRAME["y"] - PROBLEM.shift
    assert first == pytest.approx(shifted.mean() / 4, abs=1e-5)


@pytest.mark.parametrize("times", [-1, 0, 3])
def test_a_question_asked_often_counts_as_often(times):
    sums = door.open_dataset(FRAME, PROBLEM, SCHEMA).sums(full_batch(2), ["all"], 0.5, door.Randomness.create(0))
    with pytest.raises(PgbbError, match="all its answers"):
        sums.ask_often("all", times, lambda x, y: y / 4)
    assert sums.left("all") == 2
    answers, _ = sums.ask_often("all", 2, lambda x, y: y / 4)
    assert answers.shape == (2, 1) and answers[0] != answers[1] and sums.left("all") == 0


def test_what_is_described_for_another_number_of_records_is_refused():
    mean = Mean("y", scale=1.0).prepare(SCHEMA)
    data, random = door.open_dataset(FRAME, mean, SCHEMA), door.Randomness.create(0)
    moment = door.Moment("response", bound=4.0)
    with pytest.raises(PgbbError, match="n = 61"):
        data.moments([moment], moment.describe(N + 1), 0.1, random)
    with pytest.raises(PgbbError, match="n = 61"):
        data.means((-4.0, 4.0), Resampling(N + 1, 5, 1.0), 0.1, random)


def test_a_statistic_sees_one_record():
    """Centring columns would mix rows; here it centres the entries of each record."""
    seen = []

    def centred(x, y):
        seen.append((x.shape, y.shape))
        return (x - jnp.mean(x, axis=0)) / 4

    data = door.open_dataset(FRAME, PROBLEM, SCHEMA)
    found, _ = data.sums(full_batch(), ["all"], 0.0, door.Randomness.create(0)).ask("all", centred)
    x = np.column_stack([np.ones(N), FRAME["a"]])
    assert set(seen) == {((2,), ())}
    assert found == pytest.approx(((x - x.mean(axis=1, keepdims=True)) / 4).mean(axis=0), abs=1e-5)
    assert found != pytest.approx(((x - x.mean(axis=0)) / 4).mean(axis=0), abs=1e-2)  # what a chunk at once would give
