import traceback

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pgbb.errors import InvalidValue, PgbbError
from pgbb.model.formula import Design
from pgbb.model.schema import Flag, Levels, Range, Schema
from pgbb.private.records import NonPrivateRecords, Records, examine
from tests.helpers import python
from tests.private.loaded import load, load_columns

pytestmark = pytest.mark.quick

SENTINEL = 987654
SCHEMA = Schema(
    y=Range(0, 12),
    a=Range(-2, 3),
    f=Flag(),
    r=Levels("north", "south"),
    k=Levels(1, 2, 3),
    w=Range(0, 40),
    unused=Range(0, 1),
)
DESIGN = Design.parse("y ~ a + f + r + k", SCHEMA)


def good(n=50, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "y": rng.uniform(0, 12, n),
            "a": rng.uniform(-2, 3, n),
            "f": rng.integers(2, size=n),
            "r": rng.choice(["north", "south"], n),
            "k": rng.integers(1, 4, n),
            "w": rng.uniform(0, 40, n),
            "other": np.arange(n),
        }
    )


def save(frame, tmp_path, suffix):
    path = tmp_path / f"data{suffix}"
    if suffix == ".csv":
        frame.to_csv(path, index=False)
    elif suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_stata(path, write_index=False)
    return path


def same(one, two):
    return all(np.array_equal(getattr(one, field), getattr(two, field)) for field in ("x", "y", "weight", "valid"))


def everything_said(error):
    """The message and the whole traceback with its causes, as a log would hold it."""
    return "".join(traceback.format_exception(error.value, chain=True)).replace(f"SENTINEL = {SENTINEL}", "")


def test_good_records_are_encoded_by_the_design():
    frame = good()
    records = load(frame, DESIGN, SCHEMA)
    columns = {n: frame[n].to_numpy() for n in ("a", "f")}
    columns |= {"r": (frame["r"] == "south").to_numpy(dtype=int), "k": frame["k"].to_numpy() - 1}
    np.testing.assert_array_equal(records.x, DESIGN.matrix(columns))
    np.testing.assert_allclose(records.y, frame["y"], rtol=1e-6)
    assert records.valid.all() and (records.weight == 1).all() and (records.n, records.p) == (50, 6)
    assert records.x.dtype == records.y.dtype == records.weight.dtype == np.float32 and records.valid.dtype == bool


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".dta"])
def test_a_file_gives_the_same_records_as_the_frame(tmp_path, suffix):
    frame = good()
    path = save(frame, tmp_path, suffix)
    for source in (path, str(path)):
        assert same(load(source, DESIGN, SCHEMA, weights="w"), load(frame, DESIGN, SCHEMA, weights="w"))


def test_the_order_of_rows_and_duplicates_are_kept():
    frame = pd.concat([good(20).iloc[::-1], good(20).iloc[:5]])  # a shuffled index with repeated labels
    records = load(frame, DESIGN, SCHEMA)
    np.testing.assert_allclose(records.y, frame["y"].to_numpy(), rtol=1e-6)
    assert records.n == 25


def test_values_outside_a_range_are_clamped():
    frame = good(4)
    frame["y"], frame["a"] = [-5.0, 99.0, 6.0, 12.0], [-100.0, 100.0, -2.0, 3.0]
    records = load(frame, DESIGN, SCHEMA)
    assert records.y.tolist() == [0, 12, 6, 12] and records.x[:, 1].tolist() == [-1, 1, -1, 1]
    assert records.valid.all()


BAD_CELLS = [
    ("y", np.nan),
    ("y", np.inf),
    ("a", -np.inf),
    ("a", np.nan),
    ("f", 2),
    ("f", 0.5),
    ("f", SENTINEL),
    ("f", np.nan),
    ("r", "west"),
    ("r", None),
    ("r", str(SENTINEL)),
    ("k", 4),
    ("k", 1.5),
    ("k", SENTINEL),
    ("k", np.nan),
    ("w", np.nan),
]


@pytest.mark.parametrize("column, value", BAD_CELLS)
def test_a_bad_cell_keeps_its_record_in_n_and_touches_no_other(column, value):
    frame = good(20)
    whole = load(frame, DESIGN, SCHEMA, weights="w")
    if column != "r":
        frame[column] = frame[column].astype(float)
    frame.loc[7, column] = value
    records = load(frame, DESIGN, SCHEMA, weights="w")
    assert records.n == 20 and np.flatnonzero(~records.valid).tolist() == [7]
    assert not records.x[7].any() and records.weight[7] == 0 and records.y[7] == 6
    rest = records.valid
    for field in ("x", "y", "weight"):
        np.testing.assert_array_equal(getattr(records, field)[rest], getattr(whole, field)[rest])


@pytest.mark.parametrize("column", ["y", "a", "f", "r", "k"])
@pytest.mark.parametrize("cell", ["abc", "", "nan", f"{SENTINEL}x", "1,5", '"'])
def test_unreadable_text_in_a_csv_file_spoils_its_record_and_nothing_else(tmp_path, column, cell):
    frame = good(20).astype(object)
    frame.loc[7, column] = cell
    records = load(save(frame, tmp_path, ".csv"), DESIGN, SCHEMA)
    assert records.n == 20 and np.flatnonzero(~records.valid).tolist() == [7]


def test_a_csv_file_keeps_blank_lines_short_lines_and_bad_bytes_as_records(tmp_path):
    path = tmp_path / "data.csv"
    path.write_bytes("\ufeffa,r\n1,north\n\n2\n1,s\u00fcd\n".encode() + b"1,\xff\xfe\n3,south\n")
    data = load_columns(path, SCHEMA, ["a", "r"])
    assert data.valid.tolist() == [True, False, False, False, False, True]
    assert data.values["a"].tolist() == [1, 0.5, 0.5, 0.5, 0.5, 3], "an invalid record holds public fillers"


def test_flags_may_be_written_as_numbers_or_truth_values(tmp_path):
    (tmp_path / "data.csv").write_text("f\n1\n0\nTrue\nfalse\n1.0\nyes\n")
    data = load_columns(tmp_path / "data.csv", SCHEMA, ["f"])
    assert data.values["f"].tolist() == [1, 0, 1, 0, 1, 0] and data.valid.tolist() == [True] * 5 + [False]
    nullable = [pd.Series([1, 0, pd.NA], dtype="Int8"), pd.Series([True, False, pd.NA], dtype="boolean")]
    for series in (pd.Series([True, False]), pd.Series([1, 0]), pd.Series([1.0, 0.0], dtype="float32"), *nullable):
        data = load_columns(pd.DataFrame({"f": series}), SCHEMA, ["f"])
        assert data.values["f"][:2].tolist() == [1, 0] and data.valid.tolist() == [True, True, False][: len(series)]


def test_levels_match_by_text_or_by_whole_number():
    schema = Schema(k=Levels(1, 2), t=Levels("1", "02", "b"))
    frame = pd.DataFrame({"k": [1.0, 2.0, np.nan], "t": [1, "02", "b"]})
    data = load_columns(frame, schema, ["k", "t"])
    assert data.values["k"].tolist()[:2] == [0, 1] and data.values["t"].tolist()[:2] == [0, 1]
    for series in (pd.Series(["1", "2"]), pd.Series([1, 2]), pd.Categorical([1, 2]), pd.Series([1, 2], dtype="Int64")):
        assert load_columns(pd.DataFrame({"k": series}), schema, ["k"]).values["k"].tolist() == [0, 1]


def test_an_object_that_cannot_be_hashed_is_only_an_undeclared_level():
    frame = pd.DataFrame({"r": ["north", ["a", "list"], {"a": SENTINEL}, 10**400, None]})
    assert load_columns(frame, SCHEMA, ["r"]).valid.tolist() == [True, False, False, False, False]


def test_a_csv_level_that_pandas_would_read_as_missing_is_a_level(tmp_path):
    (tmp_path / "data.csv").write_text("c\nNA\n01\nnull\n")
    data = load_columns(tmp_path / "data.csv", Schema(c=Levels("01", "NA")), ["c"])
    assert data.values["c"].tolist() == [1, 0, 0] and data.valid.tolist() == [True, True, False]


def test_stata_labels_and_codes_both_match(tmp_path):
    frame = pd.DataFrame({"r": pd.Categorical(["south", "north", "south"]), "k": pd.Categorical(["lo", "hi", "lo"])})
    path = save(frame, tmp_path, ".dta")
    by_label = load_columns(path, Schema(r=Levels("north", "south"), k=Levels(0, 1)), ["r", "k"])
    assert by_label.values["r"].tolist() == [1, 0, 1]
    assert by_label.values["k"].tolist() == [1, 0, 1], "codes of the labels hi, lo"


def test_nulls_in_a_parquet_file_do_not_change_its_dtypes(tmp_path):
    frame = pd.DataFrame({"f": [True, None, False], "a": pd.array([1, None, 2], dtype="Int64")}, index=[5, 5, 1])
    data = load_columns(save(frame, tmp_path, ".parquet"), SCHEMA, ["f", "a"])
    assert data.valid.tolist() == [True, False, True] and data.values["f"].tolist() == [1, 0, 0]
    frame = pd.DataFrame({"a": [1.0, 2.0], "f": [0, 1]}).set_index("a")
    assert load_columns(save(frame, tmp_path, ".parquet"), SCHEMA, ["a"]).values["a"].tolist() == [1, 2]


def test_survey_weights_are_clamped_and_divided_by_their_public_bound():
    frame = good(4)
    frame["w"] = [10.0, 400.0, -1.0, 40.0]
    assert load(frame, DESIGN, SCHEMA, weights="w").weight.tolist() == [0.25, 1, 0, 1]


@pytest.mark.parametrize("weights", ["a", "f", "k", "other", "nowhere"])
def test_weights_must_be_declared_as_a_range_from_zero_up(weights):
    with pytest.raises(InvalidValue, match=f"weights = '{weights}'"):
        load(good(), DESIGN, SCHEMA, weights=weights)


def test_only_needed_columns_are_needed():
    records = load(good()[["y", "a"]], Design.parse("y ~ a", SCHEMA), SCHEMA)
    assert records.p == 2
    assert load(good()[["y"]], Design.parse("y ~ 1", SCHEMA), SCHEMA).x.tolist() == [[1.0]] * 50


@pytest.mark.parametrize("suffix", [None, ".csv", ".parquet", ".dta"])
def test_a_missing_column_is_named_but_the_names_found_are_not(tmp_path, suffix):
    frame = good().rename(columns={"a": f"x{SENTINEL}"}).drop(columns="f")
    source = frame if suffix is None else save(frame, tmp_path, suffix)
    said = ", ".join(DESIGN.rows_need[0]) if suffix == ".csv" else "'a', 'f'.* y, a, f, r, k, w, unused"  # all of them
    with pytest.raises(InvalidValue, match=said) as error:
        load(source, DESIGN, SCHEMA)
    assert str(SENTINEL) not in everything_said(error)


@pytest.mark.parametrize("column", ["y", "a", "f"])
@pytest.mark.parametrize("dtype", ["string", "category", "datetime64[ns]", "timedelta64[ns]"])
def test_a_wrong_dtype_is_refused_by_dtype_and_not_by_value(column, dtype):
    frame = good()
    frame[column] = pd.Series([SENTINEL] * 50).astype(dtype)
    with pytest.raises(InvalidValue, match=rf"column '{column}' has dtype {dtype.split('[')[0]}") as error:
        load(frame, DESIGN, SCHEMA)
    assert str(SENTINEL) not in everything_said(error)


def test_an_empty_frame_or_file_is_refused(tmp_path):
    for source in (
        good().iloc[:0],
        save(good().iloc[:0], tmp_path, ".csv"),
        save(good().iloc[:0], tmp_path, ".parquet"),
    ):
        with pytest.raises(PgbbError, match="0 records"):
            load(source, DESIGN, SCHEMA)


def test_a_column_that_occurs_twice_is_refused(tmp_path):
    frame = pd.concat([good(), good()[["a"]]], axis=1)
    for source, said in ((frame, "'a' more than once"), (save(frame, tmp_path, ".csv"), "must name each .* once")):
        with pytest.raises(InvalidValue, match=said):
            load(source, DESIGN, SCHEMA)


@pytest.mark.parametrize("source", [None, 3, [[SENTINEL]], (SENTINEL,), {SENTINEL}, np.full((2, 2), SENTINEL)])
def test_data_of_another_type_is_refused_by_its_type(source):
    with pytest.raises(InvalidValue, match=type(source).__name__) as error:
        load(source, DESIGN, SCHEMA)
    assert str(SENTINEL) not in str(error.value)


def test_a_file_that_is_absent_or_unknown_is_named(tmp_path):
    with pytest.raises(PgbbError, match=r"absent\.csv.*does not exist"):
        load(tmp_path / "absent.csv", DESIGN, SCHEMA)
    with pytest.raises(PgbbError, match="does not exist or is not a file"):
        (tmp_path / "folder.csv").mkdir()
        load(tmp_path / "folder.csv", DESIGN, SCHEMA)
    with pytest.raises(PgbbError, match=r"\.csv, .*\.parquet, \.dta"):
        load(tmp_path / "data.docx", DESIGN, SCHEMA)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".dta"])
def test_an_unreadable_file_gives_an_error_without_a_value(tmp_path, suffix):
    path = tmp_path / f"data{suffix}"
    for content in (b"", f"{SENTINEL}\xff\x00".encode("latin-1") * 50):
        path.write_bytes(content)
        with pytest.raises(PgbbError) as error:
            load(path, DESIGN, SCHEMA)
        assert str(SENTINEL) not in everything_said(error)


def test_an_undeclared_column_is_refused_before_the_data_is_opened(tmp_path):
    with pytest.raises(InvalidValue, match="'age' is not declared"):
        load_columns(tmp_path / "absent.csv", SCHEMA, ["age"])


def test_private_objects_show_their_size_and_nothing_else():
    frame = good(3)
    frame["y"] = frame["a"] = 2.7182
    records = load(frame, DESIGN, SCHEMA)
    assert repr(records) == str(records) == "Records(n=3, p=6)"
    assert repr(load_columns(frame, SCHEMA, ["y", "a"])) == "Columns(n=3, names=['y', 'a'])"
    with pytest.raises(TypeError):
        iter(records)
    assert not hasattr(records, "__array__") and not hasattr(records, "__len__") and not hasattr(records, "__dict__")


def test_the_two_kinds_of_records_are_not_each_other():
    records = load(good(), DESIGN, SCHEMA)
    plain = records.as_non_private()
    assert isinstance(records, Records) and not isinstance(records, NonPrivateRecords)
    assert isinstance(plain, NonPrivateRecords) and not isinstance(plain, Records)
    assert same(records, plain) and not hasattr(plain, "as_non_private")
    assert repr(plain) == "NonPrivateRecords(n=50, p=6)"


def test_the_frame_of_the_caller_is_not_changed():
    frame = good(5)
    frame.loc[2, "a"] = 50.0
    copy = frame.copy(deep=True)
    load(frame, DESIGN, SCHEMA, weights="w")
    pd.testing.assert_frame_equal(frame, copy)


@pytest.mark.parametrize("suffix", [None, ".csv", ".parquet", ".dta"])
def test_examine_counts_what_is_missing_and_outside(tmp_path, suffix):
    frame = good(10)
    frame["f"] = frame["f"].astype(float)
    frame.loc[0, "y"], frame.loc[1, "y"], frame.loc[2, "y"] = np.nan, 50.0, -1.0
    frame.loc[3, "f"], frame.loc[4, "r"], frame.loc[5, "r"] = 7, "west", ""
    source = frame if suffix is None else save(frame, tmp_path, suffix)
    rows = {row["column"]: row for row in examine(source, SCHEMA)}
    assert list(rows) == list(SCHEMA)
    assert (rows["y"]["missing"], rows["y"]["outside"]) == (1, 2)
    assert (rows["f"]["missing"], rows["f"]["outside"]) == (0, 1)
    assert rows["r"]["missing"] + rows["r"]["outside"] == 2
    assert (rows["k"]["missing"], rows["k"]["outside"], rows["k"]["problem"]) == (0, 0, None)
    assert not rows["unused"]["present"] and rows["unused"]["missing"] is None and rows["unused"]["problem"]
    assert all(row["records"] == 10 for row in rows.values())


def test_examine_reports_structure_without_raising():
    frame = good(10).astype({"a": "string"})
    rows = {row["column"]: row for row in examine(pd.concat([frame, frame[["y"]]], axis=1), SCHEMA)}
    assert "dtype string" in rows["a"]["problem"] and "more than once" in rows["y"]["problem"]
    assert examine(frame.iloc[:0], SCHEMA)[0]["records"] == 0


@pytest.mark.parametrize("suffix", [".parquet", ".dta"])
def test_examine_survives_a_file_without_any_declared_column(tmp_path, suffix):
    rows = examine(save(good(3)[["other"]], tmp_path, suffix), SCHEMA)
    assert not any(row["present"] for row in rows)


def test_examine_says_what_to_change_where_a_text_file_has_no_declared_column(tmp_path):
    with pytest.raises(InvalidValue, match=r"--names.*--separator.*--encoding"):
        examine(save(good(3)[["other"]], tmp_path, ".csv"), SCHEMA)


def test_the_package_needs_pandas_and_formulaic_only_where_records_are_loaded():
    code = (
        "import sys, pgbb.private.door, pgbb.model.formula; "
        "print(sorted({'pandas', 'formulaic', 'jax'} & set(sys.modules)))"
    )
    done = python(code, check=True)
    assert done.stdout.strip() == "[]"


MIXED = [1, True, 1.0, "1", "True", 0, False, 0.0, -0.0, "0", 2, 2.0, "2.0", None, float("nan"), [1], "x"]


@pytest.mark.parametrize("levels", [("True", "False"), (1, 0), ("0.0", "1.0"), ("1", "2"), (0, 1, 2)])
def test_no_record_changes_the_encoding_of_another(levels):
    """Hash-equal cells (1 and True, 0.0 and -0.0) must be coded one by one, whatever stands first."""
    schema = Schema(y=Range(0, 1), g=Levels(*levels))
    design = Design.parse("y ~ g", schema)

    def encoded(cells, dtype):
        column = pd.Series(cells, dtype=dtype)
        records = load(pd.DataFrame({"y": np.linspace(0, 1, len(cells)), "g": column}), design, schema)
        return np.column_stack([records.x[1:], records.valid[1:]])

    for dtype, cells in ((object, MIXED), (float, [0.0, -0.0, 1.0, 2.0, np.nan]), (bool, [True, False])):
        rest = [*cells, *cells]
        reference = encoded([cells[0], *rest], dtype)
        for first in cells[1:]:
            np.testing.assert_array_equal(encoded([first, *rest], dtype), reference)


def test_a_null_in_a_parquet_file_changes_no_other_record(tmp_path):
    for levels, values in ((("1.0", "2.0"), [1, 2, 1]), ((9007199254740993, 1), [9007199254740993, 1, 1])):
        schema = Schema(y=Range(0, 1), g=Levels(*levels))
        design = Design.parse("y ~ g", schema)
        seen = []
        for first in (values[0], None):
            table = pa.table({"y": [0.1, 0.2, 0.3, 0.4], "g": pa.array([first, *values], pa.int64())})
            pq.write_table(table, tmp_path / "d.parquet")
            records = load(tmp_path / "d.parquet", design, schema)
            seen.append(np.column_stack([records.x[1:], records.valid[1:]]))
        np.testing.assert_array_equal(*seen)


def test_whole_numbers_of_a_text_file_are_called_so(tmp_path):
    (tmp_path / "d.csv").write_text("a,b\n1,1\n,2.5\nx,3\n")
    schema = Schema(a=Range(0, 4), b=Range(0, 4))
    assert [row["dtype"] for row in examine(tmp_path / "d.csv", schema)] == ["int64", "float64"]
    frame = pd.DataFrame({"a": [1.0], "b": [2.0]})  # a frame has dtypes of its own
    assert [row["dtype"] for row in examine(frame, schema)] == ["float64", "float64"]
