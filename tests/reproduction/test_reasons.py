"""The reasons of what misses, as the summary prints them."""

import re
from pathlib import Path

from reproduction.report.reasons import REASONS

SUMMARY = Path(__file__).parents[2] / "docs" / "reproduction.md"


def test_the_summary_gives_the_reasons_of_the_code_and_no_others():
    known = {why for reasons in REASONS.values() for _, why in reasons}
    given = set(re.findall(r"^- \d+ figures: (.*)$", SUMMARY.read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert given == known
