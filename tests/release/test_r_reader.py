"""The R package against Python: the same law from the same file."""

import json
import re
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import pgbb
from pgbb.model.formula import Design
from pgbb.model.schema import Schema
from pgbb.release.file import Release
from pgbb.release.payloads import Payload
from tests.helpers import run
from tests.release.builders import SCHEMA, certificate, edited, generator, hidden, local, model, stored_draws
from tests.release.builders import local_release as release

PACKAGE = Path(__file__).parents[2] / "R" / "pgbb"
READER = PACKAGE / "R" / "pgbb.R"
NOISY = {"curvature_sd": [0.1, 0.1, 0.2], "sampling_sd": [0.002]}


@cache
def has_jsonlite():
    return run("Rscript", "-e", "library(jsonlite)").returncode == 0


def r(code, reader=True):
    if shutil.which("Rscript") is None:
        pytest.skip("no R here: install Debian's packages r-base-core and r-cran-jsonlite to test the reader")
    if not has_jsonlite():
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
    m = 2000
    ours = drawn(released, levels, m, tmp_path)
    theirs = released.sample(20_000, tau=levels, seed=2).to_numpy()
    names = list(released.model.names)
    assert [c.split(".")[0] for c in ours.columns] == names * max(1, len(levels or []))
    for a, b in zip(ours.to_numpy().T, theirs.T, strict=True):
        assert stats.ks_2samp(a, b).pvalue > 1e-3
        assert stats.ks_2samp(a + 0.2 * b.std(), b).pvalue < 1e-3
    if levels is not None and len(levels) > 1:  # jointly, not level by level
        assert np.allclose(np.corrcoef(ours.T), np.corrcoef(theirs.T), atol=0.1)


def test_r_says_what_it_cannot_draw(tmp_path):
    path = edited(release().save(tmp_path / "t.pgbb"), "payload.json", lambda plain: plain.update(kind="transcript"))
    assert "transcript" in r(f'pgbb_load("{path}")').stderr
    path = release().save(tmp_path / "r.pgbb")
    assert "not among" in r(f'pgbb_sample(pgbb_load("{path}"), 5, .2)').stderr
    (tmp_path / "d.csv").write_text("y,x\n1,2\n")
    assert "d.csv is not a release file" in r(f'pgbb_load("{tmp_path / "d.csv"}")').stderr


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
        "if (requireNamespace('posterior', quietly = TRUE)) "
        "stopifnot(identical(posterior::ndraws(posterior::as_draws(x, draws = 7, tau = .5)), 7L)); "
        f'png("{picture}"); plot(x, tau = .5, draws = 100); invisible(dev.off()); '
        "for (bad in list(quote(pgbb_load('none.pgbb')), quote(summary(x, level = 2)), quote(pgbb_sample(x, 0)), "
        "quote(confint(x, 'none')), quote(pgbb_sample(x, 5, .3)))) "
        "cat('refused:', conditionMessage(tryCatch(eval(bad), error = identity)), '\\n')"
    )
    done = r(code, reader=False)
    assert done.returncode == 0, done.stderr
    assert "95 % intervals by method calibrated" in done.stdout
    assert "method: calibrated" in done.stdout and "epsilon = 0.96" in done.stdout and picture.stat().st_size > 2000
    for words in ("no release file", "level must be", "at least 1", "parm must be among", "tau is not among"):
        assert f"refused: {words}" in done.stdout or words in done.stdout
    table = release(payload=local()).summary(tau=0.5, draws=20_000)
    numbers = [float(v) for v in re.findall(r"^-?[\d.]+(?:e-?\d+)?$", done.stdout, re.M)][-6:]
    assert np.allclose(numbers[:3], table["mean"], atol=0.15 * table["sd"])
    assert np.allclose(numbers[3:], table["upper"] - table["lower"], rtol=0.15)


COLUMNS = {
    "age": {"range": [16, 100]}, "h": {"range": [1, 80]}, "union": {"flag": ["no", "yes"]}, "old": "flag",
    "region": {"levels": ["north", "so:uth", "west"], "missing": "none"}, "a b": {"range": [0, 1]},
    "born": {"date": ["1950-01-01", "2000-12-31"]}, "logwk": {"range": [0, 12]},
}  # fmt: skip
PREDICTED = {
    "quantile": "logwk ~ bs(age, knots=[30, 50]) + union + C(region, base='west'):I(age*h) + log(h) + born",
    "linear": "logwk ~ poly(age, 2, centre=40) + union*region + I(h**2) + bs(h, knots=[9], degree=1) + `a b`:old - 1",
    "logistic": "old ~ poly(age, 3) + region:union",
    "poisson": "logwk ~ age + born:region",
}


def r_words(words):
    return f"c({json.dumps([*words])[1:-1]})"


def test_r_predicts_and_marks_what_python_does(tmp_path):
    at = {"age": [25, 55.5], "h": [20, 40], "union": ["yes", "no"], "old": [1, 0], "region": ["so:uth", None],
          "born": ["1990-07-01", "1960-01-01"], "a b": [0.2, 0.9]}  # fmt: skip
    predicted = {}
    for kind, formula in PREDICTED.items():
        names = Design.parse(formula, Schema.from_dict({"columns": COLUMNS})).names
        told, d = model(None, kind, names, formula), len(names)
        told = replace(told, transform=np.eye(d), offset=np.zeros(d))
        stored = Payload("draws", {"index_values": None}, {"draws": np.tile(np.linspace(-1e-3, 2e-3, d), (9, 1))})
        predicted[kind] = Release(told, {"columns": COLUMNS}, certificate(), stored)
    bent = local(None, bend=[-0.5, 0.0, 0.5], skew=[0.1, 0.2, 0.1], prior=[9.0, 0.01, 9.0])
    marked = {"levels": release(payload=hidden()), "bent": release(None, bent)}
    marked["between"] = release("interval", hidden("interval"))
    for name, made in {**predicted, **marked}.items():
        made.save(tmp_path / f"{name}.pgbb")
    rows = json.dumps([dict(zip(at, values, strict=True)) for values in zip(*at.values(), strict=True)])
    code = (
        f"source('{PACKAGE}/R/pgbb.R'); source('{PACKAGE}/R/methods.R'); setwd('{tmp_path}'); out <- list(); "
        f"at <- jsonlite::fromJSON('{rows}'); open_ <- function(f) pgbb_load(paste0(f, '.pgbb')); "
        "for (f in " + r_words(predicted) + ") out[[f]] <- predict(open_(f), at, draws = 9)$mean; "
        "for (f in " + r_words(marked) + ") out[[f]] <- as.data.frame(unclass(summary(open_(f), draws = 20))); "
        "cat(jsonlite::toJSON(out, digits = 12, na = 'null'))"
    )
    done = r(code, reader=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for kind, made in predicted.items():
        assert np.allclose(found[kind], made.predict(at, draws=9)["mean"], rtol=1e-9, atol=1e-12), kind
    for name, made in marked.items():
        theirs = pd.DataFrame(found[name]).astype({"sampling_sd": float, "privacy_sd": float})
        with pytest.warns(pgbb.PgbbWarning):
            ours = made.summary([0.1, 0.3, 0.5, 0.7, 0.9] if name == "between" else None)
        assert theirs["identified"].tolist() == ours["identified"].tolist() and not ours["identified"].all(), name
        for part in ("sampling_sd", "privacy_sd"):
            assert np.allclose(theirs[part], ours[part], rtol=1e-6, equal_nan=True), (name, part)


def test_r_reads_a_hostile_term_without_running_it(tmp_path):
    mark, code = tmp_path / "mark", f"source('{PACKAGE}/R/methods.R'); "
    terms = (f"log(file.create('{mark}'))", f"I(x)[system('touch {mark}')]", "bs(educ, knots=(function() 1)())[1]")
    for i, term in enumerate(terms):
        path = of(stored_draws(None), None).save(tmp_path / f"{i}.pgbb")
        edited(path, "model.json", lambda plain, term=term: plain.update(names=["Intercept", "educ", term]))
        code += f"try(predict(pgbb_load('{path}'), data.frame(educ = 9, black = 0, x = 1))); "
    assert r(code).stderr.count("unknown term") == len(terms) and not mark.exists()
