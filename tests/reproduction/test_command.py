import json
import sys
from pathlib import Path

import jsonschema
import pytest

from pgbb.cli import entry
from reproduction.command import app
from reproduction.registry import every
from tests import helpers
from tests.helpers import command_here, pgbb_here

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "reproduction" / "output.schema.json").read_text(encoding="utf-8"))


def run(*arguments):
    return command_here(lambda: entry.run(app, "python -m reproduction"), *arguments, cwd=ROOT)


def follows(found, command):
    """The object has what the schema of the command says, and nothing else."""
    described = {**SCHEMA, "$ref": f"#/$defs/{command}"}
    jsonschema.validate(found, described, cls=jsonschema.Draft202012Validator)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**found, "surprise": 1}, described, cls=jsonschema.Draft202012Validator)


def test_the_list_names_every_study_and_its_label():
    done = helpers.run(sys.executable, "-m", "reproduction", "list", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    for part in ("budget", "Table S6", "natality", "PGBB_DATA", "ablation"):
        assert part in done.stdout
    follows(json.loads(run("list", "--json").stdout), "list")


def test_a_study_runs_and_is_reported(tmp_path):
    done = run("run", "comparison", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "comparison" / "methods.parquet").is_file()
    done = run("report", "--out", str(tmp_path), "--summary", str(tmp_path / "short.md"))
    assert done.returncode == 0, done.stderr
    assert "| comparison | Table S1 |" in (tmp_path / "short.md").read_text(encoding="utf-8")
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert text.strip() in done.stdout and "Table S1" in text and "No results: budget" in text
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    done = run("report", "--out", str(tmp_path), "--no-html", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    follows(found, "report")
    assert [s["study"] for s in found["studies"]] == ["comparison"] and found["studies"][0]["lines"]
    assert found["files"] == [str(tmp_path / "report.md")]


def test_mistakes_get_one_paragraph(tmp_path):
    for arguments, part in (
        (("run", "nothing"), "'linear'"),
        (("run", "budget", "--cells", "none"), "--cells"),
        (("run", "budget", "--replicates", "0"), "--replicates"),
        (("run", "budget", "--device", "tpu"), "--device"),
        (("report",), "holds no results"),
    ):
        done = run(*arguments, "--out", str(tmp_path))
        assert done.returncode == 2 and done.stderr.startswith("error: ") and part in done.stderr, done.stderr
        assert "Traceback" not in done.stderr


def test_the_command_line_of_pgbb_says_where_the_studies_are():
    done = pgbb_here("study", "list")
    assert (done.returncode, done.stdout) == (2, "") and "python -m reproduction" in done.stderr


def test_without_pgbb_the_command_says_what_to_install(tmp_path):
    """-I leaves out the environment and -S the site packages: a clone and a Python, nothing else."""
    code = (
        f"import runpy, sys; sys.path.insert(0, {str(ROOT)!r}); runpy.run_module('reproduction', run_name='__main__')"
    )
    done = helpers.run(sys.executable, "-I", "-S", "-c", code, cwd=tmp_path)
    assert done.returncode == 1 and "make install" in done.stderr and "Traceback" not in done.stderr


def test_the_readme_of_the_folder_names_every_study_with_its_tables():
    text = (ROOT / "reproduction" / "README.md").read_text(encoding="utf-8")
    for study in every():
        labels = ", ".join(study.labels) or "ours"
        assert f"| `studies/{study.name}.py` | {labels} | {study.title} |" in text
