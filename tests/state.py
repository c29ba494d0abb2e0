"""What a test must leave as it found it, and how a difference is told. No fixture: those are in `conftest.py`.

A part is a function that returns names and values; two snapshots are compared by part and name.
"""

import contextvars
import gc
import os
import random
import signal
import sys
import threading
import time
import warnings
from multiprocessing import resource_tracker
from pathlib import Path

import jax
import numpy as np
import scipy.sparse
import scipy.special  # noqa: F401  both add filters of warnings when they are imported, maybe by a thread, and late

ROOT = Path(__file__).parents[1]
_CACHES = {"__pycache__", ".pytest_cache", ".ruff_cache", ".mypy_cache", ".hypothesis"}
_MADE_BY_TOOLS = {*_CACHES, ".git", ".venv", "build", "dist", "site"}
_SET_BY_LIBRARIES = {
    "PYTEST_CURRENT_TEST",
    "MOSAIC_GPU_CUDA_ROOT",
    "_RJEM_MALLOC_CONF",
    "KMP_DUPLICATE_LIB_OK",
}  # pytest, JAX, polars; once
_PATIENCE = 60.0  # seconds, on an idle machine

_updates = 0  # of JAX options, since programs were last forgotten


def _count(update, clear):
    def counted(*args, **kwargs):
        global _updates
        _updates += 1
        return update(*args, **kwargs)

    def forgotten(*args, **kwargs):
        global _updates
        _updates = 0
        return clear(*args, **kwargs)

    return counted, forgotten


jax.config.update, jax.clear_caches = _count(jax.config.update, jax.clear_caches)


def jax_options():
    return dict(jax.config.values)


def programs():
    """JAX calls a compiled program again whatever the options were when it was compiled."""
    return {"changes of JAX options whose programs are kept (use tests.helpers.jax_options)": _updates}


def environment():
    return {name: value for name, value in os.environ.items() if name not in _SET_BY_LIBRARIES}


def process():
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGPIPE)
    return {
        "working directory": os.getcwd(),
        "sys.path": tuple(sys.path),
        **{number.name: signal.getsignal(number) for number in numbers},
    }


def warning_filters():
    return {"filters": tuple(warnings.filters)}


def random_state():
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002
    return {"random": random.getstate(), "numpy.random": (kind, keys.tobytes(), *rest)}


def threads():
    return {f"{thread.name} ({thread.ident})": True for thread in threading.enumerate()}


def children():
    """Numbers of the processes that this one has started and not waited for; where there is no /proc, none.

    That of Python's own, which tracks shared memory until the end, is not among them.
    """
    found = {}
    for thread in os.listdir("/proc/self/task") if os.path.isdir("/proc/self/task") else ():
        try:
            with open(f"/proc/self/task/{thread}/children", encoding="ascii") as file:
                found |= dict.fromkeys(file.read().split(), True)
        except OSError:  # the thread has ended
            continue
    found.pop(str(resource_tracker._resource_tracker._pid), None)
    return found


def open_files():
    """Files and sockets that are open, but for those of libraries, such as fonts; where there is no /proc, none."""
    found = {}
    libraries = (sys.prefix, os.path.realpath(sys.prefix))  # a virtual environment may be a link
    for number in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
        if target.startswith(("/", "socket:")) and not target.startswith(("/dev/", "/proc/", *libraries)):
            found[target] = True
    return found


def context_variables():
    return {variable.name: value for variable, value in contextvars.copy_context().items()}


def figures():
    pyplot = sys.modules.get("matplotlib.pyplot")
    return dict.fromkeys(pyplot.get_fignums(), True) if pyplot else {}


def names_of_pgbb():
    """What every name of every module of pgbb stands for: a test replaces one by `monkeypatch`, which puts it back."""
    return {
        f"{module}.{name}": Same(value)
        for module, found in list(sys.modules.items())
        if module.partition(".")[0] == "pgbb"
        for name, value in list(vars(found).items())
        if not name.startswith("__")
    }


class Same:
    """Equal if it is the same object."""

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return self.value is other.value

    __hash__ = None

    def __repr__(self):
        return repr(self.value)


def top_of_the_repository():
    return dict.fromkeys(set(os.listdir(ROOT)) - _MADE_BY_TOOLS, True)


def files_of_the_repository():
    """Their names: what is in them may change under the hands of who edits them meanwhile."""
    found = {}
    for path, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in _MADE_BY_TOOLS]
        found |= dict.fromkeys((os.path.relpath(os.path.join(path, name), ROOT) for name in files), True)
    return found


EACH_TEST = (
    jax_options, programs, environment, process, warning_filters, random_state, threads, children, open_files,
    context_variables, figures, top_of_the_repository,
)  # fmt: skip
EACH_FILE = (  # some take milliseconds; others also see the fixtures of a file
    jax_options, programs, environment, process, random_state, context_variables, names_of_pgbb, files_of_the_repository
)  # fmt: skip
_MAY_COME = (names_of_pgbb, context_variables)  # with a module that is imported
_MAY_END = (threads, children, open_files)


def patience(seconds=600.0):
    """Seconds to wait for what should take far less, longer on a busy machine: a limit ends what hangs, no more."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def taken(parts=EACH_TEST):
    return {part: part() for part in parts}


def differences(before):
    """What is not as it was, one sentence each; threads, processes and files may take a moment to end."""
    found = _differences(before)
    end = time.monotonic() + patience(_PATIENCE)
    while found and time.monotonic() < end and _may_pass(before):
        gc.collect()
        time.sleep(0.05)
        found = _differences(before)
    return found and _differences(before)  # a thread may have ended since


def _may_pass(before):
    return any(part in before and part().keys() - before[part].keys() for part in _MAY_END)


def _differences(before):
    found = []
    for part, was in before.items():
        now = part()
        if now == was:
            continue
        for name in sorted(was.keys() | now.keys(), key=str):
            if name not in was:
                if part not in _MAY_COME:
                    found.append(f"{part.__name__}: {name} is new: {_short(now[name])}")
            elif name not in now:
                if part not in _MAY_END:
                    found.append(f"{part.__name__}: {name} is gone; it was {_short(was[name])}")
            elif was[name] != now[name]:
                found.append(f"{part.__name__}: {name} was {_short(was[name])} and is {_short(now[name])}")
    return found


def _short(value):
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:120]} ..."
