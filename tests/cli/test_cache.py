"""Compiled code is kept between runs, in a folder of the user's own, and depends on no record."""

import os

import numpy as np
import pandas as pd
import pytest

from pgbb.cli.cache import keep_compiled_code
from tests.helpers import pgbb_command, rest

NAMES = ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS")
NAMES += ("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "PGBB_NO_CACHE")


@pytest.fixture
def home(tmp_path, monkeypatch):
    for name in NAMES:
        monkeypatch.setenv(name, "")  # so that it is put back afterwards
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def chosen():
    keep_compiled_code()
    return os.environ.get("JAX_COMPILATION_CACHE_DIR")


def test_the_folder_is_in_the_users_cache_and_his_alone(home):
    folder = chosen()
    assert folder is not None and folder.startswith(str(home / "pgbb" / "jax"))
    assert os.stat(folder).st_mode & 0o077 == 0


def test_it_can_be_switched_off_and_a_choice_of_jax_stays(home, monkeypatch):
    monkeypatch.setenv("PGBB_NO_CACHE", "1")
    assert chosen() is None and not list(home.iterdir())
    monkeypatch.setenv("PGBB_NO_CACHE", "0")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "elsewhere")
    assert chosen() == "elsewhere" and not list(home.iterdir())


def test_a_folder_that_others_may_write_to_is_not_used(home):
    os.chmod(chosen(), 0o777)
    del os.environ["JAX_COMPILATION_CACHE_DIR"]
    assert chosen() is None


def test_a_folder_that_cannot_be_made_does_no_harm(home):
    (home / "pgbb").write_text("a file")
    assert chosen() is None


@pytest.mark.parametrize("method", rest(["calibrated", "pgbb"], "calibrated"))
def test_other_records_of_the_same_shape_add_nothing_to_what_is_kept(home, method):
    """The name of a kept program is a hash of all that it holds: a record inside it would make another."""
    kept = []
    (home / "s.toml").write_text("[columns]\nx = { range = [-1, 1] }\ny = { range = [-5, 5] }\n")
    for seed in (0, 1):
        rng = np.random.default_rng(seed)
        pd.DataFrame({"x": rng.uniform(-1, 1, 300), "y": rng.normal(size=300)}).to_csv(home / "d.csv", index=False)
        given = ["fit", "d.csv", "-s", "s.toml", "-f", "y ~ x", "--family", "huber", "-e", "1", "-d", "1e-6"]
        given += ["-o", "r.pgbb", "--force", "--quiet", "--method", method]
        given += ["--steps", "20", "--sampling-rate", ".1"] if method == "pgbb" else []
        done = pgbb_command(*given, cwd=home, env=dict(os.environ))
        assert done.returncode == 0, done.stderr
        kept.append({path.name for path in (home / "pgbb").rglob("*-cache")})
    assert kept[0] and kept[1] == kept[0]
