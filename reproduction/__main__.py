"""`python -m reproduction`."""

import sys

try:
    from pgbb.cli.entry import run
except ModuleNotFoundError as error:
    sys.exit(
        f"error: {error.name} is not installed for {sys.executable}: run `make install` in the repository, then "
        "`.venv/bin/python -m reproduction` there."
    )

from reproduction.command import app

if __name__ == "__main__":
    run(app, "python -m reproduction")
