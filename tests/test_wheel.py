"""What is installed: the product, and nothing of the laboratory. Read from the build's file selection, not built."""

import ast
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "pgbb"
KINDS = {".py", ".json", ".js", ".css", ".html", ".typed"}


def foreign(package):
    """Files that are no code or asset of the product, and modules that import what is not installed."""
    found = []
    for path in sorted(package.rglob("*")):
        if path.is_dir() or "__pycache__" in path.parts:
            continue
        if path.suffix not in KINDS and path.name != "py.typed":
            found.append(path.name)
        elif path.suffix == ".py":
            nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
            names = [n.module or "" for n in nodes if isinstance(n, ast.ImportFrom)]
            names += [alias.name for n in nodes if isinstance(n, ast.Import) for alias in n.names]
            if {name.split(".")[0] for name in names} & {"reproduction", "tests", "benchmarks"}:
                found.append(path.name)
    return found


def test_the_wheel_holds_the_package_alone():
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    assert build["targets"]["wheel"] == {"packages": ["src/pgbb"]}


def test_the_package_holds_no_study_and_no_printed_table():
    assert foreign(PACKAGE) == []


def test_a_table_or_a_study_in_the_package_is_noticed(tmp_path):
    (tmp_path / "printed.csv").write_text("a,b\n")
    (tmp_path / "study.py").write_text("def run():\n    from reproduction.judge import Line\n")
    (tmp_path / "fit.py").write_text("import json\n")
    assert foreign(tmp_path) == ["printed.csv", "study.py"]
