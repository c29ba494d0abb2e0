"""The command line. One module per command; this one only gathers them and speaks errors.

Exit codes: 0 done, 1 a check failed, 2 a mistake in the call.
"""

import sys
import warnings

import typer
from rich.console import Console

from pgbb.cli.check import check_command
from pgbb.cli.compare import compare_command
from pgbb.cli.demo import demo_command
from pgbb.cli.fit import fit_command
from pgbb.cli.init import init_command
from pgbb.cli.ledger import ledger_app
from pgbb.cli.plan import plan_command
from pgbb.cli.plot import plot_command
from pgbb.cli.report import report_command
from pgbb.cli.show import export_command, sample_command, show_command, verify_command
from pgbb.cli.study import study_app
from pgbb.errors import PgbbError, PgbbWarning

app = typer.Typer(
    name="pgbb",
    help="Private posteriors: fit once under a declared (ε, δ), then draw for ever.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
app.command("demo")(demo_command)
app.command("init")(init_command)
app.command("check")(check_command)
app.command("plan")(plan_command)
app.command("fit")(fit_command)
app.command("compare")(compare_command)
app.command("show")(show_command)
app.command("sample")(sample_command)
app.command("export")(export_command)
app.command("plot")(plot_command)
app.command("report")(report_command)
app.command("verify")(verify_command)
app.add_typer(ledger_app)
app.add_typer(study_app)


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
