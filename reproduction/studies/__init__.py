"""One module an experiment, named as in `python -m reproduction run NAME`; ../README.md has the table of each."""
