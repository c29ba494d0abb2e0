import json
import subprocess
import sys

import jsonschema

from pgbb.cli.output import schema


def run(*arguments):
    return subprocess.run([sys.executable, "-m", "pgbb", "study", *arguments], capture_output=True, text=True)


def test_the_list_names_every_study_and_its_label():
    done = run("list")
    assert done.returncode == 0, done.stderr
    for part in ("budget", "tab:K-comparison", "natality", "PGBB_DATA", "ablation"):
        assert part in done.stdout


def test_a_study_runs_and_is_reported(tmp_path):
    done = run("run", "comparison", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "comparison" / "methods.parquet").is_file()
    done = run("report", "--out", str(tmp_path), "--summary", str(tmp_path / "short.md"))
    assert done.returncode == 0, done.stderr
    assert "| comparison | `tab:method-comparison` |" in (tmp_path / "short.md").read_text(encoding="utf-8")
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert text.strip() in done.stdout and "tab:method-comparison" in text and "No results: budget" in text
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    done = run("report", "--out", str(tmp_path), "--no-html", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    jsonschema.validate(found, schema("study report"), cls=jsonschema.Draft202012Validator)
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
