"""`pgbb plan`: noise and cost of a fit, from public settings alone. It never opens data."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias, cast

import typer
from rich.console import Console

from pgbb.accountant.calibrate import Accountant
from pgbb.cli.options import LEVELS, coefficients_of, constants_of, method_names, numbers
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
Budget = tuple[int, float, float]  # n, ε, δ
Shown = tuple[Mapping[str, object], Callable[[Console], None]]  # for programs, and for a reader
Planner = Callable[[Budget, Accountant, Options], Shown]

_SETTINGS = ("blocks", "gamma", "sampling_rate", "steps", "draws_per_step")  # settings of method pgbb
_PGBB: Options = {
    **dict.fromkeys(_SETTINGS), "intervals": None, "alpha": 0.0, "clip": 1.0, "dim": 1, "plot": None,
    "preset": None,
}  # fmt: skip
_CALIBRATED: Options = {
    "family": "quantile", **dict.fromkeys(("terms", "levels", "spread", "reach", "rate", "half", "time_limit")),
    "optimise": False,
}  # fmt: skip
_OF_FAMILIES: dict[str, tuple[str, ...]] = {
    "levels": ("quantile",), "rate": ("logistic",), "terms": tuple(f for f in FAMILIES if f != "mean"),
    "reach": tuple(f for f in FAMILIES if f not in MEANS),
}  # fmt: skip
_OTHERS: Options = dict.fromkeys(("family", "terms", "levels", "spread", "half", "settings"))


def plan_command(
    n: Annotated[int, typer.Option("--n", help="Number of records.")],
    epsilon: Annotated[float, typer.Option("--epsilon", "-e", help="Privacy level ε to meet.")],
    delta: Annotated[float, typer.Option("--delta", "-d", help="Failure probability δ to meet.")],
    method: Annotated[str, typer.Option(help=f"{method_names('or')}.")] = "calibrated",
    family: Annotated[str | None, typer.Option(help=f"{', '.join(FAMILIES)}; default quantile.")] = None,
    terms: Annotated[int | None, typer.Option(help="Coefficients, with the intercept; default 4.")] = None,
    formula: Annotated[
        str | None, typer.Option("--formula", "-f", help="With --schema, in place of --terms: its coefficients count.")
    ] = None,
    schema: Annotated[Path | None, typer.Option("--schema", "-s", help="Public schema (TOML), of --formula.")] = None,
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

    pgbb plan --n 65023 --epsilon 1 --delta 1e-6 --schema wages.toml --formula "logwage ~ educ + region" --spread .6

    pgbb plan --method pgbb --n 10000 --epsilon 1 --delta 1e-4 --clip 2.386 --dim 4

    pgbb plan --method dp_mcmc --n 10000 --epsilon 1 --delta 1e-6 --family mean --set tempering=.01
    """
    terms = coefficients_of(terms, formula, schema)
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
    planners: dict[str, Planner] = {"calibrated": _calibrated, "pgbb": _pgbb}
    data, show = planners.get(method, partial(_other, method))(
        (n, epsilon, delta), cast(Accountant, accountant), chosen
    )
    if as_json:
        print_json(data)
    else:
        show(Console(highlight=False))


def _calibrated(budget: Budget, accountant: Accountant, chosen: Options) -> Shown:
    result = forecast(*budget, _reference(chosen, _OF_FAMILIES | {"half": MEANS}), accountant=accountant)
    if not chosen["optimise"] and chosen["time_limit"] is None:
        return result.to_dict(), partial(_show_forecast, result)
    candidates = search(result, chosen["time_limit"])

    def show(console: Console) -> None:
        _show_forecast(result, console)
        _show_search(candidates, chosen["time_limit"], console)

    return result.to_dict() | {"candidates": [asdict(c) for c in candidates]}, show


def _pgbb(budget: Budget, accountant: Accountant, chosen: Options) -> Shown:
    given = {name: chosen[name] for name in (*_SETTINGS, "intervals")} | {"settings": chosen["preset"]}
    settings = settings_for("pgbb", given)[1].under(chosen.get("family", ""), accountant)
    described = settings.describe(budget[0], chosen["clip"], budget[1:], chosen["dim"])
    mechanism = replace(described, alpha=chosen["alpha"])
    target = settings.target(mechanism, aware=settings.serves(accountant, pseudo=chosen["alpha"] > 0))
    figure = chosen["plot"]
    if figure is not None:
        from pgbb.report import plots

        plots.check_target(figure)  # before the accountants begin, which take their time
    result = forecast_noise(target, *budget[1:], accountant=accountant, dim=chosen["dim"])
    if figure is not None:
        plots.save(plots.budget_panels(mechanism, result.sigma, result.epsilon), figure)
    return result.to_dict(), partial(_show_noise, result, figure)


def _other(method: str, budget: Budget, accountant: Accountant, chosen: Options) -> Shown:
    """Any method: what it asks, and at which noise."""
    family = chosen["family"] or next(kind for kind in FAMILIES if kind in METHODS[method].serves)
    given = constants_of([f"{method}.{text}" for text in chosen["settings"] or []]).get(method, {})
    reference = _reference(chosen | {"family": family})
    result = forecast_asked(method, *budget, reference, accountant=accountant, settings=given)
    return result.to_dict(), partial(_show_asked, result)


def _reference(chosen: Options, of_families: dict[str, tuple[str, ...]] = _OF_FAMILIES) -> Reference:
    """What is planned for; an option that says nothing to the family is refused."""
    family = chosen["family"]
    given = {n: chosen[n] for n in ("terms", "levels", "spread", "reach", "rate", "half") if chosen.get(n) is not None}
    for name, families in of_families.items():
        if name in given and family in FAMILIES and family not in families:
            raise InvalidValue(
                f"--{name} = {given[name]!r} says nothing to --family {family}: leave it out, or pass --family "
                f"{' or '.join(families)}."
            )
    if "levels" in given:
        given["levels"] = tuple(numbers("--levels", given["levels"]))
    return Reference(cast(Family, family), **({"terms": 1} if family == "mean" else {}) | given)


def _show_asked(result: Asked, console: Console) -> None:
    _show_problem(result, result.method.name, console)
    heads = ("question", "answers", "noise σ", "over a record's")
    rows = (
        [str(i), f"{m.answers:,}", _number(noise), _number(multiplier(m, noise))]
        for i, (m, noise) in enumerate(result.parts, 1)
    )
    _show_table(console, f"What is asked: {result.method.asks}", heads, rows)
    lines = (*result.remarks, f"a release holds {result.method.draws}", f"assumes: {result.method.assumes}")
    for line in (*lines, f"by accountant '{result.accountant}'; no data was opened"):
        console.print(line, soft_wrap=True)


def _show_problem(result: Asked | Forecast, method: str, console: Console) -> None:
    r = result.reference
    levels = f", levels {', '.join(f'{v:g}' for v in r.levels)}" if r.family == "quantile" else ""
    console.print(f"n = {result.n:,} records, {r.family}, {r.terms} coefficients{levels}; method {method}")
    _show_budget(console, result.n, result.epsilon, result.delta)


def _number(value: float) -> str:
    return f"{value:.5g}" if math.isfinite(value) else "—"


def _show_table(
    console: Console, title: str, heads: Sequence[str], rows: Iterable[Iterable[str]], words: Iterable[str] = ()
) -> None:
    """The first column, and those in `words`, hold words."""
    console.print(title, style="bold")
    console.print(plain_table(heads, {heads[0], *words}, rows))


def _show_budget(console: Console, n: int, epsilon: float, delta: float) -> None:
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
    _show_problem(result, "calibrated", console)
    console.print(
        f"[bold]noise σ = {_number(result.sigma)}[/bold]  (σ·n/C = {_number(result.n * result.sigma)}, by accountant "
        f"'{result.accountant}'; no data was opened)\n"
    )
    rows: Iterable[list[str]] = (
        [s.name, str(s.asks), f"{s.share:.1%}", _number(result.n * result.noise(s)), s.why] for s in result.stages
    )
    _show_table(console, "What is asked", ("stage", "answers", "share", "noise/C", "for"), rows, ("for",))
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
    heads = ("τ" if r.family == "quantile" else "", "sampling sd", "privacy sd", "total sd", "95 % width")
    rows = (
        ["" if w.tau is None else f"{w.tau:g}"]
        + [_number(v) for v in (w.sampling, w.privacy, w.total, w.interval)]
        + [f"{w.share:.0%}"]
        for w in result.widths
    )
    _show_table(console, f"Expected: {what}{spread}", (*heads, "due to privacy"), rows)
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
    heads = ("", "method", "S", "γ", "q", "T·K", "seconds", "noise", "to best")
    rows = []
    best = next((c.effective for c in candidates if c.chosen), None)
    for c in candidates:
        noise = "too slow" if c.effective is None else _number(c.effective)
        ratio = "" if c.effective is None or best is None else f"{c.effective / best:.3f}"
        answers = f"{c.steps:,}" + (f"·{c.draws_per_step}" if c.method == "pgbb" else "")
        gamma = "—" if c.gamma is None else f"{c.gamma:.3g}"
        what = ["→" if c.chosen else "", c.method, str(c.blocks), gamma, f"{c.sampling_rate:g}", answers]
        rows.append([*what, f"{c.seconds:.2g}", noise, ratio])
    _show_table(console, f"Effective noise (σ/q)/√(T·K) of a gradient, C = 1{limit}", heads, rows, ("method",))
    if best is None:
        console.print("[yellow]nothing is quick enough: allow more time.[/yellow]")


def _show_noise(result: NoiseForecast, figure: Path | None, console: Console) -> None:
    m = result.mechanism
    gamma = "constant weights" if m.blocks == 1 else f"γ = {m.concentration:.6g}" + ("" if m.gamma else " (γ*)")
    console.print(
        f"n = {m.n:,} records in S = {m.blocks} blocks of at least {m.block_size:,}, {gamma}, "
        f"q = {m.sampling_rate:g}, T·K = {m.steps:,}·{m.draws_per_step}, C = {m.clip:g}"
        + (f", α = {m.alpha:g}" if m.alpha else "")
    )
    _show_budget(console, m.n, result.epsilon, result.delta)
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
    rows = ([name, _number(value), _number(result.noise[name])] for name, value in result.certified.items())
    _show_table(console, "By accountant", ("accountant", "ε at this σ", "σ for this ε"), rows)
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
    rows = ([c.name, _number(c.value), _number(c.bound), "yes" if c.holds else "no"] for c in lead.conditions)
    _show_table(console, "Its conditions, at the solved σ", ("condition", "value", "bound", "holds"), rows)
    console.print()
    floor = result.floor
    terms = {"Poisson subsampling": floor.subsampling, "Monte Carlo": floor.monte_carlo, "privacy noise": floor.privacy}
    shares = [[name, _number(value), f"{value / floor.total:.1%}"] for name, value in terms.items()]
    title = f"Noise floor Π_total of Theorem 3.1 (β₁ = 1, d = {result.dim})"
    _show_table(console, title, ("term", "value", "share"), [*shares, ["total", _number(floor.total), ""]])
    console.print()
    _show_table(console, "δ(ε) at this σ", ("ε", "δ exact", "δ⋆ paper"), (map(_number, row) for row in result.curve))
    if figure is not None:
        console.print(f"\nfigure written to {figure}", soft_wrap=True, markup=False)
