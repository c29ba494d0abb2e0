"""`python -m reproduction`."""

from pgbb.cli.entry import run
from reproduction.command import app

if __name__ == "__main__":
    run(app, "python -m reproduction")
