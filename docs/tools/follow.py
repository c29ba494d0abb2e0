"""Follows a built page: runs its commands anew, in an empty folder, and compares what they print with the page.

    python docs/tools/follow.py site/tutorial/census.html

Output must be the same to the letter. In blocks that the page marks as varying, because fresh noise enters, figures
may differ and words may not.
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
ATTEMPTS = 3
GAPS = re.compile(r"[ \u2500-\u257f]+")


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


def main(path: str) -> int:
    """Follow the page; 1 if it differs.

    In a few fits in a hundred the noise hides a level, and a mark appears: so there are three attempts.
    """
    return int(not any(same(path) for _ in range(ATTEMPTS)))


def same(path: str) -> bool:
    """Run the page once, and print the differences."""
    html = Path(path).read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="pgbb-follow-") as folder:
        page = run.run(source(html), Path(folder))
    blocks = [block for block in page.blocks if block.ran]
    expected = printed(html)
    if len(blocks) != len(expected) or not blocks:
        print(f"{path}: {len(expected)} blocks are shown, {len(blocks)} were run.")
        return False
    wrong = 0
    for block, (text, varies) in zip(blocks, expected, strict=True):
        now = "\n".join(line for line in block.rendered().splitlines() if not line.startswith("```"))
        before, after = (shape(t) if varies else t.split("\n") for t in (text.strip(), now.strip()))
        before, after = ([line for line in lines if line] for lines in (before, after))
        if before != after:
            wrong += 1
            print("\n".join(unified_diff(before, after, "the page", "now", lineterm="")))
    print(f"{path}: {len(blocks)} blocks followed, {wrong} differ from the page.")
    return wrong == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
