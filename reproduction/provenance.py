"""Where a result comes from: versions, commit, device, and a fingerprint of the code that could have changed it.

The fingerprint covers the modules of pgbb that a study and its method import, directly or not, without comments and
docstrings, and without the functions `tables` and `_table…` of a study, which only judge: results are stale when
their code has changed, and only then.
"""

import ast
import hashlib
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pgbb

__all__ = ["commit", "device", "fingerprint", "imported", "versions"]

ROOT = Path(pgbb.__file__).resolve().parent
APART = ("reproduction.judge", "reproduction.printed", "reproduction.study", "pgbb.custody.ledger", "pgbb.release.bars")
"""They describe, judge, pay for or show results, and cannot change them."""


def _path(module: str) -> Path | None:
    package, *inside = module.split(".")
    root = {"pgbb": ROOT, "reproduction": Path(__file__).resolve().parent}.get(package)
    if root is None:
        return None
    where = root.joinpath(*inside)
    return next((path for path in (where.with_suffix(".py"), where / "__init__.py") if path.is_file()), None)


def _direct(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@lru_cache(maxsize=1024)
def _read(path: Path, _: int) -> tuple[frozenset[str], bytes]:
    """What a file imports, and a digest of its code; read again when the file has changed."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    digest = hashlib.sha256(b"\0".join(word.encode() for word in _skeleton(tree)))
    return frozenset(_direct(tree)), digest.digest()


def _file(path: Path) -> tuple[frozenset[str], bytes]:
    return _read(path, path.stat().st_mtime_ns)


def imported(modules: Iterable[str]) -> dict[str, Path]:
    """The modules of pgbb that these import, directly or not, and themselves; lazy imports count.

    >>> found = imported(["pgbb.accountant.convert"])
    >>> "pgbb.errors" in found, "pgbb.methods.pgbb.training" in found
    (True, False)
    """
    found: dict[str, Path] = {}
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        path = None if module in found or module in APART or module == "pgbb" else _path(module)
        if path is None:
            continue
        found[module] = path
        waiting += _file(path)[0]
        if module.count(".") > 1:
            waiting.append(module.rpartition(".")[0])
    return found


def _skeleton(node: ast.AST) -> Iterator[str]:
    """The syntax tree in words, without docstrings and positions; the same in every version of Python."""
    yield type(node).__name__
    for name, value in ast.iter_fields(node):
        items = value if isinstance(value, list) else [value]
        if name == "body" and items and isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            first = items[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                items = items[1:]
        for item in items:
            if isinstance(item, ast.FunctionDef) and (item.name == "tables" or item.name.startswith("_table")):
                continue
            if isinstance(item, ast.AST):
                yield name
                yield from _skeleton(item)
            elif item is not None and not isinstance(item, type(...)):
                yield f"{name}={item!r}"


def fingerprint(modules: Iterable[str]) -> str:
    """Sixteen hexadecimal digits that change with the code of these modules or of anything in pgbb they import."""
    digest = hashlib.sha256()
    for module, path in sorted(imported(modules).items()):
        digest.update(f"\n{module}\n".encode() + _file(path)[1])
    return digest.hexdigest()[:16]


def versions() -> dict[str, str]:
    """Of Python, pgbb and the libraries that compute."""
    found = {"python": platform.python_version(), "pgbb": pgbb.__version__}
    for name in ("numpy", "scipy", "jax", "pandas"):
        found[name] = importlib.metadata.version(name)
    return found


@lru_cache(maxsize=1)
def commit() -> str | None:
    """The commit of the checkout that pgbb runs from, with "+" where files have changed since; None outside of git.

    A machine that has a copy of the files without their history can be told by PGBB_COMMIT.
    """
    told = os.environ.get("PGBB_COMMIT")
    if told:
        return told

    def ask(*words: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    if ask("ls-files", "--error-unmatch", str(ROOT / "__init__.py")) is None:
        return None
    head = ask("rev-parse", "HEAD")
    return None if head is None else head + ("+" if ask("status", "--porcelain", "--", str(ROOT)) else "")


def device() -> str:
    """What JAX computes on, such as "cpu" or "gpu: NVIDIA H200"."""
    import jax

    first: Any = jax.devices()[0]
    return "cpu" if first.platform == "cpu" else f"{first.platform}: {first.device_kind}"
