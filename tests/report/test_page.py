"""The page in a real Chromium, with the network off: it opens, draws what Python draws, and can be operated."""

import importlib.util
import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from typer.testing import CliRunner

import pgbb
from pgbb.cli import app
from pgbb.release.file import Release, load
from pgbb.release.payloads import Payload, forward
from pgbb.release.predictions import design_at
from pgbb.report import LARGEST, page
from tests.helpers import patience, rest
from tests.release.builders import (
    SCHEMA,
    TAUS,
    D,
    certificate,
    generator,
    hidden,
    local,
    model,
    non_private,
    stored_draws,
)

NOISY = {"curvature_sd": [0.05, 0.08, 0.1], "sampling_sd": [0.002]}
WIDE = {"curvature_sd": [0.05, 0.4, 0.3, 0.2], "sampling_sd": [0.004]}


def release(payload, index="levels", claim=None, **changes):
    return Release(replace(model(index), **changes), SCHEMA, claim or certificate(), payload)


CASES = {
    "local over levels": release(local(**NOISY)),
    "local over an interval": release(local("interval", **WIDE), "interval"),
    "local without index": release(local(None, curvature_sd=[0.3], sampling_sd=[0.004]), None),
    "local, skewed": release(local(None, bend=[-1.5, 0.0, 2.0], skew=[-1.0, 0.5, 1.0], curvature_sd=[0.1]), None),
    "local with a hidden direction": release(hidden(**NOISY)),
    "generator over levels": release(generator()),
    "generator over an interval": release(generator(pseudo=2, widths=(40, 33)), "interval"),
    "generator of one block": release(generator(False, blocks=1), None),
    "draws over levels": release(stored_draws(m=500)),
    "draws without index": release(stored_draws(None), None),
    "without noise": release(generator(), claim=non_private()),
    "insecure seed": release(local(), claim=certificate(randomness="insecure seed")),
}


def write(release, folder, name="r"):
    path = release.save(folder / f"{name}.pgbb")
    result = CliRunner().invoke(app, ["report", str(path), "--out", str(folder / f"{name}.html")])
    assert result.exit_code == 0, result.output
    return folder / f"{name}.html"


def opened(browser, release, folder, **options):
    return browser.open(write(release, folder), **options)


FITTED = rest(["calibrated, levels", "calibrated, interval", "paper", "sgld"], "calibrated, levels", "paper", "sgld")


@pytest.fixture(scope="module")
def fitted():
    """Real releases of small fits, by name; seeded, and therefore marked as not private."""
    rng = np.random.default_rng(0)
    n = 4000
    frame = pd.DataFrame({"x": rng.uniform(0, 1, n), "g": rng.integers(0, 3, n)})
    frame["y"] = np.clip(1 + frame["x"] + 0.3 * (frame["g"] == 1) + rng.normal(0, 0.5, n), -1, 4)
    frame["g"] = np.array(["north", "south", "west"])[frame["g"]]
    schema = pgbb.Schema(
        y=pgbb.Range(-1, 4), x=pgbb.Range(0, 1), g=pgbb.Levels("north", "south", "west"), z=pgbb.Range(0, 1)
    )
    formula = "y ~ x + g + x:g + I(x**2)"
    curves = pgbb.LinearRegression("y ~ bs(x, knots=[0.4, 0.7]) + C(g, base='west'):poly(z, 2, centre=0.3)")
    frame["z"] = rng.uniform(0, 1, n)
    common = {"schema": schema, "epsilon": 4.0, "delta": 1e-5, "insecure_seed": 1}
    levels = pgbb.QuantileRegression(formula, taus=[0.25, 0.5, 0.75], bandwidth=0.2)
    span = pgbb.QuantileRegression("y ~ x", interval=(0.1, 0.9), bandwidth=0.2)
    how = {
        "calibrated, levels": lambda: pgbb.fit(levels, pd.concat([frame] * 5), **common),
        "calibrated, interval": lambda: pgbb.fit(span, frame, **common),
        "paper": lambda: pgbb.fit(levels, frame, method="pgbb", intervals="printed", steps=200, **common),
        "curves": lambda: pgbb.fit(curves, frame, **common),
        "sgld": lambda: pgbb.fit(pgbb.HuberRegression("y ~ x"), frame, method="sgld", **common),
    }
    return cache(lambda name: how[name]())


# It opens ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_every_payload_opens_from_disk_without_network_or_complaint(name, browser, tmp_path):
    path = write(CASES[name], tmp_path)
    browser.open(path)
    assert browser.errors == [] and browser.requests == [path.as_uri()]
    text = path.read_text()
    assert len(text.encode()) <= LARGEST and not re.search(r"https?://", text)
    assert re.search(
        r"2,000 draws( at τ = [\d.]+)?( \(all 3 levels jointly\))? in .* ms, seed 1\.", browser.text("#status")
    )
    assert browser.value("document.querySelectorAll('#coefficients tbody tr').length") == 3
    assert browser.value("document.querySelectorAll('svg').length") >= 3
    assert not browser.value("/NaN|undefined|Infinity|null/.test(document.querySelector('main').innerHTML)")
    assert ("NOT PRIVATE" in browser.text("header")) == (name in ("without noise", "insecure seed"))


@pytest.mark.parametrize("name", FITTED)
def test_pages_of_real_fits_open_and_show_what_python_shows(name, fitted, browser, tmp_path):
    r = fitted(name)
    opened(browser, r, tmp_path)
    assert browser.errors == [] and "NOT PRIVATE" in browser.text("header")
    assert browser.value("document.body.textContent.includes('Bandwidth')") == (name == "paper")
    tau = None if r.model.index is None else 0.5
    table = r.summary(tau, draws=20_000)
    rows = browser.value(
        "[...document.querySelectorAll('#coefficients tbody tr')].map((r) => [...r.cells].map((c) => c.textContent))"
    )
    for row, (label, known) in zip(rows, table.iterrows(), strict=True):
        assert row[0].removesuffix(" (not identified)") == label
        assert float(row[1].replace("−", "-")) == pytest.approx(
            known["mean"], abs=6 * known["sd"] / np.sqrt(2000) + 1e-3
        )
    assert "e^ε = 54.6 times as likely" in browser.text("#certificate")


def test_banners_name_what_is_wrong(tmp_path):
    assert "without noise" in page(CASES["without noise"]) and "takes away" not in page(CASES["without noise"])
    false = release(local(), claim=replace(certificate(), epsilon=certificate().epsilon / 2))
    assert "DOES NOT VERIFY" in page(false) and "claim is false" in page(false)


def test_nothing_in_a_release_can_become_markup_or_script(browser, tmp_path):
    evil = '</script><img src=x onerror="window.hit=1">\'&'
    claim = certificate(notes=(evil,))
    r = release(local(), names=("Intercept", evil, "black"), response=evil, claim=claim, formula=None)
    opened(browser, r, tmp_path)
    assert browser.errors == [] and browser.value("window.hit") is None
    assert evil in browser.text("#coefficients") and evil in browser.text("#certificate")


def test_a_release_too_large_has_no_page(tmp_path):
    huge = release(generator(widths=(600, 600)))
    path = huge.save(tmp_path / "huge.pgbb")
    result = CliRunner().invoke(app, ["report", str(path)])
    assert "more than the 2,000,000" in str(result.exception) and not (tmp_path / "huge.html").exists()
    result = CliRunner().invoke(app, ["report", str(path), "--out", "x.pdf"])
    assert "ends in .html" in str(result.exception)


# It draws what Python draws ------------------------------------------------------------------------------------------


class Scripted:
    """A generator whose normals are given beforehand, and recorded in the order asked."""

    def __init__(self, seed):
        self.rng, self.given = np.random.Generator(np.random.PCG64(seed)), []

    def standard_normal(self, shape):
        self.given.append(self.rng.standard_normal(shape))
        return self.given[-1]


def python_with_normals(payload, levels, m, monkeypatch):
    """`LocalGaussian.draw`, and the normals that it used by stream."""
    streams = []

    def rng(seed):
        streams.append(Scripted(seed))
        return streams[-1]

    with monkeypatch.context() as patch:
        patch.setattr(np.random, "default_rng", rng)
        theta = payload.local.draw(m, levels, 7)
    flat = [np.concatenate([g.ravel() for g in s.given]).tolist() if s.given else [] for s in streams]
    names = ("privacy", "path", "spread", "loose")
    return theta, {**dict(zip(names, flat[:4], strict=True)), "curvature": flat[4:]}


@pytest.mark.parametrize(
    "name, levels",
    [
        ("local over levels", TAUS),
        ("local over levels", [0.9, 0.1]),
        ("local over an interval", [0.1, 0.6]),
        ("local over an interval", [0.77, 0.2, 0.3, 0.45]),
        ("local without index", None),
        ("local, skewed", None),
        ("local with a hidden direction", TAUS),
    ],
)
def test_at_the_same_normals_the_browser_gives_the_theta_of_python(name, levels, browser, tmp_path, monkeypatch):
    r = CASES[name]
    theta, z = python_with_normals(r.payload, levels, 200, monkeypatch)
    opened(browser, r, tmp_path)
    found = browser.value(f"pgbb.drawLocal({json.dumps(levels)}, 200, {json.dumps(z)}).map((x) => [...x])")
    assert np.abs(np.array(found).reshape(theta.shape) - r.model.to_original(theta)).max() < 1e-8
    needs = browser.value(f"pgbb.posterior.map.needs({json.dumps(levels)}, 200)")
    assert [needs[k] for k in ("privacy", "path", "spread", "loose")] == [len(z[k]) for k in list(z)[:4]]
    table = r.payload.local.columns(levels, np.array(r.model.transform))
    parts = browser.value(f"pgbb.posterior.columns({json.dumps(levels)})")
    for key, values in table.items():
        assert np.allclose([[c[key] for c in row] for row in parts], values, rtol=1e-9)


@pytest.mark.parametrize("name", FITTED[:2])
def test_fitted_local_maps_agree_too(name, fitted, browser, tmp_path, monkeypatch):
    r = fitted(name)
    levels = list(r.grid(5))
    theta, z = python_with_normals(r.payload, levels, 100, monkeypatch)
    opened(browser, r, tmp_path)
    found = browser.value(f"pgbb.drawLocal({json.dumps(levels)}, 100, {json.dumps(z)}).map((x) => [...x])")
    assert np.abs(np.array(found).reshape(theta.shape) - r.model.to_original(theta)).max() < 1e-5


@pytest.mark.parametrize("name", ["generator over levels", "generator over an interval", "generator of one block"])
@pytest.mark.parametrize("fast", [True, False])
def test_at_the_same_u_and_tau_the_generator_gives_the_theta_of_python(name, fast, browser, tmp_path):
    _same_generator(CASES[name], browser, tmp_path, fast)


def test_a_fitted_generator_agrees_too(fitted, browser, tmp_path):
    _same_generator(fitted("paper"), browser, tmp_path, True)


def _same_generator(r, browser, folder, fast):
    opened(browser, r, folder)
    if not fast:
        browser.value("pgbb.posterior.map.fast = false; pgbb.posterior.map.refresh()")
    u = r.payload.weights(50, np.random.default_rng(1))
    for tau in [None] if r.model.index is None else list(r.grid(3)):
        inputs = u if tau is None else np.column_stack([u, np.full(50, tau)])
        expected = r.model.to_original(forward(r.payload, inputs, r.payload.settings["default_iterate"]))
        call = f"{json.dumps(u.tolist())}.map((u) => [...pgbb.forward(u, {json.dumps(tau)})])"
        assert np.abs(np.array(browser.value(call)) - expected).max() < 1e-5


def distances(browser, r, levels, m=20_000):
    """p-values of a two-sample KS test by level and coefficient: browser against Python."""
    found = browser.value(f"pgbb.sample({m}, {json.dumps(levels)}, 5).map((x) => [...x])")
    frame = r.sample(m, tau=levels, seed=11).to_numpy().reshape(m, len(found), r.model.dim)
    ours = np.array(found).reshape(len(found), m, r.model.dim)
    return np.array(
        [[stats.ks_2samp(ours[i, :, c], frame[:, i, c]).pvalue for c in range(r.model.dim)] for i in range(len(found))]
    )


CHANGED = {"calibrated, levels": "center", "calibrated, interval": "center", "paper": "kernel3"}
CHANGE = """(() => {
  const p = pgbb.posterior, t = p.tensors[NAME], levels = LEVELS;
  const tables = () => p.sample(500, levels, 1).map((x) => p.names.map((_, c) => pgbb.moments(column(x, c), 0.5)));
  const effect = (i) => {
    const kept = t[i];
    t[i] *= 1.1; p.map.refresh();
    const moves = tables().map((row, l) => row.map((m, c) => Math.abs(m.mean - before[l][c].mean) / before[l][c].sd));
    const found = Math.max(...moves.flat());
    t[i] = kept; p.map.refresh();
    return found;
  };
  const before = tables();
  const largest = [...t.keys()].sort((a, b) => Math.abs(t[b]) - Math.abs(t[a])).slice(0, 20);
  const effects = largest.map(effect);
  const best = largest[effects.indexOf(Math.max(...effects))];
  t[best] *= 1.1; p.map.refresh();
  return Math.max(...effects);
})()"""


@pytest.mark.parametrize("name", rest(CHANGED, "calibrated, levels", "paper"))
def test_twenty_thousand_draws_have_the_law_of_python_and_not_that_of_a_changed_weight(name, fitted, browser, tmp_path):
    """The weight is, of the twenty largest, the one that moves a mean most: not every weight matters."""
    r = fitted(name)
    opened(browser, r, tmp_path)
    levels = list(r.grid(3))
    assert distances(browser, r, levels).min() > 1e-3
    moved = browser.value(CHANGE.replace("NAME", json.dumps(CHANGED[name])).replace("LEVELS", json.dumps(levels)))
    assert distances(browser, r, levels).min() < 1e-6, moved


def test_stored_draws_are_resampled(browser, tmp_path):
    r = release(stored_draws(m=500))
    opened(browser, r, tmp_path)
    assert distances(browser, r, [0.1, 0.9]).min() > 1e-3
    few = np.array(browser.value("[...pgbb.sample(500, [0.1], 1)[0]]")).reshape(500, D)
    assert np.allclose(np.sort(few[:, 0]), np.sort(r.sample(500, tau=0.1)["Intercept"]), atol=1e-5)  # each once
    many = release(Payload("draws", {"index_values": TAUS}, {"draws": np.zeros((3, 9000, D))}))
    opened(browser, many, tmp_path)
    assert "this page carries 4,000" in browser.text("#status")


@pytest.mark.parametrize("shape", [0.05, 0.9, 4.0])
def test_gammas_and_normals_have_their_law(shape, browser, tmp_path):
    opened(browser, CASES["local over levels"], tmp_path)
    gammas = browser.value(
        f"(() => {{ const s = new Stream(3, 1); return Array.from({{length: 20000}}, () => s.gamma({shape})); }})()"
    )
    assert stats.kstest(gammas, stats.gamma(shape).cdf).pvalue > 1e-3
    assert stats.kstest(gammas, stats.gamma(1.1 * shape).cdf).pvalue < 1e-3
    normals = np.array(browser.value("[...new Stream(3, 2).normals(20000)]"))
    assert stats.kstest(normals, "norm").pvalue > 1e-3 and abs(np.corrcoef(normals[1:], normals[:-1])[0, 1]) < 0.03
    other = np.array(browser.value("[...new Stream(4, 2).normals(20000)]"))
    assert abs(np.corrcoef(normals, other)[0, 1]) < 0.03


def test_eigenvectors_of_difficult_matrices(browser, tmp_path):
    opened(browser, CASES["local over levels"], tmp_path)
    rng = np.random.default_rng(2)
    for d in (1, 2, 5, 30):
        basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
        for values in (np.ones(d), np.arange(d) + 1.0, 10.0 ** np.linspace(-9, 3, d), np.zeros(d)):
            a = (basis * values) @ basis.T
            found = browser.value(
                f"(({{values, vectors}}) => [[...values], [...vectors]])(pgbb.eigh({a.ravel().tolist()}, {d}))"
            )
            v = np.array(found[1]).reshape(d, d)
            assert np.allclose(found[0], np.sort(values), atol=1e-10 * max(values.max(), 1))
            assert np.allclose((v * found[0]) @ v.T, a, atol=1e-10 * max(values.max(), 1))


@pytest.mark.parametrize("name", FITTED)
def test_two_thousand_draws_take_less_than_a_tenth_of_a_second(name, fitted, browser, tmp_path):
    r = fitted(name)
    opened(browser, r, tmp_path)
    levels = json.dumps(None if r.model.index is None else [0.5])
    clock = (
        f"(() => {{ const t = performance.now(); pgbb.sample(2000, {levels}, 1); return performance.now() - t; }})()"
    )
    assert min(browser.value(clock) for _ in range(5)) < 1000 * patience(0.1)


# It can be operated --------------------------------------------------------------------------------------------------


def test_level_draws_and_tau_change_the_table_by_keyboard(browser, tmp_path):
    r = CASES["local over levels"]
    opened(browser, r, tmp_path)
    cells = "[...document.querySelectorAll('#coefficients tbody tr')[1].cells].map((c) => c.textContent)"
    before = browser.value(cells)
    browser.type("#level", "50")
    narrow = browser.value(cells)
    assert "50 % lower" in browser.text("#coefficients") and narrow[1] == before[1]
    assert float(narrow[2].replace("−", "-")) > float(before[2].replace("−", "-"))
    browser.focus("#tau")
    browser.key("ArrowDown")
    assert "τ = 0.9" in browser.text("#status") and browser.value(cells) != narrow
    browser.type("#draws", "5")
    assert "must lie between 100 and 20000" in browser.text("#status")
    browser.type("#draws", "300")
    assert "300 draws" in browser.text("#status")
    browser.focus("#again")
    browser.key("Enter")
    assert browser.value("document.querySelector('#seed').value") == "2" and "seed 2" in browser.text("#status")
    assert browser.errors == []


def test_the_slider_moves_over_an_interval(browser, tmp_path):
    opened(browser, CASES["local over an interval"], tmp_path)
    browser.focus("#tau-slider")
    for _ in range(4):
        browser.key("ArrowRight")
    assert browser.value("document.querySelector('#tau').value") == "0.52" and "τ = 0.52" in browser.text("#status")
    browser.type("#tau", "0.95")
    assert "must lie between 0.1 and 0.9" in browser.text("#status")


def test_a_contrast_across_levels_by_mouse_and_keyboard(browser, tmp_path):
    r = CASES["local over levels"]
    opened(browser, r, tmp_path)
    browser.type("#draws", "20000")
    text = browser.text("#contrast-result")
    assert text.startswith("educ at τ = 0.9 − educ at τ = 0.1: mean ")
    expected = r.contrast({("educ", 0.9): 1, ("educ", 0.1): -1}, draws=20_000)
    mean, sd = (float(re.search(rf"{k} ([−\d.e]+)", text)[1].rstrip(".").replace("−", "-")) for k in ("mean", "sd"))
    assert mean == pytest.approx(expected["mean"], abs=5 * expected["sd"] / 100) and sd == pytest.approx(
        expected["sd"], rel=0.03
    )
    browser.click("#contrast-add")
    browser.type("#weight2", "-0.5")
    browser.focus("#coefficient2")
    browser.key("ArrowDown")
    assert "− 0.5 × black at τ = 0.1" in browser.text("#contrast-result")
    browser.click("[data-remove='0']")
    browser.focus("[data-remove='0']")
    browser.key("Enter")
    assert browser.text("#contrast-result").startswith("− 0.5 × black at τ = 0.1: mean")
    assert browser.errors == []


def test_a_prediction_is_that_of_python_for_every_kind_of_term(fitted, browser, tmp_path):
    for name in ("calibrated, levels", "curves", "paper"):
        r = fitted(name)
        opened(browser, r, tmp_path)
        for at in ({"x": 0.3, "g": "north", "z": 0.1}, {"x": 0.9, "g": "west", "z": 1}, {"x": 1, "g": "south", "z": 0}):
            design, _ = design_at(r.model, r.schema, at)
            coded = at | {"g": ["north", "south", "west"].index(at["g"])}
            assert np.allclose(browser.value(f"[...pgbb.designRow({json.dumps(coded)})]"), design[0])
    browser.type("#x0", "0.25")
    browser.focus("#x1")
    browser.key("ArrowDown")
    expected = r.predict({"x": 0.25, "g": "south"}, tau=0.5)
    text = browser.text("#prediction-result")
    assert text.startswith("Fitted quantile of y at τ = 0.5: mean ")
    assert float(re.search(r"mean ([\d.]+)", text)[1]) == pytest.approx(
        expected["mean"].iloc[0], abs=expected["sd"].iloc[0]
    )
    browser.type("#x0", "7")
    assert "outside its declared range" in browser.text("#prediction-result")


def test_a_model_without_formula_says_so(browser, tmp_path):
    opened(browser, release(local(), formula=None), tmp_path)
    assert "no formula" in browser.text("#prediction-note")
    assert browser.value("document.querySelector('#prediction-body').hidden") is True


@pytest.mark.parametrize("which, by", [("one", "mouse"), ("all", "keyboard")])
def test_the_download_holds_the_draws(which, by, browser, tmp_path):
    r = CASES["local over levels"]
    opened(browser, r, tmp_path)
    browser.downloads(tmp_path)
    browser.type("#draws", "150")
    if which == "all":
        browser.focus("#which")
        browser.key("ArrowDown")
    if by == "mouse":
        browser.click("#download")
    else:
        browser.focus("#download")
        browser.key("Enter")
    target = tmp_path / "r-draws.csv"
    for _ in range(200):
        browser.settle()
        if target.exists() and target.stat().st_size:
            break
    frame = pd.read_csv(target)
    labels = [f"{n}[{t:g}]" for t in TAUS for n in r.model.names] if which == "all" else list(r.model.names)
    assert list(frame.columns) == labels and len(frame) == 150
    drawn = np.array(browser.value(f"pgbb.sample(150, {TAUS}, 1).map((x) => [...x])")).reshape(3, 150, D)
    expected = np.concatenate(list(drawn), axis=1) if which == "all" else drawn[1]
    assert np.array_equal(frame.to_numpy(), expected)
    assert "150 draws written" in browser.text("#status")


def test_what_is_not_identified_is_marked(browser, tmp_path):
    opened(browser, CASES["local with a hidden direction"], tmp_path)
    browser.focus("#tau")
    browser.key("ArrowUp")
    assert "educ (not identified)" in browser.text("#coefficients")
    assert "Not identified at this ε: Intercept, educ." in browser.text("#coefficient-notes")
    assert browser.value("document.querySelectorAll('#process .hollow').length") == 2


def test_the_same_seed_gives_the_same_draws(browser, tmp_path):
    opened(browser, CASES["generator over levels"], tmp_path)
    same = "JSON.stringify(pgbb.sample(50, [0.1], 3)) === JSON.stringify(pgbb.sample(50, [0.1], SEED))"
    assert browser.value(same.replace("SEED", "3")) and not browser.value(same.replace("SEED", "4"))


@pytest.mark.parametrize(
    "name, dark",
    [
        ("local over levels", False),
        ("local over levels", True),
        ("local over an interval", True),
        ("generator of one block", False),
        ("insecure seed", True),
    ],
)
def test_an_automated_check_finds_no_serious_barrier(name, dark, browser, tmp_path):
    spec = importlib.util.find_spec("axe_core_python")
    if spec is None:
        pytest.skip("axe is not installed: pip install axe-core-python")
    opened(browser, CASES[name], tmp_path, dark=dark)
    browser.value((Path(spec.submodule_search_locations[0]) / "axe.min.js").read_text() + "; true")
    found = browser.value(
        "axe.run().then((r) => r.violations.map((v) => [v.impact, v.id, v.nodes.map((n) => n.html)]))"
    )
    assert [v for v in found if v[0] in ("serious", "critical")] == []


def test_nothing_is_wider_than_a_phone(browser, tmp_path):
    for name in ("local over an interval", "draws without index"):
        opened(browser, CASES[name], tmp_path, width=360, height=740, phone=True)
        assert browser.value("document.documentElement.scrollWidth") <= 360


OUTSIDE = """[...document.querySelectorAll('.chart svg')].flatMap((svg) => {
  const wide = svg.viewBox.baseVal.width, boxes = [...svg.querySelectorAll('text:not(.name)')].map((t) => t.getBBox());
  return boxes.filter((b) => b.x < -1 || b.x + b.width > wide + 1);
}).length"""
FEWEST = """Math.min(...[...document.querySelectorAll('#process svg')].map(
  (svg) => svg.querySelectorAll('text[text-anchor=end]').length))"""


@pytest.mark.parametrize("unit", [1e-9, 1.0, 4e4, 3e6, 1e12])
def test_labels_of_axes_are_three_at_least_and_not_cut_whatever_the_units(unit, browser, tmp_path):
    small = model()
    large = replace(small, transform=unit * np.array(small.transform), offset=unit * np.array(small.offset))
    for size in ({}, {"width": 360, "height": 740, "phone": True}):
        opened(browser, Release(large, SCHEMA, certificate(), local()), tmp_path, **size)
        assert browser.value(OUTSIDE) == 0 and browser.value(FEWEST) >= 3


def test_a_flag_of_words_is_chosen_by_its_words(browser, tmp_path):
    columns = {**SCHEMA["columns"], "black": {"flag": ["nein", "ja"]}}
    opened(browser, Release(model(), {"columns": columns}, certificate(), local()), tmp_path)
    words = "[...document.querySelectorAll('#prediction option')].map((o) => o.textContent)"
    assert browser.value(words) == ["nein", "ja"]


def test_a_saved_release_gives_the_same_page_again(tmp_path):
    path = CASES["local over levels"].save(tmp_path / "r.pgbb")
    assert page(load(path), path) == page(load(path), path)
