import json
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

import pgbb
from pgbb import (
    Custom,
    HuberRegression,
    LogisticRegression,
    Mean,
    PgbbError,
    QuantileRegression,
    Range,
    Schema,
)
from pgbb.methods.pgbb.generator import initialise
from pgbb.model.blocks import block_sizes, random_blocks
from pgbb.private.randomness import Randomness
from pgbb.release.payloads import forward

SCHEMA = Schema(a=Range(-1, 1), b=Range(-1, 1), y=Range(-6, 6), z=pgbb.Flag())
TRUTH = np.array([1.5, -1.0])
QUICK = {"schema": SCHEMA, "delta": 1e-6, "blocks": 5, "steps": 60, "draws_per_step": 2, "sampling_rate": 0.2}


def fit(model, data, **settings):
    return pgbb.fit(model, data, **({"method": "pgbb", "intervals": "printed"} | settings))


def frame(n=2000, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 2))
    noise = rng.standard_normal(n)
    return pd.DataFrame(
        {"a": x[:, 0], "b": x[:, 1], "y": x @ TRUTH + 0.5 * noise, "z": (x @ TRUTH + noise > 0).astype(int)}
    )


def weighted_huber(x, y, w, c=1.345, kappa=0.71):
    def objective(theta):
        scale = theta[-1]
        z = (y - x @ theta[:-1]) / scale
        psi = np.clip(z, -c, c)
        rho = np.where(np.abs(z) <= c, z**2 / 2, c * np.abs(z) - c**2 / 2)
        return w @ (scale * rho + kappa * scale / 2), np.append(-(w * psi) @ x, w @ (kappa - psi**2) / 2)

    start = np.append(np.linalg.lstsq(x, y, rcond=None)[0], 0.5)
    bounds = [(None, None)] * x.shape[1] + [(1e-3, None)]
    options = {"ftol": 1e-14, "gtol": 1e-9}
    return minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x


@pytest.fixture(scope="module")
def noiseless():
    """A release that was trained without noise, by n and blocks."""

    @cache
    def release(n, blocks):
        return fit(
            HuberRegression("y ~ a + b - 1"), frame(n, 1), schema=SCHEMA, epsilon=1.0, delta=1e-6, blocks=blocks,
            steps=2500, draws_per_step=16, sampling_rate=1.0, learning_rate=3e-3, non_private=True, insecure_seed=1,
        )  # fmt: skip

    return release


@pytest.mark.parametrize("n, blocks", [(1000, 20), pytest.param(100, 100, marks=pytest.mark.evidence)])
def test_without_noise_draws_follow_the_exact_blocked_bootstrap(n, blocks, noiseless):
    data, release = frame(n, 1), noiseless(n, blocks)
    x, y, seed = data[["a", "b"]].to_numpy(), data["y"].to_numpy(), int(Randomness.create(1).secret.integers(2**63))
    block, sizes = random_blocks(seed, n, blocks, 0, n), block_sizes(n, blocks)
    u = np.random.default_rng(5).dirichlet(np.full(blocks, release.certificate.mechanism.concentration), 120)
    exact = np.array([weighted_huber(x, y, (v / sizes)[block]) for v in u])
    drawn = forward(release.payload, u.astype(np.float32), "average")
    for j in range(2):
        correlation = np.corrcoef(drawn[:, j], exact[:, j])[0, 1]
        ratio = drawn[:, j].std() / exact[:, j].std()
        if blocks == 20:
            assert correlation >= 0.98 and 0.9 <= ratio <= 1.1
        else:  # the unblocked map runs, and follows
            assert correlation >= 0.8 and 0.5 <= ratio <= 1.5
    assert np.corrcoef(drawn[::-1, 0], exact[:, 0])[0, 1] < 0.5  # the comparison can fail
    assert release.certificate.non_private and not release.verify().ok
    assert "NOT PRIVATE" in repr(release).upper() or "no privacy" in repr(release).lower()


def test_a_private_regression_recovers_the_coefficients():
    release = fit(
        HuberRegression("y ~ a + b - 1"), frame(20_000, 2), schema=SCHEMA, epsilon=2.0, delta=1e-6, blocks=10,
        steps=1000, draws_per_step=2, sampling_rate=0.05, learning_rate=2e-3, insecure_seed=3,
    )  # fmt: skip
    table = release.summary()
    assert table.loc[["a", "b"], "mean"].to_numpy() == pytest.approx(TRUTH, abs=0.06)
    assert 0.25 < table.loc["scale", "mean"] < 1.0
    assert release.certificate.epsilon == 2.0
    assert release.certificate.check().epsilons["exact"] <= 2.0


def test_joint_levels_share_one_budget_and_are_ordered():
    release = fit(
        QuantileRegression("y ~ a + b", taus=[0.1, 0.5, 0.9]), frame(20_000, 4), schema=SCHEMA, epsilon=4.0,
        delta=1e-6, blocks=5, steps=1200, draws_per_step=4, sampling_rate=0.02, learning_rate=2e-3, insecure_seed=3,
    )  # fmt: skip
    middle = release.summary(tau=0.5)
    assert middle.loc[["a", "b"], "mean"].to_numpy() == pytest.approx(TRUTH, abs=0.1)
    levels = [release.summary(tau=t).loc["Intercept", "mean"] for t in (0.1, 0.5, 0.9)]
    assert levels == pytest.approx([-0.64, 0.0, 0.64], abs=0.12)
    spread = release.contrast({("Intercept", 0.9): 1, ("Intercept", 0.1): -1})
    assert spread["mean"] == pytest.approx(levels[2] - levels[0], abs=1e-3)
    assert release.diagnostics().crossing.max() == 0


@pytest.mark.parametrize(
    "model",
    [
        QuantileRegression("y ~ a", interval=(0.1, 0.9)),
        pytest.param(LogisticRegression("z ~ a + a:b"), marks=pytest.mark.evidence),
        pytest.param(Mean("y", scale=1.0, clip=2.0), marks=pytest.mark.evidence),
        Custom(lambda t, r, i: (r["y"] - t[0]) ** 2 * i, dim=1, clip=2.0, columns=["y"], box=(-5, 5), index=[0.5, 1.0]),
    ],
)
def test_every_model_fits_saves_loads_and_verifies(model, tmp_path):
    release = fit(model, frame(), epsilon=1.0, **QUICK)
    path = release.save(tmp_path / "r.pgbb")
    again = pgbb.load(path)
    assert again.verify().ok
    assert again.certificate.randomness == "operating system"
    tau = 0.5 if again.model.index is not None else None
    assert np.array_equal(again.sample(50, tau=tau, seed=1), release.sample(50, tau=tau, seed=1))


def test_two_fits_differ_and_an_insecure_seed_makes_them_equal():
    model = HuberRegression("y ~ a + b")
    free = [fit(model, frame(), epsilon=1.0, **QUICK).summary()["mean"].to_numpy() for _ in range(2)]
    tied = [fit(model, frame(), epsilon=1.0, insecure_seed=5, **QUICK).summary()["mean"].to_numpy() for _ in range(2)]
    assert not np.array_equal(*free) and np.array_equal(*tied)


def test_nested_weights_are_certified_cost_more_and_are_recorded(tmp_path):
    settings = {k: v for k, v in QUICK.items() if k != "intervals"}
    plain, nested = (
        fit(HuberRegression("y ~ a"), frame(), epsilon=1.0, **settings, **more) for more in ({}, {"nested": 1.0})
    )
    asked = nested.certificate.parts[0][0]
    assert asked.nested == 1.0 and plain.certificate.parts[0][0].nested is None
    assert nested.certificate.sigma > 1.3 * plain.certificate.sigma
    again = pgbb.load(nested.save(tmp_path / "r.pgbb"))
    assert again.verify().ok and again.certificate.parts[0][0] == asked
    assert '"nested"' not in json.dumps(plain.certificate.to_dict())
    cheap = replace(plain.certificate, mechanism=nested.certificate.mechanism)  # with the noise of equal weights
    assert not pgbb.Release(nested.model, nested.schema, cheap, nested.payload).verify().ok


def test_the_certificate_describes_the_mechanism_that_ran():
    release = fit(HuberRegression("y ~ a + b"), frame(), epsilon=1.0, keep_transcript=True, insecure_seed=1, **QUICK)
    m = release.certificate.mechanism
    assert (m.n, m.blocks, m.steps, m.draws_per_step, m.sampling_rate) == (2000, 5, 60, 2, 0.2)
    answers = release.payload.tensors["transcript/answer"]
    assert answers.shape == (m.answers, 4) and release.payload.tensors["transcript/u"].shape == (m.answers, 5)
    largest = m.sampling_rate * m.clip + 6 * release.certificate.sigma
    assert np.abs(answers).max() < 3 * largest


def test_pseudo_samples_pull_the_estimate_and_enter_the_certificate():
    data = frame(1000)
    public = pd.DataFrame({"a": np.zeros(50), "b": np.zeros(50), "y": np.full(50, 4.0), "z": np.zeros(50)})
    settings = {"schema": SCHEMA, "delta": 1e-6, "epsilon": 1.0, "blocks": 5, "steps": 700, "sampling_rate": 1.0}
    settings |= {"non_private": True, "insecure_seed": 1, "learning_rate": 3e-3, "draws_per_step": 4}
    model = Mean("y", scale=1.0, clip=20.0)
    plain = fit(model, data, **settings).summary()["mean"].iloc[0]
    pulled = fit(model, data, pseudo=public, alpha=5.0, gamma=1.0, **settings)
    assert plain == pytest.approx(data["y"].mean(), abs=0.05)
    assert pulled.summary()["mean"].iloc[0] == pytest.approx((data["y"].mean() + 4.0) / 2, abs=0.15)
    assert pulled.certificate.mechanism.alpha == 5.0 and pulled.payload.settings["pseudo_blocks"] == 5


def test_survey_weights_change_the_target():
    data = frame(2000)
    data["w"] = np.where(data["y"] > 0, 1.0, 3.0)
    schema = Schema(**dict(SCHEMA), w=Range(0, 4))
    settings = {"epsilon": 1.0, "delta": 1e-6, "blocks": 5, "steps": 700, "sampling_rate": 1.0, "non_private": True}
    settings |= {"insecure_seed": 1, "learning_rate": 3e-3, "draws_per_step": 4, "schema": schema}
    model = QuantileRegression("y ~ 1", taus=[0.5])
    plain = fit(model, data, **settings).summary(tau=0.5)["mean"].iloc[0]
    weighted = fit(model, data, weights="w", **settings).summary(tau=0.5)["mean"].iloc[0]
    order = data.sort_values("y")
    median = order["y"].to_numpy()[np.searchsorted(order["w"].cumsum() / order["w"].sum(), 0.5)]
    assert plain == pytest.approx(data["y"].median(), abs=0.06)
    assert weighted == pytest.approx(median, abs=0.08) and median < plain - 0.2


def test_the_operator_norm_bound_holds_for_every_kernel():
    few = QUICK | {"steps": 6}
    release = fit(HuberRegression("y ~ a"), frame(), epsilon=1.0, operator_norm=1.5, insecure_seed=1, **few)
    kernels = [value for name, value in release.payload.tensors.items() if name.startswith("last/kernel")]
    assert len(kernels) == 4 and max(np.linalg.norm(v, 2) for v in kernels) <= 1.5 * (1 + 1e-4)
    start = initialise(5, 3, 256, 3, np.random.default_rng(1))
    assert np.linalg.norm(start["kernel1"], 2) > 1.6  # without the bound it is longer


def test_progress_is_reported_and_ctrl_c_stops_cleanly():
    seen = []
    fit(HuberRegression("y ~ a"), frame(), epsilon=1.0, progress=lambda d, t: seen.append((d, t)), **QUICK)
    assert seen[-1] == (60, 60)

    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(HuberRegression("y ~ a"), frame(), epsilon=1.0, progress=interrupt, **QUICK)


@pytest.mark.parametrize(
    "changes, word",
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"blocks": 5000}, "blocks"),
        ({"method": "magic", "intervals": None}, "method"),
        ({"accountant": "magic"}, "accountant"),
        ({"iterate": "middle"}, "iterate"),
        ({"learning_rate": -1.0}, "learning_rate"),
        ({"slope": 0.0}, "slope"),
        ({"schema": {"a": 1}}, "schema"),
        ({"alpha": 2.0}, "alpha"),
        ({"weights": "nope"}, "nope"),
        ({"sampling_rate": 1.5}, "sampling_rate"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_spent(changes, word):
    with pytest.raises(PgbbError, match=word):
        fit(HuberRegression("y ~ a"), frame(), **({"epsilon": 1.0} | QUICK | changes))


def test_bad_frames_are_refused_without_a_value_in_the_message():
    model = HuberRegression("y ~ a")
    secret = 98765.4321
    text = frame().assign(a=pd.array([str(secret)] * 2000, "string"))
    for bad, word in [
        (frame().drop(columns="a"), "a"),
        (text, "a"),
        (frame().iloc[:0], "0 records"),
        ("no.csv", "no.csv"),
    ]:
        with pytest.raises(PgbbError, match=word) as caught:
            fit(model, bad, epsilon=1.0, **QUICK)
        assert "98765" not in str(caught.value)
    with pytest.raises(PgbbError, match="model"):
        fit("y ~ a", frame(), epsilon=1.0, **QUICK)


def test_a_large_delta_is_refused():
    with pytest.raises(PgbbError, match="allow_weak_delta"):
        fit(HuberRegression("y ~ a"), frame(), epsilon=1.0, **(QUICK | {"delta": 0.01}))


def test_diagnostics_tell_a_learned_map_from_an_unlearned_one(noiseless):
    learned = noiseless(1000, 20)
    assert learned.diagnostics().linear_share[["a", "b"]].min() > 0.9
    settings = {"schema": SCHEMA, "epsilon": 1.0, "delta": 1e-6, "blocks": 1, "sampling_rate": 1.0, "steps": 5}
    assert fit(HuberRegression("y ~ a + b - 1"), frame(60), **settings).diagnostics().linear_share is None
    tensors = dict(learned.payload.tensors)
    tensors["average/kernel0"] = 30 * tensors["average/kernel0"]  # a wild map
    wild = type(learned)(learned.model, learned.schema, learned.certificate, type(learned.payload)(
        "generator", learned.payload.settings, tensors))  # fmt: skip
    assert wild.diagnostics().linear_share.min() < learned.diagnostics().linear_share.min()


def test_replicates_side_by_side_train_as_they_do_alone():
    from pgbb.accountant import Mechanism
    from pgbb.methods.pgbb.training import Learning, train, train_many
    from pgbb.private.loading import records_for
    from pgbb.private.session import Session

    problem = HuberRegression("y ~ a + b").prepare(SCHEMA)
    m = Mechanism(n=300, blocks=5, sampling_rate=0.3, steps=40, clip=problem.clip)
    settings = Learning(width=16)

    def session(seed):
        return Session(records_for(frame(300, seed), problem, SCHEMA), problem, m, 0.05, Randomness.create(seed))

    together = train_many([session(s) for s in range(3)], settings)
    for seed, both in enumerate(together):
        alone = train(session(seed), settings)
        for name, value in alone.last.items():
            assert both.last[name] == pytest.approx(value, abs=2e-3)
    assert not np.allclose(together[0].last["kernel1"], together[1].last["kernel1"])


@pytest.fixture(scope="module")
def transcribed():
    """A release that keeps its transcript."""
    return fit(HuberRegression("y ~ a"), frame(), epsilon=1.0, keep_transcript=True, **QUICK)


def problems_with(release, settings=None, **tensors):
    """What verification says of a release with another transcript, or with other settings of its generator."""
    replaced = {f"transcript/{name}": value for name, value in tensors.items()}
    payload = replace(
        release.payload,
        settings=release.payload.settings | (settings or {}),
        tensors=release.payload.tensors | replaced,
    )
    result = pgbb.Release(release.model, release.schema, release.certificate, payload).verify()
    assert result.ok == (not result.problems)
    return result.problems


def test_a_payload_that_the_certificate_cannot_have_made_fails_verification(transcribed):
    assert not problems_with(transcribed)
    assert any("concentration" in problem for problem in problems_with(transcribed, {"concentration": 3.0}))


def test_a_transcript_that_does_not_belong_to_its_certificate_fails_verification(transcribed):
    kept = {name: transcribed.payload.tensors[f"transcript/{name}"] for name in ("u", "query", "index", "answer")}
    for rows in (slice(0, 90), np.arange(240) % 120):
        (*_, problem) = problems_with(transcribed, **{name: value[rows] for name, value in kept.items()})
        assert "120 rows" in problem
    settings = {"epsilon": 1.0, "keep_transcript": True}
    other = fit(HuberRegression("y ~ a"), frame(), **settings, **(QUICK | {"blocks": 7})).payload.tensors
    assert "120 rows of 5 numbers" in problems_with(transcribed, u=other["transcript/u"])[0]
    assert "weights of blocks" in problems_with(transcribed, u=kept["u"] + 0.1)[0]
    for epsilon in (0.05, 2.0):  # of the same size, with other noise
        other = fit(HuberRegression("y ~ a"), frame(), **(settings | {"epsilon": epsilon}), **QUICK).payload.tensors
        own = {name: other[f"transcript/{name}"] for name in kept}
        (problem,) = problems_with(transcribed, **own)
        assert "times the variance of the noise" in problem
    other = fit(HuberRegression("y ~ a"), frame(seed=5), **settings, **QUICK).payload.tensors
    assert not problems_with(transcribed, **{name: other[f"transcript/{name}"] for name in kept})  # who knows


def test_a_custom_loss_is_read_anew_at_every_fit():
    centre = {"value": 1.0}

    def loss(theta, record, index):
        return (theta[0] - centre["value"]) ** 2 + 0.0 * record["y"]

    model = Custom(loss, dim=1, clip=1.0, columns=("y",), box=(-5, 5))
    settings = QUICK | {
        "steps": 400,
        "sampling_rate": 1.0,
        "learning_rate": 1e-2,
        "non_private": True,
        "insecure_seed": 1,
    }
    found = []
    for value in (1.0, -2.0):
        centre["value"] = value
        found.append(fit(model, frame(200), epsilon=1.0, **settings).summary()["mean"].iloc[0])
    assert found == pytest.approx([1.0, -2.0], abs=0.1)


@pytest.mark.parametrize(
    "changes, word",
    [
        ({"group_size": 0}, "group_size"),
        ({"alpha": "x"}, "alpha"),
        ({"operator_norm": -1.0}, "operator_norm"),
        ({"insecure_seed": -1}, "insecure_seed"),
        ({"insecure_seed": 1.5}, "insecure_seed"),
    ],
)
def test_slips_are_found_before_the_records_are_read(changes, word):
    with pytest.raises(PgbbError, match=word):
        fit(HuberRegression("y ~ a"), "never-opened.csv", **({"epsilon": 1.0} | QUICK | changes))


def test_the_printed_preset_is_the_papers_mechanism_and_network():
    given = {"schema": SCHEMA, "delta": 1e-6, "settings": "printed", "accountant": "paper", "insecure_seed": 1}
    release = pgbb.fit(
        HuberRegression("y ~ a + b - 1"), frame(), epsilon=4.0, method="pgbb", steps=40, keep_transcript=True, **given
    )
    m, payload = release.certificate.mechanism, release.payload
    assert (m.blocks, m.steps, m.draws_per_step, m.sampling_rate) == (20, 40, 1, 0.1)
    assert m.clip == pytest.approx(np.sqrt(2 * 1.345**2 + ((1.345**2 + 0.71) / 2) ** 2))
    assert payload.settings["default_iterate"] == "last" and payload.settings["clipped"]
    first = payload.tensors["transcript/query"][0]  # θ is the output itself: near zero before the first step
    assert np.abs(first[:2]).max() < 0.6 and first[2] == pytest.approx(release_low(payload), rel=1e-5)
    plain = pgbb.fit(HuberRegression("y ~ a + b - 1"), frame(), epsilon=4.0, method="pgbb", **QUICK)
    assert plain.certificate.mechanism.mechanisms[0].clip < m.clip


def release_low(payload):
    return payload.tensors["center"][2] - payload.tensors["radius"][2]


def test_an_output_that_is_clipped_stays_at_the_side_of_the_box():
    payload = pgbb.fit(
        Mean("y", scale=1.0), frame(), epsilon=4.0, delta=1e-6, schema=SCHEMA, method="pgbb", settings="printed",
        accountant="paper", steps=20, insecure_seed=1,
    ).payload  # fmt: skip
    far = {k: v + 100 if k == "last/bias3" else v for k, v in payload.tensors.items()}
    u = np.full((1, 20), 0.05)
    assert forward(type(payload)("generator", payload.settings, far), u, "last") == 6.0
    inside = forward(payload, u, "last").item()
    smooth = {k: v for k, v in payload.settings.items() if k != "clipped"}
    z = inside / 6.0
    assert forward(type(payload)("generator", smooth, payload.tensors), u, "last").item() == pytest.approx(
        6 * np.tanh(z)
    )
