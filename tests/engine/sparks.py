"""Tests on Spark in local mode. `test_spark.py` runs them in a process of their own, where there is Java."""

import os
import sys

import numpy as np
import pytest

import pgbb
from pgbb.engine import spark as module
from pgbb.engine.protocol import Asked, Question
from pgbb.methods.calibrated import statistics
from pgbb.private.door import open_sums
from tests.engine.models import MODELS, SCHEMA, bits, fit, records

FRAME = records(3001)


@pytest.fixture(scope="module")
def session():
    os.environ["PYSPARK_PYTHON"] = sys.executable
    options = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "OFF",
    }
    builder = pytest.importorskip("pyspark.sql").SparkSession.builder.master("local[2]")
    for name, value in options.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    yield made
    made.stop()


def test_spark_gives_the_bits_of_one_process(session):
    chain = {"method": "sgld", "steps": 2}
    there = session.createDataFrame(FRAME).coalesce(2)
    assert bits(fit(MODELS["quantile"], there, **chain)) == bits(fit(MODELS["quantile"], FRAME, **chain))
    changed = FRAME.copy()
    changed.loc[1900, "y"] += 0.5
    one = bits(fit(MODELS["mean"], FRAME))
    assert bits(fit(MODELS["mean"], session.createDataFrame(FRAME).repartition(3))) == one
    assert bits(fit(MODELS["mean"], session.createDataFrame(changed).repartition(3))) != one


def test_rows_that_change_come_twice_or_are_lost_stop_the_fit(session):
    frame, asked = (
        session.createDataFrame(FRAME).repartition(3),
        Question(statistics.mean_score, (np.float32(-8), np.float32(8))),
    )
    with module.connected(frame) as spark:
        with open_sums(frame, MODELS["mean"].prepare(SCHEMA), SCHEMA, asked=Asked(spark, MODELS["mean"])) as data:
            held = data._held
        assert held.sum(asked).shape == (1,)
        kept = held._kept
        for broken in (kept.union(kept.limit(1)), kept.limit(2)):
            held._kept = broken
            with pytest.raises(pgbb.PgbbError, match="were counted where the first reading had 3 partitions"):
                held.sum(asked)
        other = session.createDataFrame(FRAME.assign(y=0.0)).repartition(3)
        held._kept = spark.engine(other, held._work)._kept
        with pytest.raises(pgbb.PgbbError, match=r"a partition is not the one|were counted"):
            held.sum(asked)


def test_what_spark_cannot_do_is_said(session):
    there = session.createDataFrame(FRAME)
    for text, data, more in (
        ("leave cluster out", there, {"cluster": "local:2"}),
        ("the data has no column 'y'", there.drop("y"), {}),
        ("0 records", there.limit(0), {}),
        ("on a cluster take 'calibrated'", there, {"method": "dp_bootstrap"}),
    ):
        with pytest.raises(pgbb.PgbbError, match=text):
            fit(MODELS["mean"], data, **more)
