import pytest

from pgbb import Range, Schema
from pgbb.errors import InvalidValue

pytestmark = pytest.mark.quick


def test_a_step_survives_dict_and_toml(tmp_path):
    schema = Schema(weeks=Range(0, 52, step=1), pay=Range(0, 10, 0.25), age=Range(16, 99))
    assert Schema.from_dict(schema.to_dict()) == schema
    path = tmp_path / "s.toml"
    path.write_text(schema.to_toml(), encoding="utf-8")
    assert Schema.from_toml(path) == schema and "step = 0.25" in path.read_text(encoding="utf-8")
    assert Range(0, 52) != Range(0, 52, step=1) and repr(schema["pay"]) == "Range(0, 10, step=0.25)"


@pytest.mark.parametrize("step", [0, -1, 60, "1", float("nan")])
def test_a_step_is_a_positive_number_inside_the_range(step):
    with pytest.raises(InvalidValue, match="step"):
        Range(0, 52, step=step)


def test_a_step_alone_is_no_declaration():
    with pytest.raises(InvalidValue, match="column 'a'"):
        Schema.from_dict({"columns": {"a": {"step": 1}}})
