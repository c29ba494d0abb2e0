"""`pgbb plan`: noise and cost of a fit, from public settings alone. It never opens data."""

import json
import math
from pathlib import Path
from typing import Annotated, cast

import typer
from rich.console import Console
from rich.table import Table

from pgbb.accountant import Mechanism
from pgbb.accountant.calibrate import Accountant
from pgbb.planning import Plan, plan


def plan_command(
    n: Annotated[int, typer.Option("--n", help="Number of records.")],
    epsilon: Annotated[float, typer.Option("--epsilon", "-e", help="Privacy level ε to meet.")],
    delta: Annotated[float, typer.Option("--delta", "-d", help="Failure probability δ to meet.")],
    blocks: Annotated[int, typer.Option(help="S, the number of blocks; 1 means constant weights.")] = 20,
    gamma: Annotated[float | None, typer.Option(help="Dirichlet concentration; default γ*(n, S).")] = None,
    alpha: Annotated[float, typer.Option(help="Dirichlet mass of public pseudo-samples.")] = 0.0,
    sampling_rate: Annotated[float, typer.Option("--sampling-rate", "-q", help="Poisson sampling rate q.")] = 0.1,
    steps: Annotated[int, typer.Option("--steps", "-T", help="Number of steps T.")] = 10_000,
    draws_per_step: Annotated[int, typer.Option("--draws-per-step", "-K", help="Answers in a step, K.")] = 1,
    clip: Annotated[float, typer.Option("--clip", "-C", help="Largest norm of one record's gradient.")] = 1.0,
    dim: Annotated[int, typer.Option(help="Dimension of the parameter, for the noise floor.")] = 1,
    accountant: Annotated[str, typer.Option(help="Calibrates σ: exact, paper or worst-case.")] = "exact",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Also draw the four panels of the budget figure here.")] = None,
) -> None:
    """Print the noise that meets (ε, δ), what each accountant certifies, and what theory expects.

    Example: pgbb plan --n 10000 --epsilon 1 --delta 1e-4 --clip 2.386 --dim 4
    """
    mechanism = Mechanism(
        n=n,
        blocks=blocks,
        gamma=gamma,
        alpha=alpha,
        sampling_rate=sampling_rate,
        steps=steps,
        draws_per_step=draws_per_step,
        clip=clip,
    )
    result = plan(mechanism, epsilon, delta, accountant=cast(Accountant, accountant), dim=dim)
    if as_json:
        typer.echo(json.dumps(result.to_dict(), indent=2, ensure_ascii=False))
    else:
        _show(result, Console(highlight=False))
    if plot is not None:
        from pgbb.plots import budget_panels, save

        path = save(budget_panels(mechanism, result.sigma, result.epsilon), plot)
        if not as_json:
            typer.echo(f"\nfigure written to {path}")


def _number(value: float) -> str:
    return f"{value:.5g}" if math.isfinite(value) else "—"


def _table(console: Console, title: str, *columns: str) -> Table:
    console.print(title, style="bold")
    table = Table(box=None, pad_edge=False)
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right", overflow="fold")
    return table


def _show(result: Plan, console: Console) -> None:
    m = result.mechanism
    gamma = "constant weights" if m.blocks == 1 else f"γ = {m.concentration:.6g}" + ("" if m.gamma else " (γ*)")
    console.print(
        f"n = {m.n:,} records in S = {m.blocks} blocks of at least {m.block_size:,}, {gamma}, "
        f"q = {m.sampling_rate:g}, T·K = {m.steps:,}·{m.draws_per_step}, C = {m.clip:g}"
        + (f", α = {m.alpha:g}" if m.alpha else "")
    )
    console.print(f"adjacency: replace one record, n public. Budget: ε = {result.epsilon:g}, δ = {result.delta:g}")
    if result.delta > 1 / m.n:
        console.print("[yellow]δ > 1/n allows a mechanism that publishes whole records: choose it smaller.[/yellow]")
    elif result.delta == 1 / m.n:
        console.print("δ = 1/n is weak: an order of magnitude less is customary.")
    console.print()
    console.print(
        f"[bold]noise σ = {_number(result.sigma)}[/bold]  (σ·n_S/C = {_number(1 / m.signal(result.sigma))}, "
        f"by accountant '{result.accountant}'; no data was opened)\n"
    )
    table = _table(console, "By accountant", "accountant", "ε at this σ", "σ for this ε")
    for name in result.certified:
        table.add_row(name, _number(result.certified[name]), _number(result.noise[name]))
    console.print(table)
    console.print(
        f"σ is {_number(result.amplification)} of the worst case's (√κ = {math.sqrt(m.kappa):.4g} at leading order)\n"
    )
    lead = result.leading
    console.print(
        f"Theorem thm:asymp-dp: σ ≳ {_number(lead.sigma)} with its constant taken as 1; "
        f"{_number(lead.sigma_solved)} with the constant solved for"
    )
    table = _table(console, "Its conditions, at the solved σ", "condition", "value", "bound", "holds")
    for c in lead.conditions:
        table.add_row(c.name, _number(c.value), _number(c.bound), "yes" if c.holds else "no")
    console.print(table)
    console.print()
    floor = result.floor
    table = _table(
        console, f"Noise floor Π_total of Theorem thm:conv-gbb (β₁ = 1, d = {result.dim})", "term", "value", "share"
    )
    for name, value in (
        ("Poisson subsampling", floor.subsampling),
        ("Monte Carlo", floor.monte_carlo),
        ("privacy noise", floor.privacy),
    ):
        table.add_row(name, _number(value), f"{value / floor.total:.1%}")
    table.add_row("total", _number(floor.total), "")
    console.print(table)
    console.print()
    table = _table(console, "δ(ε) at this σ", "ε", "δ exact", "δ⋆ paper")
    for e, exact, paper in result.curve:
        table.add_row(_number(e), _number(exact), _number(paper))
    console.print(table)
