"""One record changes nothing for the others: neighbours over containers, stored types and hostile cells.

benchmarks/front_door.py runs the same cases by the thousand.
"""

import contextlib
import csv
import datetime
import gc
import io
import itertools
import json
import random
import re
import sys
import tracemalloc
import warnings
import zipfile
import zoneinfo

import dateutil.tz
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pyreadstat
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from pgbb.cli import app
from pgbb.custody.ledger import Ledger
from pgbb.errors import InvalidValue, PgbbError
from pgbb.model.formula import Design
from pgbb.model.models import QuantileRegression
from pgbb.model.schema import Flag, Levels, Range, Schema
from pgbb.private import csv_files, excel_files
from pgbb.private.reading import stored_for
from pgbb.private.sources import part_of_frame
from pgbb.sklearn import PrivateLogisticClassifier, PrivateQuantileRegressor
from tests.private import front_door
from tests.private.loaded import load, load_columns

CASES = st.builds(
    front_door.case,
    st.integers(0, len(front_door.GROUPS) - 1),
    st.sampled_from(list(front_door.VALUES)),
    st.sampled_from(front_door.PLACES),
)


@settings(max_examples=500, suppress_health_check=list(HealthCheck))
@given(CASES)
def test_a_cell_changes_its_own_record_and_nothing_else(case):
    try:
        found = case.find()
    except front_door.Unfit:  # the container cannot hold this cell
        return
    assert found is None, f"{case}: {found}"


UNREAD = {  # written in another way than the levels are declared
    *((name, "levels of durations") for name in ("csv", "csv of Europe", "tsv, packed, without header")),
    ("csv of Europe", "levels 1.0, of floats"),  # 1,0
    ("csv of Europe", "levels of fractions"),
    *(
        (name, "levels of days as moments") for name in ("sheet", "sheet of one column", "sheet of Excel 97")
    ),  # a moment at midnight is a day
    ("sheet of Excel 97", "levels of times"),
}


def test_good_cells_are_read_in_every_container(tmp_path):
    """Otherwise a neighbour could differ in nothing because nothing is read at all."""
    unread = set()
    for container, name, make, kind, read in front_door.GROUPS:
        if name in front_door.ROLES:
            continue
        good = [kind.good[i % len(kind.good)] for i in range(front_door.N)]
        try:
            rows = read(make(good, front_door.NOTHING, tmp_path), kind.declared)
        except front_door.Unfit:
            continue
        if not rows[:, -1].all():
            unread.add((container, name))
    assert unread == {pair for pair in UNREAD if any(pair[0] == group[0] for group in front_door.GROUPS)}


def test_a_cell_of_libreoffice_that_is_not_of_its_type_voids_its_own_record_alone(tmp_path, monkeypatch):
    kind = front_door.KINDS["range of floats"]

    def found(cell):
        return front_door.finding(lambda cells, _, folder: front_door._ods(cells, folder), kind, cell, 3, tmp_path)

    assert [name for name, cell in front_door.SHEET_CELLS.items() if found(cell)] == []
    monkeypatch.setattr(excel_files, "_cells", lambda name, part, texts: part)
    assert found(front_door.SHEET_CELLS["n 'abc' in a sheet"]) is not None  # its reader refuses all of them


@pytest.mark.parametrize("role", front_door.ROLES)
def test_in_every_role_a_cell_is_read(role):
    kinds, read = front_door.ROLES[role]
    for kind in map(front_door.KINDS.get, kinds):
        one, other = kind.good[:2]
        found = [read({"c": [one, other, cell, one]}, kind.declared) for cell in (one, other, None)]
        assert not any(np.array_equal(*pair) for pair in itertools.combinations(found, 2))


def columns(source, **schema):
    found = load_columns(source, Schema(**schema), list(schema))
    return [*(found.values[name].tolist() for name in schema), found.valid.tolist()]


# What an attack found, row by row -------------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [(0, 1), (False, True)])
@pytest.mark.parametrize("cell", ["?", "1", b"x", None, 10**400])
def test_a_label_in_a_list_does_not_turn_the_others_into_text(classes, cell):
    model = PrivateLogisticClassifier(epsilon=1.0, delta=1e-6, classes=classes, feature_range=[(0, 4)])
    x, y = [[1.0], [2.0], [3.0]], [classes[1], cell, classes[0]]
    rows = front_door.estimated(model, x, y)
    assert rows[[0, 2], -1].all() and rows[[0, 2], -3].tolist() == [1, 0]


def test_lists_of_features_are_read_cell_by_cell_and_quoted_nowhere():
    model = PrivateQuantileRegressor(epsilon=1.0, delta=1e-6, feature_range=[(0, 4)] * 2, response_range=(0, 4))
    for cell in ("secret", [1, 2], {"secret": 1}, 1j, b"secret", None):
        rows = front_door.estimated(model, [[1.0, 2.0], [1.0, cell], [3.0, 1]], [1.0, 2.0, "secret"])
        assert rows[:, -1].tolist() == [1, 0, 0]
    with pytest.raises(InvalidValue) as error:
        model.fit(np.array([[1j, 12345.0]]), [1.0])
    assert "12345" not in str(error.value) and "Complex data not supported" in str(error.value)
    rows = front_door.estimated(model, [[1.0, 2.0], [1.0], [3.0, 1]], [1.0, 2.0, 3])
    assert rows[:, -1].tolist() == [1, 0, 1], "a row that is too short is void"


def test_no_row_of_a_list_decides_how_many_features_there_are():
    """Of rows of one and of two cells, one more of either would."""
    for rows in ([[1.0], [1.0, 2.0]], [[1.0, 3.0], [1.0, 2.0]], [[1.0], [2.0]], [1.0, 2.0], []):
        for x in (rows, tuple(rows)):
            model = PrivateQuantileRegressor(epsilon=1.0, delta=1e-6, feature_range=(0, 4), response_range=(0, 4))
            with pytest.raises(InvalidValue, match=r"Declare a range for each of the p features"):
                model.fit(x, [1.0] * len(x))
    model.set_params(feature_range=[(0, 4)] * 2)
    for row in ([1.0], [1.0, 2.0], 1.0):
        rows = front_door.estimated(model, [[1.0], [1.0, 2.0], row], [1.0] * 3)
        assert rows[:2, -1].tolist() == [0, 1] and rows.shape[1] == 6


def test_labels_are_matched_by_text_or_value_whatever_holds_them():
    model = PrivateLogisticClassifier(epsilon=1.0, delta=1e-6, classes=(0, 1), feature_range=[(0, 4)])
    for one in (1, 1.0, True, "1", b"1", np.int64(1), np.float32(1), np.bool_(True)):
        for held in ([one, 0], (one, 0), np.array([one, 0]), np.array([one, 0], object), pd.Series([one, 0])):
            rows = front_door.estimated(model, [[1.0], [2.0]], held)
            assert rows[:, -3].tolist() == [1, 0] and rows[:, -1].all()


@pytest.mark.parametrize("stored", ["int8", "int16", "int32"])
def test_a_missing_integer_in_a_stata_file_changes_no_code(tmp_path, stored):
    for levels in (("1", "2"), (1, 2), ("1.0", "2.0")):
        for cells in ([1, 2, 1], [1, None, 1]):
            path = front_door._stata(cells, stored, None, tmp_path)
            assert columns(path, c=Levels(*levels))[0][::2] == [0, 0]


def test_a_categorical_codes_a_cell_by_the_cell():
    for cells in ([1, 2, 1], [1, None, 1], [1, "x", 1], [1, 2.5, 1], [1, np.nan, 1.0]):
        for levels in ((1, 2), ("1.0", "2.0"), ("1", "2")):
            assert columns(pd.DataFrame({"c": pd.Categorical(cells)}), c=Levels(*levels))[0][::2] == [0, 0]


def test_two_stata_codes_of_one_label_are_one_level_whether_or_not_both_occur(tmp_path):
    for cells in ([1, 2, 1], [1, 2, 3], [3, 3, 3]):
        path = front_door._stata(cells, "int8", None, tmp_path, labelled=True)
        assert columns(path, c=Levels("north", "south"))[0] == [0 if c == 1 else 1 for c in cells]


def test_a_bare_carriage_return_belongs_to_its_cell(tmp_path):
    path = tmp_path / "d.csv"
    for ends in ("\n", "\r\n"):
        for cell, usable in (("2", True), ("2\r3", False), ("\r", False), ("2\r", True)):
            path.write_bytes(f"c,x{ends}1,a{ends}{cell},b{ends}3,a{ends}".encode())
            assert columns(path, c=Range(0, 4), x=Levels("a", "b"))[-1] == [True, usable, True]


@pytest.mark.parametrize("version, order", [(117, "<"), (118, "<"), (118, ">"), (119, "<")])
def test_a_long_text_of_a_stata_file_voids_its_own_record(tmp_path, version, order):
    """A cell of long text is a key of a text that lies elsewhere in the file: (9, 9) is the key of none."""
    path, texts = tmp_path / "d.dta", ["north", "south" * 60, "north", "south"]
    pd.DataFrame({"c": texts}).to_stata(path, write_index=False, version=version, convert_strl=["c"], byteorder=order)
    whole, levels = path.read_bytes(), Levels(*texts[1:])
    first, text = whole.index(b"<data>") + 6, whole.index(b"south" * 60)
    assert columns(path, c=levels) == [[1, 0, 1, 2], [True] * 4]
    path.write_bytes(whole[: first + 8] + b"\x09" * 8 + whole[first + 16 :])
    assert columns(path, c=levels) == [[1, 0, 1, 2], [True, False, True, True]]
    path.write_bytes(whole[:text] + b"\xff" + whole[text + 1 :])
    assert columns(path, c=levels) == [[1, 0, 1, 2], [True, False, True, True]]
    for damaged in (whole[: text - 2] + b"\x09" + whole[text - 1 :], whole.replace(b"GSO", b"GSX", 1)):
        path.write_bytes(damaged)  # the length of a text, and the mark of its beginning
        with pytest.raises(PgbbError, match="cannot be read as dta"):
            columns(path, c=levels)
    v, o = (4, 4) if version == 117 else (4, 8)
    keys = [i + 3 for i in range(len(whole)) if whole[i : i + 3] == b"GSO"]
    path.write_bytes(whole[: keys[1]] + whole[keys[0] : keys[0] + v + o] + whole[keys[1] + v + o :])
    with pytest.raises(PgbbError, match="cannot be read as dta"):  # one key, two texts
        columns(path, c=levels)


# What a second attack found, row by row -------------------------------------------------------------------------------


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("stored", [np.float64, np.float32, np.float16, np.longdouble])
@pytest.mark.parametrize("setting", ["warn", "raise"])
def test_numbers_that_processors_signal_are_read_in_silence(stored, setting, tmp_path):
    """A signalling NaN, which R writes for NA; what is too large or too small for a narrower type."""
    good = np.array([1, 2, 1], stored)
    odd = [good.copy() for _ in range(3)]
    if stored is np.longdouble:
        for cells, exponent in zip(odd, (4000, -4900, 300), strict=True):
            cells[1] = np.longdouble(10) ** exponent
    else:
        size = np.dtype(stored).itemsize
        bits = {2: 0x7C01, 4: 0x7F800001, 8: 0x7FF00000000007A2}[size]
        for cells, raw in zip(odd, (bits, 1, bits | 1 << (8 * size - 1)), strict=True):
            cells.view(f"u{size}")[1] = raw
    design, path = Design.parse("c ~ 1", Schema(c=Range(0, 4))), tmp_path / "d.parquet"
    for cells in (good, *odd):
        with np.errstate(all=setting):
            for declared in (Range(0, 4), Flag(), Levels(1, 2)):
                found = [columns({"c": cells}, c=declared)]
                if stored is not np.longdouble:
                    pq.write_table(pa.table({"c": cells}), path)
                    found.append(columns(path, c=declared))
                assert all(f[-1][::2] == [True, True] for f in found)
            assert load({"c": cells}, design, Schema(c=Range(0, 4))).y[::2].tolist() == [1, 1]


@pytest.mark.parametrize("point", [0x110000, 2**32 - 1])
def test_a_number_that_is_no_character_voids_its_record(point):
    for kind in ("<U3", ">U3"):
        cells = np.array(["1", "2", "1"], kind)
        cells.view(kind[0] + "u4")[3] = point
        for held in (cells, np.ma.MaskedArray(cells, [False, False, False]), np.ma.MaskedArray(cells, [0, 1, 0])):
            for declared in (Range(0, 4), Levels(1, 2)):
                assert columns({"c": held}, c=declared)[-1] == [True, False, True]


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "America/New_York"])
def test_a_moment_that_pandas_cannot_show_in_its_zone_voids_its_record(zone):
    for unit, raw in (("s", 2**63 - 1), ("s", 253402300800), ("us", 10**18), ("ns", 2**63 - 1), ("ns", 1 - 2**63)):
        cells = pd.Series(np.array([0, raw, 0]).view(f"M8[{unit}]")).dt.tz_localize("UTC").dt.tz_convert(zone)
        declared = Levels(str(cells[0]), "other")
        for held in (cells, cells.astype("category")):
            assert columns(pd.DataFrame({"c": held}), c=declared)[-1] == [True, False, True]


class Stops(type):
    """A class of classes that ends the process when one of them is compared."""

    def __eq__(cls, other):
        raise SystemExit

    def __hash__(cls):
        raise SystemExit


class Zone(datetime.tzinfo):
    def utcoffset(self, moment):
        raise SystemExit

    tzname = dst = utcoffset


class Whole(np.int64):
    def __int__(self):
        raise SystemExit

    __index__ = __int__


class Single(np.float32):
    def __float__(self):
        raise SystemExit

    __int__ = __str__ = __ne__ = __float__


@pytest.mark.parametrize(
    "cell",
    [
        Stops("Odd", (), {})(), datetime.datetime(2020, 1, 1, tzinfo=Zone()), datetime.time(1, tzinfo=Zone()),
        Whole(1), Single(1),
    ],
    ids=["class", "datetime", "time", "integer", "float"],
)  # fmt: skip
def test_no_code_of_a_cell_is_run(cell):
    for declared in (Range(0, 4), Flag(), Levels(1, 2)):
        for held in ([1, cell, 1], np.fromiter([1, cell, 1], dtype=object, count=3)):
            assert columns({"c": held}, c=declared)[-1] == [True, False, True]


def test_moments_in_the_zones_of_libraries_are_read():
    zones = [None, datetime.UTC, zoneinfo.ZoneInfo("Europe/London"), dateutil.tz.tzutc(), dateutil.tz.tzlocal()]
    for zone in zones:
        for moment in (datetime.datetime(2020, 1, 1, tzinfo=zone), pd.Timestamp(2020, 1, 1, tzinfo=zone)):
            assert columns({"c": [moment]}, c=Levels(str(moment), "other"))[-1] == [True]


def test_a_row_without_end_is_not_copied():
    endless = np.broadcast_to(np.float64(1), 2**45)
    model = PrivateQuantileRegressor(epsilon=1.0, delta=1e-6, feature_range=[(0, 4)], response_range=(0, 4))
    for x, y in (([[1.0], endless, [2.0]], [1.0, 2.0, 3.0]), ([[1.0], [1.0], [2.0]], [1.0, endless, 3.0])):
        assert front_door.estimated(model, x, y)[:, -1].tolist() == [1, 0, 1]


# CSV: damage stays where it is ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    ['"', '"2', '2"', '2,"', '2,"b', '"2"x,b', '2,"b"x', '""",b', '2,b,"', '","', "2,b,c,d", "", '"2,b', '2,"b,c'],
)
@pytest.mark.parametrize("other", ["3,a", '"3","a"', '3,"a"'])
def test_a_stray_quotation_mark_damages_its_own_line(tmp_path, line, other):
    path = tmp_path / "d.csv"
    for at in range(3):
        lines = [other] * 3
        lines.insert(at, line)
        for last in ("\n", ""):
            path.write_text("c,x\n" + "\n".join(lines) + last)
            values, codes, valid = columns(path, c=Range(0, 4), x=Levels("a", "b"))
            rest = [i for i in range(4) if i != at]
            assert len(valid) == 4 - (not line and at == 3 and not last)
            assert all(valid[i] and (values[i], codes[i]) == (3, 0) for i in rest)


def test_well_written_files_are_read_as_the_csv_module_reads_them(tmp_path):
    r, path = random.Random(0), tmp_path / "d.csv"
    pieces = ["a", "b", ",", '"', "\n", "é", " ", "1", "''", '""']
    for _ in range(200):
        cells = ["".join(r.choices(pieces, k=r.randrange(6))) for _ in range(r.randrange(1, 30))]
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator=r.choice(["\n", "\r\n"]), quoting=r.choice([0, 1]))
            writer.writerows([["k", "c", "z"], *(["1", cell, "1"] for cell in cells)])
        levels = sorted({*cells, "no", "other"})
        codes, _, valid = columns(path, c=Levels(*levels), z=Range(0, 2))
        assert len(valid) == len(cells) and all(valid) and [levels[int(c)] for c in codes] == cells


def test_a_quotation_mark_that_never_closes_takes_no_memory_and_no_record(tmp_path, monkeypatch):
    path = tmp_path / "d.csv"
    monkeypatch.setattr("pgbb.private.csv_files.LONGEST", 2**10)
    monkeypatch.setattr("pgbb.private.csv_files._BLOCK", 2**8)
    path.write_text("c,x\n1,a\n" + '2,"a\n' + "3,a\n" * 5000)
    valid = columns(path, c=Range(0, 4), x=Levels("a", "b"))[-1]
    assert len(valid) == 5002 and valid.count(False) == 1 and not valid[1]


@pytest.mark.filterwarnings("error")
def test_a_csv_file_is_closed_and_nothing_is_warned_of(tmp_path):
    path = tmp_path / "d.csv"
    for line in ("2,b", "2", "2,b,c,d,e", "", '2,"b', "2,b" + ",z" * 5000):
        for at in range(2):
            path.write_text("c,x\n" + "\n".join(["1,a", line][:: 1 if at else -1]) + "\n")
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert len(columns(path, c=Range(0, 4), x=Levels("a", "b"))[-1]) == 2
    gc.collect()  # of a file that is still open, pytest hears here


def test_a_record_of_many_cells_makes_no_other_wider(tmp_path):
    """pandas gives every later record as many cells as the widest: a gigabyte for a line of ten thousand commas."""
    path, count = tmp_path / "d.csv", 2**15
    for line in ("2,b" + "," * 10**5, '2,b,"\n"' + ',"x\ny"' * 10**5, '2,b,"' + ",x" * 10**5):
        path.write_text("c,x\n1,a\n" + line + "\n" + "3,a\n" * count)
        tracemalloc.start()
        valid = columns(path, c=Range(0, 4), x=Levels("a", "b"))[-1]
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert len(valid) == count + 2 and all(valid[2:]) and valid[0] and most < 2**27


@pytest.mark.parametrize("size", [10, 2**18, 2**20 - 2**17, 2**20 + 2**17, 2**22])
def test_a_well_written_record_is_one_however_long_and_wherever_it_begins(tmp_path, size):
    """Its own lines look like records, and the length of the record before it changes where a block ends."""
    path, levels = tmp_path / "d.csv", Levels("a", "b")
    for before in (1, 2**17, 2**18 - 40):
        long = '2,"' + "3,a\n" * (size // 4) + '"'
        path.write_bytes(f"c,x\n1,{'a' * before}\n{long}\n3,b\n".encode())
        assert columns(path, c=Range(0, 4), x=levels)[-1] == [before == 1, False, True]


def test_carriage_returns_in_quotation_marks_do_not_depend_on_where_a_block_ends(tmp_path):
    path, levels = tmp_path / "d.csv", Levels("a", "a\nb")
    for before in range(2**18 - 30, 2**18):
        path.write_bytes(b"c,x\n1," + b"z" * before + b'\n1,"a\r\r\nb"\n1,"a\r\nb"\n1,a\r\n')
        assert columns(path, c=Range(0, 4), x=levels)[-1] == [False, False, True, True]


def test_looking_ahead_decides_as_reading_does(tmp_path, monkeypatch):
    r, path = random.Random(1), tmp_path / "d.csv"
    for _ in range(300):
        body = "".join(r.choices(["1", "a", ",", '"', '""', ',"', '",', '"\n', '\n"', "\n", "\r\n", "\r"], k=60))
        path.write_bytes(f"c,x\n{body}".encode())
        found = []
        for block, longest in ((2**18, 2**20), (1, 0), (2, 3), (7, 11), (16, 2**20)):
            monkeypatch.setattr("pgbb.private.csv_files._BLOCK", block)
            monkeypatch.setattr("pgbb.private.csv_files.LONGEST", longest)
            blocks = csv_files._clean(csv_files._Lines(io.BytesIO(path.read_bytes())), csv_files._Rules(b","), 2)
            found.append(b"".join(b if b'"' in b else csv_files._cut(b, b",", 2) for b in blocks))
        assert len(set(found)) == 1


def test_line_feeds_in_a_cell_do_not_count_as_records(tmp_path, monkeypatch):
    """The number of records decides whether they fit into memory, and nothing else does."""
    path, schema = tmp_path / "d.csv", Schema(c=Range(0, 4))
    monkeypatch.setattr("pgbb.private.in_memory.free_memory", lambda: 2**28 + 5 * 10**4)
    for cell in ("a", '"' + "\n" * 10**5 + '"'):
        path.write_text(f"c,x\n1,{cell}\n" + "1,a\n" * 999)
        assert load(path, Design.parse("c ~ 1", schema), schema).n == 1000
    path.write_text("c,x\n" + "1,a\n" * 10**4)
    with pytest.raises(PgbbError, match="more than 4,166 records of 12 bytes need"):
        load(path, Design.parse("c ~ 1", schema), schema)


def test_records_are_counted_as_they_are_read(tmp_path):
    r, path = random.Random(2), tmp_path / "d.csv"
    pieces = ["1", "a", ",", '"', '""', ',"', '",', '"\n', '\n"', "\n", "\r\n", "\r", "\0", "\\", "\u2028", "\ufeff"]
    for _ in range(200):
        head = r.choice(["c\n", "c,x\n", '"c",x\r\n', 'c,"x\ny"\n', "\ufeffc,x\n"])
        path.write_bytes((head + "1" + "".join(r.choices(pieces, k=r.randrange(50)))).encode())
        rules = csv_files._Rules(b",")
        blocks = csv_files._clean(csv_files._Lines(io.BytesIO(path.read_bytes())), rules, None)
        assert sum(csv_files._count(block, rules) for block in blocks) - 1 == len(columns(path, c=Range(0, 4))[-1])


def test_a_text_file_is_read_once_whatever_its_length_and_rows_that_grow_are_those_of_a_known_number(
    tmp_path, monkeypatch
):
    path, schema = tmp_path / "d.csv", Schema(c=Range(0, 4), x=Range(0, 4))
    frame = pd.DataFrame({"c": np.arange(20_000) % 5, "x": np.arange(20_000) % 4})
    frame.to_csv(path, index=False)
    monkeypatch.setattr("pgbb.private.in_memory._STEP", 2**12)
    monkeypatch.setattr("pgbb.private.csv_files._BLOCK", 2**13)
    read, real = [], csv_files._Lines.read
    monkeypatch.setattr(csv_files._Lines, "read", lambda held, size: read.append(real(held, size)) or read[-1])
    problem = QuantileRegression("c ~ x").prepare(schema)
    for scratch in (None, tmp_path):
        read.clear()
        found = stored_for(path, problem, schema, scratch=scratch)
        assert 0 <= sum(map(len, read)) - path.stat().st_size <= 2**12 + 3  # its first line comes first
        assert found.rows.nbytes == 20_000 * 4 * found.rows.shape[1]
        assert np.array_equal(found.rows[:], stored_for(frame, problem, schema).rows)
        assert found.rows[0:1].ctypes.data % 64 == 0
        found.close()


@pytest.mark.parametrize(
    "pair", [("sheet", "range of floats"), ("sheet", "levels of days"), ("sheet of one column", "range of floats")]
)
def test_a_cell_of_a_sheet_that_is_not_of_its_type_voids_its_own_record_in_silence(pair, capfd):
    (group,) = [i for i, (c, k, *_) in enumerate(front_door.GROUPS) if (c, k) == pair]
    for cell in front_door.SHEET_CELLS:
        found = front_door.case(group, cell, front_door.N - 1).find()  # the last: without it there is one row less
        assert found is None, f"{cell}: {found}"
    assert capfd.readouterr() == ("", "")  # compiled code prints past Python


@pytest.mark.parametrize(
    "cell",
    [
        b'<c r="B4" t="inlineStr"><is><t>\xff\xfe</t></is></c>', b'<c r="B4" t="str"><v>\xff</v></c>',
        b'<c r="B4" t="str"><v><![CDATA[</c>]]></v></c>', b'<c r="B4"><v>3</v><extLst/></c>',
    ],
    ids=["text that is not UTF-8", "bytes that are not UTF-8", "text that looks like a cell", "more than a value"],
)  # fmt: skip
def test_what_a_cell_of_a_sheet_holds_beside_its_value_refuses_no_other(cell, tmp_path):
    path = front_door._sheet([1.0, 2.0, 3.0, 1.0], tmp_path)
    with zipfile.ZipFile(path) as made:
        parts = {name: made.read(name) for name in made.namelist()}
    with zipfile.ZipFile(path, "w") as made:
        for name, part in parts.items():
            made.writestr(name, re.sub(rb'<c r="B4".*?</c>', lambda _: cell, part))
    values, valid = columns(path, c=Range(0, 4))
    assert [*values[:2], values[3]] == [1, 2, 1] and [*valid[:2], valid[3]] == [True] * 3


def test_a_transport_file_that_does_not_say_where_its_records_end_is_refused_by_its_types(tmp_path):
    for last in ("south", ""):
        path, cells = tmp_path / f"d{last}.xpt", ["north", "south", last]
        for version in (5, 8):
            pyreadstat.write_xport(pd.DataFrame({"c": cells}), str(path), file_format_version=version)
            if version == 8:
                assert len(columns(path, c=Levels("north", "south"))[-1]) == 3
                continue
            with pytest.raises(InvalidValue, match="transport file of text alone"):
                columns(path, c=Levels("north", "south"))
        pyreadstat.write_xport(pd.DataFrame({"c": cells, "x": 1.0}), str(path), file_format_version=5)
        assert len(columns(path, c=Levels("north", "south"))[-1]) == 3


# Sources that are neither frames nor files ----------------------------------------------------------------------------


def test_the_same_cells_give_the_same_numbers_in_every_source(tmp_path):
    a, r = [0.5, 1.0, None, 9.0], ["north", None, "x", "south"]
    frame = pd.DataFrame({"a": a, "r": r})
    table = pa.table({"a": a, "r": r})
    mixed = np.array([(0.5, "north"), (1.0, ""), (np.nan, "x"), (9.0, "south")], dtype=[("a", "f4"), ("r", "U9")])
    pq.write_table(table, tmp_path / "d.parquet", compression="gzip")
    sources = [
        frame, table, table.to_batches()[0], table.to_reader(), pl.DataFrame({"a": a, "r": r}), {"a": a, "r": r},
        {"a": tuple(a), "r": pa.array(r)}, mixed, tmp_path / "d.parquet", frame.convert_dtypes(),
        frame.astype({"r": "category"}), frame.astype(object), frame.set_axis([5, 5, 1, 0]),
        {"a": np.ma.masked_invalid([0.5, 1.0, np.nan, 9.0]), "r": pl.Series(r)},
        table.to_pandas(types_mapper=pd.ArrowDtype),
    ]  # fmt: skip
    for source in sources:
        values, codes, valid = columns(source, a=Range(0, 4), r=Levels("north", "south"))
        assert (values[0], values[3], codes[0], codes[3]) == (0.5, 4, 0, 1) and valid == [True, False, False, True]


def test_what_is_no_column_is_refused_by_its_type_alone():
    for cells in (np.zeros((3, 2)), 5, "abc", {1, 2}, iter([1]), np.zeros(3, dtype=[("u", "f8")])):
        with pytest.raises(InvalidValue, match="must be a list or an array of one dimension"):
            columns({"c": cells}, c=Range(0, 4))
    with pytest.raises(InvalidValue, match="different lengths"):
        columns({"c": [1], "d": [1, 2]}, c=Range(0, 4))
    for kind in (pa.list_(pa.int8()), pa.struct([("a", pa.int8())]), pa.month_day_nano_interval()):
        for declared in (Range(0, 4), Levels(1, 2)):
            with pytest.raises(InvalidValue, match="has dtype"):
                columns(pa.table({"c": pa.array([None], kind)}), c=declared)
    two = pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_tuples([("c", "a"), ("c", "b")]))
    with pytest.raises(InvalidValue, match="no column"):
        columns(two, c=Range(0, 4))
    odd = pd.DataFrame([[1.0, 2, 3]], columns=["c", pd.NA, 3])
    assert columns(odd, c=Range(0, 4)) == [[1.0], [True]]


RARE = {
    "runs": (pa.RunEndEncodedArray.from_arrays([2, 3], pa.array([1.0, 2.0])), Range(0, 4), [1, 1, 2]),
    "runs of a dictionary": (
        pa.RunEndEncodedArray.from_arrays([2, 3], pa.array(["u", "v"]).dictionary_encode()), Levels("u", "v"), [0, 0, 1]
    ),
    "a part of runs": (pa.RunEndEncodedArray.from_arrays([2, 3], pa.array([1.0, 2.0]))[1:], Range(0, 4), [1, 2]),
    "runs of text": (pa.RunEndEncodedArray.from_arrays([2, 3], pa.array(["u", "v"])), Levels("u", "v"), [0, 0, 1]),
    "decimal256": (pa.array([10**60, 1, 2], pa.decimal256(70)), Range(0, 4), [4, 1, 2]),
    "decimal32": (pa.array([1, 2, 3], pa.decimal32(4)), Levels(1, 2, 3), [0, 1, 2]),
    "half floats": (pa.array([0.5, 1, 2], pa.float16()), Range(0, 4), [0.5, 1, 2]),
    "half levels": (pa.array([0.1, 1, 2], pa.float16()), Levels("0.1", "1", "2"), [0, 1, 2]),
    "uint64": (pa.array([2**64 - 1, 1, 2], pa.uint64()), Levels(2**64 - 1, 1, 2), [0, 1, 2]),
    "int64": (pa.array([2**53 + 1, 2**53, None], pa.int64()), Levels(2**53, 2**53 + 1), [1, 0, 0]),
    "bool8": (pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, 1], pa.int8())), Flag(), [1, 0, 1]),
    "sparse": (pd.arrays.SparseArray([1.0, 0.0, 3.0]), Range(0, 4), [1, 0, 3]),
    "sparse with gaps": (
        pd.arrays.SparseArray([1, np.nan, 3], dtype=pd.SparseDtype("int64", np.nan)), Levels(1, 3, missing=3), [0, 1, 1]
    ),
    "period": (pd.period_range("2020-01", periods=3, freq="M").array, Levels("2020-01", "2020-03"), [0, 0, 1]),
    "interval": (pd.cut([1, 2, 3], [0, 2, 4]), Levels("(0, 2]", "(2, 4]"), [0, 0, 1]),
    "intervals, one missing": (pd.array([pd.Interval(0, 1), None]), Levels("(1, 2]", "(0, 1]"), [1, 0]),
    "intervals of fractions": (pd.array([pd.Interval(0, 0.5)]), Levels("(0.5, 1.0]", "(0.0, 0.5]"), [1]),
    "Enum": (pl.Series(["u", "v", "u"], dtype=pl.Enum(["v", "u"])), Levels("u", "v"), [0, 1, 0]),
    "Categorical": (pl.Series(["u", "v", "u"], dtype=pl.Categorical), Levels("u", "v"), [0, 1, 0]),
    "big-endian": (np.array([1, 2, 3], ">i4"), Levels(1, 2, 3), [0, 1, 2]),
    "long double": (np.array([1, 2, 3], np.longdouble), Range(0, 4), [1, 2, 3]),
    "bytes": (np.array([b"u", b"v", b"u"]), Levels("u", "v"), [0, 1, 0]),
    "0-d arrays": ([np.array(1), np.array(2.0), np.array("3")], Range(0, 4), [1, 2, 3]),
    "days": (np.array(["2020-01-01", "2021-01-01", "NaT"], "M8[D]"), Levels("2021-01-01 00:00:00", "x"), [0, 0, 0]),
}  # fmt: skip


@pytest.mark.parametrize("name", RARE)
def test_rare_columns_are_read_by_their_type(name):
    cells, declared, expected = RARE[name]
    assert columns({"c": cells}, c=declared)[0] == expected


def test_arrays_of_a_column_are_one_whatever_their_tables_hold():
    """Arrow joins no tables that lack a cell, nor those that have together more entries than places can tell."""
    small, text = pa.dictionary(pa.int8(), pa.string()), Levels("a", "b")
    for more in (["b", "a"], ["b", None], [f"y{i}" for i in range(100)]):
        first = pa.array(["a", *(f"x{i}" for i in range(100))]).dictionary_encode().cast(small)
        second = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array(more))
        whole = pa.chunked_array([first, second])
        for source in ({"c": whole}, pa.table({"c": whole}), pd.DataFrame({"c": pd.arrays.ArrowExtensionArray(whole)})):
            codes, valid = columns(source, c=text)
            assert (len(codes), codes[0], valid[:2]) == (103, 0, [True, False])
            assert (valid[-2], valid[-1]) == (more[0] == "b", more[1] == "a") and (codes[-2] == 1) == valid[-2]


@pytest.mark.parametrize("place", [2, 100, -1, -5])
def test_a_place_that_a_table_does_not_have_is_a_missing_cell(place):
    cells = pa.DictionaryArray.from_arrays(pa.array([0, place, 1], pa.int8()), pa.array(["a", "b"]), safe=False)
    assert columns({"c": cells}, c=Levels("a", "b"))[-1] == [True, False, True]


@pytest.mark.parametrize("stored", ["float32", "float64", "int8", "Int64", "bool"])
@pytest.mark.parametrize("cell", ["1j", "np.complex", "1e308", "int that raises", "odd class", "'?'", "None"])
@pytest.mark.filterwarnings("error")
def test_a_cell_of_a_partition_decides_for_no_other_and_runs_no_code(stored, cell):
    kind, part = pd.Series([1, 0, 1]).astype(stored).dtype, pd.Series([1, 0, 1], dtype=object)
    part.iloc[1] = front_door.CELLS[cell]
    parts = [part]
    with contextlib.suppress(RuntimeError):  # of a cell that raises, in pandas
        parts.append(part.infer_objects())
    for part, declared in itertools.product(parts, (Range(0, 4), Levels(0, 1))):
        values, valid = columns(part_of_frame(pd.DataFrame({"c": part}), {"c": kind}), c=declared)
        assert values[::2] == [1, 1] and valid[::2] == [True, True]


def test_text_that_pandas_infers_holds_numbers_as_objects_do():
    for cells in (["1", "2", "3"], ["1", "2", 3.0], ["1", None, "3"], ["1", "?", "3"]):
        values, valid = columns(pd.DataFrame({"c": cells}), c=Range(0, 4))
        assert values[::2] == [1, 3] and valid[::2] == [True, True]
    with pytest.raises(InvalidValue, match="must be numeric"):
        columns(pd.DataFrame({"c": pd.array(["1", "2"], "string")}), c=Range(0, 4))


# Through the command line ---------------------------------------------------------------------------------------------


def command(path, tmp_path, name):
    """Exit code, what was printed and the ledger's entries of a real fit, without numbers and digests."""
    schema, ledger, out = tmp_path / "s.toml", tmp_path / f"{name}.db", tmp_path / f"{name}.pgbb"
    schema.write_text('[columns]\ny = { range = [0, 4] }\nc = { levels = ["north", "south"] }\n')
    Ledger(ledger).set("d", n=60, epsilon=5.0, delta=1e-4)
    given = ["fit", path, "-s", schema, "-f", "y ~ c", "--family", "huber", "-e", "1", "-d", "1e-6", "-o", out]
    result = CliRunner().invoke(app, [*map(str, given), "--ledger", str(ledger), "--dataset", "d", "--json"])
    entries = [(e.state, e.method, e.epsilon, e.delta) for e in Ledger(ledger).dataset("d").entries]
    said = re.sub(r"-?\d[\d.e+-]*|[0-9a-f]{16,}", "#", result.output).replace(name, "")
    return result.exit_code, said, entries, str(result.exception)


HOSTILE = {
    "parquet": ("not utf-8", b"\xff\xfe"),
    "csv": ("a bare return", b"a\rb"),
    "dta": ("not utf-8", b"\xff\xfe"),
    "sav": ("not utf-8", b"\xff\xfe"),
    "xlsx": ("an error that Excel does not have", front_door.Xml("e", "#ERROR!")),
}


@pytest.mark.filterwarnings("ignore::pgbb.errors.PgbbWarning")
@pytest.mark.parametrize("kind", HOSTILE)
def test_the_command_line_says_and_charges_the_same(kind, tmp_path):
    seen = []
    for name, cell in (("plain", b"north"), ("odd", HOSTILE[kind][1])):
        cells = [b"north", b"south"] * 30
        cells[7] = cell
        path = tmp_path / f"{name}.{kind}"
        y = [i % 5 for i in range(60)]
        if kind == "parquet":
            text = front_door._arrow(cells, pa.string(), cell)
            pq.write_table(pa.table({"y": pa.array(y, pa.float64()), "c": text}), path)
        elif kind == "csv":
            path.write_bytes(b"y,c\n" + b"".join(b"%d,%b\n" % pair for pair in zip(y, cells, strict=True)))
        elif kind == "xlsx":
            texts = [c.decode() if isinstance(c, bytes) else c for c in cells]
            front_door._sheet(texts, tmp_path, "y").rename(path)
        else:
            words = [front_door.MARK if i == 7 else c.decode() for i, c in enumerate(cells)]
            frame, blank = pd.DataFrame({"y": [float(v) for v in y], "c": words}), b" " if kind == "sav" else b"\0"
            if kind == "dta":
                frame.to_stata(path, write_index=False, version=118)
            else:
                pyreadstat.write_sav(frame, str(path))
            path.write_bytes(path.read_bytes().replace(front_door.MARK.encode(), cell.ljust(5, blank)[:4]))
        seen.append(command(path, tmp_path, name))
    assert seen[0] == seen[1] and seen[0][0] == 0 and json.dumps(seen[0][2])


def test_arrow_and_pandas_read_the_same_from_every_cell_that_arrow_takes(tmp_path, monkeypatch):
    r, path, typed = random.Random(5), tmp_path / "d.csv", csv_files._typed
    schema = {"a": Range(-1e30, 1e30), "f": Flag(), "g": Levels("a", "1", "2.5"), "m": Levels("x", "?", missing="?")}
    words = [
        "nan",
        "-inf",
        "1e400",
        "1E5",
        ".5",
        "5.",
        "+1",
        " 1",
        "1 ",
        "0x10",
        "NA",
        "null",
        "true",
        "a",
        "x",
        "",
        "2.50",
    ]
    words += [
        "1_0",
        "nan(1)",
        "1e",
        "0." + "1" * 40,
        "9" * 40,
        "\ufeff1",
        "\u0663",
        'a"b',
        "2.5\t",
        "#N/A",
        "None",
        "-0",
    ]

    def cell():
        plain = "".join(r.choices("0123456789.eE+- ", k=r.randint(0, 7)))
        found = r.choice([r.choice(words), plain, repr(r.uniform(-9, 9))])
        return '"' + found.replace('"', '""') + '"' if r.random() < 0.2 else found

    both, taken = 0, []
    for _ in range(250):
        good = ["1.25", "1", "a", "x"]
        body = "\n".join(",".join(cell() if r.random() < 0.4 else g for g in good) for _ in range(r.randint(1, 3)))
        path.write_text(f"a,f,g,m\n{body}\n", encoding="utf-8")
        taken.clear()
        monkeypatch.setattr(csv_files, "_typed", lambda *given: taken.append(typed(*given)) or taken[-1])
        fast = columns(path, **schema)
        monkeypatch.setattr(csv_files, "_typed", lambda *_: None)
        both += any(table is not None for table in taken)
        assert repr(columns(path, **schema)) == repr(fast), body
    assert both > 100


def test_a_plus_sign_in_front_changes_no_number(tmp_path, monkeypatch):
    r, path = random.Random(6), tmp_path / "d.csv"
    texts = [f"{r.uniform(0, 100):.20f}" for _ in range(2_000)]
    found = []
    for sign in ("", "+", " +"):
        path.write_text("a\n" + "\n".join(sign + t for t in texts) + "\n")
        found.append(columns(path, a=Range(0, 100)))
        with monkeypatch.context() as patch:
            patch.setattr(csv_files, "_typed", lambda *_: None)
            found.append(columns(path, a=Range(0, 100)))
    assert all(other == found[0] for other in found)


def test_arrow_holds_no_python_object_of_a_block():
    """Its threads may let go of one when the interpreter has ended, which aborts the process."""
    text = b"a,b\n" + b"1,2\n" * 1000
    before = sys.getrefcount(text)
    held = csv_files._held(text)
    assert sys.getrefcount(text) == before and held.read() == text
    plain = pa.BufferReader(text)
    assert sys.getrefcount(text) > before
    del plain
