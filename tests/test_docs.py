"""The documentation against the tree: commands exist, blocks are of a kind that is run, links lead somewhere."""

import importlib.util
import itertools
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import markdown
import pytest
import typer

from pgbb.cli import app
from pgbb.release.posterior import ADVICE

pytestmark = pytest.mark.quick

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem + "_of_docs", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    before = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = before  # a tool puts its own folder there, to import its neighbours
    return module


run = load(DOCS / "tools" / "run.py")
RUN_PAGES = sorted([*(DOCS / "tutorial").glob("*.md"), *(DOCS / "howto").glob("*.md"), DOCS / "blocks.md"])
PAGES = sorted([ROOT / "README.md", *DOCS.rglob("*.md")])
LINK = re.compile(r"(?<!`)!?\[[^\]]*\]\(([^)\s]+)\)")
MADE_BY_BUILD = {"reference/cli.md"}


def commands_of(text):
    """Every `pgbb …` in a console block, as a list of arguments; pipes and what follows them are left out."""
    for body in re.findall(r"^```console[^\n]*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for line in re.sub(r"\\\n> ", " ", body).splitlines():
            if not line.startswith("$ "):
                continue
            words = shlex.shlex(line[2:].replace("…", ""), posix=True, punctuation_chars=";&|")
            words.whitespace_split = True
            for apart, part in itertools.groupby(words, lambda word: set(word) <= set(";&|")):
                name, *arguments = part
                if not apart and name.rpartition("/")[2] == "pgbb":
                    yield arguments


def parse(arguments):
    """Let the command line read the arguments, and do nothing."""
    command, name = typer.main.get_command(app), "pgbb"
    while hasattr(command, "commands"):
        name, *arguments = arguments
        command = command.commands[name]
    command.make_context(name, list(arguments))


def slug(heading):
    """The anchor that Python-Markdown gives a heading."""
    text = re.sub(r"[^\w\s-]", "", re.sub(r"[`*]", "", heading).strip().lower(), flags=re.ASCII)
    return re.sub(r"[-\s]+", "-", text).strip("-")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_command_of_a_page_is_one_that_the_command_line_accepts(page):
    for arguments in commands_of(page.read_text(encoding="utf-8")):
        if page.name == "README.md" and arguments[:1] == ["fit"] and "--schema" not in arguments:
            continue  # an excerpt
        parse(arguments)


def test_a_command_that_does_not_exist_is_noticed():
    with pytest.raises(KeyError):
        parse(["fitt", "d.csv"])
    with pytest.raises(Exception, match="no-such-option"):
        parse(["show", "f.pgbb", "--no-such-option"])


@pytest.mark.parametrize("page", RUN_PAGES, ids=lambda p: p.stem)
def test_every_block_of_a_page_is_run_by_the_build(page):
    blocks = run.read(page.read_text(encoding="utf-8")).blocks
    assert blocks
    for block in blocks:
        if block.language == "console":
            assert block.commands
        elif block.language == "python":
            compile(block.body, page.name, "exec")


def test_a_block_that_nobody_runs_is_refused():
    with pytest.raises(run.BlockError, match="neither run"):
        run.read("```text\nno\n```\n")


def test_a_failing_command_and_a_failing_line_of_python_end_the_run(tmp_path):
    with pytest.raises(run.BlockError, match="ended with 3"):
        run.run("```console\n$ exit 3\n```\n", tmp_path)
    with pytest.raises(run.BlockError, match="ZeroDivisionError"):
        run.run("```python\n1 / 0\n```\n", tmp_path)
    page = run.run("```python\nx = 2\nx + 1\n```\n\n```console exit=1\n$ echo no; false\n```\n", tmp_path)
    assert [block.outputs for block in page.blocks] == [("3\n",), ("no\n",)]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_internal_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    kept = {name for block in run.read(text).blocks for name in block.keep} if page in RUN_PAGES else set()
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    for target in LINK.findall(prose):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if path in kept or (file.is_relative_to(DOCS) and str(file.relative_to(DOCS)) in MADE_BY_BUILD):
            continue
        if file == DOCS / "tutorial" / "schooling.html":  # made by the tutorial
            continue
        assert file.exists(), f"{target} does not exist"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {slug(h) for h in headings}, f"{target}: there is no such heading"


def test_the_newcomers_commands_are_those_of_readme_and_docs():
    newcomer = load(ROOT / "benchmarks" / "newcomer.py")
    for page in (ROOT / "README.md", DOCS / "first-page.md"):
        text = page.read_text(encoding="utf-8")
        for command in newcomer.COMMANDS:
            assert f"$ {command}" in text, f"{page.name} lacks {command}"


def test_the_page_of_benchmarks_is_printed_from_what_was_measured():
    bench = load(ROOT / "benchmarks" / "bench.py")
    stored = (json.loads(path.read_text(encoding="utf-8")) for path in (bench.OUT / "measured.json", bench.COSTS))
    measured, costs = stored
    shown, there = bench.text(measured, costs), (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    assert shown.split("|")[:40] == there.split("|")[:40] and shown.count("| pgbb, a step |") == 3


def test_following_a_page_overlooks_figures_that_vary_and_nothing_else():
    follow = load(DOCS / "tools" / "follow.py")
    assert follow.shape("educ  4.75,-0.09  2,000") == follow.shape("educ 12.3,0.1 30")
    assert follow.shape("educ 4.75") != follow.shape("exper 4.75")
    page = '<div class="language-console varies highlight"><pre><code>$ echo 1\n1\n</code></pre></div>'
    assert follow.printed(page) == [("$ echo 1\n1\n", True)]
    assert follow.source(page) == "```console\n$ echo 1\n```"


FITTED = """\
tau  coefficient       mean        sd  0.95 lower      upper  sampling   privacy
0.1  Intercept          4.8    0.0821       4.641      4.957    0.0556    0.0577
     exper        -0.001831   0.00101   -0.003797  0.0001652  0.000672  0.000707

note: Records whose covariates are far out are weighted down: where the linear
model is wrong, this moves its target. Here at most 9.9% of the records are
clearly weighted down.
"""
HIDDEN = """\
tau  coefficient       mean        sd  0.95 lower      upper  sampling   privacy
0.1  Intercept *      5.897        12         -12         24         –         –
     exper *      -1.48e-05     0.182        -0.2        0.2         –         –
* not identified at this ε: the interval says little more than was known before

note: not identified at this ε: Intercept at tau = 0.1; exper at tau = 0.1. The
noise hides them, and their intervals say little more than was known before. More
records, a larger ε, narrower declared ranges or a smaller model would help.

note: the smallest curvature is only 2.9 times its noise: the width of the
intervals is uncertain.

note: 6% of the draws of educ at 0.9 lie at the edge of the parameter box: the
box binds, or the fit did not settle.

note: adjacent quantiles cross at the centre in up to 49% of the draws.

note: Records whose covariates are far out are weighted down: where the linear
model is wrong, this moves its target. Here 10.1% of the records are clearly
weighted down (± 1.3%).
"""


def test_following_a_page_takes_marks_and_notes_of_the_noise_as_they_come():
    follow = load(DOCS / "tools" / "follow.py")
    assert ADVICE in " ".join(HIDDEN.split())
    assert follow.differences(FITTED, HIDDEN, varies=True) == []
    assert follow.differences(HIDDEN, FITTED, varies=True) == []
    assert follow.differences(FITTED, FITTED, varies=False) == []
    assert follow.differences(FITTED, HIDDEN, varies=False)


@pytest.mark.parametrize(("old", "new"), [
    ("exper  ", "educ   "), ("  sampling", ""), ("   privacy", ""), ("    0.0577", ""), ("0.95 lower", "0.95 upper"),
    ("at most", "at least"), ("weighted down.\n", "weighted down.\nnote: the box binds.\n"),
    ("note: Records", "warning: Records"), ("weighted down:", "dropped:"),
])  # fmt: skip
def test_following_a_page_notices_what_is_no_work_of_the_noise(old, new):
    follow = load(DOCS / "tools" / "follow.py")
    assert old in FITTED
    changed = FITTED.replace(old, new)
    for other in (FITTED, HIDDEN):
        assert follow.differences(changed, other, varies=True)
        assert follow.differences(other, changed, varies=True)


def test_following_a_page_runs_it_and_fails_where_it_differs(tmp_path, capsys):
    follow = load(DOCS / "tools" / "follow.py")
    block = '<div class="language-console{} highlight"><pre><code>$ echo {}\n{}\n</code></pre></div>'
    page = tmp_path / "page.html"
    for marked, prints, code in (("", "one 1", 0), ("", "one 2", 1), (" varies", "one 2", 0), (" varies", "two 1", 1)):
        page.write_text(block.format(marked, "one 1", prints), encoding="utf-8")
        assert follow.main(str(page)) == code
        assert f"1 blocks followed, {code} differ" in capsys.readouterr().out


MODULE = re.compile(r"`((?:[\w.-]+/)*\w+\.py)`")
PLACES = (ROOT, ROOT / "src" / "pgbb", ROOT / "reproduction")


def missing_modules(text):
    return [name for name in MODULE.findall(text) if not any((place / name).is_file() for place in PLACES)]


@pytest.mark.parametrize(
    "page",
    sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "reproduction" / "README.md", *DOCS.glob("*.md")]),
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_every_module_that_a_page_names_is_in_the_tree(page):
    assert missing_modules(page.read_text(encoding="utf-8")) == []
    assert missing_modules("`private/nowhere.py`, `cli/fit.py`") == ["private/nowhere.py"]


def test_every_table_that_a_page_includes_is_in_the_tree():
    included = [
        name for page in PAGES for name in re.findall(r'^--8<-- "(.*)"$', page.read_text("utf-8"), re.MULTILINE)
    ]
    assert included and all((ROOT / name).is_file() for name in included)


@pytest.mark.slow
def test_the_ten_lines_of_the_readme_run(tmp_path):
    (code,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code + "print(pgbb.load('wages.pgbb').verify().ok)"],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.stdout.endswith("True\n") and (tmp_path / "wages.png").exists(), done.stderr


def test_screenshots_are_small_images():
    for name in ("wide", "dark", "phone"):
        data = (DOCS / "images" / f"report-{name}.png").read_bytes()
        assert data.startswith(b"\x89PNG") and len(data) < 200_000


mathematics = load(DOCS / "tools" / "mathematics.py")


def test_displays_become_mathml_and_indices_of_running_text_stand_below_the_line():
    found = mathematics.displays("so\n\n$$\n\\sum_i x_i \\le \\frac{1}{2}\n$$\n")
    assert "<math" in found and "<mfrac>" in found and "$$" not in found and "\\" not in found
    prose = "n_S, H_{1/α}, e^{−x} and sup_E, but `a_b`, prob_positive and x_train"
    html = markdown.markdown(prose, extensions=[mathematics.Scripts()])
    assert re.findall("<su[bp]>(.*?)<", html) == ["S", "1/α", "−x", "E"]
    for page in PAGES:
        shown = re.findall(r"<math.*?</math>", mathematics.displays(page.read_text(encoding="utf-8")), re.DOTALL)
        assert not any("\\" in display for display in shown), page


def test_the_runner_of_a_fresh_environment_knows_every_page_with_code():
    fresh = load(DOCS / "tools" / "fresh.py")
    assert {"README.md", "docs/first-page.md", "docs/sklearn.md", "docs/howto/schema.md"} <= set(fresh.pages())
    assert fresh.TEXT.sub("", "a\n```text\nno\n```\nb") == "a\n\nb"
