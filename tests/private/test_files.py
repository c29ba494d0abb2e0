"""Files as people have them: separators, marks, encodings, sheets, statistical software and databases."""

import gzip
import warnings

import duckdb
import numpy as np
import openpyxl
import pandas as pd
import polars as pl
import pyreadstat
import pytest

import pgbb
from pgbb.errors import PgbbNote
from pgbb.model.schema import Date, Flag, Levels, Range, Schema
from tests.helpers import pgbb_here
from tests.private.loaded import load_columns

pytestmark = pytest.mark.quick

SCHEMA = Schema(wage=Range(0, 10_000), region=Levels("Köln", "Ulm"), union=Flag())
FRAME = pd.DataFrame({"wage": [1234.5, 99.25, 7.0], "region": ["Köln", "Ulm", "Köln"], "union": [0, 1, 1]})


def read(source, schema=SCHEMA):
    found = load_columns(source, schema, list(schema))
    return [*(found.values[name].tolist() for name in schema), found.valid.tolist()]


WANTED = [[1234.5, 99.25, 7.0], [0, 1, 0], [0, 1, 1], [True] * 3]
EUROPE = "wage;region;union\n1.234,5;Köln;0\n99,25;Ulm;1\n7;Köln;1\n"
HOW = {"separator": ";", "decimal": ",", "thousands": "."}


def test_a_file_of_half_of_europe_is_read_as_it_is_declared(tmp_path):
    path = tmp_path / "d.csv"
    for encoding in ("utf-8", "latin-1", "cp1252"):
        path.write_bytes(EUROPE.encode(encoding))
        assert read(pgbb.File(path, encoding=encoding, **HOW)) == WANTED
    path.write_bytes(EUROPE.encode("latin-1"))
    assert read(pgbb.File(path, **HOW))[1][1] == 1 and read(pgbb.File(path, **HOW))[-1] == [False, True, False]
    assert read(pgbb.File(path, separator=";", decimal=",", encoding="latin-1"))[-1] == [False, True, True]
    lines = EUROPE.partition("\n")[2].encode()
    packed = tmp_path / "d.csv.gz"
    packed.write_bytes(gzip.compress(lines))
    assert read(pgbb.File(packed, names=["wage", "region", "union"], **HOW)) == WANTED
    (tmp_path / "d.tsv").write_text(EUROPE.replace(";", "\t").replace("1.234,5", "1234.5").replace(",", "."))
    assert read(tmp_path / "d.tsv") == WANTED


@pytest.mark.parametrize("text, number", [("1.234,5", 1234.5), ("1.23,5", None), ("1.234.5", None), ("12,5", 12.5),
                                          ("1,2,3", None), ("-1.234", 0.0), ("1234.5", None), ("", None)])  # fmt: skip
def test_a_number_that_breaks_the_declared_marks_voids_its_record_alone(text, number, tmp_path):
    (tmp_path / "d.csv").write_text(f"wage;x\n1;a\n{text};a\n3;a\n")
    values, valid = read(pgbb.File(tmp_path / "d.csv", **HOW), Schema(wage=Range(0, 10_000)))
    assert valid == [True, number is not None, True] and values[::2] == [1.0, 3.0]
    assert number is None or values[1] == number


def test_a_currency_sign_is_left_out_where_it_is_declared(tmp_path):
    (tmp_path / "d.csv").write_text("wage;x\n€1.234,50;a\n7 €;a\n$3;a\n€;a\n5;a\n", encoding="utf-8")
    values, valid = read(pgbb.File(tmp_path / "d.csv", currency="€", **HOW), Schema(wage=Range(0, 10_000)))
    assert valid == [True, True, False, False, True] and [values[i] for i in (0, 1, 4)] == [1234.5, 7.0, 5.0]
    assert read(pgbb.File(tmp_path / "d.csv", **HOW), Schema(wage=Range(0, 10_000)))[-1] == [False] * 4 + [True]


@pytest.mark.parametrize("dates, cells", [("dd.mm.yyyy", ["01.07.1990", "1.7.1990"]), ("mm/dd/yyyy", ["07/01/1990"]),
                                          ("yyyymmdd", ["19900701"]), ("yyyy-mm-dd", ["1990-07-01"])])  # fmt: skip
def test_days_are_read_as_they_are_declared_to_be_written(dates, cells, tmp_path):
    path, schema = tmp_path / "d.csv", Schema(born=Date("1950-01-01", "2000-12-31"))
    odd = ["31.02.1990", "07/31/90", "", "word", "1990.07.01"]
    path.write_text("born;x\n" + "".join(f"{cell};1\n" for cell in [*cells, *odd]))
    years, valid = read(pgbb.File(path, separator=";", dates=dates), schema)
    assert np.allclose(years[: len(cells)], 1990.4946, atol=1e-3)
    assert valid == [True] * len(cells) + [False] * len(odd)


@pytest.mark.parametrize("header, word", [("a;b", "semicolon"), ("a\tb", "tab"), ("Größe,b", "encoding")])
def test_a_header_that_shows_another_separator_or_encoding_is_refused_with_the_remedy(header, word, tmp_path):
    path = tmp_path / "d.csv"
    path.write_bytes(f"{header}\n1;2\n".encode("latin-1"))
    for command in (("init", path, "--out", tmp_path / "s.toml"), ("check", path, "--schema", tmp_path / "t.toml")):
        (tmp_path / "t.toml").write_text("[columns]\na = { range = [0, 1] }\n")
        done = pgbb_here(*command)
        told = word if command[0] == "init" else "--separator"
        assert done.returncode == 2 and told in done.stderr and header not in done.stderr
    path.write_bytes("€;b\n1;2\n".encode("cp1252"))
    done = pgbb_here("init", path, "--separator", ";", "--encoding", "latin-1", "--out", tmp_path / "w.toml")
    assert done.returncode == 2 and "cp1252" in done.stderr
    path.write_bytes(b"a;b\n1\n")
    assert read(pgbb.File(path, names=["a"]), Schema(a=Range(0, 9)))[-1] == [False, True]


FIRST_RECORDS = [
    "1,2", "1;2", "1\t2", "a|b", "wage", "wage,wage", "wage,x", "", '""', ",", "é,1", "ÿ", "\0", '"1', "9" * 70_000,
]  # fmt: skip


@pytest.mark.parametrize("name", ["d.csv", "d.tsv", "d.csv.gz", "d.xlsx"])
def test_of_a_file_without_a_header_every_first_record_is_refused_with_the_same_words(name, tmp_path):
    schema, said = Schema(wage=Range(0, 9), region=Levels("Ulm", "Bonn")), set()
    for i, line in enumerate(FIRST_RECORDS):
        path = tmp_path / str(i) / name
        path.parent.mkdir()
        if name == "d.xlsx":
            book = openpyxl.Workbook()
            for row in (line.replace("\0", "").split(",") if len(line) < 9_999 else ["long"], ["1", "Ulm"]):
                book.active.append(row)
            book.save(path)
        else:
            whole = f"{line}\n1,Ulm\n".encode("latin-1")
            path.write_bytes(gzip.compress(whole) if name.endswith(".gz") else whole)
        with pytest.raises(pgbb.InvalidValue, match="name each of these columns once: wage, region") as error:
            read(path, schema)
        said.add(str(error.value))
    assert len(said) == 1


def test_a_file_of_one_column_may_have_any_mark_in_its_name(tmp_path):
    for name, mark, how in (("d.tsv", ",", {}), ("d.tsv", ";", {}), ("d.csv", ";", {"separator": ","})):
        path, title = tmp_path / name, f"income{mark} monthly"
        path.write_text(f"{title}\n3\n")
        assert read(pgbb.File(path, **how), Schema(**{title: Range(0, 9)})) == [[3.0], [True]]
        given = [word for key in how for word in (f"--{key}", "comma")]
        done = pgbb_here("init", path, *given, "--out", tmp_path / f"{name}{mark}.toml")
        assert done.returncode == 0 and title in (tmp_path / f"{name}{mark}.toml").read_text()


def test_sheets_statistical_files_frames_and_relations_say_the_same(tmp_path):
    book = openpyxl.Workbook()
    for row in [list(FRAME), *FRAME.to_numpy().tolist()]:
        book.active.append(row)
    book.save(tmp_path / "d.xlsx")
    pyreadstat.write_sav(FRAME, str(tmp_path / "d.sav"))
    pyreadstat.write_xport(FRAME, str(tmp_path / "d.xpt"))
    frame = pl.from_pandas(FRAME)
    with duckdb.connect(str(tmp_path / "d.duckdb")) as base:
        base.register("given", frame)
        base.execute("CREATE TABLE people AS SELECT *, 2000 AS year FROM given")
    query = pgbb.File(tmp_path / "d.duckdb", sql='SELECT wage, region, "union" FROM people')
    for source in (*(tmp_path / name for name in ("d.xlsx", "d.sav", "d.xpt")), frame, duckdb.from_arrow(frame), query):
        assert read(source) == WANTED, source
    with pytest.warns(PgbbNote, match="public columns alone"):
        asked = pgbb.File(tmp_path / "d.duckdb", sql="select wage from people where year = 2000 and region in ('Ulm')")
        assert read(asked, Schema(wage=Range(0, 10_000)))[0] == [99.25]


def test_labels_and_dates_of_a_statistical_file_are_levels(tmp_path):
    frame = pd.DataFrame({"g": [1.0, 2.0, np.nan], "d": [pd.Timestamp("2020-01-01").date()] * 3})
    pyreadstat.write_sav(frame, str(tmp_path / "d.sav"), variable_value_labels={"g": {1: "north", 2: "south"}})
    schema = Schema(g=Levels("north", "south"), d=Levels("2020-01-01", "other"))
    assert read(tmp_path / "d.sav", schema) == [[0, 1, 0], [0, 0, 0], [True, True, False]]
    assert read(tmp_path / "d.sav", Schema(g=Levels(1, 2)))[0] == [0, 1, 0]
    with pytest.raises(pgbb.InvalidValue, match="dtype date"):
        read(tmp_path / "d.sav", Schema(d=Range(0, 1)))


def test_a_sheet_must_be_named_where_there_are_two(tmp_path):
    book = openpyxl.Workbook()
    book.active.append(["wage"])
    book.create_sheet("more").append(["wage"])
    book["more"].append([3])
    book.save(tmp_path / "d.xlsx")
    schema = Schema(wage=Range(0, 9))
    with pytest.raises(pgbb.InvalidValue, match=r"2 sheets: 'Sheet', 'more'"):
        read(tmp_path / "d.xlsx", schema)
    assert read(pgbb.File(tmp_path / "d.xlsx", sheet="more"), schema)[0] == [3.0]
    with pytest.raises(pgbb.InvalidValue, match="has 'Sheet', 'more'"):
        read(pgbb.File(tmp_path / "d.xlsx", sheet="none"), schema)
    with pytest.raises(pgbb.InvalidValue, match="0 records"):
        read(pgbb.File(tmp_path / "d.xlsx", sheet="Sheet"), schema)


@pytest.mark.parametrize(
    "sql",
    ["INSERT INTO people VALUES (1)", "DROP TABLE people", "SELECT 1; DROP TABLE people", "COPY people TO 'x.csv'",
     "SELECT avg(y) FROM people", "SELECT y + 1 FROM people", "SELECT y FROM people ORDER BY y",
     "SELECT y FROM people LIMIT 3", "SELECT DISTINCT y FROM people", "SELECT y FROM people GROUP BY y",
     "SELECT a.y FROM people a JOIN people b ON a.y = b.y", "SELECT y FROM people, people",
     "WITH q AS (SELECT y FROM people) SELECT y FROM q", "SELECT y FROM people UNION ALL SELECT y FROM people",
     "SELECT y FROM people WHERE y > (SELECT avg(y) FROM people)", "SELECT count(*) OVER () FROM people",
     "SELECT y FROM read_csv('x.csv')", "SELECT y FROM people TABLESAMPLE 10%", "SELECT y FROM people QUALIFY 1",
     "SELECT * REPLACE (y + 1 AS y) FROM people", "SELECT CAST(y AS INT) FROM people", "not sql",
     "SELECT none FROM people", "SELECT y FROM nowhere", "SELECT y FROM 'x.csv'", "", " ;", "-- SELECT y FROM people"],
)  # fmt: skip
def test_a_query_that_is_not_read_row_by_row_is_refused_and_writes_nothing(sql, tmp_path):
    path = tmp_path / "d.duckdb"
    with duckdb.connect(str(path)) as base:
        base.execute("CREATE TABLE people AS SELECT 2.5 AS y")
    (tmp_path / "x.csv").write_text("y\n1\n")
    before = path.read_bytes()
    with pytest.raises(pgbb.InvalidValue, match="sql"):
        read(pgbb.File(path, sql=sql), Schema(y=Range(0, 9)))
    assert path.read_bytes() == before


def test_a_query_may_end_with_a_comment_or_a_semicolon(tmp_path):
    with duckdb.connect(str(tmp_path / "d.duckdb")) as base:
        base.execute("CREATE TABLE people AS SELECT 2.5 AS y")
    for sql in (
        "SELECT y FROM people -- all",
        "SELECT y FROM people; -- all",
        "SELECT y /* wage */ FROM people\n;",
    ):
        assert read(pgbb.File(tmp_path / "d.duckdb", sql=sql), Schema(y=Range(0, 9)))[0] == [2.5]


@pytest.mark.parametrize(
    "name, how, word",
    [
        ("d.csv", {"encoding": "klingon"}, "encoding"), ("d.csv", {"encoding": "utf-16"}, "Convert the file"),
        ("d.csv", {"encoding": "shift_jis"}, "one byte"), ("d.csv", {"encoding": "utf-7"}, "one byte"),
        ("d.csv", {"separator": ";;"}, "separator"), ("d.csv", {"separator": '"'}, "separator"),
        ("d.csv", {"decimal": ","}, "separator = ','"), ("d.csv", {"decimal": ";"}, "decimal"),
        ("d.csv", {"separator": ";", "thousands": "x"}, "thousands"), ("d.csv", {"names": []}, "names"),
        ("d.csv", {"sheet": "a"}, "sheet"), ("d.xlsx", {"separator": ";"}, "separator"),
        ("d.parquet", {"sql": "SELECT 1"}, "duckdb"), ("d.duckdb", {}, "SELECT"), ("d.csv", {"names": "ab"}, "names"),
        ("d.csv", {"dates": "dd.mm.dd"}, "dates"), ("d.dta", {"dates": "dd.mm.yyyy"}, "dates"),
        ("d.csv", {"currency": "1"}, "currency"), ("d.parquet", {"currency": "$"}, "currency"),
    ],
)  # fmt: skip
def test_a_wrong_way_of_reading_is_refused_before_the_file_is_opened(name, how, word):
    with pytest.raises(pgbb.InvalidValue, match=word):
        pgbb.File(name, **how)


def test_nested_and_unknown_things_are_refused_by_their_type():
    frame = pl.DataFrame({"y": [[1, 2], [3]], "x": [1.0, 2.0]})
    with pytest.raises(pgbb.InvalidValue, match=r"'y' has dtype large_list.* one number, word or day in each cell"):
        read(frame, Schema(y=Range(0, 9)))
    with pytest.raises(pgbb.InvalidValue, match=r"LazyFrame.* first: data\.collect\(\)"):
        read(frame.lazy(), Schema(x=Range(0, 9)))
    assert read(frame, Schema(x=Range(0, 9)))[0] == [1.0, 2.0]
    with pytest.raises(pgbb.InvalidValue, match=r"pgbb\.File"):
        read(object(), Schema(x=Range(0, 9)))


def test_the_command_line_takes_the_same_and_init_sees_names_and_types(tmp_path):
    (tmp_path / "d.csv").write_bytes(EUROPE.encode("latin-1"))
    (tmp_path / "s.toml").write_text(SCHEMA.to_toml(), encoding="utf-8")
    how = ["--separator", ";", "--decimal", ",", "--thousands", ".", "--encoding", "latin-1"]
    made = pgbb_here("init", "d.csv", *how, "--out", "i.toml", cwd=tmp_path)
    assert made.returncode == 0 and (tmp_path / "i.toml").read_text().count("\nregion = ") == 1
    checked = pgbb_here("check", "d.csv", "-s", "s.toml", *how, cwd=tmp_path)
    assert checked.returncode == 0 and "3 records" in checked.stdout
    pyreadstat.write_sav(FRAME, str(tmp_path / "d.sav"))
    assert pgbb_here("init", "d.sav", "--out", "j.toml", cwd=tmp_path).returncode == 0
    assert "wage = { range = [] }" in (tmp_path / "j.toml").read_text()
    refused = pgbb_here("check", "d.csv", "-s", "s.toml", "--encoding", "klingon", cwd=tmp_path)
    assert refused.returncode == 2 and "klingon" in refused.stderr
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read(tmp_path / "d.sav") == WANTED
