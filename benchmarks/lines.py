"""Lines of src/pgbb, and bytes of the wheel, by room and by what asked for them.

    python benchmarks/lines.py                 rooms by kind of line, features, and what the wheel is made of
    python benchmarks/lines.py since COMMIT    the same features, beside those of a commit

A file belongs to the first feature whose pattern it matches: what several features share counts as the core.
"""

import ast
import re
import subprocess
import sys
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "pgbb"
KINDS = ("code", "docstring", "comment", "import", "__all__", "blank")
FEATURES = {  # what, and the issue that asked for it, by patterns of paths
    "counts, expectiles, two stages, groups, least squares (22)": (
        r"model/(poisson|instruments|groups|custom)\.|calibrated/(poisson|expectile|instruments|groups|linear)\."
        r"|calibrated/(clipped_regression|score_clip|pareto)\."
    ),
    "the default method: quantiles, Huber, logistic, a mean (core, 19)": r"methods/(calibrated/|clipped_means)",
    "Algorithms 1 and 2 (core)": r"methods/pgbb/(__init__|method|generator|training|settings)\.",
    "kernels of a GPU for the generator (core)": r"methods/pgbb/kernels",
    "noise-aware draws (20)": r"methods/pgbb/",
    "repro samples, simulators (21)": r"methods/(repro|simulators)",
    "ABC, data augmentation, DP-MCMC (21)": r"methods/(abc|augmented|dp_mcmc)",
    "posterior sampling (21)": r"methods/posterior_sampling|gibbs_posterior|loss_values|accountant/sampling",
    "NoisyGibbs, noisy sums (core)": r"methods/noisy|private/moments",
    "DP-Bootstrap (core)": r"dp_bootstrap|private/refits|accountant/resampling",
    "DP-SGLD (core)": r"methods/(sgld|effective_size|constants)",
    "requests, registry, typed settings (core, 24)": r"methods/",
    "text, Stata, SAS, SPSS, workbooks, databases (24)": r"private/(csv|stata|sas|excel|duckdb|files)",
    "cells, sources, records (core, 24)": (
        r"private/(cells|sources|records|reading|loading|open_table|arrays|row_layout|rows)\."
    ),
    "coded rows, rows in a file, memory (23)": r"private/(coding|scratch|in_memory|slabs|device_layout)|memory\.",
    "one kernel of a GPU for a sum (23)": r"private/kernel\.",
    "clusters (25)": r"engine/|private/(worker|loop_on_workers|parquet|partition)",
    "sums over all records (core, 23)": (
        r"private/(sums|partial|clipping|vectorised|plain|local|wide|noise|random|persons|door|__init__|mechanism"
        r"|shards|sampling|hosts)"
    ),
    "batches and sessions (core, 23)": r"private/",
    "accountants (core)": r"accountant/",
    "schema, formula, terms (core, 24)": r"model/(schema|formula|terms|parsing)",
    "models, problem, blocks (core)": r"model/",
    "tests, predictions, pooling, diagnostics (22)": r"release/(answers|predict|pooling|diagnostics|cost|distances)",
    "file, certificate, posterior, payloads (core)": r"release/",
    "ledger, checkpoint, run (core)": r"custody/",
    "planning (core, 19)": r"planning/",
    "audit (core, 21)": r"audit",
    "references, comparison (core)": r"reference/",
    "page and plots (core, 24)": r"report/",
    "scikit-learn (core)": r"sklearn",
    "command line (core, 24)": r"cli/|__main__",
    "numerics, files, checks, errors (core)": r"",
}


def kinds(text: str) -> Counter[str]:
    """How many lines of each kind."""
    kind = [
        "blank" if not line.strip() else "comment" if line.strip()[0] == "#" else "code" for line in text.split("\n")
    ]
    for node in ast.walk(ast.parse(text)):
        name = ""
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            name = "docstring"
        elif isinstance(node, ast.Import | ast.ImportFrom):
            name = "import"
        elif isinstance(node, ast.Assign) and any(getattr(t, "id", "") == "__all__" for t in node.targets):
            name = "__all__"
        if name:
            kind[node.lineno - 1 : node.end_lineno] = [name] * (node.end_lineno - node.lineno + 1)
    return Counter(kind[: text.count("\n")])


def packed(data: bytes) -> int:
    """Bytes of a file in a wheel, its name and its line in RECORD apart."""
    made = zlib.compressobj(wbits=-15)
    return len(made.compress(data) + made.flush())


def room(path: str) -> str:
    """The room of a file; of methods, the package."""
    parts = path.split("/")
    alone = parts[0] in ("audit.py", "sklearn.py")
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0] if len(parts) > 1 or alone else "top"


def feature(path: str) -> str:
    """What asked for a file."""
    return next(name for name, pattern in FEATURES.items() if re.search(pattern, path))


def table(heads: Iterable[str], rows: Iterable[tuple[str, list[int]]]) -> None:
    """Rows with their sum, the largest first."""
    found = sorted(rows, key=lambda row: -row[1][0])
    found.append(("total", [sum(column) for column in zip(*(numbers for _, numbers in found), strict=True)]))
    wide = max(len(name) for name, _ in found)
    print(" " * wide, *(f"{head:>9}" for head in heads))
    for name, numbers in found:
        print(f"{name:{wide}}", *(f"{number:9,}" for number in numbers))
    print()


def now() -> dict[str, str]:
    """The modules of this tree, by path."""
    return {str(path.relative_to(SOURCE)): path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")}


def at(commit: str) -> dict[str, str]:
    """The modules of a commit, by path."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], capture_output=True, text=True, check=True, cwd=ROOT).stdout

    files = [name for name in git("ls-tree", "-r", "--name-only", commit, "src/pgbb").split() if name.endswith(".py")]
    return {name.removeprefix("src/pgbb/"): git("show", f"{commit}:{name}") for name in files}


def by_feature(files: dict[str, str]) -> dict[str, list[int]]:
    """Lines, files and bytes in a wheel."""
    found: dict[str, list[int]] = {name: [0, 0, 0] for name in FEATURES}
    for path, text in files.items():
        for i, number in enumerate((text.count("\n"), 1, packed(text.encode()))):
            found[feature(path)][i] += number
    return found


def without_words(text: str) -> str:
    """Code without docstrings, comments and layout."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            said = [isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant) for s in body]
            body[:] = [s for s, words in zip(body, said, strict=True) if not words] or [ast.Pass()]
    return ast.unparse(tree)


def main() -> None:
    files = now()
    if sys.argv[1:2] == ["since"]:
        here, there = by_feature(files), by_feature(at(sys.argv[2]))
        rows = ((name, [here[name][0], there[name][0], here[name][0] - there[name][0]]) for name in FEATURES)
        table(("lines", "then", "grown"), rows)
        return
    rooms: dict[str, Counter[str]] = defaultdict(Counter)
    for path, text in files.items():
        rooms[room(path)] += kinds(text) + Counter({"lines": text.count("\n"), "files": 1})
    heads = ("lines", "files", *KINDS)
    table(heads, ((name, [found[head] for head in heads]) for name, found in rooms.items()))
    table(("lines", "files", "bytes"), by_feature(files).items())
    other = {p.name: p.read_bytes() for p in SOURCE.rglob("*") if p.is_file() and p.suffix not in (".py", ".pyc")}
    table(
        ("bytes", "as is"),
        [
            (
                "modules, each packed by itself",
                [sum(packed(t.encode()) for t in files.values()), sum(map(len, files.values()))],
            ),
            ("templates, scripts, schemas", [sum(map(packed, other.values())), sum(map(len, other.values()))]),
        ],
    )
    bare = [without_words(text).encode() for text in files.values()]
    print(f"modules without docstrings, comments and layout: {sum(map(packed, bare)):,} bytes")
    print(f"modules packed as one file: {packed(''.join(files.values()).encode()):,} bytes")


if __name__ == "__main__":
    main()
