"""`python -m reproduction`."""

from pgbb.cli import main
from reproduction.command import app

if __name__ == "__main__":
    main(app, "python -m reproduction")
