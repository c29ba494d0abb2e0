"""What a release and a comparison show of themselves in a notebook."""

import re
import warnings
from xml.etree import ElementTree

import pytest

from pgbb.reference.comparison import Comparison, Outcome
from pgbb.release.tables import MOST, Bar, intervals
from tests.release.builders import generator_release as generator
from tests.release.builders import local_release as release
from tests.release.builders import non_private

pytestmark = pytest.mark.quick


def picture(text):
    """The SVG in it, parsed: it must be well-formed, alone, and ask nothing of any network."""
    (svg,) = re.findall(r"<svg.*?</svg>", text, re.S)
    assert "<script" not in text and "http" not in text.replace("http://www.w3.org/2000/svg", "")
    return ElementTree.fromstring(svg)


def parts(svg, tag):
    return svg.findall(f".//{{http://www.w3.org/2000/svg}}{tag}")


@pytest.mark.parametrize("which, bars", [((), 9), (("interval",), 15), ((None,), 3)])
def test_a_release_is_a_claim_a_picture_and_a_table(which, bars):
    text = release(*which)._repr_html_()
    assert "ε = " in text and "<table" in text and len(text) < 20_000
    svg = picture(text)
    assert len(parts(svg, "circle")) == bars and "0.95 intervals" in svg.get("aria-label")
    assert {"Intercept", "educ", "black"} <= {t.text for t in parts(svg, "text")}


def test_a_bar_spans_its_interval():
    svg = ElementTree.fromstring(intervals([("a", [Bar("1", 0.0, -1.0, 1.0), Bar("2", 1.0, 0.0, 3.0, False)])], "c"))
    zero, first, second = (p.get("d") for p in parts(svg, "path"))
    ends = [[float(v) for v in re.findall(r"[MH]([\d.]+)", d)] for d in (first, second)]
    assert ends[0][1] - ends[0][0] == pytest.approx((ends[1][1] - ends[1][0]) * 2 / 3, abs=0.3)
    assert float(re.match(r"M([\d.]+)", zero)[1]) == pytest.approx(ends[1][0], abs=0.1)
    assert [c.get("fill") != "none" for c in parts(svg, "circle")] == [True, False]


def test_names_cannot_become_markup_and_pictures_stay_small():
    text = intervals([("<b>&'", [Bar("<i>", 0.0, -1.0, 1.0)] * 500), ("late", [Bar("", 0.0, 0.0, 0.0)])], "'\"<")
    svg = ElementTree.fromstring(text)
    assert len(parts(svg, "circle")) == MOST and "<b>" not in text and "<i>" not in text
    assert parts(svg, "text")[0].text == "<b>&'" and len(text) < 40_000


def test_what_is_not_private_says_so():
    assert "NOT PRIVATE" in generator(claim=non_private())._repr_html_()


def test_showing_a_release_warns_of_nothing_that_it_shows():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        release()._repr_html_()


def test_a_comparison_shows_methods_side_by_side():
    found = Comparison(
        (Outcome("calibrated", release(), 1.0), Outcome("pgbb", generator(), 2.0)), 0.9, (0.1, 0.5), None, {}
    )
    text = found._repr_html_()
    svg = picture(text)
    labels = [t.text for t in parts(svg, "text")]
    assert labels.count("calibrated") == labels.count("pgbb") == 6 and "educ, tau 0.5" in labels
    assert "all together ε = " in text and "<table" in text and "NOT PRIVATE" not in text
