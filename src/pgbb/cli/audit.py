"""`pgbb audit`: attack the mechanisms as they run here, and compare what leaks with what is claimed. Opens no data."""

import math
import secrets
from typing import Annotated

import typer
from rich.console import Console

from pgbb import _validate
from pgbb.audit import CONFIDENCE, SETTINGS, TRIALS, TWINS, Finding, audit
from pgbb.cli.options import numbers, progress_bar
from pgbb.cli.output import Json, print_json
from pgbb.cli.tables import plain_table


def audit_command(
    epsilon: Annotated[
        str, typer.Option("--epsilon", "-e", help="Claims ε to audit, by the exact accountant.")
    ] = "1,4",
    trials: Annotated[int, typer.Option(help="Trials in each of the two worlds; of refits a tenth.")] = TRIALS,
    seed: Annotated[int | None, typer.Option(help="Makes the audit reproducible; records are synthetic.")] = None,
    twin: Annotated[
        str | None, typer.Option(help=f"Audit a mechanism broken on purpose, which must fail: {', '.join(TWINS)}.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run the mechanisms on worst-case neighbours and print a lower bound on ε beside each accountant's claim.

    The bound holds with 99.9 % confidence. Exit code 0 if no claim is refuted, 1 if one is.

    Examples:

    pgbb audit

    pgbb audit --epsilon 1 --trials 30000 --json

    pgbb audit --twin noise-halved
    """
    goals = [_validate.epsilon(goal) for goal in numbers("--epsilon", epsilon)]
    if not goals:
        raise _validate.fail("--epsilon", epsilon, "at least one number, such as 1,4")
    if twin is not None:
        _validate.one_of("--twin", twin, tuple(TWINS))
    names = tuple(SETTINGS) if twin is None else TWINS[twin].settings
    seed = secrets.randbits(31) if seed is None else seed
    findings: list[Finding] = []
    with progress_bar("audit", quiet=as_json) as show:
        for goal in goals:
            for name in names:
                show(len(findings), len(goals) * len(names))
                findings.append(audit(name, goal, trials=trials, seed=seed, twin=twin))
    if as_json:
        print_json({"confidence": CONFIDENCE, "twin": twin, "findings": [f.to_dict() for f in findings]})
    else:
        _show(findings, Console(highlight=False))
    if any(f.broken for f in findings):
        raise typer.Exit(1)


def _show(findings: list[Finding], console: Console) -> None:
    twin = findings[0].twin
    if twin is not None:
        console.print(f"[yellow]broken on purpose: {TWINS[twin].what}[/yellow]\n")
    heads = ("setting", "accountant", "δ", "q", "T·K", "trials", "claim ε", "bound ε", "verdict")
    rows = []
    for f in findings:
        setting, known = f.setting, [f"{f.delta:g}", f"{f.rate:g}", str(f.answers), f"{f.trials:,}"]
        for accountant, claim in f.claims.items():
            verdict = "[bold red]refuted[/bold red]" if accountant in f.broken else "holds"
            figures = [f"{claim:.3f}" if math.isfinite(claim) else "—", f"{f.lower:.3f}"]
            rows.append([setting, accountant, *known, *figures, verdict])
            setting, known = "", [""] * 4
    console.print(plain_table(heads, ("setting", "accountant", "verdict"), rows))
    console.print(
        f"\nε is at least the bound, with {CONFIDENCE:.1%} confidence. Adjacency: replace one record. "
        f"Repeat with --seed {findings[0].seed}.",
        soft_wrap=True,
    )
