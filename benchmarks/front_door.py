"""The front door: does one hostile cell change anything but its own record, in any container?

    python benchmarks/front_door.py [fuzz] [--cases N] [--seed S] [--only C] neighbours of tests/private/front_door.py
    python benchmarks/front_door.py replay                            the faults that an attack found, line by line
    python benchmarks/front_door.py sas FILE.sas7bdat ...             the bytes of one cell, in files that SAS wrote
    python benchmarks/front_door.py spark                             a cell of a Spark frame, read by an executor

`fuzz` draws a container, a kind of column, a hostile cell and its place, reads the data with and without the cell, and
compares all other encoded rows bit for bit, dtypes, n, errors, warnings and what is printed. It prints the cases and
findings by container and by kind of column (a run is in benchmarks/results/front-door.txt), and exits with 1 on a
finding. PYTHONPATH decides which pgbb is tried.
"""

import argparse
import collections
import decimal
import os
import random
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pgbb
from pgbb import _validate
from pgbb.model.schema import Date, Flag, Levels, Range, Schema
from tests.private import front_door
from tests.private.loaded import load_columns

WHERE = os.path.relpath(Path(pgbb.__file__).parent, Path(__file__).resolve().parent.parent)


def fuzz(cases: int, seed: int, only: str = "") -> int:
    """Draw cases until so many were tried; those that a container cannot hold are not counted."""
    groups = [i for i, group in enumerate(front_door.GROUPS) if group[0].startswith(only)]
    draw, began = random.Random(seed), time.monotonic()
    tried: collections.Counter[tuple[str, str]] = collections.Counter()
    found: dict[tuple[str, str, str], list[str]] = {}
    while sum(tried.values()) < cases:
        case = front_door.case(
            draw.choice(groups), draw.choice(list(front_door.VALUES)), draw.choice(front_door.PLACES)
        )
        try:
            wrong = case.find()
        except front_door.Unfit:
            continue
        family = case.container.split(" of ")[0].split(",")[0]
        tried[family, case.kind] += 1
        if wrong is not None:
            found.setdefault((family, case.kind, wrong[:60]), []).append(case.cell)
    for title, which in (("container", 0), ("kind of column", 1)):
        print(f"\n{'cases':>7} {'findings':>9}  {title}")
        for name in sorted({key[which] for key in tried}):
            count = sum(v for key, v in tried.items() if key[which] == name)
            wrong_ones = sum(len(v) for key, v in found.items() if key[which] == name)
            print(f"{count:7,} {wrong_ones:9,}  {name}")
    total = sum(map(len, found.values()))
    print(f"\n{WHERE}: {cases:,} cases, {len(tried)} pairs, {time.monotonic() - began:.0f} s, {total} findings")
    for (family, kind, wrong), cells in sorted(found.items(), key=lambda item: -len(item[1]))[:40]:
        print(f"  {len(cells):4} {family}, {kind}: {wrong!r}, such as {cells[0]}")
    return int(total > 0)


# The table of the attack ----------------------------------------------------------------------------------------------


def _same(build: Callable[[Any, Path], Any], good: Any, odd: Any, declared: Any) -> str:
    """What the odd cell in the middle of three does to the other two records."""
    seen = []
    with tempfile.TemporaryDirectory() as folder:
        for cell in (good, odd):
            seen.append(front_door.watch(lambda c=cell: front_door.columns(build(c, Path(folder)), declared)))
    if seen[0].said != seen[1].said:
        return f"DIFFERS: says {seen[1].said.strip()[:70]!r}"
    if seen[0].n != seen[1].n:
        return f"DIFFERS: n = {seen[0].n} and {seen[1].n}"
    return "the same for all others" if seen[0].but(1) == seen[1].but(1) else "DIFFERS: other rows are read otherwise"


def _labels(cell: Any) -> str:
    from pgbb.sklearn import PrivateLogisticClassifier

    model = PrivateLogisticClassifier(epsilon=0.5, delta=1e-6, classes=(0, 1), feature_range=(0, 4))
    rows = [front_door.estimated(model, np.ones((3, 1)), [1, y, 0]) for y in (1, cell)]
    same = np.array_equal(np.delete(rows[0], 1, 0), np.delete(rows[1], 1, 0))
    return "the same for all others" if same else f"DIFFERS: {int(rows[1][:, -1].sum())} of 3 records are usable"


def _features() -> str:
    from pgbb.sklearn import PrivateQuantileRegressor

    model = PrivateQuantileRegressor(epsilon=0.5, delta=1e-6, feature_range=[(0, 4)], response_range=(0, 4))
    seen = front_door.watch(lambda: front_door.estimated(model, [[1.0], ["?"], [3.0]], [1.0, 2.0, "?"]))
    return "all records are kept" if seen.n == 3 else f"DIFFERS: says {seen.said.strip()[:70]!r}"


def _frame(column: Any) -> pd.DataFrame:
    return pd.DataFrame({"c": column})


def _text_file(cell: bytes, folder: Path) -> Path:
    (folder / "d.csv").write_bytes(b"c,x\n1,1\n" + cell + b",1\n2,1\n")
    return folder / "d.csv"


def _long_text(damaged: bool, folder: Path) -> Path:
    path = folder / "d.dta"
    _frame(["north", "north", "south"]).to_stata(path, write_index=False, version=118, convert_strl=["c"])
    whole = path.read_bytes()
    at = whole.index(b"<data>") + 6 + 8
    path.write_bytes(whole[:at] + b"\x09" * 8 + whole[at + 8 :] if damaged else whole)
    return path


def _line_feeds() -> str:
    from tests.private.loaded import load_columns

    with tempfile.TemporaryDirectory() as folder:
        file = _text_file(b'"' + b"\n" * 999 + b'"', Path(folder))
        count = load_columns(file, Schema(c=Range(0, 4)), ["c"]).n
    return "3" if count == 3 else f"DIFFERS: {count}"


def _ragged() -> str:
    from pgbb.sklearn import PrivateQuantileRegressor

    model = PrivateQuantileRegressor(epsilon=0.5, delta=1e-6, feature_range=(0, 4), response_range=(0, 4))
    ragged = [[1.0], [1.0], [1.0, 2.0], [1.0, 2.0]]
    said = {front_door.watch(lambda x=x: front_door.estimated(model, x, [1.0] * 5)).said for x in (
        [*ragged, [1.0]], [*ragged, [1.0, 2.0]])}  # fmt: skip
    return "refused by its type" if len(said) == 1 and "Declare" in said.pop() else "DIFFERS: one row decides p"


def _run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )


def _sgld() -> str:
    code = (
        "import pgbb, warnings; warnings.simplefilter('ignore');"
        "s = pgbb.Schema(x=pgbb.Range(0, 1), y=pgbb.Range(0, 1));"
        "import pandas; d = pandas.DataFrame({'x': [.1, .9] * 50, 'y': [.2, .8] * 50});"
        "pgbb.fit(pgbb.HuberRegression('y ~ x'), d, schema=s, epsilon=5.0, delta=1e-6, method='sgld', steps=20)"
    )
    done = _run("-c", code, JAX_ENABLE_X64="1")
    return "fits" if done.returncode == 0 else f"FAILS: {done.stderr.strip().splitlines()[-1][:70]}"


def _init() -> str:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "d.csv").write_text("Anna,north\nBert,south\n")
        _run("-m", "pgbb", "init", f"{folder}/d.csv", "-o", f"{folder}/s.toml")
        text = (Path(folder) / "s.toml").read_text()
    return "CLAIMS that no value was read" if "No value was read" in text else "says that the first line was read"


def _compare() -> str:
    from pgbb.cli.output import schema

    text = str(schema("compare")["$defs"]["compare"])
    return "PUBLISHES seconds" if "'seconds'" in text else "publishes no times"


def _refits() -> str:
    """A method that does not arrive is put in place of both that do."""
    from pgbb.private import refits
    from tests.private.test_refits import task

    problem, far = task("logistic", np.ones((4, 2)), np.array([1.0, 0, 1, 1])), np.full(2, 100.0)
    with (
        mock.patch.object(refits, "_candidates", lambda _: iter(())),
        mock.patch.object(refits, "_accelerated", lambda *_: far),
    ):
        found = refits._fit(problem)
    return "RETURNS the point that missed" if np.array_equal(found, far) else "the public start is returned"


def replay() -> int:
    """Each row of the table: what is done, and what comes of it on this code."""
    text, stata = Levels("north", "south"), front_door._stata

    def objects(cell: Any, _: Path) -> pd.DataFrame:
        return _frame(pd.Series(["north", cell, "south"], dtype=object))

    def parquet(kind: pa.DataType) -> Callable[[Any, Path], Any]:
        return lambda c, f: front_door._parquet(["north", c, "south"], kind, c, f)

    def arrow(cells: list[Any], kind: pa.DataType) -> Callable[[Any, Path], Any]:
        return lambda c, f: front_door._parquet([cells[0], c, cells[1]], kind, c, f)

    days = front_door.KINDS["levels of days"]
    zone = front_door.KINDS["levels of moments in a zone"]
    rows = [
        *((f"classifier, y a list with {cell!r}", partial(_labels, cell)) for cell in ("?", "1", b"x")),
        ("regressor, X and y lists with '?'", _features),
        ("Stata int8 as Levels('1.0', '2.0'), one missing", lambda: _same(
            lambda c, f: stata([1, c, 2], "int8", None, f), 1, None, Levels("1.0", "2.0"))),
        ("categorical that pandas made, as Levels('1.0', '2.0'), one 2.5", lambda: _same(
            lambda c, f: _frame(pd.Categorical([1, c, 2])), 1, 2.5, Levels("1.0", "2.0"))),
        ("Parquet text, one not UTF-8", lambda: _same(parquet(pa.string()), b"north", b"\xff", text)),
        ("Parquet dictionary of text, one not UTF-8", lambda: _same(
            parquet(front_door.TEXT[-1]), b"north", b"\xff", text)),
        ("Parquet date, one after the year 9999", lambda: _same(
            arrow(list(days.good), pa.date32()), 0, 2**30, days.declared)),
        ("Parquet timestamp with a zone, one out of range", lambda: _same(
            arrow(list(zone.good), zone.arrow[0]), 0, 2**62, zone.declared)),
        ("Parquet time64, one out of range", lambda: _same(
            arrow(list(front_door.KINDS["levels of times"].good), pa.time64("us")), 0, -(2**62),
            front_door.KINDS["levels of times"].declared)),
        ("Stata, two codes of one label, both occur", lambda: _same(
            lambda c, f: stata([1, c, 2], "int8", None, f, True), 1, 3, text)),
        ("Stata text, one not UTF-8", lambda: _same(
            lambda c, f: stata(["north", c, "south"], "str", c, f), b"abcd", b"\xff\xfe", text)),
        ("Stata long text, the key of no text", lambda: _same(_long_text, False, True, text)),
        ("CSV, many line feeds in a cell: how many records", _line_feeds),
        ("regressor, X a list, one range for all", _ragged),
        ("object of 5,001 digits", lambda: _same(objects, "north", 10**5000, text)),
        ("object Decimal('sNaN')", lambda: _same(objects, "north", decimal.Decimal("sNaN"), text)),
        ("CSV, a bare carriage return in a cell", lambda: _same(_text_file, b"1", b"1\r1", Range(0, 4))),
        ("CSV, an open quotation mark in a cell", lambda: _same(_text_file, b"1", b'"1', Range(0, 4))),
        ("sgld with JAX_ENABLE_X64=1", _sgld),
        ("pgbb init, CSV without a header", _init),
        ("pgbb compare --json", _compare),
        ("a level with U+2028", lambda: "PASSES as visible" if _validate.visible("a\u2028b") else "refused"),
        ("refits that miss their tolerance", _refits),
    ]  # fmt: skip
    wrong = 0
    for name, run in rows:
        found = run()
        wrong += found.split(":")[0].split()[0].isupper()
        print(f"{name:72} {found}", flush=True)
    print(f"\n{WHERE}: {len(rows)} rows, {wrong} at fault")
    return int(wrong > 0)


# Files of SAS ---------------------------------------------------------------------------------------------------------

_PATTERNS = [
    *(bytes([byte]) * 8 for byte in (0, 32, 128, 255)), b"\xff\xfeabc\r\n\x1a", b"\1".ljust(8, b"\0"),
    *(bytes(6) + end for end in (b"\xf0\x7f", b"\xf0\xff", b"\xf8\x7f", b"\xff\xff")), b"\xff" * 6 + b"\xef\x7f",
    *(bytes(5) + end + b"\xff\xff" for end in (b"\xfe", b"\xbe", b"\xd1")),
]  # fmt: skip
"""Eight bytes: numbers, infinities, what SAS writes where nothing is known, text that is no text."""


def sas(files: list[str]) -> int:
    """Each cell whose bytes occur once in its file, replaced by each pattern: what becomes of the other records?"""
    import pyreadstat

    tried = wrong = 0
    for name in files:
        whole, kept = Path(name).read_bytes(), pyreadstat.read_sas7bdat(name, output_format="dict",
            disable_datetime_conversion=True)  # fmt: skip
        for column, cells in kept[0].items():
            for place, cell in enumerate(cells):
                stored = (
                    cell.encode() if isinstance(cell, str) else np.float64(np.nan if cell is None else cell).tobytes()
                )
                if len(stored) < 4 or whole.count(stored) != 1:
                    continue
                declared: list[Any] = [Levels("a", "b"), Range(-1e12, 1e12), Date("1600-01-01", "2200-01-01")]
                for kind in declared if not isinstance(cell, str) else declared[:1]:
                    tried, wrong = (x + y for x, y in zip((tried, wrong), _sas_cell(
                        whole, stored, column, place, kind), strict=True))  # fmt: skip
    print(f"{WHERE}: {len(files)} files of SAS, {tried:,} cases, {wrong} findings")
    return int(wrong > 0)


def _sas_cell(whole: bytes, stored: bytes, column: str, place: int, declared: Any) -> tuple[int, int]:
    seen = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "d.sas7bdat"
        for pattern in (stored, *_PATTERNS):
            path.write_bytes(whole.replace(stored, (pattern * len(stored))[: len(stored)]))
            seen.append(front_door.watch(lambda: _column(path, column, declared)))
    first = seen[0]
    bad = [s for s in seen[1:] if (s.said, s.n, s.types) != (first.said, first.n, first.types)
           or s.but(place) != first.but(place)]  # fmt: skip
    for other in bad:
        print(f"{column} {place} {declared!r}: {other.said.strip()[:90]!r}, n = {other.n}")
    return len(_PATTERNS), len(bad)


def _column(path: Path, column: str, declared: Any) -> Any:
    data = load_columns(path, Schema(**{column: declared}), [column])
    return np.column_stack([data.values[column], data.valid])


# Spark ----------------------------------------------------------------------------------------------------------------

_IN_SPARK: dict[str, tuple[Any, list[str], list[str]]] = {
    "double": (Range(0, 4), ["0.5D", "3.0D"], [
        "NULL", "double('NaN')", "double('Infinity')", "-0.0D", "1e308D", "4.9e-324D"]),
    "int": (Range(0, 4), ["1", "3"], ["NULL", "2147483647", "-2147483648"]),
    "bigint": (Levels(1, 2), ["1L", "2L"], ["NULL", "9223372036854775807L", "9007199254740993L"]),
    "decimal": (Range(0, 4), ["0.50BD", "1.25BD"], ["NULL", "cast(9.99 AS decimal(3,2))"]),
    "boolean": (Flag(), ["true", "false"], ["NULL"]),
    "string": (Levels("north", "south"), ["'north'", "'south'"], [
        "NULL", "''", "'?'", "cast(X'FFFE' AS string)", "cast(X'610062' AS string)", "cast(X'EDA080' AS string)",
        "repeat('x', 100000)", "'a\\rb'", "'a\\nb'"]),
    "binary": (Levels("north", "south"), ["X'6e6f727468'", "X'736f757468'"], ["NULL", "X''", "X'FFFE'"]),
    "date": (Date("2000-01-01", "2030-12-31"), ["date'2020-01-01'", "date'2021-05-05'"], [
        "NULL", "date'0001-01-01'", "date'9999-12-31'", "date'+99999-01-01'", "date'-0044-03-15'"]),
    "timestamp": (Levels("2020-01-01 01:30:00+00:00", "2021-05-05 01:30:00+00:00"), [
        "timestamp'2020-01-01 01:30:00'", "timestamp'2021-05-05 01:30:00'"], [
        "NULL", "timestamp'0001-01-01 00:00:00'", "timestamp'+290000-01-01 00:00:00'"]),
}  # fmt: skip


def _encoded(declared: Any, batches: Any) -> Any:
    """On an executor: the encoded rows of its records, or what was said."""
    seen = front_door.watch(lambda: front_door.columns(pa.Table.from_batches(list(batches)), declared))
    rows = b"" if seen.rows is None else seen.rows.tobytes()
    kept = {"rows": [rows], "n": [seen.n], "said": [seen.said], "types": [seen.types]}
    types = [("rows", pa.binary()), ("n", pa.int64()), ("said", pa.string()), ("types", pa.string())]
    yield pa.RecordBatch.from_pydict(kept, pa.schema(types))


def spark() -> int:
    """Each hostile cell in a frame of eight records, at three places; what an executor makes of the other seven."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    root = str(Path(__file__).resolve().parent.parent)
    os.environ["PYTHONPATH"] = os.pathsep.join([root, str(Path(pgbb.__file__).parents[1])])
    builder = SparkSession.builder.master("local[1]")
    options = {"spark.ui.enabled": "false", "spark.log.level": "OFF", "spark.sql.session.timeZone": "UTC"}
    for name, value in options.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    tried = wrong = 0
    columns = "rows binary, n long, said string, types string"

    def seen(declared: Any, cells: list[str]) -> front_door.Seen:
        frame = session.sql("SELECT * FROM VALUES " + ", ".join(f"({cell})" for cell in cells) + " AS t(c)").coalesce(1)
        (row,) = frame.mapInArrow(partial(_encoded, declared), columns).collect()
        rows = np.frombuffer(row.rows, row.types).reshape(row.n, -1) if row.n >= 0 else None
        return front_door.Seen(row.said, row.n, row.types, rows)

    for name, (declared, good, hostile) in _IN_SPARK.items():
        plain = [good[i % 2] for i in range(front_door.N)]
        before = seen(declared, plain)
        if before.n != front_door.N or not before.rows[:, -1].all():
            wrong += 1
            print(f"{name}: good cells are not read: {before.said[:90]!r}")
        for cell in hostile:
            for place in front_door.PLACES:
                after, tried = seen(declared, [*plain[:place], cell, *plain[place + 1 :]]), tried + 1
                same = (after.said, after.n, after.types) == (before.said, before.n, before.types)
                if not same or after.but(place) != before.but(place):
                    wrong += 1
                    print(f"{name}, {cell} at {place}: {after.said.strip()[:90]!r}, n = {after.n}")
    session.stop()
    print(f"{WHERE}: Spark, {len(_IN_SPARK)} types, {tried} cases, {wrong} findings")
    return int(wrong > 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("fuzz", "replay", "sas", "spark"), default="fuzz")
    parser.add_argument("files", nargs="*", help="of SAS")
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="containers whose names begin so")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    runs = {
        "fuzz": lambda: fuzz(given.cases, given.seed, given.only),
        "replay": replay,
        "sas": lambda: sas(given.files),
        "spark": spark,
    }
    sys.exit(runs[given.what]())


if __name__ == "__main__":
    main()
