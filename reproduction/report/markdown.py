"""All results in a folder beside the printed figures: Markdown tables with verdicts, generated, not typed."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgbb.errors import PgbbError
from reproduction import provenance, store
from reproduction.judge import Line
from reproduction.registry import NAMES, get
from reproduction.report.reasons import REASONS
from reproduction.study import Cells, Outcome, Results, Study, Table

__all__ = [
    "MISSES",
    "VERDICTS",
    "Section",
    "about",
    "grid",
    "markdown",
    "misses",
    "sections",
    "summary",
    "table_markdown",
    "verdicts",
]

MISSES = ("differs", "worse", "not met")
GAPS = Path(__file__).parents[2] / "benchmarks" / "results" / "gaps.txt"
"""What a look into the reasons printed."""
VERDICTS = ("agrees", "differs", "better", "same", "worse", "met", "not met", "not comparable")


@dataclass(frozen=True)
class Section:
    """One study of the report.

    Args:
      study: what it is.
      results: the cells that are there.
      tables: with verdicts.
      wanted: cells of the full version.
      old: cells of other settings or revisions than those of today, with the reason.
    """

    study: Study
    results: Results
    tables: list[Table]
    wanted: Cells
    old: dict[str, str]

    @property
    def counts(self) -> Counter[str]:
        """How often each verdict was given."""
        return verdicts(self.tables)


def verdicts(tables: Sequence[Table]) -> Counter[str]:
    """How often each verdict was given."""
    return Counter(line.verdict for table in tables for line in table.lines if line.verdict)


def sections(root: Path) -> list[Section]:
    """The studies that have results in the folder, in the order of the paper."""

    def others(name: str) -> Results:
        return store.load_all(root, name)

    found = []
    for name in NAMES:
        study, results = get(name), others(name)
        if not results and not any(others(judged) for judged in study.judges):
            continue
        old = {cell: why for cell, outcome in results.items() if (why := _stale(study, cell, outcome)) is not None}
        order = {cell: i for i, cell in enumerate(study.cells())}
        results = dict(sorted(results.items(), key=lambda item: order.get(item[0], len(order))))
        try:
            tables = study.tables(results, others)
        except KeyError as error:
            raise PgbbError(
                f"{root / name} was written by other code, which stored no {error}: run the study again with --fresh."
            ) from None
        found.append(Section(study, results, tables, study.cells(), old))
    return found


def _stale(study: Study, cell: str, outcome: Outcome) -> str | None:
    cells = study.quick.cells() if outcome.provenance.get("quick") else study.cells()
    settings = cells.get(cell, outcome.settings)
    wanted = store.identity(study.name, settings, provenance.revision(study, settings), {})
    return store.stale(outcome.provenance, wanted)


def _number(value: float | None) -> str:
    if value is None or math.isnan(value):
        return ""
    if value == 0 or 0.001 <= abs(value) < 10_000:
        return f"{value:.4g}" if abs(value) < 1 else f"{value:.3f}".rstrip("0").rstrip(".")
    return f"{value:.3g}"


def _ours(line: Line) -> str:
    return _number(line.ours) + ("" if math.isnan(line.error) else f" ± {line.error:.2g}")


def _judged(line: Line) -> str:
    if line.difference is None or not math.isfinite(line.difference):
        return line.verdict
    return f"{line.verdict} ({line.difference:+.1f})".strip()


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def grid(table: Table) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of a table, as text: a row a place; for each measure ours, the paper's and the verdict."""
    first = ("mae", "coverage", "width")
    present = list(dict.fromkeys(line.measure for line in table.lines))
    measures = [m for m in first if m in present] + [m for m in present if m not in first]
    places = list(dict.fromkeys(key for line in table.lines for key in line.where))
    shows = {m: any(x.printed is not None for x in table.lines if x.measure == m) for m in measures}
    judges = {m: any(x.verdict for x in table.lines if x.measure == m) for m in measures}
    heads = list(places)
    for measure in measures:
        heads += [measure, *(["printed"] if shows[measure] else []), *(["verdict"] if judges[measure] else [])]
    found: dict[tuple[str, ...], dict[str, Line]] = {}
    for line in table.lines:
        found.setdefault(tuple(_text(line.where.get(p, "")) for p in places), {})[line.measure] = line
    rows = []
    for place, lines in found.items():
        cells = list(place)
        for measure in measures:
            here = lines.get(measure)
            cells.append("" if here is None else _ours(here))
            if shows[measure]:
                cells.append("" if here is None else _number(here.printed))
            if judges[measure]:
                cells.append("" if here is None else _judged(here))
        rows.append(cells)
    return heads, rows


def table_markdown(table: Table) -> str:
    """A table in Markdown, with its rules and notes."""
    heads, rows = grid(table)
    if not rows:
        return ""
    out = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for row in rows:
        out.append("| " + " | ".join(f"**{text}**" if text.startswith(MISSES) else text for text in row) + " |")
    rules = list(dict.fromkeys(line.rule for line in table.lines if line.rule and line.verdict))
    out.append("")
    out += [f"- Rule: {rule}." for rule in rules[:6]]
    out += [f"- {note}" for note in table.notes]
    return "\n".join(out) + "\n"


def _commit(about: dict[str, Any]) -> str:
    """Twelve digits, and "+" for a tree with changes."""
    found = about.get("commit") or "unknown"
    return found[:12] + ("+" if found.endswith("+") else "")


def about(section: Section) -> list[str]:
    """Cells, replicates, time, device and commit of a section, and whether some are stale."""
    if section.study.judges:
        return [f"From the cells of {' and '.join(section.study.judges)}."]
    counts = [int(o.rows["replicate"].nunique()) for o in section.results.values() if len(o.rows)]
    seconds = sum(r["seconds"] for o in section.results.values() for r in o.provenance.get("runs", []))
    devices = sorted({r["device"] for o in section.results.values() for r in o.provenance.get("runs", [])})
    commits = sorted({_commit(o.provenance) for o in section.results.values()})
    span = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    present = sum(cell in section.results for cell in section.wanted)
    lines = [
        f"{present} of {len(section.wanted)} cells, {span} replicates (full: {section.study.replicates}); "
        f"{seconds:,.0f} s on {', '.join(devices)}; commit {', '.join(commits)}."
    ]
    if section.old:
        lines.append(f"{len(section.old)} cells are stale (other settings or revisions): run them with `--fresh`.")
    return lines


def misses(section: Section) -> list[str]:
    """Every figure that is worse than printed or misses its goal, and the reason that was found."""
    grouped: dict[str, list[str]] = {}
    for table in section.tables:
        for line in table.lines:
            if line.verdict not in MISSES:
                continue
            key = f"{line.where.get('method', '')} {line.measure}".strip()
            reason = next((why for pattern, why in REASONS.get(section.study.name, ()) if re.search(pattern, key)), "")
            place = ", ".join(f"{k} {_text(v)}" for k, v in line.where.items())
            beside = f", printed {_number(line.printed)}" if line.printed is not None else ""
            grouped.setdefault(reason, []).append(f"  - {line.measure} {_ours(line)}{beside} ({place})")
    out = []
    for reason, lines in grouped.items():
        out += [f"- {len(lines)} figures: {reason or 'reason not found.'}", *dict.fromkeys(lines)]
    return out


def summary(found: Sequence[Section]) -> str:
    """One page for the documentation: verdicts, where each study ran, its goals, and what missed with the reason."""
    out = [
        "# Reproduction",
        "",
        "Generated by `python -m reproduction report --summary docs/reproduction.md` from the files in",
    ]
    out += ["`reproduction/results/`; every table is in its `report.md`, with figures in its `report.html`.", ""]
    out += _verdict_table(found)
    for section in found:
        out += ["", f"## {section.study.name}: {section.study.title}", "", *about(section)]
        for table in section.tables:
            if (
                table.lines
                and all(line.verdict in ("met", "not met", "") for line in table.lines)
                and (any(line.verdict for line in table.lines) and len(table.lines) <= 24)
            ):
                out += ["", f"### {table.title}", "", table_markdown(table)]
        missed = misses(section)
        if missed:
            out += ["", "What missed:", "", *missed]
    out += ["", "## What the reasons rest on", "", "`python benchmarks/gaps.py` prints:", ""]
    out += ["```text", GAPS.read_text(encoding="utf-8").rstrip(), "```"]
    return "\n".join(out).rstrip() + "\n"


def _verdict_table(found: Sequence[Section]) -> list[str]:
    out = [
        "The paper's algorithms: agrees, differs. Methods of ours: better, same, worse. Goals: met, not met.",
        "",
    ]
    out += ["| study | in the paper | " + " | ".join(VERDICTS) + " |", "|---|---|" + "---|" * len(VERDICTS)]
    for section in found:
        counts = section.counts
        labels = ", ".join(section.study.labels) or "ours"
        out.append(f"| {section.study.name} | {labels} | " + " | ".join(str(counts[v]) for v in VERDICTS) + " |")
    absent = [name for name in NAMES if name not in {s.study.name for s in found}]
    return [*out, "", f"No results: {', '.join(absent)}."] if absent else out


def markdown(found: Sequence[Section]) -> str:
    """The whole report: a summary, then every table, and what was missed."""
    out = ["# Studies: ours beside the paper's", ""]
    out += [
        "Generated by `python -m reproduction report`. Verdicts: the same algorithm agrees with the printed figure or",
        "differs from it, on either side; a method of ours is better, same or worse, by two standard errors; a goal",
        "is met or not met. The number in brackets is the difference in standard errors.",
        "",
    ]
    if any(o.provenance.get("quick") for section in found for o in section.results.values()):
        out += ["**Short versions: settings are smaller than the paper's, and verdicts mean nothing.**", ""]
    out += _verdict_table(found)
    for section in found:
        out += ["", f"## {section.study.name}: {section.study.title}", "", *about(section)]
        for table in section.tables:
            text = table_markdown(table)
            if text:
                out += ["", f"### {table.title}", "", text]
        missed = misses(section)
        if missed:
            out += ["", "### What missed", "", *missed]
    return "\n".join(out).rstrip() + "\n"
