"""The report as one self-contained HTML page: every table and figure, nothing fetched from anywhere."""

import base64
import html
import io
from collections.abc import Callable, Sequence
from typing import Any

from reproduction.report.figures import figures
from reproduction.report.markdown import MISSES, VERDICTS, Section, about, grid
from reproduction.study import Results, Table

__all__ = ["page"]

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; font-size: 12.5px; margin: .6rem 0 }
th, td { border-bottom: 1px solid #ddd; padding: .15rem .55rem; text-align: right; white-space: nowrap }
th { border-bottom: 1px solid #888; position: sticky; top: 0; background: #fff }
td.miss { background: #fde2e0; font-weight: 600 } td.good { background: #e4f4e4 }
div.wide { overflow-x: auto } img { max-width: 100% } p.note { color: #555; font-size: 13px; margin: .2rem 0 }
"""
GOOD = ("better", "met")


def _table(table: Table) -> str:
    heads, rows = grid(table)
    if not rows:
        return ""
    out = [f"<h3>{html.escape(table.title)}</h3><div class=wide><table><tr>"]
    out += [f"<th>{html.escape(head)}</th>" for head in heads]
    out.append("</tr>")
    for row in rows:
        cells = []
        for text in row:
            kind = next((c for words, c in ((MISSES, "miss"), (GOOD, "good")) if text.startswith(words)), "")
            cells.append(f"<td class={kind}>{html.escape(text)}</td>" if kind else f"<td>{html.escape(text)}</td>")
        out.append("<tr>" + "".join(cells) + "</tr>")
    out.append("</table></div>")
    rules = dict.fromkeys(f"Rule: {line.rule}." for line in table.lines if line.rule and line.verdict)
    out += [f"<p class=note>{html.escape(note)}</p>" for note in (*list(rules)[:6], *table.notes)]
    return "".join(out)


def _image(label: str, caption: str, figure: Any) -> str:
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=110)
    text = base64.b64encode(data.getvalue()).decode("ascii")
    words = html.escape(f"{label}. {caption}")
    return f'<figure><img alt="{words}" src="data:image/png;base64,{text}"><figcaption>{words}</figcaption></figure>'


def page(found: Sequence[Section], others: Callable[[str], Results]) -> str:
    """The whole report."""
    out = ["<!doctype html><html lang=en><meta charset=utf-8><title>pgbb studies</title>"]
    out.append(f"<style>{STYLE}</style><h1>Studies: ours beside the paper's</h1>")
    if any(o.provenance.get("quick") for section in found for o in section.results.values()):
        out.append("<p><b>Short versions: settings are smaller than the paper's, and verdicts mean nothing.</b></p>")
    out.append("<table><tr><th>study</th>" + "".join(f"<th>{v}</th>" for v in VERDICTS) + "</tr>")
    for section in found:
        name, counts = section.study.name, section.counts
        cells = "".join(f"<td>{counts[v]}</td>" for v in VERDICTS)
        out.append(f'<tr><td><a href="#{name}">{name}</a></td>{cells}</tr>')
    out.append("</table>")
    for section in found:
        study = section.study
        out.append(f'<h2 id="{study.name}">{study.name}: {html.escape(study.title)}</h2>')
        out += [f"<p class=note>{html.escape(line)}</p>" for line in about(section)]
        out += [_image(*figure) for figure in figures(study.name, section.results, others)]
        out += [_table(table) for table in section.tables]
    return "".join(out) + "</html>\n"
