"""Data is read in pieces: where they begin and end changes no number, and the design exists once."""

import datetime
import decimal

import jax
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pgbb
from pgbb.custody.ledger import Ledger
from pgbb.errors import InvalidValue, PgbbError
from pgbb.model.formula import Design
from pgbb.model.schema import Flag, Levels, Range, Schema
from pgbb.private import in_memory, open_table, records
from pgbb.private.device_layout import place
from pgbb.private.loading import records_for
from pgbb.private.records import examine
from pgbb.private.row_layout import empty_rows
from tests.private.loaded import load, load_columns

pytestmark = pytest.mark.quick

SCHEMA = Schema(
    y=Range(0, 12), a=Range(-2, 3), d=Range(0, 9), f=Flag(), b=Flag(), r=Levels("north", "south", "01"),
    k=Levels(1, 2, 3), c=Levels("lo", "hi"), w=Range(0, 40),
)  # fmt: skip
DESIGN = Design.parse("y ~ a + d + f + b + r + k + c", SCHEMA)
N = 101


def table(n=N, seed=0):
    """Every type that a column may have, with nulls in each."""
    rng = np.random.default_rng(seed)

    def some(values):
        return [None if rng.random() < 0.1 else v for v in values]

    tenths = [decimal.Decimal(int(v)) / 10 for v in rng.integers(0, 120, n)]
    return pa.table(
        {
            "y": pa.array(some(rng.uniform(-1, 13, n).tolist()), pa.float64()),
            "a": pa.array(some(rng.uniform(-3, 4, n).astype(np.float32).tolist()), pa.float32()),
            "d": pa.array(some(tenths), pa.decimal128(9, 2)),
            "f": pa.array(some(rng.integers(0, 3, n).tolist()), pa.int8()),
            "b": pa.array(some((rng.random(n) < 0.5).tolist()), pa.bool_()),
            "r": pa.array(some(rng.choice(["north", "south", "01", "1", ""], n).tolist()), pa.string()),
            "k": pa.array(some(rng.integers(1, 5, n).tolist()), pa.int64()),
            "c": pa.array(some(rng.choice(["lo", "hi", "mid"], n).tolist()), pa.string()).dictionary_encode(),
            "w": pa.array(some(rng.uniform(-1, 50, n).tolist()), pa.float64()),
            "other": pa.array(np.arange(n)),
        }
    )


def arrays(source, monkeypatch, piece=2**15):
    monkeypatch.setattr(open_table, "CHUNK", piece)
    found = load(source, DESIGN, SCHEMA, weights="w")
    return found.rows.tobytes(), found.valid.tobytes()


@pytest.mark.parametrize("group", [7, 64, 1000])
@pytest.mark.parametrize("piece", [1, 3, 10, 100, N, 1000])
def test_parquet_in_pieces_gives_the_bits_of_the_frame(tmp_path, monkeypatch, piece, group):
    path = tmp_path / "d.parquet"
    pq.write_table(table(), path, row_group_size=group)
    whole = pq.read_table(path)
    assert arrays(path, monkeypatch, piece) == arrays(whole, monkeypatch)
    assert arrays(whole, monkeypatch, piece) == arrays(whole.to_pandas(types_mapper=pd.ArrowDtype), monkeypatch)


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("piece", [1, 3, 10, 100, N, 1000])
def test_csv_in_pieces_gives_the_bits_of_the_frame(tmp_path, monkeypatch, piece, ends):
    path = tmp_path / "d.csv"
    text = table().to_pandas().to_csv(index=False, lineterminator=ends).split(ends)
    odd = [
        "",
        'abc,1e400,nan,true,FALSE,"so\nuth",2.0,lo,1,1',
        "12345678901234567890,1",
        "1,2,3,1,True,01,1,hi,4,5,6,7",
    ]
    path.write_bytes(ends.join([text[0], *odd, *text[1:-1], *odd]).encode())
    whole = load(path, DESIGN, SCHEMA, weights="w")
    assert whole.n == N + 8, "blank, short and long lines are records, and so is a line in quotes"
    assert arrays(path, monkeypatch, piece) == (whole.rows.tobytes(), whole.valid.tobytes())


@pytest.mark.parametrize("piece", [1, 10, 1000])
def test_stata_in_pieces_gives_the_same_bits(tmp_path, monkeypatch, piece):
    frame = (
        table()
        .to_pandas()[["y", "a", "k", "w"]]
        .astype({"a": float})
        .assign(c=pd.Categorical(["lo", "hi"] * 50 + ["lo"]))
    )
    frame.to_stata(tmp_path / "d.dta", write_index=False)
    design = Design.parse("y ~ a + k + c", SCHEMA)
    first = load(tmp_path / "d.dta", design, SCHEMA, weights="w")
    monkeypatch.setattr(open_table, "CHUNK", piece)
    assert load(tmp_path / "d.dta", design, SCHEMA, weights="w").rows.tobytes() == first.rows.tobytes()


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_models_without_a_formula_are_read_in_pieces_too(tmp_path, monkeypatch, piece):
    pq.write_table(table(), tmp_path / "d.parquet")
    mean = pgbb.Mean("y", scale=1.0).prepare(SCHEMA)
    custom = pgbb.Custom(lambda t, r, i: t[0] * r["a"], dim=1, clip=1.0, columns=["a", "k"], box=(-1, 1)).prepare(
        SCHEMA
    )
    for problem in (mean, custom):
        first = records_for(table(), problem, SCHEMA)
        with monkeypatch.context() as patch:
            patch.setattr(open_table, "CHUNK", piece)
            again = records_for(tmp_path / "d.parquet", problem, SCHEMA)
        assert again.rows.tobytes() == first.rows.tobytes() and again.valid.tobytes() == first.valid.tobytes()


def test_a_number_is_read_the_same_beside_any_other(tmp_path):
    """A long whole number must not be rounded in another way because of another record's cell."""
    schema, number = Schema(a=Range(0, 1e22)), "9223372036854775297"
    seen = set()
    for other in ("1", "1.5", "x", "", "-1", "18446744073709551615"):
        (tmp_path / "d.csv").write_text(f"a\n{number}\n{other}\n")
        seen.add(float(load_columns(tmp_path / "d.csv", schema, ["a"]).values["a"][0]))
    assert len(seen) == 1


@pytest.mark.parametrize("piece", [1, 4, 1000])
def test_examine_counts_over_all_pieces(tmp_path, monkeypatch, piece):
    pq.write_table(table(), tmp_path / "d.parquet")
    (tmp_path / "d.csv").write_text("a,k\n1,1\n\n2.0,9\nx,2\n3,2.5\n")
    first = [examine(tmp_path / name, SCHEMA) for name in ("d.parquet", "d.csv")]
    monkeypatch.setattr(open_table, "CHUNK", piece)
    assert [examine(tmp_path / name, SCHEMA) for name in ("d.parquet", "d.csv")] == first
    assert first[0][0]["records"] == N and {row["column"]: row["dtype"] for row in first[1]}["a"] == "int64"


def test_a_folder_is_its_files_by_name(tmp_path, monkeypatch):
    whole, folder = table(), tmp_path / "parts"
    folder.mkdir()
    for name, part in (("b.parquet", whole.slice(40)), ("a.parquet", whole.slice(0, 40))):
        pq.write_table(part, folder / name)
    (folder / "_SUCCESS").write_text("")
    pq.write_table(whole, tmp_path / "d.parquet")
    for source in (folder, str(folder)):
        assert arrays(source, monkeypatch, 16) == arrays(tmp_path / "d.parquet", monkeypatch)


@pytest.mark.parametrize("change", ["type", "name", "order"])
def test_a_folder_of_unlike_files_is_refused_by_name(tmp_path, change):
    good = table()
    other = {
        "type": good.set_column(0, "y", good["y"].cast(pa.float32())),
        "name": good.rename_columns(["z", *good.column_names[1:]]),
        "order": good.select(good.column_names[::-1]),
    }[change]
    pq.write_table(good, tmp_path / "a.parquet")
    pq.write_table(other, tmp_path / "b.parquet")
    with pytest.raises(InvalidValue, match=r"b\.parquet' has other columns or types than 'a\.parquet'"):
        load(tmp_path, DESIGN, SCHEMA)


def test_a_folder_without_parquet_is_refused(tmp_path):
    with pytest.raises(InvalidValue, match=r"holds no \.parquet file"):
        load(tmp_path, DESIGN, SCHEMA)
    pq.write_table(table(0), tmp_path / "a.parquet")
    with pytest.raises(InvalidValue, match="0 records"):
        load(tmp_path, DESIGN, SCHEMA)
    (tmp_path / "b.parquet").write_bytes(b"no Parquet")
    with pytest.raises(PgbbError, match=r"b\.parquet' cannot be read"):
        load(tmp_path, DESIGN, SCHEMA)


def test_a_file_that_ends_in_the_middle_is_refused_quietly(tmp_path, monkeypatch):
    monkeypatch.setattr(open_table, "CHUNK", 2)
    path = tmp_path / "d.parquet"
    pq.write_table(pa.table({"y": [1.0] * 9, "a": ["secret"] * 9}), path, compression="none", use_dictionary=False)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"secret", b"\xff" * 6, 1).replace(b"\x06\0\0\0", b"\xff\xff\xff\x7f"))
    with pytest.raises(PgbbError, match="cannot be read as parquet") as error:
        load(
            path,
            Design.parse("y ~ a", Schema(y=Range(0, 1), a=Levels("u", "v"))),
            Schema(y=Range(0, 1), a=Levels("u", "v")),
        )
    assert "secret" not in str(error.value) and error.value.__suppress_context__


def test_dtypes_are_known_before_a_record_is_read(tmp_path, monkeypatch):
    dates = pa.table({"y": [1.0], "a": pa.array([datetime.date(2024, 1, 1)])})
    pq.write_table(dates, tmp_path / "d.parquet")
    monkeypatch.setattr(records, "_clamped", None)
    with pytest.raises(InvalidValue, match="column 'a' has dtype date32"):
        load(tmp_path / "d.parquet", Design.parse("y ~ a", SCHEMA), SCHEMA)


@pytest.mark.parametrize("kind", ["frame", "csv", "parquet"])
def test_too_little_memory_is_refused_before_a_record_is_read(tmp_path, monkeypatch, kind):
    whole = table().to_pandas()
    whole[["y", "a"]].to_csv(tmp_path / "d.csv", index=False)
    pq.write_table(table(), tmp_path / "d.parquet")
    source = whole if kind == "frame" else tmp_path / f"d.{kind}"
    monkeypatch.setattr(in_memory, "free_memory", lambda: 2**20)
    monkeypatch.setattr(records, "_clamped", None)
    with pytest.raises(PgbbError, match=r"need 0\.3 GiB of memory, and 0\.0 GiB are available.*fewer terms") as error:
        load(source, Design.parse("y ~ a", SCHEMA), SCHEMA)
    assert "Nothing was spent" in str(error.value)


def test_memory_that_the_system_refuses_is_refused_here(monkeypatch):
    monkeypatch.setattr(in_memory, "free_memory", lambda: 2**40)

    def none(*_):
        raise MemoryError

    monkeypatch.setattr(in_memory.InMemory, "_resize", none)
    with pytest.raises(PgbbError, match="records of 16 bytes need"):
        load(table().to_pandas(), Design.parse("y ~ a", SCHEMA), SCHEMA)


def test_a_refusal_for_lack_of_memory_costs_nothing(tmp_path, monkeypatch):
    ledger = Ledger(tmp_path / "l.db")
    ledger.set("d", n=N, epsilon=2.0, delta=1e-5)
    monkeypatch.setattr(in_memory, "free_memory", lambda: 2**20)
    with pytest.raises(PgbbError, match="GiB of memory"):
        pgbb.fit(
            pgbb.HuberRegression("y ~ a"), table().to_pandas(), schema=SCHEMA, epsilon=1.0, delta=1e-6,
            ledger=ledger, dataset="d",
        )  # fmt: skip
    known = ledger.dataset("d")
    assert known.share == 0 and len(known.entries) == 1


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="other devices have memory of their own")
def test_the_device_uses_the_loaded_array_itself():
    found = load(table(5000), DESIGN, SCHEMA)
    data = place(found, 1.0, np.random.default_rng(0), consume=True)
    assert data.rows.unsafe_buffer_pointer() == found.rows.ctypes.data
    assert empty_rows(3, 2).ctypes.data % 64 == 0
