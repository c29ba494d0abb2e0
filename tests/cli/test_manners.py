"""What every command has in common: examples, JSON with a schema, widths, colours, exit codes, no traceback."""

import gc
import io
import json
import re
import sys
import warnings
import zipfile
from pathlib import Path

import jsonschema
import numpy as np
import pandas as pd
import pytest
import typer

from pgbb import cli
from pgbb.cli import app, main
from pgbb.cli.options import progress_bar
from pgbb.cli.output import schema
from pgbb.custody.ledger import Ledger
from tests.helpers import pgbb_command, pgbb_here, python
from tests.release.builders import generator_release as generator
from tests.release.builders import local_release as release
from tests.release.builders import non_private

pytestmark = pytest.mark.quick

DOCS = Path(__file__).parents[2] / "docs"
SCHEMA = "[columns]\nx = { range = [-1, 1] }\ny = { range = [-5, 5] }\n"
BUDGET = ["--epsilon", "1", "--delta", "1e-6"]
PGBB = ["--method", "pgbb", "--steps", "10", "--blocks", "1", "--sampling-rate", "1"]  # quickly accounted for
MEAN = ["--family", "mean", "--column", "y", "--scale", ".5"]


def commands(command=None, path=()):
    command = command or typer.main.get_command(app)
    yield path, command
    shown = {name: inner for name, inner in getattr(command, "commands", {}).items() if not inner.hidden}
    for name, inner in shown.items():
        yield from commands(inner, (*path, name))


LEAVES = {" ".join(path): command for path, command in commands() if not hasattr(command, "commands")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("manners")
    (path / "s.toml").write_text(SCHEMA)
    rng = np.random.default_rng(0)
    pd.DataFrame({"x": rng.uniform(-1, 1, 300), "y": rng.normal(1, 0.5, 300)}).to_csv(path / "d.csv", index=False)
    (path / "twice.csv").write_text("x,y,x\n1,2,3\n")
    (path / "unnamed.csv").write_text("x,,y\n1,2,3\n")
    release().save(path / "q.pgbb")
    release(None).save(path / "p.pgbb")
    other = release()
    other.payload.tensors["gradient"] += 0.01
    other.save(path / "r.pgbb")
    generator(claim=non_private()).save(path / "n.pgbb")
    newer(path / "q.pgbb", path / "newer.pgbb")
    Ledger(path / "l.db").set("births in the north", n=300, epsilon=1.0, delta=1e-6)
    (path / "taken").write_text("a file, not a folder")
    (path / "empty").mkdir()
    return path


def newer(source, target):
    """The same release, as a later pgbb might write it."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "manifest.json":
                data = json.dumps({**json.loads(data), "format_version": 2}).encode()
            new.writestr(name, data)


@pytest.fixture
def run(folder, monkeypatch, capsys):
    """A command in this process, as `pgbb` runs it: (exit code, output, errors)."""

    def call(*arguments):
        monkeypatch.chdir(folder)
        monkeypatch.setenv("PGBB_NO_CACHE", "1")
        monkeypatch.setattr(sys, "argv", ["pgbb", *map(str, arguments)])
        monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
        with pytest.raises(SystemExit) as stopped:
            main()
        return stopped.value.code or 0, *capsys.readouterr()

    return call


@pytest.mark.parametrize("path, command", [pytest.param(p, c, id=" ".join(p) or "pgbb") for p, c in commands()])
def test_every_help_has_an_example_of_its_own_command(path, command):
    wanted = r"Examples?:\s+pgbb " + r" ".join(path)
    assert re.search(wanted, command.help or ""), f"no example in pgbb {' '.join(path)} --help"


@pytest.mark.parametrize("name", sorted(LEAVES))
def test_every_command_that_prints_results_has_json_with_a_schema(name):
    assert any("--json" in option.opts for option in LEAVES[name].params)
    described = schema(name)
    jsonschema.Draft202012Validator.check_schema(described)
    assert described["$ref"].removeprefix("#/$defs/") in described["$defs"]
    assert f"`{name}`" in (DOCS / "json.md").read_text(encoding="utf-8")


REAL = [
    ("show", ["q.pgbb"]),
    ("show", ["p.pgbb", "--level", ".8"]),
    ("show", ["n.pgbb"]),
    ("verify", ["q.pgbb"]),
    ("wald", ["q.pgbb", "educ@.9=educ@.1", "black@.9=black@.1"]),
    ("wald", ["p.pgbb", "educ=0"]),
    ("predict", ["q.pgbb", "educ=12", "black=0", "--tau", ".1,.9"]),
    ("predict", ["q.pgbb", "educ=12", "black=0", "--kind", "response", "--level", ".8"]),
    ("difference", ["q.pgbb", "r.pgbb"]),
    ("combine", ["q.pgbb", "r.pgbb", "--out", "c.pgbb"]),
    ("sample", ["q.pgbb", "-m", "3"]),
    ("sample", ["p.pgbb", "-m", "3", "--out", "draws.csv"]),
    ("export", ["q.pgbb", "-m", "3", "--format", "parquet"]),
    ("plot", ["p.pgbb", "--out", "p.svg"]),
    ("report", ["q.pgbb", "--out", "q.html"]),
    ("check", ["d.csv", "-s", "s.toml"]),
    ("plan", ["--n", "10000", *BUDGET, "--levels", ".5"]),
    ("plan", ["--n", "10000", *BUDGET, "--family", "mean"]),
    ("plan", ["--n", "1000", *BUDGET, *PGBB]),
    ("fit", ["d.csv", "-s", "s.toml", *MEAN, *BUDGET, "--method", "noisy_gibbs", "--out", "m.pgbb", "--force"]),
    ("compare", ["d.csv", "-s", "s.toml", *MEAN, *BUDGET, "--methods", "noisy_gibbs"]),
    ("ledger set", ["l.db", "other", "--n", "100", *BUDGET, "--change"]),
    ("ledger show", ["l.db"]),
]


@pytest.mark.parametrize("name, arguments", REAL, ids=lambda v: v if isinstance(v, str) else " ".join(v))
def test_real_output_follows_the_schema(name, arguments, run):
    code, output, errors = run(*name.split(), *arguments, "--json")
    assert code in (0, 1), errors
    found = json.loads(output)
    jsonschema.validate(found, schema(name), cls=jsonschema.Draft202012Validator)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**found, "surprise": 1}, schema(name), cls=jsonschema.Draft202012Validator)


def test_init_and_history_follow_the_schema_too(run, folder):
    _, output, errors = run("init", "d.csv", "--out", "new.toml", "--json")
    found = json.loads(output)
    jsonschema.validate(found, schema("init"), cls=jsonschema.Draft202012Validator)
    assert found["columns"] == ["x", "y"] and found["bytes"] == (folder / "new.toml").stat().st_size
    paid = ["--ledger", "l.db", "--dataset", "births in the north", "--quiet"]
    code, output, errors = run(
        "fit",
        "d.csv",
        "-s",
        "s.toml",
        *MEAN,
        "-e",
        ".5",
        "-d",
        "1e-6",
        "--method",
        "noisy_gibbs",
        "-o",
        "h.pgbb",
        *paid,
    )
    assert (code, output) == (0, ""), errors
    _, output, _ = run("ledger", "history", "l.db", "--json")
    found = json.loads(output)
    jsonschema.validate(found, schema("ledger history"), cls=jsonschema.Draft202012Validator)
    assert [e["state"] for e in found["entries"]] == ["settled"]
    for name in ("history", "show"):
        table_fits(run("ledger", name, "l.db")[1])


def table_fits(text):
    rows = [line for line in text.splitlines() if len(re.findall(r"\S {2,}(?=\S)", line)) >= 2]
    assert rows and max(map(len, rows)) <= 80, max(rows, key=len, default="no table")


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "q.pgbb"],
        ["verify", "q.pgbb"],
        ["check", "d.csv", "-s", "s.toml"],
        ["plan", "--n", "10000", *BUDGET],
        ["plan", "--n", "1000", *BUDGET, *PGBB],
        ["compare", "d.csv", "-s", "s.toml", *MEAN, *BUDGET, "--methods", "noisy_gibbs"],
    ],
    ids=" ".join,
)
def test_tables_fit_eighty_columns(arguments, run):
    code, output, errors = run(*arguments)
    assert code == 0, errors
    if arguments[0] != "verify":
        table_fits(output)
    assert max(map(len, output.splitlines())) <= 400


def test_no_color_takes_the_colours_away(run, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    colour = re.compile(r"\x1b\[[0-9;]*3[0-7]")
    assert colour.search(run("show", "n.pgbb")[1])
    monkeypatch.setenv("NO_COLOR", "1")
    _, output, _ = run("show", "n.pgbb")
    assert "NOT PRIVATE" in output and not colour.search(output)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_has_the_time_left_on_a_terminal_and_is_silent_elsewhere(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    for stream, shown in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        with progress_bar("training") as progress:
            progress(3, 10)
        text = stream.getvalue()
        assert ("3/10" in text and "left" in text) == shown and (shown or text == "")


MISTAKES = [
    (["nonsense"], "No such command"),
    (["show"], "Missing argument"),
    (["show", "q.pgbb", "--level", "much"], "valid number"),
    (["show", "absent.pgbb"], "no such file"),
    (["show", "."], "not a readable release"),
    (["show", "d.csv"], "not a readable release"),
    (["verify", "taken"], "not a readable release"),
    (["sample", "q.pgbb", "-m", "1000000000000000"], "memory"),
    (["sample", "q.pgbb", "--out", "taken/draws.csv"], "cannot be written"),
    (["sample", "q.pgbb", "--seed", "-1"], "seed"),
    (["plot", "q.pgbb", "--out", "taken/p.png"], "folder"),
    (["check", "d.csv", "-s", "absent.toml"], "cannot be read"),
    (["check", "d.csv", "-s", "."], "cannot be read"),
    (["check", "empty", "-s", "s.toml"], "holds no .parquet file"),
    (["fit", "absent.csv", "-s", "s.toml", *MEAN, *BUDGET, "-o", "z.pgbb"], "does not exist"),
    (["fit", "d.csv", "-s", "s.toml", *MEAN, "-e", "one", "-d", "1e-6", "-o", "z.pgbb"], "valid number"),
    (["fit", "d.csv", "-s", "s.toml", *MEAN, *BUDGET], "--out"),
    (["demo", "--out", "taken"], "must be a folder"),
    (["ledger", "show", "."], "ledger"),
    (["ledger", "show", "l.db", "deaths"], "deaths"),
    (["report", "q.pgbb", "--out", "q.pdf"], ".html"),
    (["init", "d.csv", "--out", "taken/s.toml"], "cannot be written"),
    # bad input that a release or a header may be
    *[([c, "newer.pgbb", *out], "format version 2") for c, out in (
        ("show", []), ("verify", []), ("sample", []), ("export", []), ("plot", ["--out", "z.png"]), ("report", []),
    )],
    (["fit", "twice.csv", "-s", "s.toml", "-f", "y ~ x", *BUDGET, "-o", "z.pgbb"], "each of these columns once"),
    (["init", "twice.csv", "--out", "z.toml"], "columns 1, 3 with the name of another"),
    (["init", "unnamed.csv", "--out", "z.toml"], "column 2 without a name"),
]  # fmt: skip


@pytest.mark.parametrize("arguments, said", MISTAKES, ids=lambda v: v if isinstance(v, str) else " ".join(v))
def test_a_mistake_gets_words_exit_code_two_and_no_file(arguments, said, run, folder):
    before = sorted(p.name for p in folder.iterdir())
    code, output, errors = run(*arguments)
    assert code == 2 and output == "", (output, errors)
    assert said in " ".join(errors.replace("│", " ").split()) and "Traceback" not in errors
    assert sorted(p.name for p in folder.iterdir()) == before


def test_a_column_that_occurs_twice_fails_the_check(run):
    code, output, _ = run("check", "twice.csv", "-s", "s.toml")
    assert code == 1 and "occurs more than once" in output


def test_exit_codes_are_those_of_the_docs(run, monkeypatch):
    table = re.findall(r"^\| `(\d+)` \|", (DOCS / "json.md").read_text(encoding="utf-8"), re.M)
    assert table == ["0", "1", "2", "70", "130"]
    assert run("verify", "q.pgbb")[0] == 0
    assert run("verify", "n.pgbb")[0] == 1
    assert run("verify", "newer.pgbb")[0] == 2

    def broken(error):
        def load(path):
            raise error

        return load

    monkeypatch.setattr("pgbb.cli.show.load", broken(RuntimeError("an accident")))
    code, _, errors = run("show", "q.pgbb")
    assert code == 70 and "defect of pgbb" in errors and "an accident" in errors
    monkeypatch.setattr("pgbb.cli.show.load", broken(KeyboardInterrupt()))
    assert run("show", "q.pgbb")[0] == 130
    monkeypatch.setattr("pgbb.cli.show.load", broken(OSError(28, "No space left on device", "r.pgbb")))
    code, _, errors = run("show", "q.pgbb")
    assert code == 2 and errors == "error: r.pgbb cannot be read or written: No space left on device.\n"


def test_the_shell_completes_commands_and_options(run, monkeypatch):
    monkeypatch.setenv("_PGBB_COMPLETE", "complete_bash")
    for words, found in (("pgbb sho", "show"), ("pgbb show q.pgbb --le", "--level")):
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
        code, output, _ = run()
        assert code == 0 and found in output.split()


@pytest.mark.slow
def test_a_command_that_is_run_imports_no_other_and_all_of_them_are_gathered_for_help():
    code = "import sys, pgbb.cli; pgbb.cli._gathered({!r}); print([m in sys.modules for m in {!r}])"
    modules = ["pgbb.cli.fit", "pgbb.cli.audit", "jax"]
    assert python(code.format(["fit"], modules)).stdout.split() == ["[True,", "False,", "False]"]
    assert python(code.format(["fit", "audit"], modules)).stdout.split() == ["[True,", "True,", "False]"]
    names = [command.name for command in app.registered_commands] + [app.registered_groups[0].typer_instance.info.name]
    assert sorted(names) == sorted([*cli._MODULES, "study"])


def test_only_a_process_of_its_own_looks_for_garbage_seldom():
    code = (
        "import contextlib, gc, sys\nfrom pgbb.__main__ import main\nsys.argv = ['pgbb', '--version']\n"
        "with contextlib.suppress(SystemExit):\n    main()\nprint(gc.get_threshold()[0])"
    )
    assert python(code, check=True).stdout.split()[-1] == "20000"
    before = gc.get_threshold()
    assert pgbb_here("--version").returncode == 0 and gc.get_threshold() == before
    assert before[0] != 20_000


def test_a_query_of_duckdb_leaves_no_words_of_objects(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(tmp_path / "d.duckdb")) as held:
        held.execute("create table t as select range / 100.0 - 1 as x, range / 20.0 - 5 as y from range(200)")
    (tmp_path / "s.toml").write_text(SCHEMA)
    told = ["--sql", "SELECT x, y FROM t", "--schema", tmp_path / "s.toml"]
    done = pgbb_command("check", tmp_path / "d.duckdb", *told, check=True)
    assert done.stderr == "" and "y" in done.stdout
