"""What several test files need: sub-processes with one limit, and JAX options for a while. No test lives here."""

import contextlib
import functools
import io
import subprocess
import sys
import warnings

import jax
import pytest
from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

from pgbb.cli import main
from tests.state import patience


def rest(values, *kept):
    """Parameters of a test: those that are kept run with every test, the rest with `make evidence`."""
    return [value if value in kept else pytest.param(value, marks=pytest.mark.evidence) for value in values]


def run(*command, **options):
    """A process and what it printed, as text."""
    given = {"capture_output": True, "text": True, "check": False, "timeout": patience(), **options}
    return subprocess.run([str(word) for word in command], **given)


def python(code, *arguments, **options):
    """Python code in a process of its own."""
    return run(sys.executable, "-c", code, *arguments, **options)


def pgbb_command(*arguments, **options):
    """The command line in a process of its own; where that is not the point, use `pgbb_here`."""
    return run(sys.executable, "-m", "pgbb", *arguments, **options)


def pgbb_here(*arguments, cwd="."):
    """The command line in this process, as `pgbb` runs it, and what it printed: it saves the seconds of a start."""
    return command_here(main, *arguments, cwd=cwd)


def command_here(start, *arguments, cwd="."):
    """A command that this function starts, in this process, and what it printed."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        warnings.catch_warnings(),
        pytest.MonkeyPatch.context() as patch,
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        warnings.simplefilter("default")
        patch.setenv("PGBB_NO_CACHE", "1")
        patch.setattr(sys, "argv", ["pgbb", *map(str, arguments)])
        try:
            start()
        except SystemExit as end:
            code = end.code or 0
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def written_for_a_gpu(function, *given):
    """The program that the compiler for a GPU is given, names of operations included; no GPU need be here."""
    with _known_gpu():
        return jax.jit(function).trace(*given).lower(lowering_platforms=("cuda",)).as_text()


def _known_gpu():
    """JAX 0.11 and later ask which GPU it is."""
    if jax.__version_info__ < (0, 11):
        return contextlib.nullcontext()
    device = AbstractDevice(device_kind="NVIDIA H200", num_cores=132, platform="gpu")
    return use_abstract_mesh(AbstractMesh((), (), abstract_device=device))


def forget_programs():
    """Drop what JAX has compiled and every `lru_cache` of pgbb, whose functions and numbers may come from it."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "pgbb":
            for value in list(vars(module).values()):
                if isinstance(value, functools._lru_cache_wrapper):
                    value.cache_clear()
    jax.clear_caches()


@contextlib.contextmanager
def jax_options(**options):
    """Set JAX options, put them back, and forget all programs: JAX calls them again whatever they were made with."""
    before = {name: jax.config.values[name] for name in options}
    try:
        for name, value in options.items():
            jax.config.update(name, value)
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        forget_programs()
