"""The targets of benchmarks/fuzz.py: valid inputs, mutations that know their structure, and what must hold of a case.

A target has `seeds`, `mutate` (None: let the engine mutate bytes), `run` (works, or raises) and `check` (raises
AssertionError on what a case said). Everything is written below the one folder that a target is given.
"""

import contextlib
import copy
import hashlib
import html.parser
import io
import json
import math
import random
import shutil
import sqlite3
import struct
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pgbb.accountant import Mechanism, compose
from pgbb.accountant.resampling import Resampling
from pgbb.cli import app
from pgbb.custody.entries import LedgerError
from pgbb.custody.ledger import Ledger
from pgbb.custody.ledger_file import APPLICATION, GUARDS, TABLE, VERSION
from pgbb.errors import InvalidValue, PgbbError
from pgbb.model.formula import Design
from pgbb.model.schema import Flag, Levels, Range, Schema
from pgbb.release.certificate import Certificate
from pgbb.release.file import Release, load
from pgbb.report import page
from tests.private.loaded import load as load_records
from tests.private.loaded import load_columns
from tests.release.builders import SCHEMA as PLAIN_SCHEMA
from tests.release.builders import certificate, generator, local, model, stored_draws, transcript

NUMBERS = [
    0, 1, -1, 2, 20, 21, 0.5, -0.0, 1e-9, 1e-320, 1e30, 1e308, -1e308, 2**31, 2**63, 2**64, 10**30, 10**400,
    math.nan, math.inf, -math.inf, 1.7976931348623157e308, 1e-300, 4096, 10**9,
]  # fmt: skip
TEXTS = [
    "", " ", "x", "y", "1", "flag", "range", "levels", "columns", "\x00", "\x1b[2J\x1b[1;1H", "\u202egnp", "\ud800",
    "é" * 40, "</script><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "<!--", "${data}", "{{7*7}}",
    "../../x", "/etc/passwd", "C:\\x", "__import__('os').system('true')", "%s%n", "a" * 5000,
    "'; DROP TABLE events; --", "[bold red]x[/]", "NaN", "1e999", "exact", "paper", "draws", "local", "mean",
    "insecure seed", "\n", "a\nverified: yes",
]  # fmt: skip


def hostile_value(r: random.Random) -> Any:
    """A scalar or a small container that a parser may not expect."""
    kind = r.randrange(8)
    if kind < 3:
        return r.choice(NUMBERS)
    if kind < 6:
        return r.choice(TEXTS)
    if kind == 6:
        return r.choice([None, True, False, [], {}, [[]], [None], {"": {}}, [1, 2], ["a", "b"]])
    nested: Any = []
    for _ in range(r.choice([5, 50, 200])):
        nested = [nested]
    return nested


def nodes(tree: Any) -> list[tuple[Any, Any]]:
    """(container, key) of every value in a tree of dicts and lists."""
    found, todo = [], [tree]
    while todo:
        node = todo.pop()
        items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, value in items:
            found.append((node, key))
            todo.append(value)
    return found


def mutate_tree(tree: Any, r: random.Random) -> Any:
    """A copy with one to three values replaced, removed, doubled, renamed, nudged or exchanged."""
    tree = copy.deepcopy(tree)
    for _ in range(r.choice([1, 1, 1, 2, 3])):
        places = nodes(tree)
        if not places:
            return hostile_value(r)
        node, key = r.choice(places)
        value, kind = node[key], r.randrange(9)
        if kind < 3:
            node[key] = hostile_value(r)
        elif kind == 3:
            del node[key]
        elif kind == 4 and isinstance(node, dict):
            node[r.choice([*TEXTS, *map(str, node)])] = node.pop(key)
        elif kind == 4:
            node.insert(key, copy.deepcopy(value))
        elif kind == 5:
            other, at = r.choice(places)
            with contextlib.suppress(KeyError, IndexError):
                node[key] = copy.deepcopy(other[at])
        elif kind == 6 and isinstance(value, int | float) and not isinstance(value, bool):
            node[key] = r.choice([value + 1, value - 1, -value, value * r.choice([10, 1000]), str(value), [value]])
        elif kind == 7 and isinstance(value, str):
            node[key] = r.choice([value + r.choice(TEXTS), value[: len(value) // 2], value.upper(), value * 2])
        elif kind == 8 and isinstance(node, list):
            r.shuffle(node)
        else:
            node[key] = hostile_value(r)
    return tree


def dump(tree: Any, r: random.Random) -> bytes:
    """JSON with what JSON does not have, and with numbers that only look finite."""
    text = json.dumps(tree, ensure_ascii=r.random() < 0.5)
    if "Infinity" in text and r.random() < 0.7:
        text = text.replace("Infinity", "1e400").replace("NaN", "1e400")
    if r.random() < 0.05:
        text = text.replace(": ", ": 1, ", 1) if r.random() < 0.5 else text.replace("{", '{"kind": 1, "n": 2, ', 1)
    return text.encode("utf-8", "surrogatepass")


def parsed(data: bytes) -> Any:
    """The tree of a JSON input, or None."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


USAGE = typer.BadParameter.__mro__[-4]  # the base of errors of usage, wherever typer keeps it


def command(*arguments: str) -> None:
    """The command line in this process; its own ways to end are not errors."""
    with contextlib.suppress(USAGE, typer.Exit, typer.Abort):
        app(list(arguments), standalone_mode=False)


class Target:
    """What every target has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, data: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(data)
        return path

    def mutate(self, data: bytes, number: int) -> bytes | None:
        raise NotImplementedError

    def check(self, data: bytes, said: str) -> None:
        """By default what is said does not matter: the inputs are public."""


def splice(text: str, words: list[str], r: random.Random) -> str:
    """A copy with some tokens inserted, removed, doubled or replaced."""
    for _ in range(r.randint(1, 4)):
        i, j = sorted(r.randrange(len(text) + 1) for _ in range(2))
        j = min(j, i + r.randint(0, 12))
        kind = r.randrange(5)
        if kind == 0:
            text = text[:i] + r.choice(words) + text[i:]
        elif kind == 1:
            text = text[:i] + text[j:]
        elif kind == 2:
            text = text[:i] + text[i:j] * r.choice([2, 2, 50]) + text[j:]
        elif kind == 3:
            text = text[:i] + r.choice(words) + text[j:]
        else:
            text = text[:i] + text[i:j][::-1] + text[j:]
    return text


class SchemaTarget(Target):
    """`Schema.from_toml` and `from_dict`; what is read comes back from `to_toml` and `to_dict`."""

    WORDS: ClassVar[list[str]] = [
        "[columns]", "[columns.x]", " = ", '"flag"', "{ range = [", "{ levels = [", "] }", ", ", '"', "'", '"""',
        "\n", "#", "1e999", "nan", "inf", "0x", "1979-05-27T07:32:00Z", "[[columns]]", "\\u0000", "\\", "true", "-",
        "1_0", ".", "é", "\x7f", "self = ", "cls = ", "[" * 500, "{a=" * 200, *map(repr, NUMBERS[:15]),
    ]  # fmt: skip

    def seeds(self) -> list[bytes]:
        schemas = [
            Schema(educ=Range(5, 20), black=Flag(), region=Levels("north", "south", "west"), year=Levels(1979, 1980)),
            Schema(**{"a b": Range(-1e30, 1e30), "ü-1": Levels('q"', "\\")}),
        ]
        found = [s.to_toml().encode() for s in schemas] + [json.dumps(s.to_dict()).encode() for s in schemas]
        return [*found, b"", b"[columns]\n", b'[columns.x]\nrange = [0, 1]\n[columns."y z"]\nlevels = ["a", "b"]\n']

    def mutate(self, data: bytes, number: int) -> bytes | None:
        r = random.Random(number)
        tree = parsed(data)
        if tree is not None:
            return dump(mutate_tree(tree, r), r)
        return splice(data.decode("utf-8", "replace"), self.WORDS, r).encode("utf-8", "replace")

    def run(self, data: bytes) -> None:
        tree = parsed(data)
        schema = Schema.from_dict(tree) if tree is not None else Schema.from_toml(self.write("s.toml", data))
        assert repr(schema) and hash(schema) == hash(schema)
        assert Schema.from_dict(schema.to_dict()) == schema
        assert Schema.from_toml(self.write("t.toml", schema.to_toml().encode())) == schema


class FormulaTarget(Target):
    """`Design.parse` on any text; no row that the schema allows exceeds the bounds of an accepted one."""

    SCHEMA = Schema(
        y=Range(0, 12),
        a=Range(-3, 5),
        b=Range(1, 2),
        f=Flag(),
        g=Levels("p", "q", "r"),
        h=Levels(1, 2),
        **{"a b": Range(0, 1)},
    )
    WORDS: ClassVar[list[str]] = [
        "y", "a", "b", "f", "g", "h", "`a b`", " ~ ", " + ", " - ", " * ", ":", "/", "**2", "**3", "^2", "(", ")",
        "I(", "I(a**2)", "I(a*b)", "C(g)", "0", "1", "-1", ".", "|", "%in%", "[", "]", "{", "}", "`", "'", '"',
        "center(a)", "bs(a, df=4)", "poly(a, 2)", "__import__('os')", "lambda: 0", "I(a**99999999)", "**999999",
        "I(" * 90, "(" * 90, "(" * 3000, "+ " * 500, "-" * 500, "a:" * 60, "\n", "\x00", "é", "1e999", "Q('a')",
        "a.b", "{a}", "~ ~", "(a+b+f+g+h)**5", "I(a**20)", "I(a**a)", "1_0", "\\",
    ]  # fmt: skip

    def seeds(self) -> list[bytes]:
        return [
            f.encode()
            for f in (
                "y ~ a + b",
                "y ~ a*b*f + I(a**2)",
                "y ~ g*h - 1",
                "y ~ 0 + g:a + C(h)",
                "y ~ (a + b + f)**2",
                "y ~ a/g",
                "y ~ `a b` + I(a*b**3)",
                "y ~ 1",
                "y ~ a + b - a",
                "f ~ a",
                "y ~ a^2",
                "y ~ b:f:g:h + a",
            )
        ]

    def mutate(self, data: bytes, number: int) -> bytes | None:
        text = data.decode("utf-8", "replace")
        r = random.Random(number)
        return splice(text, self.WORDS, r)[: r.choice([8000, *[300] * 40])].encode("utf-8", "replace")

    def run(self, data: bytes) -> None:
        design = Design.parse(data.decode("utf-8", "replace"), self.SCHEMA)
        assert len(set(design.names)) == len(design.names) and math.isfinite(design.norm_bound)
        if len(design.terms) > 200:
            return
        rng = np.random.default_rng(len(data))
        columns = {}
        for name, column in self.SCHEMA.items():
            if isinstance(column, Levels):
                columns[name] = rng.integers(0, len(column.levels), 32)
            else:
                low, high = column.bounds
                columns[name] = rng.choice([low, high, low + (high - low) * rng.random()], 32)
                columns[name] = np.round(columns[name]) if isinstance(column, Flag) else columns[name]
        rows = design.matrix(columns)
        assert np.linalg.norm(rows.astype(float), axis=1).max() <= design.norm_bound * (1 + 1e-6)
        for term in design.terms:
            value = term.evaluate(columns)
            edge = 1e-9 * max(abs(term.low), abs(term.high))
            assert not term.factors or (value.min() >= term.low - edge and value.max() <= term.high + edge)


# Releases -------------------------------------------------------------------------------------------------------------


def releases() -> list[Release]:
    """One of each payload, with each kind of mechanism in a certificate."""
    one = Mechanism(n=2_000, blocks=1, sampling_rate=1.0, steps=3, clip=1.0)
    several = Certificate(
        2.0, 1e-5, 0.01, compose([one, one], [1.0, 2.0]), "exact", "operating system", notes=("A note.",)
    )
    refits = Certificate(
        3.0, 1e-5, 1.0, Resampling(n=2_000, replicates=5, sensitivity=0.1), "exact", "operating system"
    )
    plain = certificate(versions={"pgbb": "0.1.0"})
    return [
        Release(model("levels"), PLAIN_SCHEMA, plain, generator(True), {"reference_sd": [1.0, 2.0, 3.0]}),
        Release(model("interval"), PLAIN_SCHEMA, several, local("interval")),
        Release(model(None), PLAIN_SCHEMA, several, local(None)),
        Release(model("levels"), PLAIN_SCHEMA, refits, stored_draws()),
        Release(
            model("levels"),
            PLAIN_SCHEMA,
            plain,
            replace(generator(True), tensors={**generator(True).tensors, **transcript()}),
        ),
        Release(model(None), PLAIN_SCHEMA, plain, generator(False, pseudo=2)),
    ]


def unzip(data: bytes) -> dict[str, bytes] | None:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(i.file_size for i in archive.infolist()) > 2**20:
                return None
            return {name: archive.read(name) for name in archive.namelist()}
    except Exception:
        return None


def rezip(members: list[tuple[str, bytes]], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in members:
            archive.writestr(name, data, zipfile.ZIP_STORED if name.endswith("tensors") and method == 8 else method)
    return buffer.getvalue()


def rehash(members: dict[str, bytes]) -> dict[str, bytes]:
    manifest = parsed(members.get("manifest.json", b""))
    if isinstance(manifest, dict) and isinstance(manifest.get("sha256"), dict):
        manifest["sha256"] = {k: hashlib.sha256(v).hexdigest() for k, v in members.items() if k in manifest["sha256"]}
        kind = parsed(members.get("payload.json", b""))
        if isinstance(kind, dict) and isinstance(kind.get("kind"), str):
            manifest["payload"] = kind["kind"]
        members = {**members, "manifest.json": json.dumps(manifest).encode()}
    return members


DTYPES = (
    "F64 F32 F16 BF16 I64 I32 I16 I8 U8 U16 U32 U64 BOOL F8_E4M3 F8_E5M2 C64 F4 F6_E2M3".split()  # noqa: SIM905
)


def mutate_tensors(data: bytes, r: random.Random) -> bytes:
    size = struct.unpack("<Q", data[:8].ljust(8, b"\0"))[0]
    header, body = data[8 : 8 + size], bytearray(data[8 + size :])
    kind = r.randrange(6)
    if kind < 3:
        tree = parsed(header)
        if isinstance(tree, dict):
            if kind == 0 and tree:
                name = r.choice(list(tree))
                if isinstance(tree[name], dict):
                    tree[name]["dtype"] = r.choice(DTYPES)
            elif kind == 1 and tree:
                name = r.choice(list(tree))
                if isinstance(tree[name], dict) and isinstance(tree[name].get("shape"), list):
                    shape = tree[name]["shape"]
                    tree[name]["shape"] = r.choice(
                        [[], [0], [*shape, 1], shape[::-1], [2**40, *shape], [2**63, 2], [-1], [*shape, 0]]
                    )
            else:
                tree = mutate_tree(tree, r)
        header = dump(tree, r)
    elif kind < 5 and len(body) >= 8:
        for _ in range(r.randint(1, 4)):
            value = float(r.choice([v for v in NUMBERS if not isinstance(v, int)]))
            with_single = r.random() < 0.5 and not (math.isfinite(value) and abs(value) > 3e38)
            code, width = ("<f", 4) if with_single else ("<d", 8)
            at = r.randrange(len(body) // width) * width
            body[at : at + width] = struct.pack(code, value)
    else:
        body = body[: r.randrange(len(body) + 1)] + bytes(r.choice([0, 0, 8, 64]))
    length = len(header) if r.random() < 0.95 else r.choice([0, 2**32, 2**63, 2**64 - 1, len(header) + 1])
    return struct.pack("<Q", length) + header + bytes(body)


MEMBERS = [
    "model.json", "schema.json", "certificate.json", "payload.json", "payload.safetensors", "manifest.json",
    "diagnostics.json", "signature.json",
]  # fmt: skip
PATHS = [
    "../evil.json", "/tmp/evil", "..\\evil", "C:\\evil", "model.json/", "./model.json", "MODEL.JSON",
    "model.json\x00x", "a" * 300, "\u202enosj.ledom", "manifest.json", "diagnostics.json", "signature.json",
]  # fmt: skip


class ReleaseTarget(Target):
    """`load` of a release file, and all that a reader may do with one that loads, commands included."""

    def seeds(self) -> list[bytes]:
        return [r.save(self.folder / "seed.pgbb").read_bytes() for r in releases()]

    def mutate(self, data: bytes, number: int) -> bytes | None:
        r = random.Random(number)
        members = unzip(data)
        if members is None or r.random() < 0.1:
            return None
        kind = r.randrange(10)
        if kind < 6:
            name = r.choice(list(members))
            if name.endswith(".safetensors"):
                members[name] = mutate_tensors(members[name], r)
            else:
                tree = parsed(members[name])
                members[name] = dump(mutate_tree(tree, r), r) if tree is not None else b"{}"
            return rezip(list(rehash(members).items()))
        if kind == 6:
            extra = (r.choice(PATHS), r.choice([b"", b"{}", b"[" * 50_000, b'{"a":' * 5_000, b"\x00" * 3_000_000]))
            return rezip([*members.items(), extra])
        if kind == 7:
            names = list(members)
            old, new = r.choice(names), r.choice([*MEMBERS, *PATHS])
            return rezip([(new if k == old else k, v) for k, v in members.items() if k != old or r.random() < 0.8])
        packed = bytearray(rezip(list(members.items()), r.choice([0, 8, 8, 12, 14])))
        if kind == 8:  # sizes, methods and flags that lie
            at = [i for i in range(len(packed) - 4) if packed[i : i + 2] == b"PK"]
            start = r.choice(at)
            for _ in range(r.randint(1, 3)):
                packed[min(start + r.randrange(4, 46), len(packed) - 1)] = r.choice([0, 1, 8, 9, 12, 14, 99, 127, 255])
            return bytes(packed)
        return bytes(packed[: r.randrange(len(packed))])

    def run(self, data: bytes) -> None:
        path = self.write("r.pgbb", data)
        release = load(path)
        case = hashlib.sha256(data).digest()[0]
        if case < 40:
            assert load(release.save(self.folder / "again.pgbb")).certificate == release.certificate
        if case % 2:
            level = None if release.model.index is None else release.grid(3)[0]
            release.sample(3, tau=level, seed=1)
            release.summary(tau=level)
            release.diagnostics()
        if case < 15:
            command("show", str(path), *(["--json"] if case % 2 else []))
        elif case < 25:
            command("export", str(path), "--format", "json", "-m", "5", "--out", str(self.folder / "o.json"))
        elif case < 35:
            command("verify", str(path), *(["--json"] if case % 2 else []))
        elif case < 40:
            release.verify()

    def check(self, data: bytes, said: str) -> None:
        if any(c in said for c in "\x1b\x07\u202e"):
            raise AssertionError("a control character of the file reached the terminal")


class ReportTarget(Target):
    """`pgbb.report.page` on hostile text in a release: nothing a stranger wrote becomes markup or script."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.releases = releases()[:4]
        self.shapes = {i: self.shape(page(r)) for i, r in enumerate(self.releases)}

    @staticmethod
    def shape(text: str) -> tuple[set[Any], list[Any]]:
        """Elements with the names of their attributes, and the text of the scripts."""
        found: set[Any] = set()
        scripts: list[str] = []

        class Reader(html.parser.HTMLParser):
            def handle_starttag(self, tag: str, attrs: Any) -> None:
                found.add((tag, tuple(sorted(name for name, _ in attrs))))
                if tag == "script":
                    scripts.append("")

            def handle_data(self, text: str) -> None:
                if self.lasttag == "script" and self.cdata_elem == "script":
                    scripts[-1] += text

        reader = Reader()
        reader.feed(text)
        return found, scripts

    def seeds(self) -> list[bytes]:
        return [
            json.dumps(
                [
                    i,
                    {
                        "notes": ["A note."],
                        "names": ["a", "b", "c"],
                        "response": "y",
                        "formula": "y ~ a",
                        "index_name": "tau",
                        "versions": {"pgbb": "1"},
                    },
                ]
            ).encode()
            for i in range(4)
        ]

    def mutate(self, data: bytes, number: int) -> bytes | None:
        r = random.Random(number)
        tree = parsed(data)
        return dump(mutate_tree(tree, r), r) if tree is not None else None

    def run(self, data: bytes) -> None:
        tree = parsed(data)
        if not isinstance(tree, list) or len(tree) != 2 or not isinstance(tree[1], dict):
            raise InvalidValue("not a case for this target")
        number = tree[0] if tree[0] in (0, 1, 2, 3) and not isinstance(tree[0], bool | float) else 0
        original, words = self.releases[number], tree[1]
        plain = original.certificate.to_dict()
        plain.update({k: words[k] for k in ("notes", "versions") if k in words})
        summary = original.model.to_dict()
        summary.update({k: words[k] for k in ("names", "response", "formula", "index_name") if k in words})
        release = Release(
            type(original.model).from_dict(summary), original.schema, Certificate.from_dict(plain), original.payload
        )
        check = type(original.certificate).check
        try:  # ε of four mechanisms need not be computed again for every case
            type(original.certificate).check = lambda self: self_checks[number]  # type: ignore[method-assign]
            text = page(release)
        finally:
            type(original.certificate).check = check  # type: ignore[method-assign]
        found, scripts = self.shape(text)
        usual, usual_scripts = self.shapes[number]
        assert found <= usual | EXTRA, f"new markup: {sorted(map(str, found - usual - EXTRA))}"
        assert len(scripts) == len(usual_scripts)
        for ours, theirs in zip(scripts, usual_scripts, strict=True):
            if ours != theirs:
                json.loads(ours)
                assert "<" not in ours


EXTRA = {("h3", ()), ("ul", ()), ("li", ()), ("p", (("class"),))}  # notes, and the line of versions
self_checks = {}


def _checks() -> None:
    for i, r in enumerate(releases()[:4]):
        self_checks[i] = r.certificate.check()


# The ledger -----------------------------------------------------------------------------------------------------------


def ledger_file(events: list[Any]) -> bytes:
    """A ledger whose chain of digests is right, whatever the events say."""
    book = sqlite3.connect(":memory:")
    for statement in (
        TABLE,
        *GUARDS.values(),
        f"PRAGMA application_id = {APPLICATION}",
        f"PRAGMA user_version = {VERSION}",
    ):
        book.execute(statement)
    digest = ""
    for number, event in enumerate(events, 1):
        body = event if isinstance(event, str) else json.dumps(event).replace("Infinity", "1e400")
        try:
            digest = hashlib.sha256(f"{digest}\n{body}".encode()).hexdigest()
            book.execute("INSERT INTO events VALUES (?, ?, ?)", (number, body, digest))
        except UnicodeEncodeError:
            continue
    book.commit()
    return book.serialize()


OWNER = {"host": "h", "pid": 4_000_000, "started": "5", "boot": "b", "space": "s"}
TIME = "2026-01-01T00:00:00+00:00"
EVENTS = [
    {"kind": "set", "dataset": "d", "n": 1000, "epsilon": 1.0, "delta": 1e-6, "group_size": 1, "time": TIME},
    {
        "kind": "reserve",
        "dataset": "d",
        "method": "calibrated",
        "epsilon": 0.5,
        "delta": 1e-6,
        "mechanism": {"n": 1000},
        "sigma": 0.02,
        "square": 0.01,
        "failure": 0.0,
        "owner": OWNER,
        "time": TIME,
    },
    {"kind": "answer", "entry": 2, "time": TIME},
    {"kind": "settle", "entry": 2, "certificate": "0" * 64, "time": TIME},
    {
        "kind": "reserve",
        "dataset": "d",
        "method": "paper",
        "epsilon": 0.1,
        "delta": 1e-6,
        "mechanism": {"n": 1000},
        "sigma": 0.02,
        "square": 0.01,
        "failure": 1e-10,
        "owner": OWNER,
        "time": TIME,
    },
    {"kind": "set", "dataset": "e", "n": 50, "epsilon": 3.0, "delta": 1e-3, "group_size": 4, "time": TIME},
    {"kind": "refund", "entry": 5, "reason": "the reservation lapsed", "time": TIME},
]
CALLS = [
    ["set", {"name": "d", "n": 1000, "epsilon": 1.0, "delta": 1e-6, "group_size": 1, "change": False}],
    [
        "reserve",
        {
            "dataset": "d",
            "n": 1000,
            "clip": 1.0,
            "steps": 1,
            "sigma": 0.02,
            "method": "m",
            "epsilon": 0.5,
            "delta": 1e-6,
        },
    ],
    ["begin", {}],
    ["settle", {"certificate": "0" * 64}],
    [
        "reserve",
        {
            "dataset": "d",
            "n": 1000,
            "clip": 1.0,
            "steps": 2,
            "sigma": 0.02,
            "method": "m",
            "epsilon": 0.5,
            "delta": 1e-6,
        },
    ],
    ["close", {"reason": "why"}],
    ["dataset", {"name": "d"}],
]
ARGUMENTS = [
    ["set", "L", "d", "--n", "1000", "--epsilon", "1", "--delta", "1e-6", "--group-size", "1", "--change", "--json"],
    ["show", "L", "--json"],
    ["show", "L", "d"],
    ["history", "L", "d"],
    ["history", "L", "--json"],
]


class LedgerTarget(Target):
    """Ledger files (damaged, or edited with their digests made right), the calls of `Ledger`, and `pgbb ledger`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.usual = ledger_file(EVENTS)
        command("ledger", "--help")  # imports what is imported late

    def seeds(self) -> list[bytes]:
        found = [b"E" + json.dumps(EVENTS[:k]).encode() for k in (2, 5, 7)]
        found += [b"A" + json.dumps(CALLS).encode(), b"F" + self.usual, b"F" + ledger_file([])]
        return found + [b"C" + json.dumps(a).encode() for a in ARGUMENTS]

    def mutate(self, data: bytes, number: int) -> bytes | None:
        r = random.Random(number)
        kind, rest = data[:1], data[1:]
        if kind in b"EAC" and kind:
            tree = parsed(rest)
            return kind + dump(mutate_tree(tree, r), r) if tree is not None else None
        page_bytes = bytearray(rest)
        if not page_bytes:
            return b"F" + self.usual
        for _ in range(r.choice([1, 1, 2, 8])):
            where = r.choice([100, 200, len(page_bytes)])
            page_bytes[r.randrange(min(where, len(page_bytes)))] = r.choice(
                [0, 1, 2, 13, 127, 128, 255, r.randrange(256)]
            )
        if r.random() < 0.1:
            page_bytes = page_bytes[: r.randrange(len(page_bytes))]
        return b"F" + bytes(page_bytes)

    def run(self, data: bytes) -> None:
        for old in self.folder.iterdir():
            shutil.rmtree(old) if old.is_dir() else old.unlink()
        kind, rest = data[:1], data[1:]
        path = self.folder / "ledger.db"
        if kind in (b"E", b"F"):
            tree = parsed(rest) if kind == b"E" else None
            path.write_bytes(ledger_file(tree if isinstance(tree, list) else []) if kind == b"E" else rest)
            self.read(path, rest)
            return
        tree = parsed(rest)
        if not isinstance(tree, list):
            raise InvalidValue("not a case for this target")
        if kind == b"C":
            path.write_bytes(self.usual)
            command(
                "ledger",
                *(
                    str(path) if a == "L" else a[:300]
                    for a in tree
                    if isinstance(a, str) and "\0" not in a and "/" not in a
                ),
            )
            return
        self.calls(path, tree)

    def read(self, path: Path, seed: bytes) -> None:
        ledger = Ledger(path)
        found = ledger.datasets()
        for d in found.values():
            d.to_dict(), d.room, repr(d)
            [e.to_dict() for e in d.entries]
        case = hashlib.sha256(seed).digest()[0]
        if case < 12:
            options = ["--json"] if case % 2 else []
            command("ledger", "show" if case < 6 else "history", str(path), *options)
        for name, d in list(found.items())[: case % 3 == 0]:
            m = Mechanism(n=d.n, blocks=1, sampling_rate=1.0, steps=1, clip=1.0)
            ledger.reserve(name, m, 0.05, method="m", epsilon=0.1, delta=1e-6)

    def calls(self, path: Path, tree: list[Any]) -> None:
        ledger, entry, failed = Ledger(path), None, None
        for call in tree[:12]:
            if not isinstance(call, list) or len(call) != 2 or not isinstance(call[1], dict):
                continue
            name, given = call
            try:
                if name == "reserve":
                    facts = {k: given.pop(k, None) for k in ("n", "clip", "steps")}
                    m = Mechanism(blocks=1, sampling_rate=1.0, **facts)
                    entry = ledger.reserve(
                        given.pop("dataset", None),
                        m,
                        given.pop("sigma", None),
                        **options(given, "method epsilon delta"),
                    )
                elif name in ("begin", "settle", "close") and entry is not None:
                    getattr(ledger, name)(
                        entry, **options(given, {"begin": "", "settle": "certificate", "close": "reason"}[name])
                    )
                elif name == "set":
                    ledger.set(given.pop("name", None), **options(given, "n epsilon delta group_size change"))
                elif name == "dataset":
                    ledger.dataset(given.get("name")).to_dict()
            except PgbbError as error:
                failed = error
        if path.exists():
            try:
                for d in ledger.datasets().values():
                    assert d.budget.fits(d.charges), "overspent"
            except LedgerError as error:
                assert "empty" in str(error) or "no such" in str(error), (
                    f"a call made a ledger that does not read: {error}"
                )
        if failed is not None:
            raise failed


def options(given: dict[str, Any], names: str) -> dict[str, Any]:
    return {k: given.get(k) for k in names.split()}


# The records ----------------------------------------------------------------------------------------------------------

CANARY = "Zqcanary"
CANARY_NUMBER = 7316.8125


class DataTarget(Target):
    """Records from CSV, Parquet, Stata files and frames: bounded, in place, and no cell in any message."""

    SCHEMA = Schema(y=Range(0, 10_000), a=Range(-3, 5), f=Flag(), g=Levels("p", "q", "7"), w=Range(0, 2))
    WORDS: ClassVar[list[str]] = [
        f"{CANARY}B", f"{CANARY}C", str(CANARY_NUMBER), ",", "\n", "\r", '"', "'", "\x00", "nan", "inf", "1e999",
        "-0.0", "True", "0x1F", "1_000", ";", "\t", "\ufeff", "y", "a", "f", "g", "w", "q", "é", "#", "\\", '""',
        "," * 50, "\n" * 20, "9" * 400,
    ]  # fmt: skip

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.design = Design.parse("y ~ a + f + g", self.SCHEMA)
        self.first = b"C" + self.frame().to_csv(index=False).encode()

    def frame(self) -> pd.DataFrame:
        return pd.DataFrame(
            {
                "y": [CANARY_NUMBER, 2.0, 99_999.0, None],
                "a": [1.0, -9.5, 2.5, 4.0],
                "f": [0, 1, 1, 0],
                "g": ["q", f"{CANARY}D", "p", None],
                "w": [1.0, 0.5, 2.0, 1.0],
                "name": [f"{CANARY}E"] * 4,
            }
        )

    def seeds(self) -> list[bytes]:
        frame = self.frame()
        buffer = io.BytesIO()
        frame.to_parquet(buffer)
        frame.drop(columns="name").fillna({"g": ""}).to_stata(self.folder / "s.dta", write_index=False)
        columns = {name: [None if v != v else v for v in frame[name].tolist()] for name in frame}
        text = frame.to_csv(index=False).encode()
        return [
            b"C" + text,
            b"C" + text.split(b"\n", 1)[1],
            b"P" + buffer.getvalue(),
            b"S" + (self.folder / "s.dta").read_bytes(),
            b"F" + json.dumps(columns).encode(),
        ]

    def mutate(self, data: bytes, number: int) -> bytes | None:
        r = random.Random(number)
        kind, rest = data[:1], data[1:]
        if kind == b"F":
            tree = parsed(rest)
            return b"F" + dump(mutate_tree(tree, r), r) if tree is not None else None
        if kind == b"C":
            return b"C" + splice(rest.decode("utf-8", "replace"), self.WORDS, r).encode("utf-8", "replace")
        if kind == b"S" and r.random() < 0.9:  # their reader is slow
            return self.mutate(self.first, number + 1)
        changed = bytearray(rest)
        for _ in range(r.choice([1, 2, 5])):
            if changed:
                changed[r.randrange(len(changed))] = r.choice([0, 1, 127, 128, 255, r.randrange(256)])
        return kind + bytes(changed if r.random() < 0.9 else changed[: r.randrange(len(changed) + 1)])

    def run(self, data: bytes) -> None:
        kind, rest = data[:1], data[1:]
        source: Any
        if kind == b"F":
            tree = parsed(rest)
            if not isinstance(tree, dict):
                raise InvalidValue("not a case for this target")
            try:
                source = pd.DataFrame(tree)
            except Exception:
                raise InvalidValue("not a frame, so not a case") from None
        else:
            source = self.write("d" + {b"C": ".csv", b"P": ".parquet", b"S": ".dta"}.get(kind, ".csv"), rest)
        records = load_records(source, self.design, self.SCHEMA, "w" if len(data) % 2 else None)
        assert np.isfinite(records.rows).all() and np.abs(records.x).max() <= 1
        assert (
            records.y.min() >= 0
            and records.y.max() <= 10_000
            and records.weight.min() >= 0
            and records.weight.max() <= 1
        )
        assert (records.weight[~records.valid] == 0).all() and repr(records) == f"Records(n={records.n}, p=5)"
        load_columns(source, self.SCHEMA, ["g", "a"])

    def check(self, data: bytes, said: str) -> None:
        for word in (CANARY, str(CANARY_NUMBER), "99999", "-9.5"):
            assert word not in said, "a cell was quoted"


class ReportWithChecks(ReportTarget):
    __doc__ = ReportTarget.__doc__

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        _checks()


TARGETS = {
    "schema": SchemaTarget,
    "formula": FormulaTarget,
    "release": ReleaseTarget,
    "ledger": LedgerTarget,
    "data": DataTarget,
    "report": ReportWithChecks,
}
