import json
import math
from dataclasses import replace

import pytest

from pgbb.accountant import ACCOUNTANTS, Mechanism, compose, epsilon
from pgbb.errors import InvalidValue
from pgbb.release.certificate import Certificate
from tests.release.builders import MECHANISM, SIGMA, certificate, non_private

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_a_claim_that_equals_the_recomputed_epsilon_passes(accountant):
    check = certificate(accountant=accountant).check()
    assert check.ok and not check.problems
    assert check.epsilons[accountant] == check.claimed
    assert check.epsilons["exact"] < check.epsilons["paper"] < check.epsilons["worst-case"]


def test_a_claim_below_the_recomputed_epsilon_fails_even_by_a_little():
    honest = certificate()
    assert replace(honest, epsilon=honest.epsilon * (1 + 1e-6)).check().ok
    check = replace(honest, epsilon=honest.epsilon * (1 - 1e-6)).check()
    assert not check.ok and "claim is false" in check.problems[0]


def test_a_claim_is_judged_by_the_accountant_it_names():
    weak = epsilon(MECHANISM, SIGMA, 1e-5, "paper")
    strong = epsilon(MECHANISM, SIGMA, 1e-5, "exact")
    between = (weak + strong) / 2
    assert certificate(epsilon=between, accountant="exact").check().ok
    assert not certificate(epsilon=between, accountant="paper").check().ok


def test_accountants_that_do_not_apply_are_left_out_and_cannot_be_the_named_one():
    full = Mechanism(n=1_000, blocks=1, sampling_rate=1.0, steps=3, clip=1.0)
    check = certificate(mechanism=full, sigma=0.01, accountant="exact").check()
    assert check.ok and check.epsilons["paper"] is None and check.epsilons["exact"] == check.claimed
    refused = certificate(mechanism=full, sigma=0.01, accountant="paper", epsilon=100.0).check()
    assert not refused.ok and "no proof" in refused.problems[0]


def test_a_run_without_noise_has_no_privacy():
    check = non_private().check()
    assert not check.ok and "no privacy" in check.problems[0]
    assert set(check.epsilons.values()) == {math.inf}
    assert non_private().headline().startswith("NOT PRIVATE")


def test_an_insecure_seed_is_reproducible_and_therefore_not_private():
    marked = certificate(randomness="insecure seed")
    check = marked.check()
    assert not check.ok and "reproducible, therefore not private" in check.problems[0]
    assert marked.headline().startswith("NOT PRIVATE") and not marked.private


def test_a_large_delta_is_remarked_upon_but_does_not_fail():
    check = certificate(delta=1e-3, accountant="exact").check()
    assert check.ok and "1/n" in check.remarks[0]
    assert "weak" in certificate(delta=1 / 2000).check().remarks[0]
    assert not certificate(delta=1e-5).check().remarks


def test_a_person_with_several_records_gets_the_group_guarantee():
    one = certificate(epsilon=1.0, sigma=1.0)
    assert one.group == (1.0, 1e-5)
    three = replace(one, group_size=3)
    total, delta = three.group
    assert total == pytest.approx(3.0)
    assert delta == pytest.approx(1e-5 * (1 + math.e + math.e**2))
    assert "3 records" in three.check().remarks[0]
    assert replace(one, epsilon=500.0, group_size=3).group[1] == 1.0


@pytest.mark.parametrize(
    "original",
    [
        certificate(epsilon=9.0, versions={"pgbb": "0.1.0"}, notes=("tuned on public data",), group_size=2),
        certificate(epsilon=9.0, mechanism=compose([MECHANISM, replace(MECHANISM, clip=3.0)], scales=[1.0, 2.0])),
        certificate(epsilon=9.0, mechanism=replace(MECHANISM, gamma=0.5, alpha=2.0, draws_per_step=4)),
        non_private(),
    ],
)
def test_a_certificate_survives_json(original):
    text = json.dumps(original.to_dict(), allow_nan=False)
    assert Certificate.from_dict(json.loads(text)) == original


def test_a_composition_is_recomputed_with_its_scales():
    pair = compose([MECHANISM, replace(MECHANISM, clip=3.0)], scales=[1.0, 2.0])
    honest = certificate(mechanism=pair)
    assert honest.check().ok
    assert not replace(honest, mechanism=replace(pair, scales=(1.0, 1.0))).check().ok


@pytest.mark.parametrize(
    "changes, field",
    [
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": math.inf}, "epsilon"),
        ({"sigma": 0.0, "epsilon": 1.0}, "sigma"),
        ({"delta": 0.0, "epsilon": 1.0}, "delta"),
        ({"epsilon": 1.0, "accountant": "best"}, "accountant"),
        ({"randomness": "dice"}, "randomness"),
        ({"adjacency": "add or remove"}, "adjacency"),
        ({"group_size": 0}, "group_size"),
        ({"mechanism": "gauss", "epsilon": 1.0}, "mechanism"),
        ({"non_private": True, "epsilon": 1.0}, "non_private"),
        ({"notes": "one"}, "notes"),
    ],
)
def test_a_wrong_field_is_named(changes, field):
    with pytest.raises(InvalidValue, match=field):
        certificate(**changes)


@pytest.mark.parametrize(
    "edit",
    [
        lambda d: d.pop("delta"),
        lambda d: d.update(extra=1),
        lambda d: d["mechanism"].pop("clip"),
        lambda d: d["mechanism"].update(n="many"),
        lambda d: d.update(mechanism=[1]),
        lambda d: d.update(mechanism={"mechanisms": [], "scales": []}),
        lambda d: d.update(versions=[]),
    ],
)
def test_a_malformed_object_is_refused(edit):
    plain = certificate(epsilon=1.0).to_dict()
    edit(plain)
    with pytest.raises(InvalidValue):
        Certificate.from_dict(plain)
