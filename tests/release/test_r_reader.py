"""The R package against Python: the same law from the same file."""

import re
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

PACKAGE = Path(__file__).parents[2] / "R" / "pgbb"
READER = PACKAGE / "R" / "pgbb.R"
NOISY = {"curvature_sd": [0.1, 0.1, 0.2], "sampling_sd": [0.002]}


def r(code, reader=True):
    if shutil.which("Rscript") is None:
        pytest.skip("no R here: install Debian's packages r-base-core and r-cran-jsonlite to test the reader")
    if run("Rscript", "-e", "library(jsonlite)").returncode:
        pytest.skip("R has no jsonlite: install Debian's package r-cran-jsonlite")
    source = f'source("{READER}"); set.seed(1); {code}' if reader else code
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
    assert len(READER.read_text().splitlines()) < 120


def of(payload, index):
    return Release(model(index), SCHEMA, certificate(), payload)


@pytest.mark.parametrize(
    "released, levels",
    [
        (release(payload=local(**NOISY)), [0.9, 0.1]),
        (release("interval", local("interval", curvature_sd=[0.1] * 4, sampling_sd=[0.002])), [0.2, 0.75]),
        (release(None, local(None, curvature_sd=[0.2], sampling_sd=[0.003])), None),
        (release(None, local(None, bend=[-1.5, 0.0, 2.0], skew=[-1.0, 0.5, 1.0], curvature_sd=[0.1])), None),
        (release(payload=hidden()), [0.1, 0.5]),
        (release(payload=local(sampling=np.diag([0.01, 0.02, 0.0]))), [0.5]),
        (of(generator(), "levels"), [0.1, 0.9]),
        (of(generator(pseudo=2), "interval"), [0.33]),
        (of(stored_draws(m=400), "levels"), [0.1, 0.9]),
    ],
    ids=["levels", "interval", "no index", "skewed", "hidden", "singular", "generator", "pseudo", "draws"],
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


def test_the_package_prints_summarises_and_plots_what_python_does(tmp_path):
    path = Release(model(), SCHEMA, certificate(), local(), {"method": "calibrated"}).save(tmp_path / "r.pgbb")
    library, picture = tmp_path / "lib", tmp_path / "p.png"
    library.mkdir()
    code = (
        f'install.packages("{PACKAGE}", lib = "{library}", repos = NULL, type = "source", quiet = TRUE); '
        f'library(pgbb, lib.loc = "{library}"); x <- pgbb_load("{path}"); print(x, draws = 100); '
        "set.seed(5); before <- .Random.seed; s <- summary(x, tau = .5, draws = 1500); "
        "stopifnot(identical(before, .Random.seed)); cat(s$coefficient, s$mean, s$upper - s$lower, sep = '\\n'); "
        'stopifnot(identical(rownames(confint(x, "educ", tau = c(.1, .9), draws = 50)), c("educ[0.1]", "educ[0.9]"))); '
        "stopifnot(identical(dim(as.data.frame(x, draws = 7, tau = .5)), c(7L, 3L))); "
        f'png("{picture}"); plot(x, tau = .5, draws = 100); invisible(dev.off()); '
        "for (bad in list(quote(pgbb_load('none.pgbb')), quote(summary(x, level = 2)), quote(pgbb_sample(x, 0)), "
        "quote(confint(x, 'none')), quote(pgbb_sample(x, 5, .3)))) "
        "cat('refused:', conditionMessage(tryCatch(eval(bad), error = identity)), '\\n')"
    )
    done = r(code, reader=False)
    assert done.returncode == 0, done.stderr
    assert "method: calibrated" in done.stdout and "epsilon = 0.96" in done.stdout and picture.stat().st_size > 2000
    for words in ("no release file", "level must be", "at least 1", "parm must be among", "tau is not among"):
        assert f"refused: {words}" in done.stdout or words in done.stdout
    table = release(payload=local()).summary(tau=0.5, draws=20_000)
    numbers = [float(v) for v in re.findall(r"^-?[\d.]+(?:e-?\d+)?$", done.stdout, re.M)][-6:]
    assert np.allclose(numbers[:3], table["mean"], atol=0.15 * table["sd"])
    assert np.allclose(numbers[3:], table["upper"] - table["lower"], rtol=0.15)
