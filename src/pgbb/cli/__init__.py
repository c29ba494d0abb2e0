"""The command line. One module per command; this one only gathers them, entry.py runs them and speaks errors.
A command that is run imports its own module and no other: `pgbb fit` begins without what `pgbb audit` needs.

Exit codes, which scripts may rely on: 0 done; 1 a check failed (`verify`, `check`, `audit`); 2 a mistake in the call
or its files, or a budget that does not allow it; 70 a defect of pgbb; 130 interrupted. docs/json.md explains them.
"""

import sys
from collections.abc import Iterable
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

import typer

import pgbb
from pgbb.cli.entry import run, study_command

if TYPE_CHECKING:
    app: typer.Typer

_MODULES = {
    "demo": "demo", "init": "init", "check": "check", "plan": "plan", "fit": "fit", "compare": "compare",
    "show": "show", "wald": "answers", "predict": "answers", "difference": "answers", "combine": "answers",
    "sample": "show", "export": "show", "plot": "report", "report": "report", "verify": "show", "audit": "audit",
    "ledger": "ledger",
}  # fmt: skip
"""Commands in the order of the help, and their modules."""
_ANYTHING = {"ignore_unknown_options": True, "allow_extra_args": True}


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"pgbb {pgbb.__version__}")
        raise typer.Exit


def _every_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version of pgbb and end.")
    ] = False,
) -> None: ...


def _gathered(names: Iterable[str]) -> typer.Typer:
    """The command line with these commands."""
    made = typer.Typer(
        name="pgbb",
        help="""Private posteriors: fit once under a declared (ε, δ), then draw for ever.

        Example: pgbb demo --out demo-output
        """,
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
    )
    made.callback()(_every_command)
    for name in names:
        module = import_module(f"pgbb.cli.{_MODULES[name]}")
        if name == "ledger":
            made.add_typer(module.ledger_app)
        else:
            made.command(name)(getattr(module, f"{name}_command"))
    made.command("study", hidden=True, context_settings=_ANYTHING)(study_command)
    return made


@lru_cache(maxsize=1)
def _whole() -> typer.Typer:
    return _gathered(_MODULES)


def __getattr__(name: str) -> typer.Typer:
    """`app`, with all commands."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _whole()


def main() -> None:
    """Run the command line of pgbb."""
    first = sys.argv[1:2]
    needed = [name for name in first if name in _MODULES]
    run(_gathered(needed) if needed or first == ["--version"] else _whole(), "pgbb")
