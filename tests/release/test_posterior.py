import math
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from pgbb.errors import InvalidValue, PgbbWarning
from pgbb.release.file import ReleaseError, load
from pgbb.release.payloads import Payload, forward
from pgbb.release.posterior import Posterior
from tests.release.builders import (
    NAMES,
    SCHEMA,
    TAUS,
    edited,
    generator,
    generator_release,
    model,
    stored_draws,
    transcript,
)

pytestmark = pytest.mark.quick


def posterior(index="levels", **options):
    return Posterior(model(index), SCHEMA, generator(index is not None, **options))


def slow_forward(payload, v, iterate):
    """One input, one unit at a time, in double precision; written from the description."""
    t = {k: a.astype(float).tolist() for k, a in payload.tensors.items()}
    x = [(a - b) / c for a, b, c in zip(v, t["input_shift"], t["input_scale"], strict=True)]
    h, i = x, 0
    while True:
        kernel, bias = t[f"{iterate}/kernel{i}"], t[f"{iterate}/bias{i}"]
        z = [sum(h[r] * kernel[r][c] for r in range(len(h))) + bias[c] for c in range(len(bias))]
        i += 1
        if f"{iterate}/kernel{i}" not in t:
            return [c + r * math.tanh(a) for a, c, r in zip(z, t["center"], t["radius"], strict=True)]
        h = [max(a, 0.0) for a in z] + x


@pytest.mark.parametrize("widths", [(), (5,), (8, 7, 6)])
@pytest.mark.parametrize("iterate", ["average", "last"])
def test_the_forward_pass_equals_a_slow_loop(widths, iterate):
    payload = generator(blocks=4, pseudo=2, widths=widths)
    v = np.random.default_rng(0).random((9, 7))
    fast = forward(payload, v, iterate)
    slow = np.array([slow_forward(payload, row, iterate) for row in v.tolist()])
    assert np.abs(fast - slow).max() < 2e-6
    assert np.abs(fast - np.array([slow_forward(payload, r, "last") for r in v[::-1].tolist()])).max() > 1e-2


def test_many_rows_are_worked_in_chunks_without_changing_them(monkeypatch):
    payload = generator()
    v = np.random.default_rng(0).random((25, 7))
    whole = forward(payload, v, "average")
    monkeypatch.setattr("pgbb.release.payloads.CHUNK", 7)
    assert np.allclose(forward(payload, v, "average"), whole, atol=1e-6)


def _dirichlet_z(u, mass):
    """Largest z-score of the first and second moments of u against Dirichlet(mass)."""
    total = mass.sum()
    mean = mass / total
    second = mass * (mass + 1) / (total * (total + 1))
    scores = [(u - mean).mean(0) / u.std(0), (u**2 - second).mean(0) / (u**2).std(0)]
    return np.abs(np.concatenate(scores)).max() * math.sqrt(len(u))


def test_weights_have_the_moments_of_their_dirichlet_law_and_not_of_another():
    settings = {"blocks": 5, "pseudo_blocks": 2, "concentration": 0.8, "alpha": 3.0}
    u = Payload("generator", settings, {}).weights(40_000, np.random.default_rng(7))
    assert u.shape == (40_000, 7) and np.allclose(u.sum(1), 1)
    mass = np.array([0.8] * 5 + [1.5] * 2)
    assert _dirichlet_z(u, mass) < 4.5
    assert _dirichlet_z(u, mass * 1.15) > 6  # same means, wrong concentration
    assert _dirichlet_z(u, np.array([0.8] * 5 + [3.0] * 2)) > 6  # α not shared out


def test_one_block_has_constant_weight_so_all_draws_agree():
    assert (generator(blocks=1).weights(3, np.random.default_rng(0)) == 1).all()
    frame = posterior(blocks=1).sample(5, tau=0.5)
    assert (frame == frame.iloc[0]).all().all()


def test_a_sample_is_one_row_a_draw_with_coefficient_names_in_original_units():
    p = posterior()
    frame = p.sample(40, tau=0.5, seed=4)
    assert frame.shape == (40, 3) and tuple(frame.columns) == NAMES
    u = p.payload.weights(40, np.random.default_rng(4))
    internal = np.array([slow_forward(p.payload, [*row, 0.5], "average") for row in u.tolist()])
    expected = internal @ np.array(p.model.transform).T + p.model.offset
    assert np.abs(frame.to_numpy() - expected).max() < 1e-5


def test_draws_at_several_levels_share_the_same_u():
    p = posterior()
    joint = p.sample(500, tau=[0.1, 0.9], seed=2)
    assert list(joint.columns[:2]) == [(0.1, "Intercept"), (0.1, "educ")] and joint.columns.names[0] == "tau"
    assert np.allclose(joint[0.1], p.sample(500, tau=0.1, seed=2), atol=1e-6)
    together = np.corrcoef(joint[(0.1, "educ")], joint[(0.9, "educ")])[0, 1]
    apart = np.corrcoef(joint[(0.1, "educ")], p.sample(500, tau=0.9, seed=3)["educ"])[0, 1]
    assert abs(together) > 0.5 and abs(apart) < 0.25


def test_no_level_means_all_declared_ones():
    assert list(posterior().sample(3).columns.levels[0]) == TAUS
    assert posterior().summary().index.nlevels == 2
    assert posterior().summary(tau=[0.5]).index.tolist() == list(NAMES)
    assert posterior(None).sample(3).shape == (3, 3)


def test_an_interval_takes_any_level_inside_and_asks_for_one():
    p = posterior("interval")
    assert p.sample(3, tau=0.37).shape == (3, 3)
    assert p.sample(3, index=[0.37, 0.4]).shape == (3, 6)
    with pytest.raises(InvalidValue, match=r"Say which"):
        p.summary()
    with pytest.raises(InvalidValue, match=r"tau = 0\.95"):
        p.sample(3, tau=0.95)


@pytest.mark.parametrize(
    "call, field",
    [
        (lambda p: p.sample(3, tau=0.2), "0.1, 0.5, 0.9"),
        (lambda p: p.sample(3, tau=[0.1, 0.1]), "distinct"),
        (lambda p: p.sample(3, tau=[]), "non-empty"),
        (lambda p: p.sample(3, tau="median"), "tau"),
        (lambda p: p.sample(3, tau=0.1, index=0.1), "one of them"),
        (lambda p: p.sample(0), "m = 0"),
        (lambda p: p.sample(3, seed=-1), "seed"),
        (lambda p: p.sample(3, iterate="best"), "iterate"),
        (lambda p: p.summary(level=95), "level"),
        (lambda p: p.contrast({}), "weights"),
        (lambda p: p.contrast({"age": 1}), "coefficient"),
        (lambda p: p.contrast({"educ": 1}), "without a level"),
        (lambda p: p.contrast({("educ", 0.2): 1}), "tau = 0.2"),
        (lambda p: p.contrast({("educ", 0.1): math.nan}), "weight"),
    ],
)
def test_a_wrong_question_is_answered_by_what_is_allowed(call, field):
    with pytest.raises(InvalidValue, match=field):
        call(posterior())


def test_a_model_without_an_index_refuses_a_level():
    with pytest.raises(InvalidValue, match="no index"):
        posterior(None).summary(tau=0.5)


def test_the_iterate_can_be_chosen():
    p = posterior(None)
    assert p.sample(5, seed=1).equals(p.sample(5, seed=1, iterate="average"))
    assert not np.allclose(p.sample(5, seed=1), p.sample(5, seed=1, iterate="last"))
    last = Posterior(model(None), SCHEMA, generator(False, default_iterate="last"))
    assert last.sample(5, seed=1).equals(p.sample(5, seed=1, iterate="last"))


def test_a_summary_is_that_of_the_draws():
    p = posterior()
    table, frame = p.summary(tau=0.5, level=0.8, draws=1000, seed=5), p.sample(1000, tau=0.5, seed=5)
    assert list(table.columns) == ["mean", "sd", "lower", "upper", "prob_positive"] and tuple(table.index) == NAMES
    assert np.allclose(table["prob_positive"], (frame > 0).mean())
    assert np.allclose(table["mean"], frame.mean()) and np.allclose(table["sd"], frame.std())
    assert np.allclose(table["lower"], frame.quantile(0.1)) and np.allclose(table["upper"], frame.quantile(0.9))
    assert p.conf_int(0.8, 0.5).equals(p.summary(0.5, 0.8)[["lower", "upper"]])
    several = p.summary(tau=[0.1, 0.5], level=0.8, draws=1000, seed=5)
    assert np.allclose(several.loc[0.5], table, atol=1e-6)


def test_a_contrast_is_that_of_joint_draws_and_of_equal_things_exactly_zero():
    p = posterior()
    found = p.contrast({("educ", 0.9): 1, ("educ", 0.1): -1}, level=0.9, draws=800, seed=6)
    joint = p.sample(800, tau=[0.1, 0.9], seed=6)
    difference = joint[(0.9, "educ")] - joint[(0.1, "educ")]
    assert found["mean"] == pytest.approx(difference.mean()) and found["sd"] == pytest.approx(difference.std())
    assert found["upper"] == pytest.approx(difference.quantile(0.95))
    assert found["prob_positive"] == (difference > 0).mean()
    flat = generator()
    for iterate in ("average", "last"):
        for i in range(3):
            flat.tensors[f"{iterate}/kernel{i}"][-1] = 0.0  # the level is the last input everywhere
    same = Posterior(model(), SCHEMA, flat).contrast({("educ", 0.9): 1, ("educ", 0.1): -1})
    assert (same == 0).all()


def test_a_contrast_within_a_level_uses_plain_names():
    p = posterior(None)
    found = p.contrast({"educ": 2.0, "black": -1.0}, draws=300)
    frame = p.sample(300, seed=0)
    assert found["mean"] == pytest.approx((2 * frame["educ"] - frame["black"]).mean())
    q = posterior()
    assert q.contrast({"educ": 1}, tau=0.5)["mean"] == pytest.approx(q.summary(0.5).loc["educ", "mean"])


def test_stored_draws_are_sampled_by_row_with_the_same_row_at_every_level():
    payload = stored_draws()
    p = Posterior(model(), SCHEMA, payload)
    few = p.sample(50, tau=[0.1, 0.9], seed=1)
    whole = p.model.to_original(payload.tensors["draws"])
    assert np.allclose(np.sort(few[(0.9, "educ")]), np.sort(whole[0, :, 1]))  # all rows, none twice
    rows = [int(np.argmin(np.abs(whole[0, :, 1] - v))) for v in few[(0.9, "educ")]]
    assert np.allclose(few[(0.1, "educ")], whole[1, rows, 1])
    assert p.sample(200, tau=0.5).shape == (200, 3)
    assert np.allclose(p.summary(tau=0.1)["mean"], whole[1].mean(0))
    assert Posterior(model(None), SCHEMA, stored_draws(None)).sample(7).shape == (7, 3)
    with pytest.raises(InvalidValue, match="iterate"):
        p.sample(3, iterate="last")


def test_a_file_of_an_unknown_kind_says_which_kinds_there_are(tmp_path):
    path = generator_release().save(tmp_path / "t.pgbb")
    for member, key in (("manifest.json", "payload"), ("payload.json", "kind")):
        edited(path, member, lambda plain, key=key: plain.update({key: "transcript"}))
    with pytest.raises(ReleaseError, match="'transcript' is not one of generator, draws, local"):
        load(path)


def test_a_generator_may_keep_its_transcript():
    payload = generator()
    payload.tensors.update(transcript())
    assert Posterior(model(), SCHEMA, payload).sample(3, tau=0.5).shape == (3, 3)


def _without(payload, *names):
    return replace(payload, tensors={k: v for k, v in payload.tensors.items() if k not in names})


def _with(payload, **tensors):
    return replace(payload, tensors={**payload.tensors, **{k.replace("__", "/"): v for k, v in tensors.items()}})


@pytest.mark.parametrize(
    "payload, said",
    [
        (_without(generator(), "center"), "center"),
        (_without(generator(), "average/bias1"), "bias1"),
        (_without(generator(), *(f"average/{k}{i}" for k in ("kernel", "bias") for i in range(3))), "default iterate"),
        (_with(generator(), extra=np.ones(1)), "extra"),
        (_with(generator(), average__kernel1=np.ones((8, 8))), "kernel1"),
        (_with(generator(), average__kernel2=np.ones((15, 4))), "kernel2"),
        (_with(generator(), radius=np.array([1.0, np.nan, 1.0])), "NaN"),
        (_with(generator(), radius=np.array([1.0, 0.0, 1.0])), "positive"),
        (_with(generator(), center=np.array(["a", "b", "c"])), "real numbers"),
        (_with(generator(), **{"transcript__u": np.ones((2, 2))}), "transcript"),
        (generator(blocks=5, concentration=None), "concentration"),
        (generator(alpha=1.0), "alpha"),
        (generator(default_iterate="first"), "default_iterate"),
        (generator(extra=1), "settings"),
        (generator(index=False), "index"),
        (stored_draws(levels=None), "index_values"),
        (_with(stored_draws(), draws=np.ones((3, 5, 2))), "draws"),
        (_with(stored_draws(), draws=np.ones((5, 3))), "draws"),
        (Payload("transcript", {}, transcript()), "payload kind"),
        (Payload("oracle", {}, {}), "payload kind"),
    ],
)
def test_a_payload_that_does_not_fit_the_model_is_refused(payload, said):
    with pytest.raises(InvalidValue, match=said):
        Posterior(model(), SCHEMA, payload)


@pytest.mark.parametrize(
    "changes, field",
    [
        ({"kind": "tree"}, "kind"),
        ({"names": ("a", "a", "b")}, "names"),
        ({"names": "abc"}, "names"),
        ({"transform": np.eye(2)}, "transform"),
        ({"offset": [0.0, 0.0, math.inf]}, "offset"),
        ({"index": None}, "index"),
        ({"index": {"kind": "levels", "values": [0.5, 0.5]}}, "index"),
        ({"index": {"kind": "interval", "low": 0.9, "high": 0.1}}, "index high"),
        ({"index": "tau"}, "index"),
    ],
)
def test_a_wrong_model_summary_is_refused(changes, field):
    with pytest.raises(InvalidValue, match=field):
        replace(model(), **changes)


def test_a_prediction_is_the_design_row_times_the_coefficients():
    p = posterior()
    at = pd.DataFrame({"educ": [12.0, 16.0], "black": [0, 1]}, index=["low", "high"])
    found = p.predict(at, tau=0.5, draws=500, seed=3)
    frame = p.sample(500, tau=0.5, seed=3)
    assert found.index.tolist() == ["low", "high"]
    expected = frame["Intercept"] + 16 * frame["educ"] + frame["black"]
    assert found.loc["high", "mean"] == pytest.approx(expected.mean())
    assert found.loc["high", "upper"] == pytest.approx(expected.quantile(0.975))
    several = p.predict({"educ": 12, "black": 0}, draws=500, seed=3)
    assert several.index.names == ["tau", "row"] and len(several) == 3
    assert several.loc[(0.5, 0), "mean"] == pytest.approx(found.loc["low", "mean"], rel=1e-5)


def test_a_prediction_codes_levels_leaves_out_a_scale_and_is_a_probability_when_logistic():
    schema = {"columns": {"y": "flag", "region": {"levels": ["north", "south", "west"]}}}
    names = ("Intercept", "region[T.south]", "region[T.west]", "scale")
    summary = replace(model(None, names=names, formula="y ~ region"), kind="huber")
    payload = generator(False, d=4)
    p = Posterior(summary, schema, payload)
    frame = p.sample(400, seed=0)
    found = p.predict({"region": ["west", "north"]}, draws=400)
    assert found.loc[0, "mean"] == pytest.approx((frame["Intercept"] + frame["region[T.west]"]).mean())
    assert found.loc[1, "mean"] == pytest.approx(frame["Intercept"].mean())
    logistic = Posterior(replace(summary, kind="logistic"), schema, payload).predict({"region": "north"}, draws=400)
    assert logistic.loc[0, "mean"] == pytest.approx((1 / (1 + np.exp(-frame["Intercept"]))).mean())
    with pytest.raises(InvalidValue, match="north, south, west"):
        p.predict({"region": "east"})


@pytest.mark.parametrize(
    "at, field",
    [
        ({"educ": 12}, "black, educ"),
        ({"educ": "many", "black": 0}, "educ"),
        ({"educ": math.nan, "black": 0}, "educ"),
        ({"educ": [1, 2, 3], "black": [0, 1]}, "one length"),
        ({"educ": [], "black": []}, "at least one row"),
        ([12, 0], "data frame"),
    ],
)
def test_a_prediction_names_what_is_wrong_with_its_rows(at, field):
    with pytest.raises(InvalidValue, match=field):
        posterior().predict(at)


def test_a_prediction_outside_the_declared_range_warns():
    with pytest.warns(PgbbWarning, match="educ"):
        posterior().predict({"educ": 40, "black": 0})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        posterior().predict({"educ": 20, "black": 0})
    with pytest.raises(InvalidValue, match="no formula"):
        Posterior(replace(model(), formula=None), SCHEMA, generator()).predict({"educ": 1})


def test_arviz_gets_one_chain_with_the_levels_as_a_dimension():
    data = posterior().to_arviz(draws=60)
    assert data.posterior["educ"].dims == ("chain", "draw", "tau") and data.posterior["educ"].shape == (1, 60, 3)
    frame = posterior().sample(60, seed=0)
    assert np.allclose(data.posterior["educ"].values[0, :, 2], frame[(0.9, "educ")])
    assert posterior(None).to_arviz(draws=60).posterior["black"].shape == (1, 60)


def test_diagnostics_see_draws_at_the_edge_crossing_quantiles_and_a_wrong_spread():
    calm = generator()
    calm.tensors["average/kernel2"][-1] = 0.0
    calm.tensors["average/kernel2"][-1, 0] = 1.0  # the intercept rises with the level
    p = Posterior(model(), SCHEMA, calm)
    sd = p.summary()["sd"].to_numpy().reshape(3, 3)
    fine = Posterior(model(), SCHEMA, calm, {"reference_sd": sd.tolist()}).diagnostics()
    assert (fine.at_edge == 0).all() and (fine.crossing == 0).all()
    assert np.allclose(fine.spread_ratio, 1) and not fine.remarks
    assert list(fine.crossing.index) == ["0.1–0.5", "0.5–0.9"]

    wild = replace(calm, tensors=dict(calm.tensors))
    wild.tensors["average/kernel2"] = calm.tensors["average/kernel2"] * np.float32(-1)
    wild.tensors["average/bias2"] = np.array([0.0, 9.0, 0.0], np.float32)
    bad = Posterior(model(), SCHEMA, wild, {"reference_sd": (sd * 3).tolist()}).diagnostics()
    assert (bad.at_edge.xs("educ", level=1) == 1).all()
    assert (bad.crossing > 0.9).all()
    assert len(bad.remarks) == 3 and "educ" in bad.remarks[0]
    assert bad.to_dict()["crossing"].keys() == {"0.1–0.5", "0.5–0.9"}
    with pytest.raises(InvalidValue, match="reference_sd"):
        Posterior(model(), SCHEMA, calm, {"reference_sd": [1.0]}).diagnostics()


def test_diagnostics_leave_out_what_a_model_does_not_have():
    plain = Posterior(model(None), SCHEMA, stored_draws(None)).diagnostics()
    assert plain.at_edge is None and plain.crossing is None and plain.spread_ratio is None


def test_tables_are_readable_and_escape_names():
    names = ("Intercept", "I(x_1**2) & <b>", "black")
    p = Posterior(model(None, names=names), SCHEMA, generator(False))
    assert "quantile regression: logwk" in repr(p) and "I(x_1**2)" in repr(p) and "mean" in repr(p)
    assert "<b>" not in p._repr_html_() and "&lt;b&gt;" in p.to_html()
    latex = p.to_latex()
    assert r"I(x\_1**2) \& <b>" in latex and latex.count(r"\\") == 4
    tiny = Posterior(replace(model(None), transform=np.eye(3) * 1e-9, offset=np.zeros(3)), SCHEMA, generator(False))
    assert r" \times 10^{-" in tiny.to_latex() and "e-" not in tiny.to_latex()
    several = posterior().to_latex()
    assert several.startswith(r"\begin{tabular}{llrrrrr}") and several.count("educ") == 3
    assert repr(posterior("interval")).count("educ") == 6  # formula, and five levels
