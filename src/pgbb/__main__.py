"""`python -m pgbb` is the command line."""

from pgbb.cli import main

if __name__ == "__main__":
    main()
