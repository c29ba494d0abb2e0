"""Follows a built page: runs its commands anew, in an empty folder, and compares what they print with the page.

    python docs/tools/follow.py site/tutorial/census.html

Output must be the same to the letter. In blocks that the page marks as varying, because fresh noise enters, figures
may differ, lines may break elsewhere, and marks and notes of `CHANCE` may come and go; other words may not.
"""

import re
import sys
import tempfile
from difflib import unified_diff
from html.parser import HTMLParser
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import run

NUMBER = re.compile(r"SHA256:\S+|\b[0-9a-f]{12,}\b|[-−]?\d+(?:,\d{3}(?!\d))*(?:[.:]\d+)*(?:e[-+]?\d+)?")
GAPS = re.compile(r"[ \u2500-\u257f]+")
# What some fits in a hundred say: the noise hides a level, or nearly; it shows how many records are weighted down.
CHANCE = {
    r"(?<=\S) \*(?= #)": "",
    r"(?<= )–(?= |$)": "#",
    r"(?:^| )\* not identified at this ε: the interval says little more than was known before": "",
    r"(?:^| )(?:note|warning): not identified at this ε: .*? The noise hides them, .*? would help\.": "",
    r"(?:^| )note: #% of the draws of [^:]* lie at the edge of the parameter box: the box binds, .*? settle\.": "",
    r"(?:^| )note: adjacent quantiles cross at the centre in up to #% of the draws\.": "",
    r"(?:^| )note: the smallest curvature is only # times its noise: the width of the intervals is uncertain\.": "",
    r"Here #% (of the records are clearly weighted down) \(± #%\)\.": r"Here at most #% \1.",
}


class Blocks(HTMLParser):
    """The code blocks of a page: classes, file name and text."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[set[str], str, str]] = []
        self._classes: set[str] | None = None
        self._depth, self._title, self._text = 0, "", ""
        self._into = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Enter a block, its title or its code."""
        given = dict(attrs)
        classes = set((given.get("class") or "").split())
        if self._classes is None and tag == "div" and "highlight" in classes:
            self._classes, self._depth, self._title, self._text = classes, 0, "", ""
        if self._classes is None:
            return
        self._depth += tag == "div"
        if "filename" in classes:
            self._into = "title"
        elif tag == "code":
            self._into = "text"

    def handle_endtag(self, tag: str) -> None:
        """Leave them."""
        if self._classes is None:
            return
        if tag == "code" or (tag == "span" and self._into == "title"):
            self._into = ""
        if tag == "div":
            self._depth -= 1
            if self._depth == 0:
                self.found.append((self._classes, self._title, self._text))
                self._classes = None

    def handle_data(self, data: str) -> None:
        """Gather text."""
        if self._into == "title":
            self._title += data
        elif self._into == "text":
            self._text += data


def shape(text: str) -> list[str]:
    """The words of a text, with a sign for each number, and gaps and lines of tables of no length."""
    return [GAPS.sub(" ", NUMBER.sub("#", line)).strip() for line in text.splitlines()]


def certain(lines: list[str]) -> str:
    """The words of a shape, wherever its lines break, without what is left to chance."""
    words = " ".join(line for line in lines if line)
    for pattern, always in CHANCE.items():
        words = re.sub(pattern, always, words)
    return words


def source(html: str) -> str:
    """A page of blocks alone, as `run.run` reads it."""
    parser = Blocks()
    parser.feed(html)
    parts = []
    for classes, title, text in parser.found:
        language = next((name[9:] for name in classes if name.startswith("language-")), "text")
        if language == "text":
            continue
        if language == "console":
            text = "".join(line + "\n" for line in text.splitlines() if line.startswith(("$ ", "> ")))
        parts.append(f"```{language}{' file=' + title.strip() if title else ''}\n{text.rstrip()}\n```")
    return "\n\n".join(parts)


def printed(html: str) -> list[tuple[str, bool]]:
    """What the page shows for each block that is run, with its output, and whether it varies."""
    parser = Blocks()
    parser.feed(html)
    shown: list[tuple[str, bool]] = []
    for classes, title, text in parser.found:
        if title:
            continue
        names = " ".join(classes)
        if "output" in names:
            shown[-1] = shown[-1][0] + text, "varies" in names
        else:
            shown.append((text, "varies" in names))
    return shown


def differences(page: str, now: str, *, varies: bool) -> list[str]:
    """How an output differs from that on the page, a line of a diff each; empty if it does not."""
    before, after = (shape(text) if varies else text.split("\n") for text in (page.strip(), now.strip()))
    before, after = ([line for line in lines if line] for lines in (before, after))
    if before == after or (varies and certain(before) == certain(after)):
        return []
    return list(unified_diff(before, after, "the page", "now", lineterm=""))


def main(path: str) -> int:
    """Follow the page, and print the differences; 1 if there are any."""
    html = Path(path).read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="pgbb-follow-") as folder:
        page = run.run(source(html), Path(folder))
    blocks = [block for block in page.blocks if block.ran]
    expected = printed(html)
    if len(blocks) != len(expected) or not blocks:
        print(f"{path}: {len(expected)} blocks are shown, {len(blocks)} were run.")
        return 1
    wrong = 0
    for block, (text, varies) in zip(blocks, expected, strict=True):
        now = "\n".join(line for line in block.rendered().splitlines() if not line.startswith("```"))
        found = differences(text, now, varies=varies)
        wrong += bool(found)
        for line in found:
            print(line)
    print(f"{path}: {len(blocks)} blocks followed, {wrong} differ from the page.")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
