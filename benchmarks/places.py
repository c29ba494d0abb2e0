"""Every model in every place: command line, plan, comparison, page, JSON with its schema, audit, scikit-learn.

    python benchmarks/places.py [MODEL …]

Runs each command on one file of 1,500 simulated records at ε = 8, with every family of the command line, and prints
what failed, if anything did. R has a table of its own (`benchmarks/r_models.py`).
"""

import contextlib
import io
import json
import sys
import tempfile
import warnings
from pathlib import Path

import jsonschema
import numpy as np
import pandas as pd
from typer.testing import CliRunner

import pgbb
from pgbb import audit, sklearn
from pgbb.cli import app
from pgbb.cli.output import schema

N = 1_500
MODELS = {  # options of `fit`; setting of the audit; estimator of scikit-learn
    "quantile": (["--formula", "y ~ x + g", "--taus", ".25,.75"], "sums", "PrivateQuantileRegressor"),
    "linear": (["--formula", "y ~ x + g"], "linear", "PrivateLinearRegression"),
    "huber": (["--formula", "y ~ x + g"], "sums", "PrivateHuberRegressor"),
    "logistic": (["--formula", "b ~ x + g"], "sums", "PrivateLogisticClassifier"),
    "poisson": (["--formula", "k ~ x + g", "--exposure", "e"], "poisson", "PrivatePoissonRegressor"),
    "expectile": (["--formula", "y ~ x + g", "--expectile", ".8"], "expectile", "–"),
    "iv": (["--formula", "y ~ x | z"], "iv", "–"),
    "mean": (["--column", "y"], "sums", "–"),
    "means": (["--column", "y", "--by", "g"], "groups", "–"),
}
SCHEMA = pgbb.Schema(
    x=pgbb.Range(-4, 4), z=pgbb.Range(-4, 4), y=pgbb.Range(-10, 10), b=pgbb.Flag(), k=pgbb.Range(0, 20, step=1),
    e=pgbb.Range(1, 3), g=pgbb.Levels("north", "south"),
)  # fmt: skip


def people(n: int = N) -> pd.DataFrame:
    """Records for all of the models."""
    rng = np.random.default_rng(0)
    z, e = rng.normal(size=n).clip(-4, 4), rng.uniform(1, 3, n)
    x = (z + 0.5 * rng.normal(size=n)).clip(-4, 4)
    k = rng.poisson(e * np.exp(0.1 + 0.2 * x)).clip(0, 20)
    g = rng.choice(["north", "south"], n)
    return pd.DataFrame(
        {"x": x, "z": z, "y": 1 + x + rng.normal(size=n), "b": (x + rng.logistic(size=n) > 0).astype(int), "k": k,
         "e": e, "g": g}
    )  # fmt: skip


def places(family: str, folder: Path) -> dict[str, bool]:
    """Whether each place serves the family."""
    options, setting, estimator = MODELS[family]
    words = ["--family", "mean" if family == "means" else family, *options]
    table, toml, out = (str(folder / name) for name in ("d.csv", "s.toml", f"{family}.pgbb"))
    budget = ["-e", "8", "-d", "1e-6"]
    found = {}

    def ran(place: str, *arguments: str, described: str | None = None) -> None:
        done = CliRunner().invoke(app, list(arguments))
        found[place] = done.exit_code == 0
        if described is not None and found[place]:
            try:
                jsonschema.validate(json.loads(done.stdout), schema(described), cls=jsonschema.Draft202012Validator)
            except (jsonschema.ValidationError, ValueError) as error:
                found[place] = False
                print(family, place, str(error).splitlines()[0], file=sys.stderr)
        elif not found[place]:
            print(family, place, (done.stderr or done.stdout)[-300:], repr(done.exception), file=sys.stderr)

    short = ["--family", "mean" if family == "means" else family, "--n", "20000", *budget, "--json"]
    ran("plan", "plan", *short, described="plan")
    ran("fit", "fit", table, "-s", toml, *words, *budget, "--out", out, "--json", "--quiet", described="fit")
    ran("show", "show", out, "--json", described="show")
    ran("tests", "show", out, "--tests")
    ran("sample", "sample", out, "-m", "50", "--out", str(folder / f"{family}.csv"))
    ran("verify", "verify", out, "--json", described="verify")
    ran("page", "report", out, "--out", str(folder / f"{family}.html"))
    ran("compare", "compare", table, "-s", toml, *words, *budget, "--methods", "calibrated", "--json", "--quiet",
        "--reference", "--i-know-this-is-not-private", described="compare")  # fmt: skip
    found["audit"] = setting in audit.SETTINGS and any(setting in twin.settings for twin in audit.TWINS.values())
    found["sklearn"] = estimator == "–" or hasattr(sklearn, estimator)
    return found


def main() -> None:
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        people().to_csv(folder / "d.csv", index=False)
        (folder / "s.toml").write_text(SCHEMA.to_toml(), encoding="utf-8")
        rows = {}
        for family in sys.argv[1:] or MODELS:
            with contextlib.redirect_stdout(io.StringIO()):
                rows[family] = places(family, folder)
            print(
                f"{family:12}" + "  ".join(f"{p} {'yes' if ok else 'NO'}" for p, ok in rows[family].items()), flush=True
            )
    table = pd.DataFrame(rows).T
    print(
        f"{int(table.to_numpy().sum())} of {table.size} hold; estimators of scikit-learn are those of docs/sklearn.md"
    )
    if not table.to_numpy().all():
        sys.exit(1)


if __name__ == "__main__":
    main()
