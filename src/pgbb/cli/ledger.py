"""`pgbb ledger set`, `show` and `history`: a custodian's budgets. None of them opens data."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from pgbb.cli.output import Json, print_json
from pgbb.cli.tables import plain_table
from pgbb.custody.entries import Dataset, Entry, LedgerError
from pgbb.custody.ledger import Ledger

ledger_app = typer.Typer(
    name="ledger",
    help="""Budgets of data sets, and what was released.

    Example: pgbb ledger show ledger.db
    """,
    no_args_is_help=True,
)

File = Annotated[Path, typer.Argument(help="The ledger, such as ledger.db.")]


@ledger_app.command("set")
def set_command(
    file: File,
    name: Annotated[str, typer.Argument(help="The name that you give the records.")],
    n: Annotated[int, typer.Option("--n", help="Number of records, which is public.")],
    epsilon: Annotated[float, typer.Option("--epsilon", "-e", help="ε of all releases together.")],
    delta: Annotated[float, typer.Option("--delta", "-d", help="δ of all releases together, well below 1/n.")],
    group_size: Annotated[int, typer.Option(help="The most records one person may have.")] = 1,
    change: Annotated[bool, typer.Option("--change", help="Give a declared data set another budget.")] = False,
    as_json: Json = False,
) -> None:
    """Declare a data set and its total budget; makes the ledger if there is none.

    What was spent stays spent, whatever is set afterwards.
    Example: pgbb ledger set ledger.db census --n 10000 --epsilon 2 --delta 1e-6
    """
    found = Ledger(file).set(name, n=n, epsilon=epsilon, delta=delta, group_size=group_size, change=change)
    if as_json:
        _print(found.to_dict())
        return
    console = Console(highlight=False)
    console.print(_budget(found), markup=False)
    if delta > 1 / n:
        console.print(f"warning: δ > 1/n = {1 / n:.3g} allows publishing whole records: choose it smaller.")


@ledger_app.command("show")
def show_ledger(file: File, name: Annotated[str | None, typer.Argument()] = None, as_json: Json = False) -> None:
    """Print the budget of each data set, what is taken of it, and what is left.

    A fit whose process is gone counts as spent if it had begun to answer, and not at all otherwise.
    Example: pgbb ledger show ledger.db
    """
    ledger = Ledger(file)
    found = _chosen(ledger, name)
    events, digest = ledger.seal()
    if as_json:
        _print({"datasets": [d.to_dict() for d in found], "events": events, "digest": digest})
        return
    console = Console(highlight=False)
    heads = ("data set", "n", "ε", "δ", "taken", "left: ε", "at δ", "settled", "spent", "open")
    rows = []
    for d in found:
        states = [e.state for e in d.entries]
        budget = [f"{d.budget.epsilon:g}", f"{d.budget.delta:g}", f"{d.share:.1%}", f"{d.left:.3g}"]
        counts = map(str, (states.count("settled"), states.count("spent"), sum(e.open for e in d.entries)))
        rows.append([escape(d.name), f"{d.n:,}", *budget, f"{d.budget.record[1]:.3g}", *counts])
    console.print(plain_table(heads, ("data set",), rows))
    console.print("\nleft: the largest ε of one more release by the default method, for one record")
    for d in found:
        for e in d.entries:
            if e.state == "spent":
                console.print(f"note: {d.name}, release {e.number}: spent without a release; {_story(e)}", markup=False)
            elif e.open:
                console.print(
                    f"note: {d.name}, release {e.number}: {e.state} since {e.reserved}, process {e.owner.pid} on "
                    f"{e.owner.host}",
                    markup=False,
                )
    console.print(f"{events} event{'s' * (events != 1)}, digest {digest[:16]}")


@ledger_app.command("history")
def history_command(file: File, name: Annotated[str | None, typer.Argument()] = None, as_json: Json = False) -> None:
    """Print every release and every attempt at one, oldest first.

    The hash is that of certificate.json in the release file.
    Example: pgbb ledger history ledger.db census
    """
    found = _chosen(Ledger(file), name)
    entries = sorted((e for d in found for e in d.entries), key=lambda e: e.number)
    if as_json:
        _print({"entries": [e.to_dict() for e in entries]})
        return
    budgets = {d.name: d for d in found}
    words = ("reserved (UTC)", "data set", "method", "state", "certificate, or why")
    rows = []
    for e in entries:
        what = [str(e.number), e.reserved[:19].replace("T", " "), escape(e.dataset), escape(e.method)]
        taken = f"{budgets[e.dataset].share_of(e.charge):.1%}" if e.counts else "–"
        rows.append([*what, f"{e.epsilon:g}", f"{e.delta:g}", taken, e.state, _story(e)])
    table = plain_table(("no.", *words[:3], "ε", "δ", "taken", *words[3:]), words, rows)
    Console(highlight=False).print(table if entries else "no release yet")


def _chosen(ledger: Ledger, name: str | None) -> list[Dataset]:
    return list(ledger.datasets().values()) if name is None else [ledger.dataset(name)]


def _story(entry: Entry) -> str:
    """Certificate or reason, then the checkpoints, if there were any."""
    times = {0: "", 1: "resumed once"}.get(entry.resumes, f"resumed {entry.resumes} times")
    at = f"checkpoint at step {entry.steps:,} of {entry.total:,}" if entry.checkpoint else ""
    if entry.resumable:
        at += ", can be resumed"
    elif entry.state == "settled":
        at = ""
    return "; ".join(filter(None, (entry.certificate[:16] if entry.certificate else entry.reason, at, times)))


def _budget(found: Dataset) -> str:
    person = "" if found.budget.group_size == 1 else f" for a person with up to {found.budget.group_size} records"
    return (
        f"{found.name}: n = {found.n:,}, ε = {found.budget.epsilon:g}, δ = {found.budget.delta:g}{person}; "
        f"{found.share:.1%} is taken"
    )


def _print(report: dict[str, object]) -> None:
    try:
        print_json(report)
    except ValueError:
        raise LedgerError("the ledger holds a number that is not finite. Restore it from a copy.") from None
