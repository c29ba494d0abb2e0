"""Inputs that a stranger might send, and records that must not show: what fuzzing found, and what holds of any."""

import contextlib
import io
import json
import random
import struct
import tracemalloc
import zipfile

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from pgbb.accountant import Mechanism
from pgbb.accountant.filters import gaussian_square
from pgbb.accountant.gaussian import gdp_mu
from pgbb.cli import app
from pgbb.custody.entries import LedgerError
from pgbb.custody.ledger import Ledger
from pgbb.errors import InvalidValue, NotCertifiable, PgbbError
from pgbb.model.formula import Design
from pgbb.model.schema import Flag, Levels, Range, Schema
from pgbb.release.certificate import Certificate
from pgbb.release.file import ReleaseError, load
from pgbb.report import page
from tests.private.loaded import load as load_records
from tests.release.builders import edited, members, rewrite
from tests.release.builders import generator_release as release

pytestmark = pytest.mark.quick

SCHEMA = Schema(y=Range(0, 10), a=Range(-3, 5), b=Range(1, 2), f=Flag(), g=Levels("p", "q", "r"))
FULL = Mechanism(n=1000, blocks=1, sampling_rate=1.0, steps=1, clip=1.0)
quick = settings(max_examples=60, derandomize=True, deadline=None)


@pytest.fixture
def saved(tmp_path):
    return release().save(tmp_path / "r.pgbb")


# Formulas -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "formula",
    [
        "{open('MARK', 'w').x(a)} ~ a",
        "{open('MARK', 'w').x(a)} ~-a",
        "poly(open('MARK', 'w')) ~ a",
        "{[open('MARK', 'w')][0](a)} + y ~ a",
        "y ~ {open('MARK', 'w').x(a)}",
        "(y ~ a) + {open('MARK', 'w').x(a)} ~ a",
        "I(open('MARK', 'w').x()) ~ a",
    ],
)
def test_no_part_of_a_formula_is_executed(formula, tmp_path):
    mark = tmp_path / "mark"
    with pytest.raises(InvalidValue):
        Design.parse(formula.replace("MARK", str(mark)), SCHEMA)
    assert not mark.exists()


@pytest.mark.parametrize("formula", ["-~ 0+C(g)~ ", "y ~ a ~ b", "C(g)", "y -~ a", "-~ C(g)"])
def test_a_formula_has_one_tilde_or_never_reaches_the_parser(formula, monkeypatch):
    from formulaic.parser import DefaultFormulaParser

    monkeypatch.setattr(DefaultFormulaParser, "get_ast", lambda *_: pytest.fail("it did"))
    with pytest.raises(InvalidValue, match="one '~'"):
        Design.parse(formula, SCHEMA)


def test_a_formula_in_a_release_is_not_executed_either(saved, tmp_path):
    mark = tmp_path / "mark"
    edited(saved, "model.json", lambda m: m.update(formula=f"{{open({str(mark)!r}, 'w').x(educ)}} ~ educ"))
    hostile = load(saved)
    hostile.diagnostics()
    page(hostile)
    assert not mark.exists()


@pytest.mark.parametrize(
    "formula",
    [
        "y ~ (a + b + f)**99999999",
        "y ~ (a + b + f + g)**20",
        "y ~ a**99999999999999999999999",
        "y ~ " + "*".join(f"(a + b + {i})" for i in range(12)),
        "y ~ " + "(" * 3000,
        "y ~ I(" + "(" * 3000 + "a" + ")" * 3000 + ")",
        "y ~ I(" + "-" * 5000 + "a)",
        "y ~ " + "a + " * 20_000 + "b",
        "~  ~ ] + a",
        "[y ~ a] ~ b",
        "y ~ [a ~ b]",
        "y | a ~ b | f",
    ],
    ids=range(12),
)
def test_short_formulas_of_endless_meaning_are_refused(formula):
    with pytest.raises(InvalidValue):
        Design.parse(formula, SCHEMA)


def test_an_interaction_of_many_levels_is_refused_before_it_is_written_out():
    wide = Schema(y=Range(0, 1), **{f"g{i}": Levels(*range(40)) for i in range(9)})
    for formula in ("y ~ g0:g1:g2", "y ~ " + ":".join(f"g{i}" for i in range(9))):
        with pytest.raises(InvalidValue, match="Levels columns"):
            Design.parse(formula, wide)


WORDS = [
    "y",
    "a",
    "b",
    "f",
    "g",
    "~",
    "+",
    "-",
    "*",
    ":",
    "/",
    "**2",
    "(",
    ")",
    "I(a**2)",
    "I(a*b)",
    "C(g)",
    "0",
    "1",
    ".",
]


@quick
@given(st.lists(st.sampled_from(WORDS), max_size=9).map(lambda w: "y ~ " + " ".join(w)) | st.text(max_size=30))
def test_any_formula_parses_to_true_bounds_or_is_refused(formula):
    try:
        design = Design.parse(formula, SCHEMA)
    except InvalidValue:
        return
    rng = np.random.default_rng(0)
    columns = {"a": rng.choice([-3.0, 0.0, 5.0], 64), "b": rng.choice([1.0, 1.5, 2.0], 64)}
    columns |= {"f": rng.integers(0, 2, 64).astype(float), "g": rng.integers(0, 3, 64), "y": np.zeros(64)}
    assert np.linalg.norm(design.matrix(columns), axis=1).max() <= design.norm_bound * (1 + 1e-6)


# Schemas --------------------------------------------------------------------------------------------------------------

HOSTILE_TOML = [
    "[columns]\nx = " + "[" * 2000,
    "[columns]\nx = { range = [" + "9" * 5000 + ", 1] }",
    "[columns]\nx = 2026-99-99",
    '[columns]\nx = { levels = ["\\u001b[2J", "b"] }',
    '[columns]\n"\\u202ex" = "flag"',
    "\x00",
    "[columns]\nx = nan",
]


@pytest.mark.parametrize("text", HOSTILE_TOML, ids=range(7))
def test_a_hostile_schema_file_is_refused(text, tmp_path):
    (tmp_path / "s.toml").write_text(text)
    with pytest.raises(InvalidValue) as caught:
        Schema.from_toml(tmp_path / "s.toml")
    assert len(str(caught.value)) < 3000 and "\x1b" not in str(caught.value)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@quick
@given(anything | st.fixed_dictionaries({"columns": st.dictionaries(st.text(max_size=4), anything, max_size=3)}))
def test_any_tree_is_a_schema_that_comes_back_or_is_refused(tree):
    try:
        schema = Schema.from_dict(tree)
    except InvalidValue:
        return
    assert Schema.from_dict(schema.to_dict()) == schema


@pytest.mark.parametrize("value", [10**5000, 2**63, [[]] * 10_000, "x" * 10**6], ids=["digits", "big", "list", "text"])
def test_a_message_is_never_longer_than_a_person_reads(value):
    with pytest.raises(InvalidValue) as caught:
        Mechanism(n=value, blocks=1, sampling_rate=1.0, steps=1, clip=1.0)
    assert len(str(caught.value)) < 1000


# Releases -------------------------------------------------------------------------------------------------------------


def lying(path, size):
    """Set the unpacked size of every member in both of the zip's directories."""
    data = bytearray(path.read_bytes())
    for mark, at in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        start = data.find(mark)
        while start >= 0:
            data[start + at : start + at + 4] = struct.pack("<I", size)
            start = data.find(mark, start + 1)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("lie", [None, 1000])
def test_a_zip_bomb_is_refused_in_little_memory(saved, lie):
    contents = members(saved)
    with zipfile.ZipFile(saved, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, data in {**contents, "model.json": bytes(2**26)}.items():
            archive.writestr(name, data, zipfile.ZIP_STORED if name.endswith("tensors") else None)
    if lie is not None:
        lying(saved, lie)
    assert saved.stat().st_size < 2**20
    tracemalloc.start()
    try:
        with pytest.raises(ReleaseError):
            load(saved)
        assert tracemalloc.get_traced_memory()[1] < 2**23
    finally:
        tracemalloc.stop()


def test_a_tensor_file_may_not_be_compressed(saved):
    contents = members(saved)
    with zipfile.ZipFile(saved, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in contents.items():
            archive.writestr(name, data)
    with pytest.raises(ReleaseError, match="another way"):
        load(saved)


def test_lzma_members_are_refused_and_not_unpacked(saved):
    contents = members(saved)
    with zipfile.ZipFile(saved, "w", zipfile.ZIP_LZMA) as archive:
        for name, data in contents.items():
            archive.writestr(name, data)
    saved.write_bytes(saved.read_bytes().replace(b"]\x00\x00", b"]\xff\xff", 1))
    with pytest.raises(ReleaseError):
        load(saved)


@pytest.mark.parametrize(
    "header",
    [
        {"draws": {"dtype": "F64", "shape": [2**40, 2**40], "data_offsets": [0, 8]}},
        {"draws": {"dtype": "F64", "shape": [2**62, 4], "data_offsets": [0, 0]}},
        {"draws": {"dtype": "F64", "shape": [1], "data_offsets": [0, 2**60]}},
        {"draws": {"dtype": "F8_E4M3", "shape": [8], "data_offsets": [0, 8]}},
        {"draws": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}},
        {"draws": {"dtype": "BOOL", "shape": [8], "data_offsets": [0, 8]}},
    ],
)
def test_tensors_that_declare_what_they_are_not_are_refused(saved, header):
    text = json.dumps(header).encode()
    contents = {**members(saved), "payload.safetensors": struct.pack("<Q", len(text)) + text + bytes(8)}
    with pytest.raises(ReleaseError):
        load(rewrite(saved, contents, rehash=True))


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "..\\evil", "model.json/", "C:\\evil"])
def test_a_member_with_a_path_is_refused_and_writes_nothing(saved, tmp_path, name):
    rewrite(saved, {**members(saved), name: b"{}"})
    with pytest.raises(ReleaseError):
        load(saved)
    assert [p.name for p in tmp_path.iterdir()] == ["r.pgbb"]


@pytest.mark.parametrize(
    "text", ['{"a": 1, "a": 2}', '{"a": 1e999}', '{"a": "\\u001b[2J"}', '{"\\u202ea": 1}', '{"a":' * 2000]
)
def test_json_that_two_readers_might_read_differently_is_refused(saved, text):
    contents = {**members(saved), "diagnostics.json": text.encode()}
    manifest = json.loads(contents["manifest.json"])
    manifest["sha256"]["diagnostics.json"] = ""
    contents["manifest.json"] = json.dumps(manifest).encode()
    with pytest.raises(ReleaseError, match="diagnostics"):
        load(rewrite(saved, contents, rehash=True))


@pytest.mark.parametrize(
    "note", ["fine\nverified: the certificate follows", "\x1b[1A\x1b[2K", "\u202edeifirev", "a\rb"]
)
def test_a_note_cannot_pass_for_a_verdict(note):
    with pytest.raises(InvalidValue, match="one line"):
        Certificate(1.0, 1e-5, 0.0075, FULL, "exact", "operating system", notes=(note,))


@quick
@given(st.binary(max_size=64), st.integers(0, 10**9))
def test_any_damage_to_a_release_is_noticed(noise, seed):
    r = random.Random(seed)
    buffer = bytearray(RELEASE)
    at = r.randrange(len(buffer))
    buffer[at : at + len(noise)] = noise
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / "r.pgbb"
    path.write_bytes(buffer)
    with contextlib.suppress(ReleaseError):
        assert load(path).certificate == release().certificate


@pytest.fixture(autouse=True, scope="module")
def _module_files(tmp_path_factory):
    global RELEASE, FOLDER
    FOLDER = tmp_path_factory.mktemp("damaged")
    RELEASE = release().save(FOLDER / "r.pgbb").read_bytes()


def test_numbers_too_large_to_draw_from_are_an_error(saved):
    edited(saved, "model.json", lambda m: m.update(offset=[1.7e308] * 3, transform=(np.eye(3) * 1.7e308).tolist()))
    with pytest.raises(InvalidValue, match="too large"):
        load(saved).sample(50, tau=0.5, seed=1)


HOSTILE_TEXT = [
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "<!--<script>",
    "${data}",
    "'-alert(1)-'",
]


@pytest.mark.parametrize("text", HOSTILE_TEXT)
def test_no_text_of_a_release_becomes_markup(saved, text):
    edited(saved, "model.json", lambda m: m.update(names=[text, "educ", "black"], response=text, formula=text))
    edited(saved, "certificate.json", lambda c: c.update(notes=[text], versions={text: text}))
    written = page(load(saved))
    assert "<script>alert" not in written and "<img" not in written and "<!--" not in written.replace("<!doctype", "")


# The ledger -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def ledger(tmp_path):
    book = Ledger(tmp_path / "l.db")
    book.set("d", n=1000, epsilon=1.0, delta=1e-6)
    return book


@pytest.mark.parametrize("value", [None, [], {}, 1, "", "\x00", "a" * 101, "\x1b[2J", "\ud800"])
def test_a_name_that_is_none_is_refused(ledger, value):
    for call in (lambda: ledger.dataset(value), lambda: ledger.set(value, n=1, epsilon=1.0, delta=1e-6)):
        with pytest.raises(PgbbError):
            call()


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": float("inf")},
        {"epsilon": float("nan")},
        {"delta": 2.0},
        {"method": 3},
        {"sigma": 1e-320},
        {"sigma": 1e-160},
    ],
)
def test_numbers_that_are_none_are_not_reserved(ledger, change):
    given = {"sigma": 0.02, "method": "m", "epsilon": 0.5, "delta": 1e-6, **change}
    with pytest.raises(PgbbError):
        ledger.reserve("d", FULL, given.pop("sigma"), **given)
    assert not ledger.dataset("d").entries


@pytest.mark.parametrize(
    "change", [{"epsilon": 1e308}, {"delta": 1e-320}, {"n": 10**400, "group_size": 10**400}, {"n": 2**63}]
)
def test_a_budget_that_cannot_be_computed_with_is_refused(tmp_path, change):
    with pytest.raises(PgbbError):
        Ledger(tmp_path / "l.db").set("d", **{"n": 1000, "epsilon": 1.0, "delta": 1e-6, **change})


def test_calls_out_of_order_are_refused_and_change_nothing(ledger):
    entry = ledger.reserve("d", FULL, 0.02, method="m", epsilon=0.5, delta=1e-6)
    before = ledger.seal()
    for call in (lambda: ledger.settle(entry, "0" * 64), lambda: ledger.close(entry, ["why"])):
        with pytest.raises(PgbbError):
            call()
    assert ledger.seal() == before


@pytest.mark.parametrize("reason", ["\ud800", float("nan"), object()])
def test_what_is_no_text_is_not_written_to_a_ledger(ledger, reason):
    entry = ledger.reserve("d", FULL, 0.02, method="m", epsilon=0.5, delta=1e-6)
    before = ledger.seal()
    with pytest.raises(LedgerError, match="Nothing was written"):
        ledger.close(entry, reason)
    assert ledger.seal() == before


def test_a_path_with_a_null_character_is_an_error_like_others(tmp_path):
    for call in (
        lambda p: Ledger(p).datasets(),
        lambda p: Ledger(p).set("d", n=9, epsilon=1.0, delta=1e-6),
        load,
        Schema.from_toml,
    ):
        with pytest.raises(PgbbError):
            call(f"{tmp_path}/a\0b")


def test_extreme_noise_has_a_charge_and_extreme_budgets_an_answer():
    assert gaussian_square(FULL, 1e-200) == float("inf")
    with pytest.raises(NotCertifiable):
        gdp_mu(1e308, 1e-6)


@quick
@given(st.integers(0, 10**9))
def test_any_damage_to_a_ledger_is_an_error_or_harmless(seed):
    r = random.Random(seed)
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / "l.db"
    if not path.with_suffix(".good").exists():
        book = Ledger(path)
        book.set("d", n=1000, epsilon=1.0, delta=1e-6)
        entry = book.reserve("d", FULL, 0.02, method="m", epsilon=0.5, delta=1e-6)
        book.begin(entry)
        path.with_suffix(".good").write_bytes(path.read_bytes())
    data = bytearray(path.with_suffix(".good").read_bytes())
    for _ in range(r.choice([1, 3])):
        data[r.choice([r.randrange(100), r.randrange(len(data))])] = r.randrange(256)
    path.write_bytes(data)
    try:
        found = Ledger(path).datasets()
    except LedgerError:
        return
    assert len(found["d"].charges) == 1


# Records --------------------------------------------------------------------------------------------------------------

CANARY = "Zqcanary"
cells = st.sampled_from(
    ["1", "0", "", "nan", "inf", "-1e999", "p", f"{CANARY}x", '"', "7316.8125", "é", "\x00", "1,2", "\t"]
)


@quick
@given(st.lists(st.lists(cells, min_size=0, max_size=4), max_size=5), st.booleans())
def test_no_cell_of_a_csv_file_appears_in_a_message(rows, header):
    text = ("y,a,f,g\n" if header else "") + "\n".join(",".join(row) for row in rows)
    path = FOLDER / "d.csv"
    path.write_text(text, encoding="utf-8")
    try:
        records = load_records(path, Design.parse("y ~ a + f + g", SCHEMA), SCHEMA)
    except PgbbError as error:
        assert CANARY not in str(error) and "7316" not in str(error)
        return
    assert np.isfinite(records.rows).all() and abs(records.x).max() <= 1 and CANARY not in repr(records)


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=3),
    st.just([1]),
    st.just(b"x"),
)


@quick
@given(st.lists(values, min_size=3, max_size=3), values)
def test_a_changed_cell_changes_its_own_record_alone(levels, other):
    design = Design.parse("y ~ g", SCHEMA)

    def rows(cells):
        column = pd.Series(cells, dtype=object)
        frame = pd.DataFrame({"y": [1.0, 2.0, 3.0], "g": column})
        return load_records(frame, design, SCHEMA).rows

    assert np.array_equal(rows(levels)[1:], rows([other, *levels[1:]])[1:])


def test_a_cell_that_is_no_unicode_is_a_missing_level():
    frame = pd.DataFrame({"y": [1.0, 2.0, 3.0], "g": pd.Series(["p", "\ud800", "q"], dtype=object)})
    records = load_records(frame, Design.parse("y ~ g", SCHEMA), SCHEMA)
    assert records.valid.tolist() == [True, False, True]


@pytest.mark.slow
def test_commands_on_private_files_say_nothing_of_them(tmp_path):
    (tmp_path / "s.toml").write_text(SCHEMA.to_toml())
    bodies = [f"{CANARY},1,2\n", f'y,a\n1,2\n"{CANARY}', f"y,a\n{CANARY},1\n", "y;a\n7316.8125;1\n"]
    for number, body in enumerate(bodies):
        path = tmp_path / f"{number}.csv"
        path.write_text(body)
        call = [
            "fit",
            str(path),
            "-s",
            str(tmp_path / "s.toml"),
            "-f",
            "y ~ a",
            "-e",
            "1",
            "-d",
            "1e-6",
            "--out",
            str(tmp_path / "o.pgbb"),
            "--accountant",
            "nonsense" if number == 2 else "exact",
        ]
        done = CliRunner().invoke(app, call)
        said = done.output + str(done.exception)
        assert CANARY not in said and "7316" not in said
        assert (done.exit_code == 0) == (number == 1), "a stray quotation mark voids its own record"
        assert done.exception is None or isinstance(done.exception, PgbbError | SystemExit), done.exception


def test_a_damaged_parquet_file_is_an_error_without_cells(tmp_path):
    buffer = io.BytesIO()
    pd.DataFrame({"y": [1.0], "a": [2.0], "g": [CANARY]}).to_parquet(buffer)
    design = Design.parse("y ~ a + g", SCHEMA)
    for seed in range(30):
        data = bytearray(buffer.getvalue())
        data[random.Random(seed).randrange(len(data))] ^= 0xFF
        path = tmp_path / "d.parquet"
        path.write_bytes(data)
        try:
            load_records(path, design, SCHEMA)
        except PgbbError as error:
            assert CANARY not in str(error)
