import json
import math
import pickle
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgbb._validate import visible
from pgbb.errors import InvalidValue, PgbbError
from pgbb.model.schema import Flag, Levels, Range, Schema

pytestmark = pytest.mark.quick

CENSUS = Schema(educ=Range(5, 20), black=Flag(), region=Levels("north", "south"), pay=Range(-0.5, 12.25))

HAND_WRITTEN = """
# who: the codebook of 1980
[columns]
educ = { range = [5, 20] }
black = "flag"
region = { levels = ["north", "south"] }
pay = { range = [-0.5, 12.25] }
"""


def write(tmp_path, text):
    path = tmp_path / "schema.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_written_by_hand_equals_the_schema_in_python(tmp_path):
    assert Schema.from_toml(write(tmp_path, HAND_WRITTEN)) == CENSUS
    assert Schema.from_toml(str(write(tmp_path, HAND_WRITTEN))) == CENSUS


def test_a_schema_reads_like_a_mapping():
    assert CENSUS["educ"] == Range(5, 20) and CENSUS.get("age") is None
    assert "black" in CENSUS and "age" not in CENSUS and len(CENSUS) == 4
    assert list(CENSUS) == ["educ", "black", "region", "pay"]
    with pytest.raises(KeyError, match="educ, black"):
        CENSUS["age"]


def test_schemas_are_equal_and_hash_alike_when_their_declarations_are():
    twin = Schema(**dict(reversed(list(CENSUS.items()))))
    assert twin == CENSUS and hash(twin) == hash(CENSUS)
    assert Schema(educ=Range(5, 21)) != Schema(educ=Range(5, 20))
    assert Schema(region=Levels("south", "north")) != Schema(region=Levels("north", "south")), "the base level counts"


def test_a_schema_cannot_be_changed():
    with pytest.raises(TypeError):
        CENSUS["educ"] = Range(0, 1)
    with pytest.raises(AttributeError):
        CENSUS["educ"].low = 0


def test_the_repr_is_the_python_that_makes_the_schema():
    odd = Schema(**{"two words": Flag(), "x": Range(0, 0.5), "self": Levels(1, "b")})
    for schema in (CENSUS, odd):
        assert eval(repr(schema)) == schema


def test_a_schema_survives_json_toml_and_pickle(tmp_path):
    assert Schema.from_dict(json.loads(json.dumps(CENSUS.to_dict()))) == CENSUS
    assert Schema.from_toml(write(tmp_path, CENSUS.to_toml())) == CENSUS
    assert pickle.loads(pickle.dumps(CENSUS)) == CENSUS


text = st.text(max_size=8).filter(visible)
finite = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e30, max_value=1e30)
columns = st.one_of(
    st.tuples(finite, finite)
    .filter(lambda b: b[1] - b[0] >= max(1e-30, 1e-6 * max(map(abs, b))))
    .map(lambda b: Range(*b)),
    st.just(Flag()),
    st.lists(text | st.integers(-(2**40), 2**40), min_size=2, max_size=4, unique_by=str).map(lambda v: Levels(*v)),
)


@given(st.dictionaries(text.filter(lambda s: s and s == s.strip()), columns, max_size=3))
def test_any_schema_survives_its_toml_text(declared):
    schema = Schema(**declared)
    assert Schema.from_dict(tomllib.loads(schema.to_toml())) == schema


@pytest.mark.parametrize(
    "low, high", [(5, 5), (20, 5), (0, math.inf), (math.nan, 1), ("0", 1), (True, 2), (-1e308, 1e308)]
)
def test_a_range_needs_two_finite_numbers_in_order(low, high):
    with pytest.raises(InvalidValue):
        Range(low, high)


@pytest.mark.parametrize(
    "levels", [(), ("a",), ("a", "a"), (1, "1"), (True, False), (1.5, 2.5), (["a", "b"],), (None, "a")]
)
def test_levels_must_be_two_or_more_distinct_strings_or_integers(levels):
    with pytest.raises(InvalidValue, match="levels"):
        Levels(*levels)


@pytest.mark.parametrize(
    "text, named",
    [
        ("educ = { range = [5, 20] }", "columns"),
        ("[columns]\n[more]", "more"),
        ("columns = 3", "columns"),
        ("[columns]\neduc = [5, 20]", "educ"),
        ("[columns]\neduc = { range = [5] }", "educ"),
        ("[columns]\neduc = { range = [20, 5] }", "educ"),
        ("[columns]\neduc = { range = [5, nan] }", "educ"),
        ("[columns]\neduc = { range = ['5', 20] }", "educ"),
        ("[columns]\neduc = { range = [5, 20], colour = 'red' }", "colour"),
        ("[columns]\neduc = { bounds = [5, 20] }", "bounds"),
        ("[columns]\neduc = 'numeric'", "educ"),
        ("[columns]\nregion = { levels = ['north'] }", "region"),
        ("[columns]\nregion = { levels = 'north' }", "region"),
        ("[columns]\neduc = { range = [5, 20 }", "TOML"),
    ],
)
def test_a_bad_file_is_refused_with_the_column_and_the_file_named(tmp_path, text, named):
    with pytest.raises(InvalidValue, match=named) as error:
        Schema.from_toml(write(tmp_path, text))
    assert "schema.toml" in str(error.value)


def test_a_missing_or_binary_file_is_an_error_of_ours(tmp_path):
    with pytest.raises(PgbbError, match=r"absent\.toml"):
        Schema.from_toml(tmp_path / "absent.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PgbbError, match="UTF-8"):
        Schema.from_toml(tmp_path / "binary.toml")


@pytest.mark.parametrize("column", [(5, 20), "flag", None, Range])
def test_a_column_must_be_declared_by_one_of_the_three_kinds(column):
    with pytest.raises(InvalidValue, match="educ"):
        Schema(educ=column)


@pytest.mark.parametrize(
    "data", [None, [], {"columns": {1: "flag"}}, {"columns": {"": "flag"}}, {"columns": ["educ"]}, {}]
)
def test_a_dictionary_of_another_shape_is_refused(data):
    with pytest.raises(InvalidValue):
        Schema.from_dict(data)


@pytest.mark.parametrize("bounds", [(0, 1e31), (-1e300, 0)])
def test_bounds_beyond_single_precision_are_refused(bounds):
    with pytest.raises(InvalidValue, match="1e30"):
        Range(*bounds)


@pytest.mark.parametrize("bounds", [(0, 1e-300), (1.0, 1 + 4e-16), (1e6, 1e6 + 0.1), (-1e30, -1e30 + 2e14)])
def test_bounds_that_single_precision_does_not_tell_apart_are_refused(bounds):
    """The mean of a column in [1e6, 1e6 + .1] would be identified, and wrong."""
    with pytest.raises(InvalidValue, match="apart"):
        Range(*bounds)
    assert Range(0, 1e-30).high == 1e-30 and Range(1e6, 1e6 + 2).low == 1e6


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85", "\x1b", "\u202e", "\ud800"])
def test_a_mark_that_ends_lines_or_hides_text_is_in_no_name_and_no_level(mark):
    with pytest.raises(InvalidValue):
        Schema(**{f"a{mark}b": Flag()})
    with pytest.raises(InvalidValue):
        Levels("a", f"b{mark}verified: yes")
