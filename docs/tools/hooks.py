"""Events of the documentation build: run the pages, and write the command reference.

Pages that are run: the tutorial, the how-to pages, and those listed in `ALSO`. Each starts in an empty folder of its
own; three run at a time. A page that fails ends the build.
"""

import logging
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))

import commands
import mathematics
import run

from pgbb.cli.cache import keep_compiled_code

log = logging.getLogger("mkdocs.hooks.pgbb")
ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("tutorial/", "howto/")
ALSO = ("blocks.md",)
EXTRA = {"howto/r.md": {"pgbb.R": ROOT / "R" / "pgbb" / "R" / "pgbb.R"}}
WORKERS = 3  # for two cores: a page waits for a file or a process now and then
_done: dict[str, tuple[str, run.Page]] = run.__dict__.setdefault("cache", {})  # so that `mkdocs serve` runs a page once


def on_files(files: Files, config: Any) -> Files:
    """Run the pages, and add what they made. Python blocks keep compiled code as the command line does."""
    keep_compiled_code()
    files.append(File.generated(config, "reference/cli.md", content=commands.page()))
    pages = [f for f in files.documentation_pages() if f.src_uri.startswith(FOLDERS) or f.src_uri in ALSO]
    pages.sort(key=lambda file: -_length(file.content_string))  # the longest is not left alone at the end
    with ThreadPoolExecutor(WORKERS) as pool:
        failures = [f"{file.src_uri}, {text}" for file, text in zip(pages, pool.map(_run, pages), strict=True) if text]
    if failures:
        raise PluginError("\n".join(failures))
    for file in pages:
        folder = file.src_uri.rpartition("/")[0]
        for name, data in _done[file.src_uri][1].kept.items():
            made = File.generated(config, f"{folder}/{name}".lstrip("/"), content=data)
            if any(made.dest_uri == other.dest_uri for other in files):
                raise PluginError(f"{file.src_uri} keeps {name}, which is also the name of a page.")
            files.append(made)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """The page with outputs, where it was run."""
    uri = page.file.src_uri
    return mathematics.displays(_done[uri][1].rendered() if uri in _done else markdown)


def on_config(config: Any) -> Any:
    """Indices and powers in running text."""
    config.markdown_extensions.append(mathematics.Scripts())
    return config


def _length(text: str) -> int:
    """About how long a page runs: each command starts a process, and each fit is compiled."""
    return text.count("\n$ pgbb") + text.count("pgbb.fit(")


def _run(file: File) -> str:
    """Run one page; the message of what went wrong, or ""."""
    text, uri = file.content_string, file.src_uri
    if uri in _done and _done[uri][0] == text:
        return ""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pgbb-docs-") as folder:
        try:
            _done[uri] = text, run.run(text, Path(folder), extra=EXTRA.get(uri))
        except (run.BlockError, OSError) as error:
            return str(error)
    log.info("ran %s in %.0f s", uri, time.monotonic() - start)
    return ""
