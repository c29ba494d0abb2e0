"""Runs the code blocks of a documentation page, from top to bottom, in a folder that is empty at first.

A block is a fence with a language and, after it, words that say how to treat it:

    console             each line after "$ " is a command for bash; what it prints is set below it
    python              one interpreter a page; what it prints and the value of its last expression follow
    r                   a script for Rscript; shown but not run where R or its package jsonlite is missing
    file=NAME           not run: the text is written to NAME, as a reader would write it in an editor
    exit=2, raises=X    the command must end with this code, the code with this error
    varies              the output depends on fresh noise: figures differ from run to run, words do not
    keep=a.png          a file that the page shows, or links to

Anything that fails otherwise is an error of the build. Nothing here knows of the site: see hooks.py.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field, replace
from pathlib import Path

FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
RUN = ("console", "python", "r")
PATIENCE = 300  # seconds for one command
WIDTH = 80  # columns of the terminal
SHOWN = 60  # lines of output before the middle is left out


class BlockError(Exception):
    """A block did not do what the page says."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, and after a run what it printed: one text a command."""

    language: str
    body: str
    options: dict[str, str]
    span: tuple[int, int]
    line: int
    outputs: tuple[str, ...] = ()
    ran: bool = False

    @property
    def commands(self) -> list[str]:
        """The commands of a console block, with continued lines joined as bash would."""
        found: list[str] = []
        for line in self.body.splitlines():
            if line.startswith("$ "):
                found.append(line[2:])
            elif line.startswith("> ") and found:
                found[-1] += "\n" + line[2:]
            elif line.strip():
                raise BlockError(f"line {self.line}: {line!r} is no command; the build adds what a command prints.")
        return found

    @property
    def keep(self) -> list[str]:
        """Files that outlive the run."""
        return [name for name in self.options.get("keep", "").split(",") if name]

    def rendered(self) -> str:
        """Markdown of the block with its output."""
        title = f' title="{self.options["file"]}"' if "file" in self.options else ""
        classes = " .varies" if "varies" in self.options else ""
        if self.language == "console":
            parts = [
                "$ " + command.replace("\n", "\n> ") + "\n" + folded(output)
                for command, output in zip(self.commands, self.outputs, strict=True)
            ]
            return f"```{{ .console{classes} }}\n" + "".join(parts) + "```"
        text = f"```{{ .{self.language}{title} }}\n{self.body}```"
        if self.language in RUN and not title:
            if not self.ran:
                return text + "\n\n*Not run here: R, or its package jsonlite, is not installed where this was built.*\n"
            if self.outputs[0]:
                text += f"\n\n```{{ .text .output{classes} }}\n{folded(self.outputs[0])}```"
        return text


@dataclass
class Page:
    """The text of a page and its blocks; `kept` has the bytes of the files it shows."""

    text: str
    blocks: list[Block]
    kept: dict[str, bytes] = field(default_factory=dict)

    def rendered(self) -> str:
        """The text with every block replaced by itself and its output."""
        out, at = [], 0
        for block in self.blocks:
            out += [self.text[at : block.span[0]], block.rendered()]
            at = block.span[1]
        return "".join(out) + self.text[at:]


def read(text: str) -> Page:
    """The blocks of a page. Every fence must be one that is run, or written to a file."""
    blocks = []
    for match in FENCE.finditer(text):
        language, *words = match["info"].split() or [""]
        line = text.count("\n", 0, match.start()) + 1
        options = {key: value for key, _, value in (word.partition("=") for word in words)}
        strange = set(options) - {"file", "exit", "raises", "varies", "keep"}
        if strange or (language not in RUN and "file" not in options):
            raise BlockError(f"line {line}: a block '{match['info']}' is neither run nor written to a file.")
        blocks.append(Block(language, match["body"], options, match.span(), line))
    return Page(text, blocks)


def environment() -> dict[str, str]:
    """Plain output of a fixed width, and the commands of this interpreter's environment first."""
    here = str(Path(sys.executable).parent)
    plain = {
        "COLUMNS": str(WIDTH),
        "NO_COLOR": "1",
        "TERM": "dumb",
        "PYTHONWARNINGS": "default",
        "JAX_PLATFORMS": "cpu",
    }
    return os.environ | plain | {"PATH": here + os.pathsep + os.environ.get("PATH", ""), "MPLBACKEND": "agg"}


def run(text: str, folder: Path, *, extra: dict[str, Path] | None = None) -> Page:
    """Run all blocks of a page in `folder`, into which the files `extra` are copied first."""
    page = read(text)
    for name, source in (extra or {}).items():
        shutil.copy(source, folder / name)
    python: Interpreter | None = None
    done = []
    try:
        for block in page.blocks:
            try:
                if "file" in block.options:
                    (folder / block.options["file"]).write_text(block.body, encoding="utf-8")
                elif block.language == "console":
                    block = replace(block, outputs=tuple(_console(block, c, folder) for c in block.commands), ran=True)
                elif block.language == "python":
                    python = python or Interpreter(folder)
                    block = replace(block, outputs=(python(block),), ran=True)
                elif has_r():
                    block = replace(block, outputs=(_finish(block, ["Rscript", "-e", block.body], folder),), ran=True)
            except BlockError as error:
                raise BlockError(f"line {block.line}: {error}") from None
            for name in block.keep:
                page.kept[name] = (folder / name).read_bytes()
            done.append(block)
    finally:
        if python is not None:
            python.close()
    page.blocks = done
    return page


def has_r() -> bool:
    """R with jsonlite."""
    if shutil.which("Rscript") is None:
        return False
    return subprocess.run(["Rscript", "-e", "library(jsonlite)"], capture_output=True, check=False).returncode == 0


def tidy(text: str) -> str:
    """No trailing blanks, no blank lines at the ends, and no more lines than a reader will look at."""
    lines = [line.rstrip() for line in text.expandtabs().splitlines()]
    while lines and not lines[0]:
        lines.pop(0)
    while lines and not lines[-1]:
        lines.pop()
    if len(lines) > SHOWN:
        lines = [*lines[: SHOWN // 2], "…", *lines[-SHOWN // 4 :]]
    return "".join(line + "\n" for line in lines)


def folded(text: str) -> str:
    """Sentences that are longer than a terminal is wide, broken as it would break them; tables are left alone."""
    lines = []
    for line in text.splitlines():
        sentence = len(line) > WIDTH and "  " not in line.strip()
        lines += textwrap.wrap(line, WIDTH, break_long_words=False, break_on_hyphens=False) if sentence else [line]
    return "".join(line + "\n" for line in lines)


def _console(block: Block, command: str, folder: Path) -> str:
    return _finish(block, ["bash", "-c", command], folder)


def _finish(block: Block, line: list[str], folder: Path) -> str:
    try:
        done = subprocess.run(
            line, cwd=folder, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise BlockError(f"'{line[-1]}' took more than {PATIENCE} s.") from None
    expected = int(block.options.get("exit", "0"))
    if done.returncode != expected:
        raise BlockError(f"'{line[-1]}' ended with {done.returncode}, not {expected}:\n{done.stdout}")
    return tidy(done.stdout)


class Interpreter:
    """A Python process for the blocks of one page, fed a line of JSON a block."""

    def __init__(self, folder: Path) -> None:
        self._log = open(folder / ".stderr", "w+", encoding="utf-8")  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("interpreter.py"))], cwd=folder, env=environment(),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
        )  # fmt: skip

    def __call__(self, block: Block) -> str:
        """What a block printed."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(block.body) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            self._log.seek(0)
            raise BlockError(f"the interpreter ended:\n{self._log.read()}")
        result = json.loads(answer)
        if result["error"] != block.options.get("raises", ""):
            raise BlockError(f"the code raised {result['error'] or 'nothing'}:\n{result['text']}")
        return tidy(result["text"])

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=PATIENCE)
        self._log.close()
