"""Releases of several custodians as one: the law of the pooled posterior, its certificate, and files that lie."""

import base64
import json
from dataclasses import replace

import numpy as np
import pytest

import pgbb
from pgbb.accountant import Mechanism
from pgbb.errors import InvalidValue, PgbbWarning
from pgbb.methods.calibrated.curvature import Curvature
from pgbb.methods.calibrated.prior import Prior
from pgbb.release.certificate import Certificate
from pgbb.release.container import ReleaseError
from pgbb.release.file import Release, combine, load
from pgbb.release.payloads import Payload
from pgbb.release.pooling import pool
from pgbb.release.signing import generate_key
from tests.release import builders
from tests.release.builders import (
    SCHEMA,
    TAUS,
    K,
    covariance,
    generator_release,
    hidden,
    local,
    local_release,
    members,
    model,
    rewrite,
)

pytestmark = pytest.mark.quick

NOWHERE = [False] * 3
ONCE = Mechanism(n=2_000, blocks=1, sampling_rate=1.0, steps=1, clip=1.0)  # quickly accounted for


def certificate(**changes):
    return builders.certificate(**{"mechanism": ONCE, "accountant": "exact", "sigma": 0.004, **changes})


def member(seed, index=None, **changes):
    """A local posterior whose frame, curvature and noise are its own."""
    rng = np.random.default_rng(seed)
    m = 1 if index is None else 3
    payload = local(
        index,
        center=rng.normal(0, 0.02, (m, 3)),
        gradient=rng.normal(0, 0.01, (m, 3)),
        frame=np.diag([1.0, 0.5, 2.0]) + rng.normal(0, 0.1, (3, 3)),
        privacy=np.full((m, 2), 0.02 * (1 + seed % 3)),
        sampling=covariance(seed, 0.01),
        **changes,
    )
    return payload.local


def law(local, level=None):
    """Mean and covariance at one level."""
    knots = None if local.knots is None else local.knots.tolist()
    j = 0 if level is None else knots.index(level)
    mean = local.center[j] - local.frame @ np.linalg.solve(local.curvature[j], local.gradient[j])
    return mean, sum(local.parts(knots))[j]


@pytest.mark.parametrize("index", [None, "levels"])
def test_without_priors_the_pooled_law_is_that_of_inverse_variance_weights(index):
    parts = [member(s, index) for s in (1, 2, 3)]
    pooled, _ = pool(parts, NOWHERE)
    for level in [None] if index is None else TAUS:
        laws = [law(p, level) for p in parts]
        precision = sum(np.linalg.inv(v) for _, v in laws)
        mean = np.linalg.solve(precision, sum(np.linalg.solve(v, m) for m, v in laws))
        found = law(pooled, level)
        assert np.allclose(found[0], mean) and np.allclose(found[1], np.linalg.inv(precision), rtol=1e-6)


def settled(seed, estimate, curvature, prior):
    """A member as the default method makes it, with curvature H, noise N and a prior around 0; and HN⁻¹H."""
    rng = np.random.default_rng(seed)
    frame = np.diag([1.0, 0.5, 2.0]) + rng.normal(0, 0.1, (3, 3))
    sampling, privacy = covariance(seed, 0.01), 0.05
    noise = sampling + privacy**2 * np.eye(3)
    point = rng.normal(0, 0.1, 3)
    found = prior.settle(Curvature(curvature, np.zeros(K)), noise, noise, frame, point, estimate)
    payload = local(
        None, center=point[None], gradient=found.gradient[None], frame=frame, curvature=found.curvature[None],
        privacy=[[privacy]], sampling=sampling, prior=prior.sd,
    )  # fmt: skip
    inverse = np.linalg.inv(frame)
    return payload.local, inverse.T @ curvature @ np.linalg.inv(noise) @ curvature @ inverse


def test_one_prior_is_kept_of_all_and_none_of_what_it_did_to_the_estimates():
    prior = Prior(np.zeros(3), np.array([0.5, 0.3, 0.4]), np.eye(3))
    estimates = np.random.default_rng(5).normal(0, 0.3, (3, 3))
    faint = np.eye(3) * 0.1 + covariance(3, 0.05)  # a prior that is felt
    parts = [settled(s, e, faint, prior) for s, e in enumerate(estimates)]
    pooled, _ = pool([p for p, _ in parts], NOWHERE)
    frames = [p.frame for p, _ in parts]
    believed = np.linalg.inv(np.mean([(f * prior.sd**2) @ f.T for f in frames], axis=0))
    precision = sum(said for _, said in parts) + believed
    mean = np.linalg.solve(precision, sum(said @ e for e, (_, said) in zip(estimates, parts, strict=True)))
    assert np.allclose(law(pooled)[0], mean, rtol=1e-6) and np.allclose(law(pooled)[1], np.linalg.inv(precision))
    thrice = np.linalg.inv(sum(np.linalg.inv(law(p)[1]) for p, _ in parts))
    assert np.diag(thrice).max() < 0.9 * np.diag(law(pooled)[1]).max()  # what a prior that counts thrice would claim


def test_a_model_that_did_not_hold_anywhere_says_nothing_and_stays_marked():
    prior = Prior(np.zeros(3), np.full(3, 0.5), np.eye(3))
    sure, _ = settled(1, np.full(3, 0.2), np.eye(3) * 3, prior)
    lost = prior.settle(
        Curvature(np.eye(3), np.zeros(K)), *[0.01 * np.eye(3)] * 2, np.eye(3), np.zeros(3), np.full(3, 2.0), known=False
    )
    vague = replace(
        sure, center=np.zeros((1, 3)), gradient=lost.gradient[None], frame=np.eye(3), curvature=lost.curvature[None],
        privacy=np.array([[0.1]]), sampling=1e-12 * np.eye(3),
    )  # fmt: skip
    pooled, _ = pool([sure, vague], NOWHERE)
    assert np.allclose(law(pooled)[0], law(sure)[0], atol=0.02)
    both, _ = pool([vague, replace(vague, center=np.full((1, 3), 0.1))], NOWHERE)
    assert not both.columns(None, np.eye(3))["identified"].any() and pooled.columns(None, np.eye(3))["identified"].all()


def test_a_direction_is_free_only_where_no_member_sees_it():
    seen, unseen = member(1), replace(member(2), frame=member(1).frame, free=hidden(None).local.free)
    assert not pool([seen, unseen], NOWHERE)[0].free.any()
    both = pool([unseen, replace(unseen, gradient=unseen.gradient + 0.01)], NOWHERE)[0]
    assert np.allclose(both.free, unseen.free, atol=1e-9) and not both.columns(None, np.eye(3))["identified"][0, 1]


def covered(width):
    """How often intervals of pooled posteriors, `width` times as wide, hold the truth; and how often Q is below .05."""
    rng = np.random.default_rng(3)
    base = [member(s) for s in (1, 2, 3)]
    roots = [np.linalg.cholesky(law(p)[1]) for p in base]
    hits, chances = [], []
    for _ in range(400):
        moved = [
            replace(p, center=(r @ rng.standard_normal(3))[None], gradient=np.zeros((1, 3)))
            for p, r in zip(base, roots, strict=True)
        ]
        pooled, apart = pool(moved, NOWHERE)
        mean, spread = law(pooled)
        hits.append(np.abs(mean) < 1.96 * width * np.sqrt(np.diag(spread)))
        chances.append(apart.pvalue)
    return np.mean(hits), np.mean(np.array(chances) < 0.05)


def test_pooled_intervals_cover_and_narrower_ones_do_not():
    share, alarms = covered(1.0)
    assert 0.93 < share < 0.97 and 0.025 < alarms < 0.08
    assert covered(0.8)[0] < 0.91


def release(seed, index="levels", claim=None):
    settings, tensors = member(seed, index).to_tensors()
    return Release(model(index), SCHEMA, claim or certificate(), Payload("local", settings, tensors))


def test_custodians_that_differ_by_more_than_chance_are_named_in_a_warning_and_a_note():
    far = release(2)
    far.payload.tensors["center"] += 3.0
    with pytest.warns(PgbbWarning, match="differ by more than chance"):
        pooled = combine([release(1), far])
    assert "differ by more than chance" in pooled.certificate.notes[-1]
    assert pooled.stored_diagnostics["heterogeneity"]["pvalue"] < 1e-6


def test_a_pooled_release_lists_its_custodians_and_verify_checks_each_of_them(tmp_path):
    north = release(1, claim=certificate(group_size=2))
    print_of_north = generate_key(tmp_path / "north.pem")
    north.save(tmp_path / "north.pgbb", key=tmp_path / "north.pem")
    pooled = pgbb.combine([load(tmp_path / "north.pgbb"), release(2)]).combine([release(3)])
    assert [m.n for m in pooled.certificate.members] == [2000] * 3 and pooled.certificate.n == 6000
    assert pooled.certificate.epsilon == certificate().epsilon and "3 custodians" in str(pooled)
    assert pooled.certificate.group_size == 2
    found = load(pooled.save(tmp_path / "all.pgbb"))
    assert Certificate.from_dict(found.certificate.to_dict()) == pooled.certificate
    report = found.verify()
    assert report.ok, report.problems
    text = str(report)
    assert f"valid by {print_of_north}" in text and text.count("custodian 3") == 1 and "sum of theirs" in text
    assert found.sample(3, tau=0.5, seed=1).equals(pooled.sample(3, tau=0.5, seed=1))
    assert load(found.save(tmp_path / "again.pgbb")).verify().ok


def test_a_pooled_certificate_is_no_better_than_that_of_its_worst_custodian():
    worse = certificate(sigma=0.003)
    pooled = combine([release(1), release(2, claim=worse)])
    assert pooled.certificate.epsilon == worse.epsilon > certificate().epsilon and pooled.verify().ok
    false = replace(certificate(), epsilon=0.1)
    problems = combine([release(1), release(2, claim=false)]).verify().problems
    assert len(problems) == 1 and problems[0].startswith("custodian 2") and "claim is false" in problems[0]
    seeded = combine([release(1), release(2, claim=certificate(randomness="insecure seed"))])
    assert not seeded.certificate.private and not seeded.verify().ok
    less = replace(pooled.certificate, epsilon=certificate().epsilon)
    assert "custodian 2 claims" in less.check().problems[0]


def changed(contents, name, edit):
    plain = json.loads(contents[name])
    edit(plain)
    return {**contents, name: json.dumps(plain).encode()}


def test_a_pooled_file_that_was_edited_does_not_verify(tmp_path):
    path = combine([release(1), release(2), release(3)]).save(tmp_path / "c.pgbb")
    whole = members(path)

    def problems(contents):
        rewrite(tmp_path / "edited.pgbb", contents, rehash=True)
        return " ".join(load(tmp_path / "edited.pgbb").verify().problems)

    fewer = changed(whole, "custodians.json", lambda plain: plain["releases"].pop())
    assert "does not list" in problems(fewer)
    stranger = base64.b64encode(release(4).to_bytes()).decode()
    other = changed(whole, "custodians.json", lambda plain: plain["releases"].__setitem__(0, stranger))
    assert "add up" in problems(other)
    alone = {k: v for k, v in whole.items() if k != "custodians.json"}
    assert "does not list" in problems(alone)
    moved = members(release(5).save(tmp_path / "m.pgbb"))
    assert "add up" in problems({**whole, "payload.safetensors": moved["payload.safetensors"]})
    nested = base64.b64encode(path.read_bytes()).decode()
    inside = changed(whole, "custodians.json", lambda plain: plain["releases"].append(nested))
    rewrite(tmp_path / "nested.pgbb", inside, rehash=True)
    with pytest.raises(ReleaseError, match="inside a pooled release"):
        load(tmp_path / "nested.pgbb")
    broken = changed(whole, "custodians.json", lambda plain: plain["releases"].append("no file"))
    rewrite(tmp_path / "broken.pgbb", broken, rehash=True)
    with pytest.raises(ReleaseError):
        load(tmp_path / "broken.pgbb")


@pytest.mark.parametrize(
    "releases, said",
    [
        (lambda: [release(1)], "at least two"),
        (lambda: release(1), "a list of releases"),
        (lambda: [release(1), 3], "a list of releases"),
        (lambda: [release(1), release(1)], "there twice"),
        (lambda: [release(1), generator_release()], "only local posteriors"),
        (lambda: [release(1), release(2, None)], "other coefficients or levels"),
        (lambda: [release(1), Release(replace(model(), formula="logwk ~ I(educ**2)"), SCHEMA, certificate(), local())],
         "another|other coefficients"),
        (lambda: [release(1), Release(replace(model(), offset=np.zeros(3)), SCHEMA, certificate(), local())], "ranges"),
        (lambda: [local_release("interval"), local_release("interval", local("interval", knots=[0.1, 0.5, 0.7, 0.9]))],
         "other knots"),
    ],
)  # fmt: skip
def test_releases_that_do_not_belong_together_are_refused(releases, said):
    with pytest.raises(InvalidValue, match=said):
        combine(releases())
