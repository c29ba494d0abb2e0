"""Every check of what a test leaves behind has a twin that leaves it; the shuffled order is one for all workers."""

import contextvars
import itertools
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import warnings
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest

import pgbb.release.certificate
from conftest import pytest_collection_modifyitems
from tests import state
from tests.helpers import forget_programs, jax_options, run

OPTION = "jax_disable_most_optimizations"
VARIABLE = contextvars.ContextVar("of_a_test")
VARIABLE.set("as before")


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    monkeypatch.setattr(state, "_PATIENCE", 0.3)


def option_kept():
    jax.config.update(OPTION, True)
    return partial(jax.config.update, OPTION, False)


def program_kept():
    jax.config.update(OPTION, True)
    jax.config.update(OPTION, False)
    return jax.clear_caches


def variable_kept():
    os.environ["PGBB_OF_A_TEST"] = "1"
    return partial(os.environ.pop, "PGBB_OF_A_TEST")


def folder_kept():
    here = os.getcwd()
    os.chdir("/")
    return partial(os.chdir, here)


def path_kept():
    sys.path.append("/nowhere")
    return sys.path.pop


def handler_kept():
    return partial(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, signal.SIG_IGN))


def filter_kept():
    before = list(warnings.filters)
    warnings.simplefilter("ignore", UserWarning)

    def undo():
        warnings.filters[:] = before

    return undo


def seed_kept():
    before = random.getstate()
    random.seed(1)
    return partial(random.setstate, before)


def numpy_seed_kept():
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(1)  # noqa: NPY002
    return partial(np.random.set_state, before)


def thread_kept():
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()

    def undo():
        end.set()
        thread.join()

    return undo


def child_kept():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    return child.communicate


def ledger_kept():
    return (Path(os.environ["PGBB_TEST_FOLDER"]) / "ledger.db").open("w").close


def socket_kept():
    return socket.socket().close


def context_kept():
    before = VARIABLE.get()
    VARIABLE.set("other")
    return partial(VARIABLE.set, before)


def figure_kept():
    return partial(plt.close, plt.figure())


def name_kept():
    before = pgbb.release.certificate.Certificate
    pgbb.release.certificate.Certificate = None
    return partial(setattr, pgbb.release.certificate, "Certificate", before)


def file_kept():
    path = state.ROOT / "left-behind.db"
    path.touch()
    return path.unlink


def deep_file_kept():
    path = state.ROOT / "tests" / "left-behind.db"
    path.touch()
    return path.unlink


LEAKS = {
    state.jax_options: [option_kept],
    state.programs: [program_kept],
    state.environment: [variable_kept],
    state.process: [folder_kept, path_kept, handler_kept],
    state.warning_filters: [filter_kept],
    state.random_state: [seed_kept, numpy_seed_kept],
    state.threads: [thread_kept],
    state.children: [child_kept],
    state.open_files: [ledger_kept, socket_kept],
    state.context_variables: [context_kept],
    state.figures: [figure_kept],
    state.names_of_pgbb: [name_kept],
    state.top_of_the_repository: [file_kept],
    state.files_of_the_repository: [deep_file_kept],
}


@pytest.mark.parametrize(
    "part, leak", [pytest.param(part, leak, id=leak.__name__) for part, leaks in LEAKS.items() for leak in leaks]
)
def test_what_is_left_behind_is_named_and_what_is_put_back_is_not(part, leak, tmp_path, monkeypatch):
    monkeypatch.setenv("PGBB_TEST_FOLDER", str(tmp_path))
    if part in (state.top_of_the_repository, state.files_of_the_repository):  # another worker looks at the real one
        (tmp_path / "tests").mkdir()
        monkeypatch.setattr(state, "ROOT", tmp_path)
    before = state.taken([part])
    assert state.differences(before) == []
    undo = leak()
    try:
        found = state.differences(before)
    finally:
        undo()
    assert found and all(line.startswith(f"{part.__name__}: ") for line in found)
    assert state.differences(before) == []
    if part is state.jax_options:
        forget_programs()


def test_every_part_has_a_twin():
    assert set(LEAKS) == {*state.EACH_TEST, *state.EACH_FILE}


def test_a_program_compiled_under_other_options_is_forgotten_with_them():
    """JAX itself keeps it: without the helper a traced function is not traced again."""
    traced = []

    @jax.jit
    def double(x):
        traced.append(jax.config.values[OPTION])
        return x + x

    with jax_options(**{OPTION: True}):
        double(jnp.ones(3))
    jax.config.update(OPTION, True)
    double(jnp.ones(3))
    jax.config.update(OPTION, False)
    double(jnp.ones(3))
    assert traced == [True, True]
    forget_programs()
    double(jnp.ones(3))
    assert traced == [True, True, False]


LEAKS_A_VARIABLE = """
import os

def test_leaks():
    os.environ["LEFT"] = "1"

def test_is_clean():
    pass
"""
LEAVES_ITS_FOLDER = """
import os, pytest

@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory):
    os.chdir(tmp_path_factory.mktemp("x"))

def test_one():
    pass

def test_two():
    pass
"""


def test_a_test_and_a_file_that_leave_something_behind_fail(tmp_path):
    (tmp_path / "test_a.py").write_text(LEAKS_A_VARIABLE, encoding="utf-8")
    (tmp_path / "test_b.py").write_text(LEAVES_ITS_FOLDER, encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(state.ROOT), *filter(None, sys.path)])}
    # No summary (-rN): on a build server pytest repeats whole messages there, elsewhere their beginnings.
    call = [sys.executable, "-m", "pytest", "-rN", "-p", "conftest", "-p", "no:cacheprovider", "--rootdir", tmp_path]
    out = run(*call, cwd=tmp_path, env=env).stdout
    assert "4 passed, 3 errors" in out  # the variable is missed after its test and after its file
    assert out.count("environment: LEFT is new: '1'") == 2 and out.count("process: working directory was") == 1


def shuffled(seed):
    items = [SimpleNamespace(path=f"{file}.py", name=f"{file}{i}") for file in "abcdef" for i in range(6)]
    pytest_collection_modifyitems(SimpleNamespace(getoption=lambda _: seed), items)
    return [item.name for item in items]


def test_a_seed_is_one_order_and_files_stay_together():
    plain = shuffled(None)
    assert plain == sorted(plain) != shuffled(1) == shuffled(1) != shuffled(2)
    assert sorted(shuffled(1)) == plain
    files = [name[0] for name in shuffled(1)]
    assert sum(a != b for a, b in itertools.pairwise(files)) == 5 and files != sorted(files)


def test_a_program_that_is_kept_is_not_taken_for_one_under_other_options():
    folder = Path(os.environ["JAX_COMPILATION_CACHE_DIR"])

    def kept_by_this_test(x):
        return jnp.sin(x) @ jnp.cos(x)

    def kept():
        forget_programs()  # of this process: what is in the folder stays
        jax.jit(kept_by_this_test)(np.arange(8.0))
        return len(list(folder.glob("jit_kept_by_this_test-*-cache")))

    assert kept() == 1
    with jax_options(**{OPTION: True}):
        assert kept() == 2
    assert kept() == 2  # the first one again
