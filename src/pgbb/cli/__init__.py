"""The command line. One module per command; this one only gathers them and speaks errors.

Exit codes: 0 done, 1 a check failed, 2 a mistake in the call.
"""

import sys
import warnings

import typer
from rich.console import Console

from pgbb.cli.plan import plan_command
from pgbb.errors import PgbbError, PgbbWarning

app = typer.Typer(
    name="pgbb",
    help="Private posteriors: fit once under a declared (ε, δ), then draw for ever.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
app.command("plan")(plan_command)


@app.callback()
def _root() -> None:
    """Keep `plan` a subcommand while it is the only one."""


def main() -> None:
    """Entry point: run a command, and turn pgbb's own errors into one paragraph and exit code 2."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)

    def show(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        name = "warning" if issubclass(category, PgbbWarning) else category.__name__
        console.print(f"{name}: {message}", markup=False)

    warnings.showwarning = show
    try:
        app()
    except PgbbError as error:
        console.print(f"error: {error}", markup=False)
        sys.exit(2)
