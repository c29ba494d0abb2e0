"""The version has one home, `pgbb.__version__`; what is installed and what the command says agree with it."""

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

import pgbb
from pgbb.cli import app

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

pytestmark = pytest.mark.quick


def test_the_version_is_written_once():
    assert PROJECT["project"]["dynamic"] == ["version"] and "version" not in PROJECT["project"]
    home = ROOT / PROJECT["tool"]["hatch"]["version"]["path"]
    assert re.findall(r'^__version__ = "(.+)"$', home.read_text(encoding="utf-8"), re.M) == [pgbb.__version__]


def test_the_command_and_the_installed_package_agree():
    done = CliRunner().invoke(app, ["--version"])
    assert done.exit_code == 0 and done.stdout == f"pgbb {pgbb.__version__}\n"
    assert version("pgbb") == pgbb.__version__


def test_the_conda_recipe_needs_what_the_package_needs():
    recipe = (ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    run = re.search(r"  run:\n(.*?)\n\n", recipe, re.S)[1].replace("matplotlib-base", "matplotlib")
    listed = {line.strip("- ").replace(" ", "") for line in run.splitlines()} - {"python>=3.11"}
    assert listed == {line.partition("#")[0].strip() for line in PROJECT["project"]["dependencies"]}


def test_the_package_says_that_it_is_typed_and_is():
    assert "Typing :: Typed" in PROJECT["project"]["classifiers"] and (ROOT / "src" / "pgbb" / "py.typed").is_file()


def test_both_ways_of_installing_jax_have_the_same_bounds():
    plain = next(line for line in PROJECT["project"]["dependencies"] if line.startswith("jax"))
    (cuda,) = PROJECT["project"]["optional-dependencies"]["cuda"]
    assert cuda.replace("[cuda12]", "") == plain and "<" in plain
