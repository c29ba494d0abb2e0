"""The shape of the package: which rooms there are, what may import what, and how much one module leans on others."""

import ast
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "pgbb"
ROOMS = {
    *("accountant", "model", "private", "methods", "release", "custody"),
    *("planning", "audit", "reference", "report", "cli", "sklearn", "engine"),
}
MOST = 12
"""Modules of pgbb that one module may import."""
RULES = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ruff"]["lint"]
MOST_BRANCHES = 15
"""Paths through one function, which `make lint` counts."""


def imported(path):
    """The modules of pgbb that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names if a.name.startswith("pgbb.")}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "pgbb":
            for name in node.names:
                place = SOURCE.joinpath(*node.module.split(".")[1:], name.name)
                module = place.is_dir() or place.with_suffix(".py").exists()
                found.add(f"{node.module}.{name.name}" if module else node.module)
    return found


def test_the_top_holds_thirteen_rooms_and_errors():
    names = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert {name for name in names if not name.startswith("_")} == {*ROOMS, "errors"}


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_module_imports_at_most_twelve_others(path):
    assert len(imported(path)) <= MOST, sorted(imported(path))


def test_imports_are_counted_inside_functions_too(tmp_path):
    path = tmp_path / "m.py"
    path.write_text(
        "import pgbb.audit\ndef f():\n    from pgbb.model import schema\n    from pgbb.errors import PgbbError"
    )
    assert imported(path) == {"pgbb.audit", "pgbb.model.schema", "pgbb.errors"}


def test_a_function_of_too_many_branches_is_refused():
    branches = "".join(f"    if x == {i}:\n        return {i}\n" for i in range(MOST_BRANCHES))
    for extra, refused in (("", False), ("    if x:\n        return x\n", True)):
        body = branches.replace("    if x == 0:\n        return 0\n", "") + extra
        command = [sys.executable, "-m", "ruff", "check", "--select", "C901", "--stdin-filename", "src/pgbb/x.py", "-"]
        text = f'"""Docs."""\n\n\ndef f(x):\n    """Docs."""\n{body}    return x\n'
        done = subprocess.run(command, input=text, capture_output=True, text=True, cwd=ROOT)
        assert ("C901" in done.stdout) == refused and ("C901" in RULES["select"])


def contracts(source):
    """Run the import contracts of pyproject.toml on a copy of the package in `source`."""
    command = "from importlinter.cli import lint_imports_command as c; c()"
    arguments = ["--config", str(source / "pyproject.toml"), "--no-cache"]
    environment = {"PYTHONPATH": str(source), "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(
        [sys.executable, "-c", command, *arguments], capture_output=True, text=True, cwd=source, env=environment
    )


@pytest.fixture
def copy(tmp_path):
    shutil.copytree(SOURCE, tmp_path / "pgbb", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_import_contracts_hold(copy):
    done = contracts(copy)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "file, line, said",
    [
        ("release/tables.py", "import pgbb.methods.sgld", "pgbb.release is not allowed to import pgbb.methods"),
        ("errors.py", "import pgbb._validate", "pgbb.errors is not allowed to import pgbb._validate"),
        ("accountant/theory.py", "import jax", "pgbb.accountant is not allowed to import jax"),
        ("model/problem.py", "def f():\n    import jax", "pgbb.release is not allowed to import jax"),
        ("attic.py", "", "not listed as layers: - pgbb.attic"),
        ("methods/sgld.py", "from pgbb.private.records import Records", "protected package pgbb.private.records"),
        ("audit.py", "from pgbb.private import sums", "protected package pgbb.private.sums"),
        ("reference/solvers.py", "def f():\n    import pgbb.private.noise", "protected package pgbb.private.noise"),
    ],
)
def test_an_import_against_the_order_or_past_the_door_and_a_room_without_a_place_break_them(copy, file, line, said):
    with (copy / "pgbb" / file).open("a", encoding="utf-8") as module:
        module.write(f"\n{line}\n")
    done = contracts(copy)
    assert done.returncode == 1
    assert said in " ".join(done.stdout.split()), done.stdout


def test_every_room_has_its_place_in_the_order():
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (rooms,) = (c["layers"] for c in table["contracts"] if c["id"] == "rooms")
    assert {*ROOMS, "errors"} <= {name for layer in rooms for name in layer.split(" | ")}


def modules_after(statement):
    code = f"import sys; {statement}; print(' '.join(m for m in sys.modules if '.' not in m))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(out.stdout.split())


def test_the_accountant_does_not_import_jax_or_plotting():
    loaded = modules_after("import pgbb.accountant")
    assert "numpy" in loaded
    assert not loaded & {"jax", "jaxlib", "optax", "matplotlib", "pandas"}


LISTS = {"sklearn.py", "methods/calibrated/statistics.py"}
"""Modules whose list of names is read: by users, and by tests."""


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_module_lists_names_only_to_hand_on_what_it_imports(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    lists = [n for n in tree.body if isinstance(n, ast.Assign | ast.AugAssign) and "__all__" in ast.unparse(n)]
    listed = {c.value for n in lists for c in ast.walk(n.value) if isinstance(c, ast.Constant)}
    imports = [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)]
    handed_on = listed & {a.asname or a.name for n in imports for a in n.names}
    assert not lists or handed_on or path.name == "__init__.py" or str(path.relative_to(SOURCE)) in LISTS
