"""Sets the examples in docstrings as code: an extension of griffe, which would take `>>>` for a quotation."""

import re
from typing import Any

import griffe


class Doctests(griffe.Extension):
    """Fence every run of lines that begins with `>>>` and ends at a blank line."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """The text with doctests, and what follows a double colon, in fences.

    Examples that follow one another without a blank line share a fence.
    """
    text = re.sub(r"::\n\n((?: *\S.*(?:\n|$))+)", r":\n\n```text\n\1\n```\n", text).replace("<BLANKLINE>", "")
    return re.sub(r"(?m)^( *)>>> .*(?:\n *\S.*)*", lambda m: f"{m[1]}```pycon\n{m[0]}\n{m[1]}```", text)
