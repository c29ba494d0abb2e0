"""Sets mathematics as MathML, which browsers draw by themselves: no script, no font, no network.

A display is LaTeX between lines of `$$`, as GitHub reads it, too. In running text a letter with an index or a power,
such as n_S, H_{1/α} or e^{−x}, is plain text in the source and gets the index below and the power above its line.
"""

import re
from xml.etree import ElementTree

from latex2mathml.converter import convert
from markdown import Extension, Markdown
from markdown.inlinepatterns import InlineProcessor

DISPLAY = re.compile(r"^\$\$\n(.*?)\n\$\$$", re.MULTILINE | re.DOTALL)
LETTER = r"[^\W\d_][\u0300-\u036f]?"
BASE = rf"(?<![A-Za-z0-9_\u0300-\u036f])(?P<base>{LETTER}|1|\)|sup|min|max)"
SCRIPT = BASE + r"(?P<mark>[_^])(?:\{(?P<long>[^{}\n]+)\}|(?P<one>−?\w[′*]?))(?![\w{])"


def displays(text: str) -> str:
    """The page with each display as MathML."""
    return DISPLAY.sub(lambda m: convert(" ".join(m[1].split()), display="block"), text)


class _Script(InlineProcessor):
    def handleMatch(self, m: re.Match[str], data: str) -> tuple[ElementTree.Element, int, int]:
        """A span with what is raised or lowered."""
        found = ElementTree.Element("span", {"class": "script"})
        found.text = m["base"]
        part = ElementTree.SubElement(found, "sub" if m["mark"] == "_" else "sup")
        part.text = m["long"] or m["one"]
        return found, m.start(0), m.end(0)


class Scripts(Extension):
    """Indices and powers in running text; code comes first, and stays as it is."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Add the pattern after code and escapes, before emphasis."""
        md.inlinePatterns.register(_Script(SCRIPT, md), "script", 100)
