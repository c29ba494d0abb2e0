import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from pgbb._numerics.symmetric import pack, triangle, unpack
from pgbb.cli import app
from pgbb.errors import InvalidValue, PgbbWarning
from pgbb.release.figures import coefficient_intervals, quantile_process
from pgbb.release.file import load
from pgbb.release.local_gaussian import LocalGaussian
from pgbb.release.posterior import Posterior
from tests.helpers import python
from tests.release.builders import (
    NAMES,
    SCHEMA,
    TAUS,
    D,
    generator,
    hidden,
    local,
    model,
    non_private,
)
from tests.release.builders import local_release as release

pytestmark = pytest.mark.quick


def posterior(index="levels", **changes):
    return Posterior(model(index), SCHEMA, local(index, **changes))


def exact(payload, a, b=None):
    """Mean at knot a, and covariance of knots a and b, written from the description one term at a time."""
    t, b = payload.tensors, a if b is None else b
    w = t["frame"]
    left, right = (w @ np.linalg.inv(t["curvature"][j]) for j in (a, b))
    tau, other = (t["knots"][j] for j in (a, b)) if "knots" in t else (0, 0)
    factor = min(tau, other) - tau * other if "knots" in t else 1.0
    shared = sum(t["privacy"][a, k] * t["privacy"][b, k] for k in range(t["privacy"].shape[1]))
    mean = t["center"][a] - left @ t["gradient"][a]
    return mean, left @ (factor * t["sampling"] + shared * np.eye(D)) @ right.T


def moments_agree(draws, mean, cov, other=None):
    """Whether means and all covariances of (m, D) draws lie within 4.5 standard errors of what is expected."""
    other = draws if other is None else other
    z = (draws.mean(0) - mean) / (draws.std(0) / np.sqrt(len(draws)))
    products = (draws - draws.mean(0))[:, :, np.newaxis] * (other - other.mean(0))[:, np.newaxis, :]
    s = (products.mean(0) - cov) / (products.std(0) / np.sqrt(len(draws)))
    return np.abs(z).max() < 4.5 and np.abs(s).max() < 4.5


@pytest.mark.parametrize("frame", [np.diag([1.0, 0.5, 2.0]), [[1.0, 0.2, 0.0], [-0.3, 0.5, 0.1], [0.4, 0.0, 2.0]]])
@pytest.mark.parametrize("index", ["levels", None])
def test_draws_have_the_closed_form_moments_and_not_those_of_another_noise(index, frame):
    payload = local(index, frame=frame)
    found = payload.local.draw(40_000, TAUS if index else None, 1)
    for j in range(len(found)):
        mean, cov = exact(payload, j)
        assert moments_agree(found[j], mean, cov)
        assert not moments_agree(found[j], mean + 0.03 * np.sqrt(np.diag(cov)), cov)
        assert not moments_agree(found[j], mean, 1.1 * cov)
        louder = replace(payload, tensors={**payload.tensors, "privacy": payload.tensors["privacy"] * 2})
        assert not moments_agree(found[j], mean, exact(louder, j)[1])


def test_levels_are_joint_through_shared_privacy_noise_and_the_bridge():
    payload = local()
    found = payload.local.draw(40_000, [0.9, 0.1], 2)  # in the order asked
    mean, cov = exact(payload, 2, 0)
    assert moments_agree(found[0], mean, cov, found[1])
    assert not moments_agree(found[0], mean, np.zeros((D, D)), found[1])

    contrast = Posterior(model(), SCHEMA, payload).contrast({("educ", 0.9): 1, ("educ", 0.1): -1}, draws=40_000)
    row = np.array(model().transform)[1]
    variance = sum(
        s * row @ exact(payload, a, b)[1] @ row for a, b, s in ((2, 2, 1), (0, 0, 1), (2, 0, -1), (0, 2, -1))
    )
    assert contrast["sd"] == pytest.approx(np.sqrt(variance), rel=0.02)
    apart = sum(row @ exact(payload, a)[1] @ row for a in (0, 2))
    assert abs(contrast["sd"] / np.sqrt(apart) - 1) > 0.05


def test_between_knots_root_and_curvature_are_interpolated_and_the_bridge_is_exact():
    payload = local("interval")
    t, w = payload.tensors, payload.tensors["frame"]
    roots = [exact(payload, j)[0] for j in (1, 2)]
    noise = [w @ np.linalg.inv(t["curvature"][j]) for j in (1, 2)]
    found = payload.local.draw(40_000, [0.4, 0.5], 3)
    means, covs = [], []
    logits = np.log(np.array([0.3, 0.4, 0.5, 0.6]) / (1 - np.array([0.3, 0.4, 0.5, 0.6])))
    for share in (logits[1:3] - logits[0]) / (logits[3] - logits[0]):
        means.append((1 - share) * roots[0] + share * roots[1])
        slope = w @ np.linalg.inv((1 - share) * t["curvature"][1] + share * t["curvature"][2])
        loads = [(1 - share) * t["privacy"][1, k] * noise[0] + share * t["privacy"][2, k] * noise[1] for k in (0, 1)]
        covs.append((slope, loads))
    for a, b, factor in ((0, 0, 0.24), (1, 1, 0.25), (0, 1, 0.4 - 0.2)):
        cov = factor * covs[a][0] @ t["sampling"] @ covs[b][0].T
        cov = cov + sum(x @ y.T for x, y in zip(covs[a][1], covs[b][1], strict=True))
        assert moments_agree(found[a], means[a], cov, found[b])
    sampling, privacy = payload.local.parts([0.4, 0.5])
    assert np.allclose(sampling[0], 0.24 * covs[0][0] @ t["sampling"] @ covs[0][0].T)
    assert np.allclose(privacy[1], sum(x @ x.T for x in covs[1][1]))


def test_a_level_has_one_law_whatever_else_is_asked():
    for index, alone, levels in (("levels", 0.1, [0.9, 0.1, 0.5]), ("interval", 0.45, [0.7, 0.45, 0.46])):
        payload = local(index, curvature_sd=np.full(3 if index == "levels" else 4, 0.2), sampling_sd=[0.001])
        one, many = payload.local.draw(4000, [alone], 1)[0], payload.local.draw(4000, levels, 2)[1]
        for i in range(D):
            assert stats.ks_2samp(one[:, i], many[:, i]).pvalue > 1e-3
            assert stats.ks_2samp(one[:, i], 1.3 * many[:, i] - 0.3 * many[:, i].mean()).pvalue < 1e-2


def test_a_seed_gives_the_same_draws_in_any_chunks_and_at_a_knot_whatever_else_is_asked(monkeypatch):
    payload = local(curvature_sd=[0.1, 0.2, 0.3], sampling_sd=[0.002])
    whole = payload.local.draw(50, TAUS, 7)
    assert np.array_equal(payload.local.draw(50, TAUS, 7), whole)
    assert np.allclose(payload.local.draw(50, [0.5], 7)[0], whole[1])
    monkeypatch.setattr("pgbb.release.local_gaussian.CELLS", 200)
    assert np.allclose(payload.local.draw(50, TAUS, 7), whole)
    assert not np.allclose(payload.local.draw(50, TAUS, 8), whole)
    assert not np.allclose(payload.local.draw(50, TAUS, None), payload.local.draw(50, TAUS, None))


def test_noise_of_the_curvature_is_isometric_floored_and_widens_the_draws():
    z = np.random.default_rng(0).normal(size=(50_000, 6))
    noise = unpack(z, D)
    assert np.allclose(pack(noise), z) and np.allclose(np.linalg.norm(noise, axis=(1, 2)), np.linalg.norm(z, axis=1))
    v = np.array([0.6, 0.0, 0.8])
    assert np.var(v @ noise @ v) == pytest.approx(1, rel=0.03)  # of any direction

    payload = local(None, curvature_sd=[0.4])
    smallest = np.linalg.eigvalsh(payload.tensors["curvature"][0])[0]
    drawn = payload.local._curvature(0, 5000, np.random.default_rng(0))
    lows = np.linalg.eigvalsh(drawn)[:, 0]
    assert lows.min() == pytest.approx(0.25 * smallest) and 0.02 < np.mean(lows < 0.2501 * smallest) < 0.9
    slow = [
        payload.tensors["curvature"][0] + unpack(0.4 * row, D)
        for row in np.random.default_rng(0).normal(size=(5000, 6))
    ]
    values, vectors = np.linalg.eigh(np.stack(slow))
    by_hand = np.einsum("rij,rj,rkj->rik", vectors, np.maximum(values, 0.25 * smallest), vectors)
    assert np.allclose(drawn, by_hand)
    assert (payload.local.draw(4000, None, 1).std(1) > 1.05 * local(None).local.draw(4000, None, 1).std(1)).all()


def test_noise_of_the_sampling_covariance_may_meet_a_singular_one():
    flat = np.diag([0.01, 0.02, 0.0])
    still = local(None, sampling=flat, privacy=[[0.0]]).local.draw(2000, None, 1)[0]
    noisy = local(None, sampling=flat, privacy=[[0.0]], sampling_sd=[0.003]).local.draw(2000, None, 1)[0]
    assert np.linalg.matrix_rank(np.cov(still.T), tol=1e-9) == 2
    assert np.linalg.matrix_rank(np.cov(noisy.T), tol=1e-9) == 3
    nothing = local(None, sampling=np.zeros((D, D)), privacy=[[0.0]]).local.draw(5, None, 1)[0]
    assert np.allclose(nothing, exact(local(None), 0)[0])


def test_many_loadings_have_the_law_of_few():
    wide = np.random.default_rng(5).normal(0, 0.02, (3, 40))
    payload = local(privacy=wide)
    mean, cov = exact(payload, 2, 0)
    found = payload.local.draw(40_000, TAUS, 4)
    assert moments_agree(found[2], mean, cov, found[0])


def test_an_unidentified_direction_gives_the_whole_box_and_leaves_the_others_alone():
    payload = hidden()
    low, high = payload.tensors["low"][1], payload.tensors["high"][1]
    found = payload.local.draw(4000, TAUS, 1)
    assert np.quantile(found[0, :, 1], 0.05) == low and np.quantile(found[0, :, 1], 0.95) == high
    usual = local().local.draw(4000, TAUS, 1)
    assert np.allclose(found[0][:, [0, 2]], usual[0][:, [0, 2]]) and np.allclose(found[1:], usual[1:])

    slanted = local(None)
    v = np.array([0.6, 0.8, 0.0])
    slanted.tensors["free"][0] = np.outer(v, v)
    draws = slanted.local.draw(4000, None, 1)[0]
    lower, upper = np.quantile(draws, [0.05, 0.95], axis=0)
    assert (lower[:2] == -5).all() and (upper[:2] == 5).all() and upper[2] < 1

    between = hidden("interval").local.draw(4000, [0.15, 0.3], 1)
    assert np.quantile(between[0, :, 1], 0.9) == high and np.quantile(between[1, :, 1], 0.9) < 1


def test_a_gradient_that_bends_gives_its_root_and_a_likelihood_the_skew_of_its_bootstrap():
    """The mean of n exponentials in its rate λ = 1: E x − 1/λ, whose bootstrap has the skew 2/√n of the posterior."""
    n, one = 100, np.ones((1, 1))
    tensors = {
        "center": one, "gradient": 0 * one, "frame": one, "curvature": one[None], "curvature_sd": 0 * one,
        "privacy": 0 * one, "sampling": one / n, "sampling_sd": np.zeros(1), "free": 0 * one[None],
        "low": np.array([0.01]), "high": np.array([9.0]), "bend": -one[0], "skew": -one[0] * 2 / 3,
    }  # fmt: skip
    bent = LocalGaussian.from_tensors({"floor": 0.25}, tensors)
    draws = bent.draw(400_000, None, 1)[0, :, 0]
    assert stats.skew(draws) == pytest.approx(2 / np.sqrt(n), abs=0.04)
    score = replace(bent, skew=0 * one[0])
    plain = replace(bent, bend=None, skew=None)
    step = plain.draw(1000, None, 1)[0, :, 0] - 1
    assert score.draw(1000, None, 1)[0, :, 0] == pytest.approx(1 / (1 - step))  # 1/λ = 1 − step
    away = replace(bent, gradient=np.array([[0.1]]), privacy=np.array([[0.02]]))  # λ = 1/1.1, 1/√n of it, and noise
    columns = away.columns(None, np.eye(1))
    assert columns["sampling_sd"] == pytest.approx(0.1 / 1.21) and columns["privacy_sd"] == pytest.approx(0.02 / 1.21)
    assert away.draw(100_000, None, 1).std() == pytest.approx(np.hypot(0.1, 0.02) / 1.21, rel=0.05)
    for twin in (score, plain):
        assert stats.skew(twin.draw(400_000, None, 1)[0, :, 0]) != pytest.approx(2 / np.sqrt(n), abs=0.04)


@pytest.mark.parametrize(
    "index, tensors", [(None, {"bend": [0.1] * 3}), ("levels", {"bend": [0.1] * 3, "skew": [0.0] * 3})]
)
def test_half_a_skew_or_one_over_levels_is_refused(index, tensors):
    with pytest.raises(InvalidValue, match="a local payload has"):
        payload = local(index, **tensors)
        LocalGaussian.check_tensors(payload.settings, payload.tensors, D, model(index).index)


def test_draws_stay_in_the_box():
    payload = local(None, low=[0.9, -0.2, -5.0], high=[1.05, 0.2, 5.0])
    draws, free = payload.local.draw(3000, None, 1)[0], local(None).local.draw(3000, None, 1)[0]
    assert np.array_equal(draws, np.clip(free, [0.9, -0.2, -5.0], [1.05, 0.2, 5.0])) and not np.array_equal(draws, free)


def test_a_summary_splits_the_variance_in_original_units():
    p = posterior()
    table = p.summary(draws=40_000)
    assert list(table.columns) == [
        "mean",
        "sd",
        "lower",
        "upper",
        "prob_positive",
        "sampling_sd",
        "privacy_sd",
        "privacy_share",
        "identified",
    ]
    transform = np.array(model().transform)
    for j, tau in enumerate(TAUS):
        total = transform @ exact(p.payload, j)[1] @ transform.T
        silent = {**p.payload.tensors, "privacy": np.zeros((3, 1))}
        sampling = np.diag(transform @ exact(replace(p.payload, tensors=silent), j)[1] @ transform.T)
        rows = table.loc[tau]
        assert np.allclose(rows["sampling_sd"], np.sqrt(sampling))
        assert np.allclose(rows["privacy_sd"], np.sqrt(np.diag(total) - sampling))
        assert np.allclose(rows["privacy_share"], 1 - sampling / np.diag(total))
        assert np.allclose(rows["sd"], np.sqrt(np.diag(total)), rtol=0.02)
    assert table["identified"].all() and table["identified"].dtype == bool
    assert list(Posterior(model(), SCHEMA, generator()).summary().columns) == [
        "mean",
        "sd",
        "lower",
        "upper",
        "prob_positive",
    ]
    assert list(p.conf_int(tau=0.5).columns) == ["lower", "upper"]
    assert (posterior(None, privacy=[[0.0]], sampling=np.zeros((D, D))).summary()["privacy_share"] == 0).all()


def test_what_is_not_identified_is_named_once_and_so_is_an_intercept_made_of_it():
    p = Posterior(model(), SCHEMA, hidden())
    with pytest.warns(PgbbWarning, match=r"not identified at this ε: Intercept, educ at tau = 0\.1\."):
        table = p.summary()
    assert table["identified"].tolist() == [False, False, True] + [True] * 6
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        p.summary()
        posterior().summary()
    internal = replace(model(), transform=np.eye(D), offset=np.zeros(D))
    with pytest.warns(PgbbWarning, match=r"educ at tau = 0\.1\."):
        assert Posterior(internal, SCHEMA, hidden()).summary(0.1)["identified"].tolist() == [True, False, True]
    with pytest.warns(PgbbWarning, match=r"this ε: black\."):
        plain = Posterior(replace(model(None), transform=np.eye(D)), SCHEMA, hidden(None, 2)).summary()
    assert plain["identified"].tolist() == [True, True, False]


def test_many_levels_are_named_by_their_range():
    with pytest.warns(PgbbWarning, match=r" Intercept, educ at 7 values of tau from 0\.1 to 0\.28\."):
        Posterior(model("interval"), SCHEMA, hidden("interval")).summary(np.linspace(0.28, 0.1, 7).tolist())


def test_a_coefficient_is_identified_where_hidden_directions_spread_it_less_than_all_else():
    for weight, expected in ((1e-7, True), (1e-4, False), (0.011, False)):
        v = np.array([0.0, np.sqrt(weight), np.sqrt(1 - weight)])
        one = local(None, free=np.outer(v, v)[np.newaxis]).local
        assert one.columns(None, np.eye(D))["identified"][0].tolist() == [True, expected, False]
        usual, hazy = (x.draw(4000, None, 1)[0, :, 1].std() for x in (local(None).local, one))
        assert (hazy < 1.5 * usual) == expected  # as the draws say


def test_a_weak_hidden_direction_does_not_hide_behind_itself():
    v = np.array([0.08, np.sqrt(1 - 0.08**2), 0.0])
    weak = np.eye(D) - (1 - 1e-3) * np.outer(v, v)
    one = local(None, free=np.outer(v, v)[np.newaxis], curvature=weak[np.newaxis]).local
    assert one.columns(None, np.eye(D))["identified"][0].tolist() == [False, False, True]
    whole, known = (sum(one.parts(None, known=k))[0] for k in (False, True))
    assert v @ whole @ v > 100 * abs(v @ known @ v)


def test_diagnostics_tell_the_share_of_privacy_what_is_hidden_and_a_faint_curvature():
    fine = posterior(curvature_sd=[0.01, 0.01, 0.0]).diagnostics()
    assert not fine.remarks and (fine.at_edge == 0).all() and fine.linear_share is None
    assert np.allclose(fine.privacy_share, posterior().summary()["privacy_share"])
    assert list(fine.curvature_signal.index) == [0.1, 0.5] and (fine.curvature_signal > 50).all()
    json.dumps(fine.to_dict(), allow_nan=False)
    faint = Posterior(model(), SCHEMA, hidden(curvature_sd=[0.5, 0.5, 0.5])).diagnostics()
    assert len(repr(faint)) < 900 and faint.remarks[1] in repr(faint)
    assert len(faint.remarks) == 2 and "educ at tau = 0.1" in faint.remarks[0] and "times its noise" in faint.remarks[1]
    bound = posterior(None, low=[-0.2, -5, -5], high=[-0.1, 5, 5]).diagnostics()
    assert bound.curvature_signal is None and any("Intercept lie at the edge" in r for r in bound.remarks)
    assert Posterior(model(), SCHEMA, generator()).diagnostics().privacy_share is None


def test_the_signal_of_the_curvature_leaves_out_unidentified_directions():
    weak = np.diag([0.001, 1.0, 2.0])[np.newaxis]
    free = np.diag([1.0, 0.0, 0.0])[np.newaxis]
    assert local(None, curvature=weak, curvature_sd=[0.1]).local.signal()[0] == pytest.approx(0.01)
    assert local(None, curvature=weak, curvature_sd=[0.1], free=free).local.signal()[0] == pytest.approx(10)
    assert np.isinf(local(None).local.signal()[0])


# Files, commands, figures ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", ["levels", "interval", None])
def test_a_local_release_survives_its_file(index, tmp_path):
    original = release(index)
    back = load(original.save(tmp_path / "r.pgbb"))
    assert back.payload.kind == "local" and back.payload.settings == original.payload.settings
    assert all(np.array_equal(back.payload.tensors[k], v) for k, v in original.payload.tensors.items())
    tau = [0.1, 0.9] if index else None
    assert back.sample(20, tau=tau, seed=1).equals(original.sample(20, tau=tau, seed=1))
    assert repr(back) == repr(original) and back.verify().ok
    assert back.predict({"educ": 12, "black": 0}, tau=tau, draws=50).shape[1] == 4


def test_reading_a_local_release_needs_no_jax(tmp_path):
    path = release().save(tmp_path / "r.pgbb")
    code = (
        "import sys; from pgbb.release.file import load; r = load(sys.argv[1]); assert r.verify().ok; r.summary(); "
        "r.sample(10); r.contrast({('educ', .9): 1, ('educ', .1): -1}); repr(r); r.diagnostics(); "
        "print([m for m in ('jax', 'jaxlib', 'optax', 'matplotlib') if m in sys.modules])"
    )
    out = python(code, path, check=True)
    assert out.stdout.strip() == "[]"


def test_a_posterior_without_privacy_noise_contradicts_a_certificate_with_it():
    silent = local(privacy=[[0.1], [0.0], [0.1]])
    found = release(payload=silent).verify()
    assert not found.ok and "no privacy noise" in found.problems[0]
    honest = release(payload=silent, claim=non_private()).verify()
    assert not honest.ok and not any("no privacy noise" in p for p in honest.problems)


def test_show_prints_the_parts_and_marks_what_is_not_identified(tmp_path):
    run = CliRunner()
    for payload in (local(), hidden()):
        path = release(payload=payload).save(tmp_path / "r.pgbb")
        text = run.invoke(app, ["show", str(path)], env={"COLUMNS": "160"}).output
        assert "sampling" in text and "privacy" in text
        marked = [line.split(" * ")[0].split() for line in text.splitlines() if " * " in line]
        assert marked == ([["0.1", "Intercept"], ["educ"]] if payload.tensors["free"].any() else [])
        assert ("* not identified at this ε" in text) == bool(marked)
        report = json.loads(run.invoke(app, ["show", str(path), "--json"]).stdout)
        row = report["summary"][1]
        assert row["identified"] is (not marked) and (row["privacy_sd"] is None) == bool(marked)
        if not marked:
            assert report["diagnostics"]["privacy_share"]["0.1 educ"] == pytest.approx(row["privacy_share"])


def test_tables_show_the_columns():
    table = release(None).to_latex()
    assert r"privacy\_sd" in table and table.count("yes") == 3 and "privacy_sd" in release(None).to_html()


@pytest.mark.filterwarnings("ignore:not identified")
def test_figures_mark_what_is_not_identified():
    def titles(payload):
        return [axis.get_title() for axis in quantile_process(release(payload=payload)).axes]

    assert titles(local()) == list(NAMES)
    assert [t.endswith("(hollow: not identified)") for t in titles(hidden())] == [True, True, False]
    labels = [a.get_yticklabels()[0].get_text() for a in coefficient_intervals(release(None, hidden(None))).axes]
    assert labels == ["Intercept\n(not identified)", "educ\n(not identified)", "black"]
    plain = coefficient_intervals(release(None)).axes
    assert [a.get_yticklabels()[0].get_text() for a in plain] == list(NAMES)


def _lacking(name):
    payload = local()
    del payload.tensors[name]
    return payload


LEANING = np.eye(D) + np.array([[0, 0.1, 0], [0, 0, 0], [0, 0, 0]])


@pytest.mark.parametrize(
    "payload, said",
    [
        (local(settings={"floor": 0.0}), "floor"),
        (local(settings={"floor": 1.0}), "floor"),
        (local(settings={"index": False}), "index"),
        (local(settings={"bridge": False}), "bridge"),
        (local(settings={"blocks": 5}), "settings"),
        *((_lacking(name), name) for name in ("knots", "center", "curvature_sd", "free", "high")),
        (local(extra=[1.0]), "extra"),
        (local(**{"transcript/u": np.ones((3, 2))}), "transcript/u"),
        (local(knots=[0.1, 0.4, 0.9]), "knots"),
        (local(knots=[0.1, 0.5]), "knots"),
        (local(knots=[0.5, 0.1, 0.9]), "increasing"),
        (local(center=np.zeros((3, 2))), "center"),
        (local(privacy=np.ones(3)), "privacy"),
        (local(privacy=np.ones((3, 0))), "privacy"),
        (local(sampling_sd=[0.0, 0.0]), "sampling_sd"),
        (local(sampling_sd=[-0.1]), "negative"),
        (local(curvature_sd=[0.0, -1.0, 0.0]), "negative"),
        (local(frame=np.diag([1.0, 0.0, 1.0])), "frame"),
        (local(low=[1.0, 1.0, 1.0], high=[2.0, 1.0, 2.0]), "box"),
        (local(curvature=[LEANING] * 3), "'curvature' must be symmetric"),
        (local(curvature=[np.diag([1.0, 1.0, 0.0])] * 3), "positive definite"),
        (local(sampling=LEANING), "'sampling' must be symmetric"),
        (local(sampling=np.diag([1.0, 1.0, -0.1])), "semidefinite"),
        (local(free=[0.5 * np.eye(D)] * 3), "projector"),
        (local(gradient=np.full((3, D), np.nan)), "NaN"),
        (replace(local(), tensors={**local().tensors, "low": np.full(D, -5.0, np.float32)}), "float64"),
        (local(None), "index"),
    ],
)
def test_a_local_payload_that_does_not_fit_is_refused(payload, said):
    with pytest.raises(InvalidValue, match=said):
        Posterior(model(), SCHEMA, payload)


@pytest.mark.parametrize("knots", [[0.1, 0.5], [0.2, 0.9], [0.1, 0.5, 0.95]])
def test_knots_must_cover_the_interval(knots):
    with pytest.raises(InvalidValue, match="knots"):
        Posterior(model("interval"), SCHEMA, local("interval", knots=knots))


def test_quantile_levels_lie_strictly_inside_the_unit_interval():
    whole = replace(model("interval"), index={"kind": "interval", "low": 0.0, "high": 1.0})
    with pytest.raises(InvalidValue, match="between 0 and 1"):
        Posterior(whole, SCHEMA, local("interval", knots=[0.0, 0.5, 1.0]))


def test_a_local_posterior_has_no_iterates_and_only_its_declared_levels():
    with pytest.raises(InvalidValue, match="no training"):
        posterior().sample(3, tau=0.5, iterate="last")
    with pytest.raises(InvalidValue, match=r"tau = 0\.2"):
        posterior().sample(3, tau=0.2)
    assert isinstance(local().local, LocalGaussian)


@pytest.mark.parametrize("index", ["levels", "interval", None])
def test_a_local_gaussian_is_what_its_settings_and_tensors_say_and_gives_them_back(index):
    payload = local(index, settings={"floor": 0.3})
    settings, tensors = payload.local.to_tensors()
    assert settings == payload.settings and list(tensors) == list(payload.tensors)
    assert all(np.array_equal(value, payload.tensors[name]) for name, value in tensors.items())
    assert payload.local.floor == 0.3 and payload.local.dim == D


def test_the_indices_that_all_callers_share_cannot_be_changed():
    for part in triangle(3):
        with pytest.raises(ValueError, match="read-only"):
            part[0] = 1
