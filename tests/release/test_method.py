"""Every place that shows a number of a release says by which method it was made."""

import json

import pytest

from pgbb.methods.registry import METHODS
from pgbb.release.figures import coefficient_intervals, quantile_process
from pgbb.release.file import METHODS as WORDS
from pgbb.release.file import Release
from pgbb.report import page
from tests.helpers import pgbb_here
from tests.release.builders import SCHEMA, certificate, generator_release, local, local_release, model

pytestmark = pytest.mark.quick


def made_by(method, index="levels"):
    return Release(model(index), SCHEMA, certificate(), local(index), {"method": method})


def test_every_method_has_words_for_its_reader():
    assert list(WORDS) == list(METHODS) and all(WORDS[name].startswith(name) for name in METHODS)


def test_the_method_is_shown_wherever_a_number_is(tmp_path):
    release = made_by("sgld")
    assert release.method == "sgld" and "DP-SGLD" in repr(release) and "DP-SGLD" in release._repr_html_()
    assert "method       sgld" in str(release.verify()) and "DP-SGLD" in page(release)
    assert "DP-SGLD" in quantile_process(release).get_suptitle()
    assert "DP-SGLD" in coefficient_intervals(made_by("sgld", None)).get_suptitle()
    path = release.save(tmp_path / "r.pgbb")
    assert "DP-SGLD" in pgbb_here("show", str(path), cwd=tmp_path).stdout
    assert json.loads(pgbb_here("show", str(path), "--json", cwd=tmp_path).stdout)["method"] == "sgld"
    assert "method       sgld" in pgbb_here("verify", str(path), cwd=tmp_path).stdout


@pytest.mark.parametrize("given", ["<b>calibrated</b>", "unheard of", 3, None, ["pgbb"], "calibrated\nverified"])
def test_a_name_that_is_no_method_is_not_repeated(given):
    release = made_by(given)
    assert release.method is None and "does not name" in repr(release)
    assert "method       not named" in str(release.verify()) and "<b>" not in page(release).partition("<script")[0]


def test_a_file_that_says_nothing_is_by_pgbb_if_it_holds_a_generator():
    assert generator_release().method == "pgbb" and local_release().method is None
