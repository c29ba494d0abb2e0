"""The command line. One module per command; this one only gathers them and speaks errors.

Exit codes, which scripts may rely on: 0 done; 1 a check failed (`verify`, `check`, `audit`); 2 a mistake in the call
or its files, or a budget that does not allow it; 70 a defect of pgbb; 130 interrupted. docs/json.md explains them.
"""

import sys
import traceback
import warnings

import typer
from rich.console import Console

from pgbb.cli.audit import audit_command
from pgbb.cli.cache import keep_compiled_code
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
from pgbb.errors import PgbbError, PgbbNote, PgbbWarning

app = typer.Typer(
    name="pgbb",
    help="""Private posteriors: fit once under a declared (ε, δ), then draw for ever.

    Example: pgbb demo --out demo-output
    """,
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
app.command("audit")(audit_command)
app.add_typer(ledger_app)


def main(command: typer.Typer = app, name: str = "pgbb") -> None:
    """Entry point: run a command, and turn a mistake into one paragraph and exit code 2."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)

    def show(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        name = "warning" if issubclass(category, PgbbWarning) else category.__name__
        name = "note" if issubclass(category, PgbbNote) else name
        console.print(f"{name}: {message}", markup=False)

    warnings.showwarning = show
    keep_compiled_code()
    if command is app and sys.argv[1:2] == ["study"]:
        _stop(console, "pgbb has no command study: run `python -m reproduction` in a clone of the repository of pgbb.")
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


def _stop(console: Console, message: str) -> None:
    console.print(f"error: {message}", markup=False)
    sys.exit(2)
