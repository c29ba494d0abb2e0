import re
from dataclasses import fields
from pathlib import Path

import pytest

import pgbb
from pgbb.errors import PgbbNote
from pgbb.methods.registry import METHODS, OLDER_NAMES, method_called, settings_for

DOCS = Path(__file__).parents[2] / "docs" / "methods.md"


def test_an_older_name_is_understood_with_a_note_that_has_the_present_one():
    with pytest.warns(PgbbNote, match=r"method = 'paper' is called 'pgbb'"):
        assert method_called("paper") is METHODS["pgbb"]
    with pytest.warns(PgbbNote, match="'pgbb'"):
        chosen, settings = settings_for("paper", {"steps": 7})
    assert chosen.name == "pgbb" and settings.steps == 7
    assert not set(OLDER_NAMES) & set(METHODS)


@pytest.mark.parametrize("name", ["Paper", "", None, 3, ["pgbb"]])
def test_another_name_is_refused_and_the_present_ones_are_listed(name):
    with pytest.raises(pgbb.InvalidValue, match="'calibrated', 'pgbb', 'sgld'"):
        method_called(name)


def tables():
    """The settings of each method in the docs: its name, the setting, and what stands as its default."""
    for section in DOCS.read_text().split("\n## ")[1:]:
        method = re.match(r'`method="(\w+)"`', section)[1]
        for names, default in re.findall(r"^\| (`.*?`) \| (.*?) \|", section, re.MULTILINE):
            yield method, re.findall(r"`(\w+)`", names), default


def test_the_docs_name_settings_that_exist_with_their_defaults():
    seen = set()
    for method, names, default in tables():
        known = {f.name: f.default for f in fields(METHODS[method].load().Settings)}
        assert set(names) <= set(known), (method, names)
        number = re.fullmatch(r"\.?\d[\d,]*(\.\d+)?", default)
        if len(names) == 1 and number:
            assert float(default.replace(",", "")) == known[names[0]], (method, names)
            seen.add((method, names[0]))
    assert {("pgbb", "steps"), ("pgbb", "draws_per_step"), ("sgld", "steps"), ("dp_bootstrap", "replicates")} <= seen


def test_the_rules_of_the_printed_method_are_those_of_the_docs():
    rule = METHODS["pgbb"].load().Settings()
    for n, blocks, rate in ((50, 1, 1.0), (500, 5, 1.0), (10_000, 5, 0.1), (10**6, 5, 0.01)):
        found = rule.describe(n, 1.0)
        assert (found.blocks, found.sampling_rate) == (blocks, rate)
