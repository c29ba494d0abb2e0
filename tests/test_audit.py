import json
import math

import numpy as np
import pytest
from scipy import integrate, stats
from typer.testing import CliRunner

from pgbb import PgbbError, audit
from pgbb.accountant import Mechanism, delta, epsilon, gdp_delta, noise_scale
from pgbb.accountant.exact import one_loss
from pgbb.audit import SETTINGS, TWINS, Setting, clopper_pearson, loss_law, thresholds
from pgbb.cli import app

TRIALS = 6_000


# Bounds and laws -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hits", [0, 1, 37, 999, 1000])
def test_clopper_pearson_agrees_with_scipy(hits):
    low, high = clopper_pearson(hits, 1000, 0.01)
    interval = stats.binomtest(hits, 1000).proportion_ci(0.98, "exact")
    assert (low, high) == pytest.approx((interval.low, interval.high), abs=1e-12)


def test_the_bound_fails_as_seldom_as_it_says():
    trials, p, level = 200, 0.03, 0.05
    hits = np.arange(trials + 1)
    low, high = clopper_pearson(hits, trials, level)
    law = stats.binom.pmf(hits, trials, p)
    assert law[low > p].sum() <= level and law[high < p].sum() <= level
    assert law[low * 0.8 > p].sum() < law[low > p].sum()  # the comparison can fail


@pytest.mark.parametrize("q", [0.2, 0.5, 1.0])
def test_the_attack_on_a_lonely_canary_is_the_loss_of_the_accountant(q):
    x, mu = np.linspace(-4, 4, 41), np.array(0.7)
    assert audit._alone(q).loss(x, mu) == pytest.approx(one_loss(x, q, mu), abs=1e-12)


@pytest.mark.parametrize("make", [audit._crowd, audit._crowd_of_fixed_size])
def test_in_a_crowd_the_worlds_are_those_of_a_simulated_batch(make):
    n, q = 5, 0.4
    pair = make(n, q)
    rng = np.random.default_rng(0)
    for law, sign in ((pair.plus, 1), (pair.minus, -1)):
        values = np.append(sign, -np.ones(n - 1))
        if make is audit._crowd:
            chosen = rng.random((40_000, n)) < q
        else:
            chosen = np.argsort(np.argsort(rng.random((40_000, n)), axis=1), axis=1) < round(q * n)
        sums = chosen @ values
        assert law[0].sum() == pytest.approx(1)
        for probability, mean in law.T:
            assert (sums == mean).mean() == pytest.approx(probability, abs=0.015)


@pytest.mark.parametrize("name", ["batches", "sums", "means"])
def test_the_law_that_sets_thresholds_has_the_delta_of_the_accountant(name):
    setting = SETTINGS[name]
    sigma = noise_scale(setting.target, 1.0, setting.delta)
    grid, plus, minus = loss_law(setting, setting.pairs[0], sigma)
    assert plus.sum() == pytest.approx(1) and minus.sum() == pytest.approx(1)
    for eps in (0.5, 1.0, 1.5):
        found = np.sum(np.maximum(plus - np.exp(eps) * minus, 0)[grid > eps])
        assert found == pytest.approx(delta(setting.target, sigma, eps), rel=0.01)
        assert found != pytest.approx(delta(setting.target, 1.02 * sigma, eps), rel=0.01)


def test_the_law_of_one_answer_agrees_with_quadrature():
    q, eps = 0.3, 0.4
    setting = Setting("one", Mechanism(n=4, blocks=1, sampling_rate=q, steps=1, clip=1.0))
    sigma = 0.3
    mu = 1 / (4 * sigma)

    def density(x, sign):
        return (1 - q) * stats.norm.pdf(x) + q * stats.norm.pdf(x, sign * mu)

    start = next(x for x in np.linspace(0, 8, 80_001) if one_loss(x, q, mu) > eps)
    plus, minus = (integrate.quad(lambda x, s=s: density(x, s), start, 12)[0] for s in (1, -1))
    grid, *laws = loss_law(setting, setting.pairs[0], sigma)
    assert [law[grid > eps].sum() for law in laws] == pytest.approx([plus, minus], rel=0.01)


def test_the_threshold_promises_less_than_the_truth_and_more_with_more_trials():
    setting = SETTINGS["sums"]
    sigma = noise_scale(setting.target, 1.0, setting.delta)
    few, many, most = (thresholds(setting, sigma, n)[1] for n in (10_000, 300_000, 100_000_000))
    assert few < many < most < 1.0
    assert most > 0.98
    mu = math.hypot(*(0.2 / setting.scales(sigma)))  # the claim itself, as Gaussian differential privacy
    assert gdp_delta(mu, 1.0) == pytest.approx(setting.delta, rel=0.01)


# The mechanisms ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "goal"),
    [
        ("batches", 1.0),
        ("batches", 4.0),
        ("crowd", 1.0),
        ("sums", 1.0),
        ("sums", 4.0),
        ("moments", 1.0),
        ("draws", 4.0),
        ("poisson", 1.0),
        ("groups", 1.0),
        ("custom", 1.0),
        ("chains", 1.0),
        ("means", 4.0),
        pytest.param("refits", 1.0, marks=pytest.mark.evidence),
    ],
)
def test_an_honest_mechanism_keeps_its_claims_and_is_attacked_as_well_as_theory_says(name, goal):
    trials = round(TRIALS / SETTINGS[name].share)
    found = audit.audit(name, goal, trials=trials, seed=6 if name == "crowd" else 3)
    assert found.broken == ()
    assert found.claims["exact"] == pytest.approx(goal, rel=0.01)
    assert found.lower == pytest.approx(found.expected, rel=0.3)


PAIRS = [(t, s) for t, w in TWINS.items() for s in w.settings if s not in ("chains", "refits")]
SLOW = pytest.param("noise-halved", "refits", marks=pytest.mark.evidence)


@pytest.mark.parametrize(("twin", "name"), [*PAIRS, SLOW])
def test_a_broken_twin_exceeds_the_exact_claim(twin, name):
    assert "exact" in audit.audit(name, 1.0, trials=round(TRIALS / SETTINGS[name].share), seed=4, twin=twin).broken


def test_the_adversary_is_told_the_block_of_the_canary():
    m = SETTINGS["batches"].parts[0]
    full = Mechanism(n=m.n, blocks=m.blocks, sampling_rate=1.0, steps=1, draws_per_step=50, clip=1.0)
    blocks = set()
    for seed in range(4):
        block = audit._block_of_canary(m, seed)
        answers, u = audit._run(audit._frame(m.n, 1.0, 0.0), full, 0.0, seed)
        assert answers == pytest.approx(u[:, block] / m.block_size, abs=1e-4)
        blocks.add(block)
    assert len(blocks) > 1


def test_a_seed_repeats_an_audit():
    one, two, other = (audit.audit("batches", 1.0, trials=1000, seed=s) for s in (5, 5, 6))
    assert one == two
    assert epsilon(SETTINGS["batches"].target, one.sigma, one.delta) == other.claims["exact"]


def test_mistakes_are_refused():
    with pytest.raises(PgbbError, match="setting"):
        audit.audit("nothing", 1.0)
    with pytest.raises(PgbbError, match="trials"):
        audit.audit("sums", 1.0, trials=10)
    with pytest.raises(PgbbError, match="crowd only"):
        audit.audit("sums", 1.0, twin="fixed-size")


# The command ---------------------------------------------------------------------------------------------------------


def test_the_command_prints_claims_and_bounds_and_fails_for_a_twin():
    fast = ["--epsilon", "1", "--seed", "7", "--trials"]
    done = CliRunner().invoke(app, ["audit", *fast, "1000"], env={"COLUMNS": "120"})
    assert done.exit_code == 0, done.output
    for part in ("batches", "crowd", "sums", "exact", "paper", "worst-case", "holds", "99.9%", "T·K"):
        assert part in done.output
    assert "refuted" not in done.output
    done = CliRunner().invoke(app, ["audit", *fast, str(TRIALS), "--twin", "half-block", "--json"])
    assert done.exit_code == 1
    report = json.loads(done.output)
    assert report["findings"][0]["broken"] == ["exact"] and report["twin"] == "half-block"


def test_the_command_refuses_an_unknown_twin_and_no_epsilon():
    for arguments in (["--twin", "honest"], ["--epsilon", ","]):
        done = CliRunner().invoke(app, ["audit", *arguments])
        assert isinstance(done.exception, PgbbError)
