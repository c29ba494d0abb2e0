import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from pgbb.cli import app
from pgbb.errors import PgbbError
from pgbb.release.file import load
from tests.release.builders import local_release as release

pytestmark = pytest.mark.quick


def export(*arguments):
    return CliRunner().invoke(app, ["export", *map(str, arguments)])


@pytest.mark.parametrize("kind", ["csv", "parquet", "json"])
def test_every_format_holds_the_draws_of_sample(kind, tmp_path):
    path = release().save(tmp_path / "r.pgbb")
    result = export(path, "--format", kind, "--draws", 30, "--tau", ".1,.9", "--seed", 4)
    assert result.exit_code == 0, result.output
    target = tmp_path / f"r.{kind}"
    expected = load(path).sample(30, tau=[0.1, 0.9], seed=4)
    if kind == "json":
        plain = json.loads(target.read_text())
        assert plain["levels"] == [0.1, 0.9] and plain["index"] == "tau" and plain["private"] is True
        assert plain["certificate"]["accountant"] == "paper" and plain["names"] == ["Intercept", "educ", "black"]
        frame = pd.DataFrame(plain["draws"])
    else:
        frame = pd.read_csv(target) if kind == "csv" else pd.read_parquet(target)
    assert frame.columns[4] == "educ[0.9]" and np.allclose(frame.to_numpy(), expected.to_numpy(), rtol=1e-12)


def test_an_interval_is_exported_at_five_levels_and_sample_writes_json_too(tmp_path):
    path = release("interval").save(tmp_path / "r.pgbb")
    export(path, "--draws", 10)
    assert list(pd.read_csv(tmp_path / "r.csv").columns[::3]) == [f"Intercept[{t}]" for t in (0.1, 0.3, 0.5, 0.7, 0.9)]
    plain = release(None).save(tmp_path / "p.pgbb")
    CliRunner().invoke(app, ["sample", str(plain), "-m", "7", "--out", str(tmp_path / "p.json")])
    found = json.loads((tmp_path / "p.json").read_text())
    assert found["levels"] is None and len(found["draws"]["educ"]) == 7


def test_a_format_that_is_not_known_or_not_that_of_the_file_is_refused(tmp_path):
    path = release().save(tmp_path / "r.pgbb")
    for arguments, said in ((["--format", "xlsx"], "xlsx"), (["--out", tmp_path / "x.json"], "ends in .csv")):
        result = export(path, *arguments)
        assert isinstance(result.exception, PgbbError) and said in str(result.exception)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r.pgbb"]
