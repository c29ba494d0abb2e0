"""The command line in a process of its own: `python -m pgbb`, and the script `pgbb`."""

import atexit
import gc
import os
import sys

_OBJECTS = 20_000  # made until Python looks for those that nobody holds; 700 by default


def main() -> None:
    """Run the command line of pgbb.

    A start makes many objects that stay. To look through them again and again takes a third of the processor time of a
    small fit (`benchmarks/start.py`), and finds nothing; at the end the process gives all of them back anyway. A fit
    has small matrices: threads of the library for them would wait for work, and take a sixth of that time.
    """
    if sys.argv[1:2] == ["fit"]:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(_OBJECTS)
    atexit.register(_leave)
    from pgbb.cli import main as run

    run()


def _leave() -> None:
    """Let nothing be looked through at the end, unless DuckDB is there: it would write that objects were left."""
    if "duckdb" not in sys.modules:
        gc.freeze()


if __name__ == "__main__":
    main()
