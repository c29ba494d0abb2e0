"""The benchmark page: scaling curves beside their limits, comparisons, and the cost model that `pgbb plan` uses.

    make bench [QUICK=1]            measure, fit the model, write the page
    python benchmarks/bench.py page  write the page again from what was measured

Measurements go to benchmarks/results/measured.json, the page to docs/benchmarks.md and benchmarks/results/benchmarks.html, the
coefficients to src/pgbb/planning/costs.json. A quick run measures fewer points with fewer repetitions, and leaves the
coefficients in the package alone.
"""

# ruff: noqa: E501 (rows of tables are one line each)
import base64
import io
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).resolve().parents[1]))  # reproduction/ lies beside benchmarks/

import training
from training import Clock

ROOT = Path(__file__).resolve().parents[1]
OUT, DOCS, COSTS = ROOT / "benchmarks" / "results", ROOT / "docs", ROOT / "src" / "pgbb" / "planning" / "costs.json"
MACHINE = os.environ.get("PGBB_MACHINE", f"{os.cpu_count()} cores, no accelerator".replace("2 cores", "two cores"))

Row = dict[str, Any]


# Limits --------------------------------------------------------------------------------------------------------------


def bandwidth() -> float:
    """Bytes a second that a numpy copy reads and writes."""
    a = np.ones(2**26, np.float32)
    b = np.empty_like(a)
    times = []
    for _ in range(5):
        clock = Clock()
        np.copyto(b, a)
        times.append(clock.read())
    return 2 * a.nbytes / min(times)


def latency() -> dict[str, float]:
    """Seconds to call an empty compiled function, and of a step of an empty compiled loop."""
    import jax
    import jax.numpy as jnp

    empty = jax.jit(lambda v: v + 1)
    each = jnp.linspace(0, 1, 10_000)
    loop = jax.jit(lambda v: jax.lax.scan(lambda s, x: (jnp.sin(s) + x, None), v, each)[0])
    value = jnp.zeros(())
    found = {}
    for name, call, count in (("dispatch", empty, 1000), ("scan", loop, 1)):
        jax.block_until_ready(call(value))
        best = math.inf
        for _ in range(5):
            clock = Clock()
            for _ in range(count):
                out = call(value)
            jax.block_until_ready(out)
            best = min(best, clock.read() / (count if name == "dispatch" else 10_000))
        found[name] = best
    return found


# The printed method --------------------------------------------------------------------------------------------------


def paper_point(n: int = 100_000, p: int = 14, q: float = 0.01, k: int = 1, steps: int = 300) -> Row:
    seconds = training.stepped(n, p, q, k, steps, repeats=3)
    return {"n": n, "p": p, "q": q, "K": k, "T": steps, "seconds": seconds, "take": training.copied(n, p, q, k, 5)}


def dimension_point(d: int, steps: int = 300) -> Row:
    """A custom loss of d parameters on two columns."""
    import jax.numpy as jnp

    import pgbb
    from pgbb.accountant import Mechanism
    from pgbb.methods.pgbb.training import train
    from pgbb.private.randomness import Randomness
    from pgbb.private.records import Records
    from pgbb.private.row_layout import empty_rows
    from pgbb.private.session import Session

    n, q = 100_000, 0.01
    rng = np.random.default_rng(0)
    schema = pgbb.Schema(a=pgbb.Range(-1, 1), b=pgbb.Range(-1, 1))
    model = pgbb.Custom(
        lambda t, r, i: 0.5 * jnp.sum((t - r["a"] * jnp.linspace(-1, 1, d) - r["b"]) ** 2),
        dim=d, clip=1.0, columns=["a", "b"], box=(-2, 2),
    )  # fmt: skip
    problem = model.prepare(schema)
    x = rng.uniform(-1, 1, (n, 2)).astype(np.float32)
    rows = empty_rows(*x.shape)
    rows[:, :-2], rows[:, -2], rows[:, -1] = x, 0, 1
    records = Records(rows, np.ones(n, bool))
    mechanism = Mechanism(n=n, blocks=5, sampling_rate=q, steps=steps, draws_per_step=1, clip=problem.clip)
    times = []
    for seed in range(3):
        session = Session(records, problem, mechanism, 0.02, Randomness.create(seed))
        clock = Clock()
        train(session)
        times.append(clock.read() / steps)
    return {"d": d, "seconds": min(times[1:]), "T": steps}


# The default method --------------------------------------------------------------------------------------------------


def default_point(n: int = 100_000, p: int = 4, levels: int = 5, kind: str = "quantile", repeats: int = 3) -> Row:
    """Seconds of a fit of records in memory, compiled before; reading apart."""
    import pandas as pd

    import pgbb
    from pgbb.custody import run as fitting
    from pgbb.private import loading

    rng = np.random.default_rng(0)
    names = [f"x{j}" for j in range(1, p)]
    x = rng.uniform(-1, 1, (n, p - 1)).astype(np.float32)
    y = x[:, :3].sum(axis=1) / 2 + rng.normal(0, 0.5, n).astype(np.float32)
    frame = pd.DataFrame({name: x[:, j] for j, name in enumerate(names)} | {"y": y, "z": (y > 0).astype(np.int8)})
    schema = pgbb.Schema(y=pgbb.Range(-6, 6), z=pgbb.Flag(), **{name: pgbb.Range(-1, 1) for name in names})
    terms = " + ".join(names) or "1"
    model = {
        "quantile": lambda: pgbb.QuantileRegression(f"y ~ {terms}", taus=np.linspace(0.1, 0.9, levels).tolist()),
        "huber": lambda: pgbb.HuberRegression(f"y ~ {terms}"),
        "logistic": lambda: pgbb.LogisticRegression(f"z ~ {terms}"),
        "mean": lambda: pgbb.Mean("y", scale=0.5),
    }[kind]()
    spent = 0.0
    real = loading.records_for

    def timed(*given: Any) -> Any:
        nonlocal spent
        clock = Clock()
        out = real(*given)
        spent = clock.read()
        return out

    times = []
    loading.records_for = timed
    try:
        for seed in range(repeats):
            clock = Clock()
            fitting.fit(model, frame, schema=schema, epsilon=1.0, delta=1e-9, insecure_seed=seed)
            times.append(clock.read() - spent)
    finally:
        loading.records_for = real
    return {"n": n, "p": p if kind != "mean" else 1, "levels": levels, "kind": kind, "seconds": min(times[1:])}


def memory_points(sizes: tuple[int, ...], p: int = 14) -> list[Row]:
    import memory

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path, small = Path(folder) / "d.parquet", Path(folder) / "s.parquet"
        memory.write(small, 20_000, p)
        for n in sizes:
            memory.write(path, n, p)
            rows.append(memory.child(path, small, "calibrated", p) | {"loaded": load_seconds(path, p)})
    return rows


def load_seconds(path: Path, p: int) -> float:
    import pgbb
    from pgbb.model.formula import Design
    from pgbb.private.records import encoded, of_design

    names = [f"x{j}" for j in range(1, p)]
    schema = pgbb.Schema(y=pgbb.Range(-6, 6), **{name: pgbb.Range(-1, 1) for name in names})
    design = Design.parse("y ~ " + " + ".join(names), schema)
    clock = Clock()
    encoded(path, schema, of_design(design, schema))
    return clock.read()


# Comparisons ---------------------------------------------------------------------------------------------------------


def torch_comparison(steps: int) -> Row | None:
    try:
        theirs = training.torch_loop(steps)
    except ImportError:
        return None
    ours, compiling = training.jax_loop(steps)
    return {"steps": steps, "pgbb": ours, "torch": theirs, "compile": compiling, "ratio": theirs / ours}


def natality_step(steps: int) -> Row:
    take = training.copied(1_940_000, 14, 0.01, 5, 10)
    ours = training.stepped(1_940_000, 14, 0.01, 5, steps)
    return {"pgbb": ours, "take": take, "ratio": ours / take}


def census_comparison(share: float) -> Row | None:
    """The default method and the printed one at the paper's settings on the census of 1980; `share` of its steps."""
    if "PGBB_DATA" not in os.environ:
        return None
    import pgbb
    from reproduction.constants import constants
    from reproduction.real import census
    from reproduction.simulate import PROCESS_SCHEMA, process_model

    frame, model = census(1980), process_model()
    printed = constants("census", "paper")
    found = {}
    for method, settings in (("calibrated", {}), ("pgbb", printed | {"steps": round(printed["steps"] * share)})):
        times = []
        for seed in range(3):
            clock = Clock()
            pgbb.fit(
                model,
                frame,
                schema=PROCESS_SCHEMA,
                epsilon=1.0,
                delta=1e-6,
                insecure_seed=seed,
                method=method,
                **settings,
            )
            times.append(clock.read())
        found[method] = min(times[1:])
    found["pgbb"] /= share
    return {"n": len(frame), "default": found["calibrated"], "paper": found["pgbb"], "share": share,
            "ratio": found["calibrated"] / found["pgbb"]}  # fmt: skip


# Measuring, and the model --------------------------------------------------------------------------------------------


def part(name: str, work: Callable[[], Any]) -> Any:
    begin = time.perf_counter()
    found = work()
    print(f"{name:24}{time.perf_counter() - begin:7.1f} s", flush=True)
    return found


def measured(quick: bool) -> Row:
    import compilation

    few = 60 if quick else 300
    ns = (10_000, 100_000) if quick else (10_000, 30_000, 100_000, 300_000, 1_000_000)
    at: dict[str, tuple[Any, ...]] = {
        "paper n": ns if quick else (*ns, 1_940_000),
        "paper p": (3, 30) if quick else (3, 7, 14, 30, 60),
        "paper K": (1, 5) if quick else (1, 2, 5, 10),
        "paper q": (0.001, 0.1) if quick else (0.001, 0.01, 0.1, 1.0),
        "paper T": (100, 1000) if quick else (100, 1000, 10_000),
        "paper d": (2, 32) if quick else (2, 8, 32, 128),
        "default n": ns,
        "default p": (2, 14) if quick else (2, 4, 8, 14, 28),
        "default levels": (1, 5) if quick else (1, 3, 5, 9),
        "default kind": ("huber", "logistic", "mean"),
    }
    point: dict[str, Callable[[Any], Row]] = {
        "paper n": lambda n: paper_point(n=n, steps=few),
        "paper p": lambda p: paper_point(p=p, steps=few),
        "paper K": lambda k: paper_point(k=k, steps=few),
        "paper q": lambda q: paper_point(q=q, steps=few if q < 0.2 else few // 10),
        "paper T": lambda steps: paper_point(n=10_000, p=3, q=0.1, steps=steps),
        "paper d": lambda d: dimension_point(d, few),
        "default n": lambda n: default_point(n=n),
        "default p": lambda p: default_point(p=p),
        "default levels": lambda m: default_point(levels=m),
        "default kind": lambda kind: default_point(kind=kind),
    }
    curves = {name: part(name, lambda name=name: [point[name](v) for v in at[name]]) for name in at}
    sizes = (100_000, 300_000) if quick else (100_000, 300_000, 1_000_000, 3_000_000)
    return {
        "quick": quick,
        "machine": MACHINE,
        "load": os.getloadavg()[0],
        "bandwidth": part("memory bandwidth", bandwidth),
        "latency": part("latency", latency),
        "curves": curves,
        "memory": part("memory", lambda: memory_points(sizes)),
        "compile": part("compilation", lambda: compilation.collect(("mean",) if quick else compilation.FAMILIES)),
        "torch": part("PyTorch loop", lambda: torch_comparison(1000 if quick else 10_000)),
        "natality": part("natality step", lambda: natality_step(60 if quick else 200)),
        "census": part("census", lambda: census_comparison(0.1 if quick else 1.0)),
        "check": part("held out", lambda: held_out(quick)),
    }


def held_out(quick: bool) -> list[Row]:
    """Settings that the model is not fitted to."""
    rows = [
        {"method": "calibrated"} | default_point(n=50_000, p=6, levels=3),
        {"method": "pgbb"} | paper_point(n=40_000, p=10, q=0.05, k=2, steps=100),
    ]
    if not quick:
        rows += [
            {"method": "calibrated"} | default_point(n=500_000, p=10, kind="huber"),
            {"method": "calibrated"} | default_point(n=300_000, p=14),
            {"method": "pgbb"} | paper_point(n=500_000, p=5, q=0.01, k=5, steps=100),
            {"method": "pgbb"} | paper_point(n=10_000, p=4, q=0.1, k=1, steps=1000),
        ]
    return rows


def fitted(m: Row) -> Row:
    """Coefficients by least squares of relative errors, none below zero."""
    from scipy.optimize import nnls

    from pgbb.planning import costs

    def solved(features: list[list[float]], seconds: list[float], names: tuple[str, ...]) -> dict[str, float]:
        scaled = np.array(features) / np.array(seconds)[:, None]
        unit = np.maximum(scaled.max(axis=0), 1e-300)
        return dict(zip(names, (nnls(scaled / unit, np.ones(len(seconds)))[0] / unit).tolist(), strict=True))

    paper = [r for name in ("n", "p", "K", "q", "T") for r in m["curves"][f"paper {name}"]]
    default = [r for name in ("n", "p", "levels", "kind") for r in m["curves"][f"default {name}"]]

    def coefficients(rows: list[Row], work: Callable[[Row], tuple[int, float]]) -> dict[str, float]:
        answers = [(*work(r), r["p"] + costs.EXTRA) for r in rows]
        features = [[count, count * read * cells] for count, read, cells in answers]
        return solved(features, [r["seconds"] for r in rows], ("answer", "cell"))

    last = m["memory"][-1]
    # The process before anything is read, and the compiler: what is at the peak beyond the records.
    fixed = max(r["peak"] * 2**20 - r["n"] * ((r["p"] + costs.EXTRA) * 4 + 1) for r in m["memory"])
    found = {
        "machine": m["machine"],
        "calibrated": coefficients(default, lambda r: (_answers(r["kind"], r["p"]), r["n"])),
        "pgbb": coefficients(paper, lambda r: (r["K"], r["q"] * r["n"])),
        "load": last["loaded"] / (last["n"] * (last["p"] + costs.EXTRA)),
        "compile": {
            "calibrated": max(min(r["cold"], r["cold_cpu"]) for r in m["compile"]),
            "pgbb": m["torch"]["compile"] if m["torch"] else 2.0,
        },
        "fixed_memory": fixed,
    }
    ratios = [predicted(found, r) / r["seconds"] for r in m["check"]]
    return found | {"worst": max(max(ratio, 1 / ratio) for ratio in ratios)}


def _answers(kind: str, p: int) -> int:
    """How many answers a fit of the default method asks for."""
    from pgbb.methods.calibrated.stages import questions_for
    from pgbb.planning.forecast import Reference

    return sum(s.asks for s in questions_for(Reference(kind, p).problem(), 1))  # type: ignore[arg-type]


def predicted(c: Row, r: Row) -> float:
    """Seconds of a fit of the default method, or of a step of the printed one."""
    from pgbb.planning import costs

    if r["method"] == "pgbb":
        return costs.seconds("pgbb", r["K"], r["q"] * r["n"], r["p"], c)
    return costs.seconds("calibrated", _answers(r["kind"], r["p"]), r["n"], r["p"], c)


def slope(rows: list[Row], x: str = "n") -> float:
    return float(np.polyfit(np.log([r[x] for r in rows]), np.log([r["seconds"] for r in rows]), 1)[0])


# The page ------------------------------------------------------------------------------------------------------------


def panels(m: Row) -> list[tuple[str, str, str, list[Row], list[tuple[str, list[float]]]]]:
    """Name, x, label of y, points, and the limits beside them."""
    from pgbb.planning import costs

    c = m["curves"]
    width = 4 / m["bandwidth"]
    found = []
    labels = {
        "n": "records n",
        "p": "terms p",
        "K": "draws K",
        "q": "sampling rate q",
        "T": "steps T",
        "d": "parameters d",
    }
    for x in ("n", "p", "K", "q", "T"):
        rows = c[f"paper {x}"]
        limits = [
            ("numpy.take of the rows", [r["take"] for r in rows]),
            ("bandwidth", [r["K"] * r["q"] * r["n"] * (r["p"] + costs.EXTRA) * width for r in rows]),
            ("empty step", [m["latency"]["scan"]] * len(rows)),
        ]
        found.append((f'method="pgbb": a step against {labels[x]}', x, "seconds", rows, limits))
    rows = c["paper d"]
    found.append(
        (
            f'method="pgbb": a step against {labels["d"]}',
            "d",
            "seconds",
            rows,
            [("empty step", [m["latency"]["scan"]] * len(rows))],
        )
    )
    for x, label in (("n", "records n"), ("p", "terms p"), ("levels", "levels")):
        rows = c[f"default {x}"]
        passes = [_answers(r["kind"], r["p"]) for r in rows]
        limits = [
            (
                "bandwidth, all passes",
                [k * r["n"] * (r["p"] + costs.EXTRA) * width for k, r in zip(passes, rows, strict=True)],
            ),
            ("dispatch", [k * m["latency"]["dispatch"] for k in passes]),
        ]
        found.append((f"default method: a fit against {label}", x, "seconds", rows, limits))
    rows = [{"n": r["n"], "seconds": r["peak"] - r["ready"]} for r in m["memory"]]
    limits = [
        ("packed rows", [r["n"] * (14 + costs.EXTRA) * 4 / 2**20 for r in rows]),
        ("design matrix", [r["n"] * 14 * 4 / 2**20 for r in rows]),
    ]
    found.append(("default method from Parquet: peak memory against n, p = 14", "n", "MiB", rows, limits))
    return found  # fmt: skip


def drawing(m: Row) -> str:
    """All panels in one SVG."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = panels(m)
    height = -(-len(shown) // 2)
    figure, axes = plt.subplots(height, 2, figsize=(10, 3.4 * height), constrained_layout=True)
    for axis, (title, x, unit, rows, limits) in zip(axes.flat, shown, strict=False):
        at = [r[x] for r in rows]
        axis.plot(at, [r["seconds"] for r in rows], "o-", label="pgbb", color="C0")
        for (label, values), style in zip(limits, ("--", ":", "-."), strict=False):
            axis.plot(at, values, style, label=label, color="0.4")
        axis.set(xscale="log", yscale="log", xlabel=x, ylabel=unit)
        axis.set_title(title, fontsize=10)
        axis.legend(fontsize=7)
    for axis in list(axes.flat)[len(shown) :]:
        axis.axis("off")
    out = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "pgbb"}):
        figure.savefig(out, format="svg", metadata={"Date": None})
    plt.close(figure)
    text = out.getvalue()
    return text[text.index("<svg") :]


def text(m: Row, c: Row) -> str:
    """The page in Markdown, without the drawing; every number comes from what was measured."""
    lines = [
        "# Benchmarks",
        "",
        f"Written by `make bench` on {m['machine']}"
        + (", a quick run" if m["quick"] else "")
        + f"; load {m['load']:.1f} when it "
        "began to measure. Seconds are those of the clock or, where they are fewer, of the processor, so that other work on the machine "
        "counts less. Ratios are of two things measured in one run. The numbers are in `benchmarks/results/measured.json`.",
        "",
        "![Scaling curves, with the limit of the machine beside each](images/benchmarks.svg)",
        "",
        "## Limits of the machine",
        "",
        "| what | measured |",
        "|---|---|",
        f"| memory bandwidth, a numpy copy | {m['bandwidth'] / 1e9:.1f} GB/s |",
        f"| an empty compiled function, called | {m['latency']['dispatch'] * 1e6:.0f} µs |",
        f"| an empty step of a compiled loop | {m['latency']['scan'] * 1e6:.2f} µs |",
        "",
        "## Comparisons",
        "",
        "| what | pgbb | beside it | ratio |",
        "|---|---|---|---|",
    ]
    if m["torch"]:
        t = m["torch"]
        lines.append(
            f"| Algorithm 1, n = 10,000, T = {t['steps']:,}, K = 1 | {t['pgbb']:.2f} s | {t['torch']:.2f} s, a plain PyTorch loop "
            f"| {t['ratio']:.1f} times faster |"
        )
    k = m["natality"]
    lines.append(
        f"| a step, n = 1.94M, p = 14, q = .01, K = 5 | {k['pgbb'] * 1e3:.2f} ms | {k['take'] * 1e3:.2f} ms, `numpy.take` of the rows "
        f"| {k['ratio']:.2f} of its time |"
    )
    if m["census"]:
        e = m["census"]
        lines.append(
            f'| census 1980, n = {e["n"]:,}, the default method | {e["default"]:.2f} s | {e["paper"]:.2f} s, `method="pgbb"` as printed '
            f"| {e['ratio']:.3f} of its time |"
        )
    lines += [
        "",
        f"Time of the default method grows as n to the power {slope(m['curves']['default n'][1:]):.2f} from n = "
        f"{m['curves']['default n'][1]['n']:,} on."
        if len(m["curves"]["default n"]) > 2
        else "",
        "",
        "## Compilation of the default method",
        "",
        "| model | programs | cold | processor time | in a second process | a fit after that |",
        "|---|---|---|---|---|---|",
        *(
            f"| {r['family']} | {r['programs']} | {r['cold']:.2f} s | {r['cold_cpu']:.2f} s | {r['cached']:.2f} s | {r['cold_fit']:.2f} s |"
            for r in m["compile"]
        ),
        "",
        "## Memory of a fit from Parquet, p = 14",
        "",
        "Peak of the process less what it holds after a small fit, over the design matrix (n·p·4 bytes) and over the packed rows "
        "(n·(p + 2)·4 bytes: response and weight beside the terms).",
        "",
        "| n | peak | over the matrix | over the rows |",
        "|---|---|---|---|",
        *(
            f"| {r['n']:,} | {r['peak']:.0f} MiB | {r['over_ready']:.2f} | {r['packed_over_ready']:.2f} |"
            for r in m["memory"]
        ),
        "",
        "## Passes of the default method beside their limits",
        "",
        "As `python benchmarks/scale.py` prints them, in `benchmarks/results/roofline.txt`: an answer, and what the machine needs at least to read the rows once, and for the operations of a statistic.",
        "",
        "```text",
        (OUT / "roofline.txt").read_text(encoding="utf-8").rstrip(),
        "```",
        "",
        Path(__file__).with_name("missed.md").read_text(encoding="utf-8").rstrip(),
        "",
        "## The cost model",
        "",
        "`pgbb plan` predicts by these coefficients, in `src/pgbb/planning/costs.json`, for this machine with nothing else to do:",
        "",
        f"- default method: answers·({c['calibrated']['answer']:.2g} s + n·(p + 2)·{c['calibrated']['cell']:.2g} s);",
        f'- `method="pgbb"`: T·K·({c["pgbb"]["answer"]:.2g} s + q·n·(p + 2)·{c["pgbb"]["cell"]:.2g} s);',
        f"- reading Parquet: n·(p + 2)·{c['load']:.2g} s; memory: n·((p + 2)·4 + 1) bytes + {c['fixed_memory'] / 2**20:.0f} MiB.",
        "",
        f"Settings that it was not fitted to; it is wrong by a factor of at most {c['worst']:.1f}:",
        "",
        "| method | n | p | measured | predicted | ratio |",
        "|---|---|---|---|---|---|",
        *(
            f"| {r['method']}{', a step' if r['method'] == 'pgbb' else ''} | {r['n']:,} | {r['p']} | {r['seconds']:.4g} s | "
            f"{predicted(c, r):.4g} s | {predicted(c, r) / r['seconds']:.2f} |"
            for r in m["check"]
        ),
    ]
    return "\n".join(lines) + "\n"


def html(m: Row, c: Row, svg: str) -> str:
    """The same as one page that asks nothing of any network."""
    body = []
    for line in text(m, c).splitlines():
        if line.startswith("!["):
            body.append(svg)
        elif line.startswith("#"):
            level = len(line) - len(line.lstrip("#"))
            body.append(f"<h{level}>{_inline(line[level + 1 :])}</h{level}>")
        elif line.startswith("|---"):
            continue
        elif line.startswith("|"):
            cells = "".join(f"<td>{_inline(cell.strip())}</td>" for cell in line.strip("|").split("|"))
            body.append(
                f"<tr>{cells}</tr>" if body and body[-1].startswith("<tr") else f"<table></table><tr>{cells}</tr>"
            )
        elif line.startswith("- "):
            body.append(f"<p>• {_inline(line[2:])}</p>")
        elif line:
            body.append(f"<p>{_inline(line)}</p>")
        elif body and body[-1].startswith("<"):
            body.append("")
    whole, table = [], False
    for line in body:
        row = line.removeprefix("<table></table>")
        if row.startswith("<tr") and not table:
            whole.append("<table>")
        elif table and not row.startswith("<tr"):
            whole.append("</table>")
        table = row.startswith("<tr")
        whole.append(row)
    style = "body{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}td{padding:.1em 1em .1em 0}svg{max-width:100%;height:auto}"
    icon = base64.b64encode(b"<svg xmlns='http://www.w3.org/2000/svg'/>").decode()
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>pgbb: benchmarks</title>'
        f'<link rel="icon" href="data:image/svg+xml;base64,{icon}"><style>{style}</style><body>\n'
        + "\n".join(whole) + ("</table>" if table else "") + "\n</body></html>\n"
    )  # fmt: skip


def _inline(line: str) -> str:
    parts = line.replace("&", "&amp;").replace("<", "&lt;").split("`")
    return "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))


def page(m: Row, c: Row) -> None:
    svg = drawing(m)
    (DOCS / "images" / "benchmarks.svg").write_text('<?xml version="1.0" encoding="utf-8"?>\n' + svg)
    (DOCS / "benchmarks.md").write_text(text(m, c))
    (OUT / "benchmarks.html").write_text(html(m, c, svg))
    print(f"wrote {(DOCS / 'benchmarks.md').relative_to(ROOT)} and {(OUT / 'benchmarks.html').relative_to(ROOT)}")


def main(arguments: list[str]) -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    target = OUT / "measured.json"
    if "page" not in arguments:
        begin = time.perf_counter()
        found = measured("--quick" in arguments)
        target.write_text(json.dumps(found, indent=1) + "\n")
        print(f"measured in {time.perf_counter() - begin:.0f} s")
        if not found["quick"]:
            COSTS.write_text(json.dumps(fitted(found), indent=2) + "\n")
    found = json.loads(target.read_text())
    page(found, fitted(found) if found["quick"] else json.loads(COSTS.read_text()))


if __name__ == "__main__":
    main(sys.argv[1:])
