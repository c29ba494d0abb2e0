"""How a command is run: its warnings and errors as sentences on the error stream, its exit codes."""

import sys
import traceback
import warnings

import typer
from rich.console import Console

from pgbb.cli.cache import keep_compiled_code
from pgbb.errors import InvalidValue, PgbbError, PgbbNote, PgbbWarning


def run(command: typer.Typer, name: str) -> None:
    """Run a command under this name, and turn a mistake into one paragraph and exit code 2."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)

    def show(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        name = "warning" if issubclass(category, PgbbWarning) else category.__name__
        name = "note" if issubclass(category, PgbbNote) else name
        console.print(f"{name}: {message}", markup=False)

    warnings.showwarning = show
    keep_compiled_code()
    try:
        command(prog_name=name)
    except PgbbError as error:
        _stop(console, str(error))
    except OSError as error:  # a full disk, a folder without permission
        _stop(console, f"{error.filename or 'a file'} cannot be read or written: {error.strerror}.")
    except MemoryError:
        _stop(console, "the memory does not suffice: ask for fewer draws or levels, or for a smaller model.")
    except Exception:
        traceback.print_exc()
        console.print(
            "This is a defect of pgbb, not a mistake of yours. Report it with the lines above, once you have made sure "
            "that they quote no record.",
            markup=False,
        )
        sys.exit(70)


def study_command() -> None:
    """Say where the studies are: not in the package."""
    raise InvalidValue("pgbb has no command study: run `python -m reproduction` in a clone of the repository of pgbb.")


def _stop(console: Console, message: str) -> None:
    console.print(f"error: {message}", markup=False)
    sys.exit(2)
