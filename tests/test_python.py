"""What a notebook sees: names, completion, figures, short texts, a data set to begin with."""

import inspect
import typing
import warnings

import numpy as np
import pytest

import pgbb
from pgbb.accountant.calibrate import ACCOUNTANTS, Accountant
from pgbb.custody.arguments import Arguments
from pgbb.custody.run import fit
from pgbb.methods.keywords import ByMethod, MethodName
from pgbb.methods.registry import METHODS
from pgbb.release.file import Release
from tests.release.builders import certificate, hidden, local, local_release, model

pytestmark = pytest.mark.quick


def test_dir_lists_what_users_may_call_and_all_of_it_is_there():
    assert dir(pgbb) == sorted(pgbb.__all__) and all(getattr(pgbb, name) is not None for name in dir(pgbb))


def test_the_names_that_editors_complete_are_those_that_exist():
    assert set(typing.get_args(MethodName)) == set(METHODS) and set(typing.get_args(Accountant)) == set(ACCOUNTANTS)
    own = {p.name: p for p in inspect.signature(fit).parameters.values() if p.kind is p.KEYWORD_ONLY}
    assert own["method"].default == "calibrated"
    common = typing.get_type_hints(Arguments)
    assert set(common) == set(own) - {"method"} and Arguments.__required_keys__ == {"schema", "epsilon", "delta"}
    found = {}
    for overload in typing.get_overloads(fit):
        hints = overload.__annotations__
        (name,), (given,) = typing.get_args(hints["method"]), typing.get_args(hints["given"])
        found[name] = typing.get_type_hints(given)
    by_method = typing.get_type_hints(ByMethod)
    assert set(found) == set(by_method) == set(METHODS)
    for name, hints in found.items():
        settings = typing.get_type_hints(METHODS[name].load().Settings)
        assert set(hints) == set(common) | set(settings), f"pgbb/methods/keywords.py lacks settings of {name}"
        assert {key: hints[key] for key in settings} == typing.get_type_hints(by_method[name])
        for key, kind in settings.items():
            if typing.get_origin(kind) is typing.Literal:
                assert set(typing.get_args(kind)) <= set(typing.get_args(typing.get_args(hints[key])[0])), (name, key)


def test_the_example_is_the_same_each_time_and_fits_its_schema():
    (frame, schema), (again, _) = pgbb.example(), pgbb.example()
    assert frame.equals(again) and list(frame) == list(schema)
    for name in ("logwage", "educ", "exper"):
        low, high = schema[name].bounds
        assert frame[name].dropna().between(low, high).mean() > 0.99


@pytest.mark.parametrize("kind, tau, axes", [("process", None, 3), ("forest", 0.5, 3), ("densities", 0.1, 3),
                                             (None, None, 3), (None, 0.5, 3)])  # fmt: skip
def test_a_release_draws_itself(kind, tau, axes):
    with pytest.warns(pgbb.PgbbWarning, match="not identified"):
        release = local_release(payload=hidden())
        release.summary()
    figure = release.plot(kind, tau)
    shown = [axis for axis in figure.axes if axis.get_visible()]
    assert len(shown) == axes and "ε = " in figure.get_suptitle()
    texts = [axis.get_title() + "".join(t.get_text() for t in axis.get_yticklabels()) for axis in shown]
    assert all(any(name in text for text in texts) for name in release.model.names)
    if kind == "densities":
        assert any("not identified" in text for text in texts)


@pytest.mark.parametrize("kind", ["process", "forest"])
def test_zero_is_drawn_where_a_figure_reaches_it_and_nowhere_else(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pgbb.PgbbWarning)
        release = local_release(payload=hidden())  # at its first level one interval is the box
        figure = release.plot(kind, release.grid()[0] if kind == "forest" else None)
    seen = set()
    for axis in (axis for axis in figure.axes if axis.get_visible()):
        low, high = axis.get_xlim() if kind == "forest" else axis.get_ylim()
        lines = [line for line in axis.lines if line.get_linestyle() == "--"]
        assert len(lines) == (low < 0 < high)
        seen.add(low < 0 < high)
    assert seen == {True, False}


def test_labels_and_units_stand_in_figures():
    schema = pgbb.Schema(
        educ=pgbb.Range(5, 20, label="schooling", unit="years"), black=pgbb.Flag(), logwk=pgbb.Range(0, 12)
    )
    release = Release(model(), schema.to_dict(), certificate(), local())
    for figure in (release.plot(), release.plot("densities", 0.5)):
        assert "educ: schooling (years)" in [axis.get_title() for axis in figure.axes]


def test_a_wrong_figure_is_refused():
    release = local_release()
    for arguments, word in (({"kind": "pie"}, "kind"), ({"kind": "forest"}, "level"), ({"kind": "densities"}, "level"),
                            ({"coefficients": ["none"]}, "coefficient"), ({"level": 2}, "level")):  # fmt: skip
        with pytest.raises(pgbb.InvalidValue, match=word):
            release.plot(**arguments)
    with pytest.raises(pgbb.InvalidValue, match="index"):
        local_release(None).plot("process")


def test_texts_of_a_certificate_are_short():
    assert repr(certificate()).startswith("<Certificate: ε = ") and len(repr(certificate())) < 100


def test_a_mean_needs_a_scale_only_where_a_method_does():
    schema = pgbb.Schema(y=pgbb.Range(-5, 5))
    model = pgbb.Mean("y")
    for name, method in METHODS.items():
        if name in ("calibrated", "dp_bootstrap"):
            method.check(model, model.prepare(schema))
        elif "mean" in method.serves:
            with pytest.raises(pgbb.InvalidValue, match="needs the scale"):
                method.check(model, model.prepare(schema))


def test_a_mean_without_a_scale_is_found():
    y = np.random.default_rng(0).normal(1.5, 0.7, 8000)
    found = pgbb.fit(pgbb.Mean("y"), {"y": y}, schema=pgbb.Schema(y=pgbb.Range(-50, 50)), epsilon=1.0, delta=1e-6,
                     insecure_seed=3).summary().iloc[0]  # fmt: skip
    assert found["lower"] < y.mean() < found["upper"] and found["upper"] - found["lower"] < 0.2
