"""R/pgbb.R against Python: the same law from the same file."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from pgbb.release.file import Release
from tests.helpers import run
from tests.release.builders import SCHEMA, certificate, edited, generator, hidden, local, model, stored_draws
from tests.release.builders import local_release as release

READER = Path(__file__).parents[2] / "R" / "pgbb.R"
NOISY = {"curvature_sd": [0.1, 0.1, 0.2], "sampling_sd": [0.002]}


def r(code):
    if shutil.which("Rscript") is None:
        pytest.skip("no R here: install Debian's packages r-base-core and r-cran-jsonlite to test the reader")
    if run("Rscript", "-e", "library(jsonlite)").returncode:
        pytest.skip("R has no jsonlite: install Debian's package r-cran-jsonlite")
    source = f'source("{READER}"); set.seed(1); {code}'
    return run("Rscript", "-e", source)


def drawn(released, levels, m, folder):
    path, out = released.save(folder / "r.pgbb"), folder / "out.csv"
    tau = "NULL" if levels is None else f"c({', '.join(map(str, levels))})"
    code = (
        f'd <- pgbb_sample(pgbb_load("{path}"), {m}, {tau}); write.csv(do.call(cbind, d), "{out}", row.names = FALSE)'
    )
    done = r(code)
    assert done.returncode == 0, done.stderr
    return pd.read_csv(out)


def test_the_reader_is_short():
    assert len(READER.read_text().splitlines()) < 100


def of(payload, index):
    return Release(model(index), SCHEMA, certificate(), payload)


@pytest.mark.parametrize(
    "released, levels",
    [
        (release(payload=local(**NOISY)), [0.9, 0.1]),
        (release("interval", local("interval", curvature_sd=[0.1] * 4, sampling_sd=[0.002])), [0.2, 0.75]),
        (release(None, local(None, curvature_sd=[0.2], sampling_sd=[0.003])), None),
        (release(payload=hidden()), [0.1, 0.5]),
        (release(payload=local(sampling=np.diag([0.01, 0.02, 0.0]))), [0.5]),
        (of(generator(), "levels"), [0.1, 0.9]),
        (of(generator(pseudo=2), "interval"), [0.33]),
        (of(stored_draws(m=400), "levels"), [0.1, 0.9]),
    ],
    ids=["levels", "interval", "no index", "hidden", "singular", "generator", "pseudo", "draws"],
)
def test_r_draws_have_the_law_of_python(released, levels, tmp_path):
    m = 4000
    ours = drawn(released, levels, m, tmp_path)
    theirs = released.sample(20_000, tau=levels, seed=2).to_numpy()
    names = list(released.model.names)
    assert [c.split(".")[0] for c in ours.columns] == names * max(1, len(levels or []))
    for a, b in zip(ours.to_numpy().T, theirs.T, strict=True):
        assert stats.ks_2samp(a, b).pvalue > 1e-3
        assert stats.ks_2samp(a + 0.15 * b.std(), b).pvalue < 1e-3
    if levels is not None and len(levels) > 1:  # jointly, not level by level
        assert np.allclose(np.corrcoef(ours.T), np.corrcoef(theirs.T), atol=0.08)


def test_r_says_what_it_cannot_draw(tmp_path):
    path = edited(release().save(tmp_path / "t.pgbb"), "payload.json", lambda plain: plain.update(kind="transcript"))
    assert "transcript" in r(f'pgbb_load("{path}")').stderr
    path = release().save(tmp_path / "r.pgbb")
    assert "not among" in r(f'pgbb_sample(pgbb_load("{path}"), 5, .2)').stderr
