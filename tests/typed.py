"""What a type checker sees of `pgbb.fit` and `pgbb.compare`. mypy reads this file, and nothing runs it.

Where a line is ignored, mypy must find what its code says: it complains of a comment that hides nothing.
"""

from typing import assert_type

import pgbb
from pgbb.methods.keywords import MethodName

DATA = {"y": [1.0, 2.0]}


def settings_of_each_method(schema: pgbb.Schema, method: MethodName) -> None:
    model = pgbb.Mean("y", family="exponential")
    assert_type(pgbb.fit(model, DATA, schema=schema, epsilon=1.0, delta=1e-6, method=method), pgbb.Release)
    pgbb.fit(model, DATA, schema=schema, epsilon=1.0, delta=1e-6, knots=9, weights="w", cluster="local:2")
    pgbb.fit(model, DATA, schema=schema, epsilon=1.0, delta=1e-6, method="pgbb", blocks=5, intervals="printed")
    pgbb.fit(model, DATA, schema=schema, epsilon=1.0, delta=1e-6, method="sgld", tempering=0.5, accountant="paper")
    pgbb.fit(model, DATA, schema=schema, epsilon=1.0, delta=1e-6, method="noisy_gibbs", noise="classical")
    pgbb.fit(model, DATA, schema=schema, epsilon=1.0, delta=1e-6, method="dp_mcmc", noise=2.0, test="barker")
    pgbb.compare(model, DATA, schema=schema, epsilon=1.0, delta=1e-6, methods=["sgld"], settings={"sgld": {"thin": 2}})


def what_is_wrong(schema: pgbb.Schema) -> None:
    model = pgbb.Mean("y", family="cauchy")  # type: ignore[arg-type]
    pgbb.fit(model, DATA, schema=schema, epsilon=1.0)  # type: ignore[call-overload]
    pgbb.fit(model, DATA, schema=schema, epsilon=1.0, delta=1e-6, blocks=5)  # type: ignore[call-overload]
    pgbb.fit(model, DATA, schema=schema, epsilon=1.0, delta=1e-6, method="none")  # type: ignore[call-overload]
    pgbb.fit(model, DATA, schema=schema, epsilon=1.0, delta=1e-6, method="pgbb", penalty=1.0)  # type: ignore[call-overload]
    pgbb.fit(model, DATA, schema=schema, epsilon=1.0, delta=1e-6, method="pgbb", steps="many")  # type: ignore[call-overload]
    pgbb.fit(model, DATA, schema=schema, epsilon=1.0, delta=1e-6, method="pgbb", intervals="wide")  # type: ignore[call-overload]
    pgbb.fit(model, DATA, schema=schema, epsilon=1.0, delta=1e-6, accountant="none")  # type: ignore[call-overload]
