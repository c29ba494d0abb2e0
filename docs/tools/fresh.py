"""Runs every code block of README and docs as a newcomer would paste it, after the commands of README alone.

    python docs/tools/fresh.py [PAGE ...] [--folder FOLDER]

What is committed is cloned and installed by README's own commands, with `URL` replaced, a `my.csv` of made-up records
and its schema filled in as with an editor. Then each page runs from top to bottom in an empty folder, with that
environment activated. Blocks of `text` are outputs, and are not run. A folder that is given is kept, and used again.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import run

ROOT = Path(__file__).resolve().parents[2]
TEXT = re.compile(r"^```text\n.*?^```$", re.MULTILINE | re.DOTALL)
EXTRA = {"docs/howto/r.md": {"pgbb.R": ROOT / "R" / "pgbb" / "R" / "pgbb.R"}}
DATA = "y,x\n" + "".join(f"{(7 * i) % 101 / 10},{i % 17}\n" for i in range(3_000))
SCHEMA = "[columns]\ny = { range = [0, 20] }\nx = { range = [0, 20] }\n"


def pages() -> list[str]:
    """All pages with code, the shortest way in first."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [str(p.relative_to(ROOT)) for p in found if re.search(r"^```(console|python|r)\b", p.read_text(), re.M)]


def install(folder: Path) -> None:
    """README's first block, command by command; the schema is filled in after `pgbb init`."""
    block = next(b for b in run.read(TEXT.sub("", (ROOT / "README.md").read_text())).blocks if b.language == "console")
    (folder / "my.csv").write_text(DATA)
    for command in block.commands:
        start = time.monotonic()
        subprocess.run(["bash", "-c", command.replace("URL", f"'{ROOT}'")], cwd=folder, env=plain(), check=True)
        print(f"{time.monotonic() - start:7.1f} s  {command}", flush=True)
        if " init " in command:
            (folder / "my.toml").write_text(SCHEMA)


def plain() -> dict[str, str]:
    """The environment without what belongs to the Python that runs this."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV", "PIP_REQUIRE"))}


def follow(page: str, clone: Path) -> str:
    """Run one page; what went wrong, or ""."""
    text = TEXT.sub("", (ROOT / page).read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(prefix="pgbb-fresh-") as folder:
        (Path(folder) / "pgbb").symlink_to(clone)
        if "git clone URL" in text:  # done by `install`
            first = next(b for b in run.read(text).blocks if b.language == "console")
            text = text[: first.span[0]] + text[first.span[1] :]
        try:
            run.run(text, Path(folder), extra=EXTRA.get(page))
        except run.BlockError as error:
            return str(error)
    return ""


def main() -> int:
    """Install, then run the pages with the installed Python; 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", nargs="*", help="such as docs/sklearn.md; default: all")
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pgbb-fresh-") as spare:
        folder = (given.folder or Path(spare)).resolve()
        clone = folder / "pgbb"
        python = clone / ".venv" / "bin" / "python"
        if Path(sys.prefix) != python.parents[1]:
            if not python.exists():
                folder.mkdir(exist_ok=True)
                install(folder)
            again = [str(python), __file__, *given.page, "--folder", str(folder)]
            return subprocess.run(again, env=plain(), check=False).returncode
        wrong = 0
        for page in given.page or pages():
            start, text = time.monotonic(), follow(page, clone)
            wrong += bool(text)
            print(f"{time.monotonic() - start:7.1f} s  {page}  {text or 'runs as pasted'}", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
