"""The command line. One module per command; this one only gathers them, entry.py runs them and speaks errors.

Exit codes, which scripts may rely on: 0 done; 1 a check failed (`verify`, `check`, `audit`); 2 a mistake in the call
or its files, or a budget that does not allow it; 70 a defect of pgbb; 130 interrupted. docs/json.md explains them.
"""

from typing import Annotated

import typer

import pgbb
from pgbb.cli.answers import combine_command, difference_command, predict_command, wald_command
from pgbb.cli.audit import audit_command
from pgbb.cli.check import check_command
from pgbb.cli.compare import compare_command
from pgbb.cli.demo import demo_command
from pgbb.cli.entry import run, study_command
from pgbb.cli.fit import fit_command
from pgbb.cli.init import init_command
from pgbb.cli.ledger import ledger_app
from pgbb.cli.plan import plan_command
from pgbb.cli.report import plot_command, report_command
from pgbb.cli.show import export_command, sample_command, show_command, verify_command

app = typer.Typer(
    name="pgbb",
    help="""Private posteriors: fit once under a declared (ε, δ), then draw for ever.

    Example: pgbb demo --out demo-output
    """,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
for _command in (
    demo_command, init_command, check_command, plan_command, fit_command, compare_command, show_command, wald_command,
    predict_command, difference_command, combine_command, sample_command, export_command, plot_command, report_command,
    verify_command, audit_command,
):  # fmt: skip
    app.command(_command.__name__.removesuffix("_command"))(_command)
app.add_typer(ledger_app)


_ANYTHING = {"ignore_unknown_options": True, "allow_extra_args": True}
app.command("study", hidden=True, context_settings=_ANYTHING)(study_command)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"pgbb {pgbb.__version__}")
        raise typer.Exit


@app.callback()
def _every_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version of pgbb and end.")
    ] = False,
) -> None: ...


def main() -> None:
    """Run the command line of pgbb."""
    run(app, "pgbb")
