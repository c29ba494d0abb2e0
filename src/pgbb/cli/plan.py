"""`pgbb plan`: noise and cost of a fit, from public settings alone. It never opens data."""

import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, TypeAlias, cast

import typer
from rich.console import Console
from rich.table import Table

from pgbb.accountant.calibrate import Accountant
from pgbb.cli.options import LEVELS, constants_of, method_names, numbers
from pgbb.cli.output import Json, print_json
from pgbb.cli.tables import plain_table
from pgbb.errors import InvalidValue
from pgbb.methods.registry import METHODS, method_called, settings_for
from pgbb.planning import costs
from pgbb.planning.asked import Asked, forecast_asked, multiplier
from pgbb.planning.forecast import FAMILIES, MEANS, Family, Forecast, Reference, forecast
from pgbb.planning.noise import NoiseForecast, forecast_noise
from pgbb.planning.search import Candidate, search

Options: TypeAlias = dict[str, Any]  # values by the name of the option

_SETTINGS = ("blocks", "gamma", "sampling_rate", "steps", "draws_per_step")  # of method pgbb, which has the defaults
_PGBB: Options = {
    **dict.fromkeys(_SETTINGS), "intervals": None, "alpha": 0.0, "clip": 1.0, "dim": 1, "plot": None,
    "preset": None,
}  # fmt: skip
_CALIBRATED: Options = {
    "family": "quantile", "terms": 4, "levels": LEVELS, "spread": 1.0, "reach": None, "rate": 0.5, "half": None,
    "optimise": False, "time_limit": None,
}  # fmt: skip
_OTHERS: Options = {"family": None, "terms": 4, "levels": LEVELS, "spread": 1.0, "half": None, "settings": None}


def plan_command(
    n: Annotated[int, typer.Option("--n", help="Number of records.")],
    epsilon: Annotated[float, typer.Option("--epsilon", "-e", help="Privacy level ε to meet.")],
    delta: Annotated[float, typer.Option("--delta", "-d", help="Failure probability δ to meet.")],
    method: Annotated[str, typer.Option(help=f"{method_names('or')}.")] = "calibrated",
    family: Annotated[str | None, typer.Option(help=f"{', '.join(FAMILIES)}; default quantile.")] = None,
    terms: Annotated[int | None, typer.Option(help="Coefficients, with the intercept; default 4.")] = None,
    levels: Annotated[str | None, typer.Option(help=f"Quantile levels; default {LEVELS}.")] = None,
    spread: Annotated[float | None, typer.Option(help="Assumed sd of the residuals, units of y; default 1.")] = None,
    reach: Annotated[
        float | None, typer.Option(help="Largest squared length of standardised covariates, if below 4·terms.")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Assumed share of ones, logistic; default .5.")] = None,
    half: Annotated[float | None, typer.Option(help="Half the window of a mean; default that of the method.")] = None,
    optimise: Annotated[
        bool | None, typer.Option("--optimise", help="Compare with mechanisms of the paper's kind (10 s).")
    ] = None,
    time_limit: Annotated[float | None, typer.Option(help="Seconds a fit may take, for --optimise.")] = None,
    blocks: Annotated[
        int | None, typer.Option(help="pgbb: S, 1 means constant weights; default that of a fit.")
    ] = None,
    gamma: Annotated[float | None, typer.Option(help="pgbb: Dirichlet concentration; default γ*(n, S).")] = None,
    alpha: Annotated[float | None, typer.Option(help="pgbb: Dirichlet mass of pseudo-samples.")] = None,
    sampling_rate: Annotated[
        float | None,
        typer.Option("--sampling-rate", "-q", help="pgbb: Poisson sampling rate q; default that of a fit."),
    ] = None,
    steps: Annotated[int | None, typer.Option("--steps", "-T", help="pgbb: T; default that of a fit.")] = None,
    draws_per_step: Annotated[
        int | None, typer.Option("--draws-per-step", "-K", help="pgbb: K, answers in a step; default that of a fit.")
    ] = None,
    intervals: Annotated[str | None, typer.Option(help="pgbb: noise-aware or printed; default that of a fit.")] = None,
    preset: Annotated[
        str | None, typer.Option("--settings", help="pgbb: printed, the constants of the paper's study of --family.")
    ] = None,
    clip: Annotated[
        float | None, typer.Option("--clip", "-C", help="pgbb: largest norm of a record's gradient; default 1.")
    ] = None,
    dim: Annotated[int | None, typer.Option(help="pgbb: dimension of the parameter, for the noise floor.")] = None,
    plot: Annotated[Path | None, typer.Option(help="pgbb: draw the four panels of the budget figure here.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Other methods: a constant, such as steps=2000; may be given several times."),
    ] = None,
    accountant: Annotated[str, typer.Option(help="Calibrates σ: exact, paper or worst-case.")] = "exact",
    as_json: Json = False,
) -> None:
    """Print the noise that meets (ε, δ) and what comes of it: interval widths, or what theory expects. Opens no data.

    Examples:

    pgbb plan --n 65023 --epsilon 1 --delta 1e-6 --terms 4 --spread .6

    pgbb plan --method pgbb --n 10000 --epsilon 1 --delta 1e-4 --clip 2.386 --dim 4

    pgbb plan --method dp_mcmc --n 10000 --epsilon 1 --delta 1e-6 --family mean --set tempering=.01
    """
    given = locals()
    method = method_called(method, "--method").name
    known = {"calibrated": _CALIBRATED, "pgbb": _PGBB}
    own = known.get(method, _OTHERS) | ({"family": "quantile"} if method == "pgbb" and preset is not None else {})
    for name in {**_CALIBRATED, **_PGBB, **_OTHERS}:
        if given[name] is not None and name not in own:
            option = {"settings": "--set", "preset": "--settings"}.get(name, "--" + name.replace("_", "-"))
            takes = [m for m, options in known.items() if name in options] or ["another one"]
            raise InvalidValue(
                f"{option} = {given[name]!r} says nothing to --method {method}: leave it out, or pass --method "
                f"{takes[0]}."
            )
    chosen = {name: default if given[name] is None else given[name] for name, default in own.items()}
    console = Console(highlight=False)
    if method == "calibrated":
        _calibrated((n, epsilon, delta), cast(Accountant, accountant), chosen, console, as_json=as_json)
    elif method != "pgbb":
        _other(method, (n, epsilon, delta), cast(Accountant, accountant), chosen, console, as_json=as_json)
    else:
        _pgbb((n, epsilon, delta), cast(Accountant, accountant), chosen, console, as_json=as_json)


def _calibrated(
    budget: tuple[int, float, float], accountant: Accountant, chosen: Options, console: Console, *, as_json: bool
) -> None:
    reference = Reference(
        family=cast(Family, chosen["family"]),
        terms=1 if chosen["family"] == "mean" else chosen["terms"],
        levels=tuple(numbers("--levels", chosen["levels"])),
        spread=chosen["spread"],
        reach=chosen["reach"],
        rate=chosen["rate"],
        half=chosen["half"],
    )
    result = forecast(*budget, reference, accountant=accountant)
    wanted = chosen["optimise"] or chosen["time_limit"] is not None
    candidates = search(result, chosen["time_limit"]) if wanted else ()
    if as_json:
        data = result.to_dict() | ({"candidates": [asdict(c) for c in candidates]} if wanted else {})
        print_json(data)
        return
    _show_forecast(result, console)
    if wanted:
        _show_search(candidates, chosen["time_limit"], console)


def _pgbb(
    budget: tuple[int, float, float], accountant: Accountant, chosen: Options, console: Console, *, as_json: bool
) -> None:
    given = {name: chosen[name] for name in (*_SETTINGS, "intervals")} | {"settings": chosen["preset"]}
    settings = settings_for("pgbb", given)[1].under(chosen.get("family", ""), accountant)
    described = settings.describe(budget[0], chosen["clip"], budget[1:], chosen["dim"])
    mechanism = replace(described, alpha=chosen["alpha"])
    target = settings.target(mechanism, aware=settings.serves(accountant, pseudo=chosen["alpha"] > 0))
    if chosen["plot"] is not None:
        from pgbb.report.plots import budget_panels, check_target, save

        check_target(chosen["plot"])  # before the accountants begin, which take their time
    result = forecast_noise(target, *budget[1:], accountant=accountant, dim=chosen["dim"])
    if as_json:
        print_json(result.to_dict())
    else:
        _show_noise(result, console)
    if chosen["plot"] is not None:
        path = save(budget_panels(mechanism, result.sigma, result.epsilon), chosen["plot"])
        if not as_json:
            typer.echo(f"\nfigure written to {path}")


def _other(
    method: str,
    budget: tuple[int, float, float],
    accountant: Accountant,
    chosen: Options,
    console: Console,
    *,
    as_json: bool,
) -> None:
    """Any method: what it asks, and at which noise."""
    serves = METHODS[method].serves
    family = chosen["family"] or next(kind for kind in FAMILIES if kind in serves)
    reference = Reference(
        family=cast(Family, family),
        terms=1 if family == "mean" else chosen["terms"],
        levels=tuple(numbers("--levels", chosen["levels"])),
        spread=chosen["spread"],
        half=chosen["half"],
    )
    given = constants_of([f"{method}.{text}" for text in chosen["settings"] or []]).get(method, {})
    result = forecast_asked(method, *budget, reference, accountant=accountant, settings=given)
    if as_json:
        print_json(result.to_dict())
    else:
        _show_asked(result, console)


def _show_asked(result: Asked, console: Console) -> None:
    r = result.reference
    levels = f", levels {', '.join(f'{v:g}' for v in r.levels)}" if r.family == "quantile" else ""
    console.print(f"n = {result.n:,} records, {r.family}, {r.terms} coefficients{levels}; method {result.method.name}")
    _budget(console, result.n, result.epsilon, result.delta)
    table = _table(console, f"What is asked: {result.method.asks}", "question", "answers", "noise σ", "over a record's")
    for i, (m, noise) in enumerate(result.parts, 1):
        table.add_row(str(i), f"{m.answers:,}", _number(noise), _number(multiplier(m, noise)))
    console.print(table)
    lines = (*result.remarks, f"a release holds {result.method.draws}", f"assumes: {result.method.assumes}")
    for line in (*lines, f"by accountant '{result.accountant}'; no data was opened"):
        console.print(line, soft_wrap=True)


def _number(value: float) -> str:
    return f"{value:.5g}" if math.isfinite(value) else "—"


def _table(console: Console, title: str, *columns: str) -> Table:
    console.print(title, style="bold")
    return plain_table(columns, columns[:1])


def _budget(console: Console, n: int, epsilon: float, delta: float) -> None:
    console.print(f"adjacency: replace one record, n public. Budget: ε = {epsilon:g}, δ = {delta:g}")
    if delta > 1 / n:
        console.print("[yellow]δ > 1/n allows a mechanism that publishes whole records: choose it smaller.[/yellow]")
    elif delta == 1 / n:
        console.print("δ = 1/n is weak: an order of magnitude less is customary.")
    if delta >= 1 / n:
        console.print("A fit refuses it without --allow-weak-delta.")
    console.print()


def _cost(seconds: float, load: float, memory: float, method: str) -> str:
    known = costs.coefficients()
    return (
        f"about {seconds:.2g} s, after {load:.2g} s to read them from Parquet and {known['compile'][method]:.2g} s to "
        f"compile, the first time; {memory / 2**30:.2g} GiB of memory\n(measured on {known['machine']}, with nothing "
        f"else to do; there right to a factor of {known['worst']:.2g}; time and memory are linear in n)\n"
    )


def _show_forecast(result: Forecast, console: Console) -> None:
    r = result.reference
    levels = f", levels {', '.join(f'{v:g}' for v in r.levels)}" if r.family == "quantile" else ""
    console.print(f"n = {result.n:,} records, {r.family}, {r.terms} coefficients{levels}; method calibrated")
    _budget(console, result.n, result.epsilon, result.delta)
    console.print(
        f"[bold]noise σ = {_number(result.sigma)}[/bold]  (σ·n/C = {_number(result.n * result.sigma)}, by accountant "
        f"'{result.accountant}'; no data was opened)\n"
    )
    table = _table(console, "What is asked", "stage", "answers", "share", "noise/C", "for")
    table.columns[-1].justify = "left"
    for s in result.stages:
        table.add_row(s.name, str(s.asks), f"{s.share:.1%}", _number(result.n * result.noise(s)), s.why)
    console.print(table)
    console.print(
        f"{result.passes} passes over the records: "
        + _cost(result.seconds, result.load_seconds, result.memory, "calibrated")
    )
    if not result.widths:
        console.print("Widths cannot be predicted for a custom loss: its curvature is not known beforehand.")
        return
    what = {
        "mean": "a mean",
        "means": f"the mean of one of {r.terms} groups of the same size",
        "iv": "a coefficient per sd of what instruments predict of its regressor given the others",
        "logistic": f"a log odds ratio per sd of a covariate given the others, {r.rate:.0%} ones",
    }.get(r.family, "a coefficient per sd of its covariate given the others")
    spread = "" if r.family == "logistic" else f", sd {r.spread:g} of {'values' if r.family in MEANS else 'residuals'}"
    first = ["τ"] if r.family == "quantile" else []
    columns = [*(first or [""]), "sampling sd", "privacy sd", "total sd", "95 % width", "due to privacy"]
    table = _table(console, f"Expected: {what}{spread}", *columns)
    for w in result.widths:
        values = (w.sampling, w.privacy, w.total, w.interval)
        table.add_row("" if w.tau is None else f"{w.tau:g}", *(_number(v) for v in values), f"{w.share:.0%}")
    console.print(table)
    if r.family not in MEANS:
        console.print(f"for normal errors and covariates within R² = {r.radius**2:g} of their centre; divide by the sd")
        chance = result.identified
        console.print(
            f"A coefficient is identified with a chance of about {chance['column']:.0%}; that of a level which one "
            f"record in 100 has, {chance['level_of_one_percent']:.0%}."
        )


def _show_search(candidates: tuple[Candidate, ...], time_limit: float | None, console: Console) -> None:
    limit = "" if time_limit is None else f", at most {time_limit:g} s a fit"
    console.print()
    table = _table(
        console, f"Effective noise (σ/q)/√(T·K) of a gradient, C = 1{limit}", "", "method", "S", "γ", "q", "T·K",
        "seconds", "noise", "to best",
    )  # fmt: skip
    table.columns[1].justify = "left"
    best = next((c.effective for c in candidates if c.chosen), None)
    for c in candidates:
        noise = "too slow" if c.effective is None else _number(c.effective)
        ratio = "" if c.effective is None or best is None else f"{c.effective / best:.3f}"
        answers = f"{c.steps:,}" + (f"·{c.draws_per_step}" if c.method == "pgbb" else "")
        gamma = "—" if c.gamma is None else f"{c.gamma:.3g}"
        table.add_row(
            "→" if c.chosen else "", c.method, str(c.blocks), gamma, f"{c.sampling_rate:g}", answers,
            f"{c.seconds:.2g}", noise, ratio,
        )  # fmt: skip
    console.print(table)
    if best is None:
        console.print("[yellow]nothing is quick enough: allow more time.[/yellow]")


def _show_noise(result: NoiseForecast, console: Console) -> None:
    m = result.mechanism
    gamma = "constant weights" if m.blocks == 1 else f"γ = {m.concentration:.6g}" + ("" if m.gamma else " (γ*)")
    console.print(
        f"n = {m.n:,} records in S = {m.blocks} blocks of at least {m.block_size:,}, {gamma}, "
        f"q = {m.sampling_rate:g}, T·K = {m.steps:,}·{m.draws_per_step}, C = {m.clip:g}"
        + (f", α = {m.alpha:g}" if m.alpha else "")
    )
    _budget(console, m.n, result.epsilon, result.delta)
    console.print(
        f"[bold]noise σ = {_number(result.sigma)}[/bold]  (σ·n_S/C = {_number(1 / m.signal(result.sigma))}, "
        f"by accountant '{result.accountant}'; no data was opened)\n"
    )
    for beside, noise in result.beside:
        console.print(
            f"and {beside.answers} answers of second moments over all records with noise {_number(noise)} "
            f"(σ·n/C = {_number(1 / beside.signal(noise))}), for noise-aware intervals\n"
        )
    seconds = costs.seconds("pgbb", m.answers, m.sampling_rate * m.n, result.dim)
    read, room = costs.load_seconds(m.n, result.dim), costs.memory(m.n, result.dim)
    console.print(f"{m.steps:,} steps of {result.dim} terms: " + _cost(seconds, read, room, "pgbb"))
    table = _table(console, "By accountant", "accountant", "ε at this σ", "σ for this ε")
    for name in result.certified:
        table.add_row(name, _number(result.certified[name]), _number(result.noise[name]))
    console.print(table)
    if math.isfinite(result.noise["worst-case"]):
        console.print(
            f"σ is {_number(result.amplification)} of the worst case's (√κ = {math.sqrt(m.kappa):.4g} at leading order)"
        )
    console.print()
    lead = result.leading
    console.print(
        f"Theorem 2.1: σ ≳ {_number(lead.sigma)} with its constant taken as 1; "
        f"{_number(lead.sigma_solved)} with the constant solved for"
    )
    table = _table(console, "Its conditions, at the solved σ", "condition", "value", "bound", "holds")
    for c in lead.conditions:
        table.add_row(c.name, _number(c.value), _number(c.bound), "yes" if c.holds else "no")
    console.print(table)
    console.print()
    floor = result.floor
    table = _table(console, f"Noise floor Π_total of Theorem 3.1 (β₁ = 1, d = {result.dim})", "term", "value", "share")
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
