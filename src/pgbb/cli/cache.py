"""Compiled code kept between runs of the command line, so that the second fit of a shape need not compile.

What is kept is code, never records: those are arguments of the compiled functions, not constants in them
(tests/cli/test_cache.py: other records of the same shape add nothing). Names and sizes of what is kept follow
from public settings: n, the number of terms, the declared bounds.
"""

import os
import platform
from pathlib import Path


def keep_compiled_code() -> None:
    """Tell JAX, before it is imported, to keep compiled code in the user's cache folder.

    The folder is $XDG_CACHE_HOME/pgbb/jax, by default ~/.cache/pgbb/jax, with one folder per machine, since code is
    compiled for its processor. PGBB_NO_CACHE=1 keeps nothing; JAX_COMPILATION_CACHE_DIR, if set, is left as it is.
    """
    if os.environ.get("PGBB_NO_CACHE", "0") not in ("", "0") or "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    folder = _folder()
    if folder is not None:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")  # many compilations, all of them short
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")


def _folder() -> Path | None:
    """The folder, made for this user alone; None if others could write to it, because the code in it is run."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    try:
        base = Path(given) if Path(given).is_absolute() else Path.home() / ".cache"
        folder = base / "pgbb" / "jax" / (platform.node() or "here")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = folder.stat()
    except (OSError, RuntimeError):  # no home, a full disk, a folder without permission
        return None
    if hasattr(os, "getuid") and (state.st_uid != os.getuid() or state.st_mode & 0o022):
        return None
    return folder
