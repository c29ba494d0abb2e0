import numpy as np
import pytest

from pgbb.methods.calibrated.curvature import Curvature
from pgbb.methods.calibrated.prior import Prior, tempered
from pgbb.release.local_gaussian import LocalGaussian

pytestmark = pytest.mark.quick

FRAME = np.array([[1.0, 0.3, 0.0], [0.0, 0.5, 0.1], [0.0, 0.0, 2.0]])
POINT, BEST, CENTER = np.array([1.0, 2.0, -1.0]), np.array([1.1, 1.8, -1.4]), np.zeros(3)
PRIOR = Prior(CENTER, np.full(3, 20.0), np.eye(3))
SAMPLING = np.array([[0.02, 0.005, 0.0], [0.005, 0.03, 0.0], [0.0, 0.0, 0.01]])


def posterior(settled, privacy=0.1):
    """What a file would hold."""
    return LocalGaussian(
        center=POINT[None], gradient=settled.gradient[None], frame=FRAME, curvature=settled.curvature[None],
        curvature_sd=np.zeros((1, 6)), privacy=np.array([[privacy]]), sampling=SAMPLING, sampling_sd=np.zeros(6),
        free=np.zeros((1, 3, 3)), low=np.full(3, -1e3), high=np.full(3, 1e3), prior=PRIOR.sd,
    )  # fmt: skip


def settle(values, sd, **more):
    bend = Curvature(np.diag(values), np.full(6, sd))
    drawn = SAMPLING + 0.01 * np.eye(3)
    return PRIOR.settle(bend, drawn, drawn + more.pop("blur", 0.0), FRAME, POINT, BEST, **more)


def test_where_answers_show_all_directions_the_prior_is_not_felt():
    settled = settle([3.0, 2.0, 4.0], 0.01)
    assert settled.curvature == pytest.approx(np.diag([3.0, 2.0, 4.0]), rel=1e-3, abs=1e-3)
    draws = posterior(settled).draw(20_000, None, 0)[0]
    assert draws.mean(axis=0) == pytest.approx(BEST, abs=0.02)
    line = FRAME / np.array([3.0, 2.0, 4.0])
    wanted = line @ (SAMPLING + 0.01 * np.eye(3)) @ line.T
    assert np.cov(draws.T) == pytest.approx(wanted, abs=0.06 * wanted.max())


def test_what_a_gradient_is_felt_to_have_beyond_its_noise_widens_the_draws_that_have_that_noise():
    blur = np.array([[0.2, 0.1, 0.0], [0.1, 0.1, 0.0], [0.0, 0.0, 0.0]])
    draws = posterior(settle([3.0, 2.0, 4.0], 0.01, blur=blur)).draw(20_000, None, 0)[0]
    line = FRAME / np.array([3.0, 2.0, 4.0])
    wanted = line @ (SAMPLING + 0.01 * np.eye(3) + blur) @ line.T
    assert np.cov(draws.T) == pytest.approx(wanted, abs=0.06 * wanted.max())
    assert np.cov(draws.T) != pytest.approx(line @ (SAMPLING + 0.01 * np.eye(3)) @ line.T, abs=0.06 * wanted.max())


def test_a_hidden_direction_has_its_prior_and_costs_the_others_nothing():
    settled = settle([3.0, 2.0, 0.01], 0.1)
    seen = settle([3.0, 2.0, 4.0], 0.01)
    draws, known = (posterior(s).draw(20_000, None, 0)[0] for s in (settled, seen))
    inverse = np.linalg.inv(FRAME)
    steps, others = draws @ inverse.T, known @ inverse.T
    assert steps[:, 2].std() == pytest.approx(20.0, rel=0.03) and steps[:, 2].mean() == pytest.approx(0.0, abs=0.6)
    assert steps[:, :2].std(axis=0) == pytest.approx(others[:, :2].std(axis=0), rel=0.02)
    assert steps[:, :2].mean(axis=0) == pytest.approx((inverse @ BEST)[:2], abs=0.02)
    columns = posterior(settled).columns(None, np.eye(3))
    assert columns["identified"].tolist() == [[True, True, False]]
    assert columns["privacy_sd"][0, 1] > 10 * columns["privacy_sd"][0, 0]  # the frame leads the third axis to it too
    assert posterior(seen).columns(None, np.eye(3))["identified"].all()


def test_between_seen_and_hidden_the_posterior_widens_without_a_jump():
    widths = [
        posterior(settle([3.0, 2.0, 1.0], sd)).draw(4000, None, 0)[0][:, 2].std() for sd in np.linspace(0.05, 0.9, 60)
    ]
    assert (np.diff(widths) > -1e-6).all()
    between = [w for w in widths if 2 * widths[0] < w < widths[-1] / 2]
    assert widths[-1] > 30 * widths[0] and len(between) >= 3


def test_a_weak_direction_must_be_clear_where_noise_is_small_or_its_term_may_be_constant():
    """Three standard deviations of noise: enough for a direction that may be white, and not for one that is not."""

    def identified(values, sd, prior=PRIOR):
        bend, drawn = Curvature(np.diag(values), np.full(6, sd)), SAMPLING + 0.01 * np.eye(3)
        settled = prior.settle(bend, drawn, drawn, FRAME, POINT, BEST)
        return posterior(settled).columns(None, np.eye(3))["identified"][0].tolist()

    assert identified([3.0, 2.0, 1.2], 0.4) == [True, True, True]
    assert identified([3.0, 2.0, 0.012], 0.004) == [True, True, False]
    doubtful = Prior(CENTER, PRIOR.sd, PRIOR.units, np.array([False, False, True]))
    assert identified([3.0, 2.0, 1.2], 0.4, doubtful) == [True, True, False]
    assert identified([3.0, 2.0, 1.2], 0.1, doubtful) == [True, True, True]


def test_a_local_model_that_does_not_hold_leaves_the_prior():
    draws = posterior(settle([3.0, 2.0, 4.0], 0.01, known=False)).draw(20_000, None, 0)[0]
    assert draws.mean(axis=0) == pytest.approx(BEST, abs=1.5)
    assert np.cov(draws.T) == pytest.approx(400 * FRAME @ FRAME.T, rel=0.1, abs=20)
    assert not posterior(settle([3.0, 2.0, 4.0], 0.01, known=False)).columns(None, np.eye(3))["identified"].any()


def test_a_prior_must_be_positive_and_as_long_as_the_coefficients():
    good = posterior(settle([3.0, 2.0, 4.0], 0.01))
    settings, tensors = good.to_tensors()
    LocalGaussian.check_tensors(settings, tensors, 3, None)
    for bad in (np.zeros(3), np.ones(2)):
        with pytest.raises(Exception, match="prior"):
            LocalGaussian.check_tensors(settings, tensors | {"prior": bad}, 3, None)
    old = {name: t for name, t in tensors.items() if name != "prior"}
    LocalGaussian.check_tensors(settings, old, 3, None)
    assert LocalGaussian.from_tensors(settings, old).columns(None, np.eye(3))["identified"].all()


def test_a_covariance_is_drawn_again_with_no_more_noise_than_it_bears():
    value = np.diag([1.0, 0.01])
    assert tempered(value, np.full(3, 0.1)) == pytest.approx([0.1, 0.03, 0.003])
