import json
from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from pgbb.errors import InvalidValue, PgbbError
from reproduction import provenance, registry, runner, store
from reproduction.judge import goal
from reproduction.report import markdown as report
from reproduction.study import Quick, Study, Table, cell_name, each


class Toy:
    """A study whose replicates are counted, and which can be stopped at a seed."""

    def __init__(self):
        self.calls, self.stop_at, self.scale = [], None, 1.0

    def cells(self):
        return {name: {"name": name, "scale": self.scale} for name in ("a", "b")}

    def run(self, settings, seed):
        if (settings["name"], seed) == self.stop_at:
            raise KeyboardInterrupt
        self.calls.append((settings["name"], seed))
        return [{"value": settings["scale"] * seed}]


@pytest.fixture
def toy(monkeypatch):
    found = Toy()
    quick = Quick(found.cells, 1)
    study = Study("toy", (), "a toy", found.cells, 4, each(found.run), quick, lambda results, others: [])
    monkeypatch.setattr(runner, "get", lambda name: study)
    monkeypatch.setattr(runner, "BATCH_SECONDS", 0.0)
    return found


def test_a_stopped_run_continues_where_it_was_and_repeats_nothing(toy, tmp_path):
    toy.stop_at = ("b", 2)
    with pytest.raises(KeyboardInterrupt):
        runner.run("toy", out=tmp_path)
    assert store.load(tmp_path / "toy" / "b.parquet").rows["replicate"].tolist() == [0, 1]
    before, toy.stop_at = list(toy.calls), None
    runner.run("toy", out=tmp_path)
    assert [*before, ("b", 2), ("b", 3)] == toy.calls
    whole = store.load(tmp_path / "toy" / "b.parquet")
    assert whole.rows["value"].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert sorted(seed for part in whole.provenance["runs"] for seed in part["seeds"]) == [0, 1, 2, 3]


def test_more_replicates_are_added_to_those_that_are_there(toy, tmp_path):
    runner.run("toy", out=tmp_path, replicates=2, cells="a")
    runner.run("toy", out=tmp_path, replicates=3, cells="a")
    assert toy.calls == [("a", 0), ("a", 1), ("a", 2)]


def test_replicates_that_were_run_elsewhere_are_added_once_and_others_left_alone(toy, tmp_path):
    runner.run("toy", out=tmp_path / "here", replicates=2, cells="a")
    runner.run("toy", out=tmp_path / "there", replicates=3)
    names = [(tmp_path / "there" / "toy" / f"{c}.parquet", tmp_path / "here" / "toy" / f"{c}.parquet") for c in "ab"]
    assert [store.merge(*pair).split(",")[0] for pair in names] == ["1 replicates more", "3 replicates"]
    assert store.merge(*names[0]) == "0 replicates more"
    whole = store.load(names[0][1])
    assert whole.rows["value"].tolist() == [0.0, 1.0, 2.0] and len(whole.provenance["runs"]) > 2
    toy.scale = 2.0
    runner.run("toy", out=tmp_path / "other", replicates=4, cells="a")
    assert "left alone, other settings" in store.merge(tmp_path / "other" / "toy" / "a.parquet", names[0][1])
    assert len(store.load(names[0][1]).rows) == 3


def test_results_of_other_settings_are_refused_before_anything_runs(toy, tmp_path):
    runner.run("toy", out=tmp_path, replicates=1)
    toy.scale, count = 2.0, len(toy.calls)
    with pytest.raises(InvalidValue, match=r"scale = 1.0, now 2.0.*--fresh"):
        runner.run("toy", out=tmp_path, replicates=2)
    assert len(toy.calls) == count
    runner.run("toy", out=tmp_path, replicates=2, fresh=True)
    assert store.load(tmp_path / "toy" / "a.parquet").rows["value"].tolist() == [0.0, 2.0]


def test_results_of_another_revision_or_library_are_refused(toy, tmp_path, monkeypatch):
    runner.run("toy", out=tmp_path, replicates=1)
    found = store.load(tmp_path / "toy" / "a.parquet").provenance
    later = replace(runner.get("toy"), revision=2)
    monkeypatch.setattr(runner, "get", lambda name: later)
    with pytest.raises(InvalidValue, match=r"other revision: toy = 1, now 2.*--fresh"):
        runner.run("toy", out=tmp_path, replicates=2)
    assert "jax" in store.mismatch(found, {**found, "versions": {**found["versions"], "jax": "0.0.1"}})
    assert store.mismatch(found, {**found, "versions": {**found["versions"], "pgbb": "9"}}) is None


def test_results_are_stale_by_their_settings_or_revisions_and_by_nothing_else():
    study = registry.get("linear")
    settings = study.cells()["pgbb-student_t-n10000-eps1"]
    wanted = store.identity("linear", settings, provenance.revision(study, settings), {"jax": "1"})
    assert wanted["revision"] == {"linear": 1, "pgbb": 1}
    assert store.stale(wanted, wanted) is None
    assert store.stale({**wanted, "versions": {"jax": "2"}, "commit": "another"}, wanted) is None
    assert "n = 5" in store.stale({**wanted, "settings": {**settings, "n": 5}}, wanted)
    assert "pgbb = 2, now 1" in store.stale({**wanted, "revision": {"linear": 1, "pgbb": 2}}, wanted)
    unmarked = {"settings": settings, "fingerprint": "0" * 16}
    assert store.stale(unmarked, wanted) is None
    assert store.stale(unmarked, {**wanted, "revision": {"linear": 1, "pgbb": 2}}) == "other revision: pgbb = 1, now 2"


def test_an_older_name_of_a_method_is_read_as_its_name(tmp_path):
    path = tmp_path / "linear" / "a.parquet"
    store.save(path, [{"replicate": 0}], store.identity("linear", {"method": "paper"}, {"linear": 1}, {}))
    assert store.load(path).settings == {"method": "pgbb"} == store.load(path).provenance["settings"]


def test_a_file_is_there_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "toy" / "a.parquet"
    about = store.identity("toy", {"n": 1}, {"toy": 1}, {})
    store.save(path, [{"replicate": 0, "value": 1.0}], about)

    def broken(table, name):
        with open(name, "wb") as file:
            file.write(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(pq, "write_table", broken)
    with pytest.raises(OSError, match="no space"):
        store.save(path, [{"replicate": 0, "value": 2.0}], about)
    monkeypatch.undo()
    assert store.load(path).rows["value"].tolist() == [1.0]
    assert [p.name for p in path.parent.iterdir()] == ["a.parquet"]


def test_a_cell_says_where_it_comes_from(toy, tmp_path):
    (path, _) = runner.run("toy", out=tmp_path, replicates=2)
    about = json.loads(pq.read_table(path).schema.metadata[store.KEY])
    assert about["settings"] == {"name": "a", "scale": 1.0}
    assert {"python", "pgbb", "numpy", "jax"} <= set(about["versions"])
    assert about["revision"] == {"toy": 1}
    assert {"commit", "version", "device", "seeds", "seconds"} == set(about["runs"][0])
    assert {"replicate", "seconds", "device"} <= set(store.load(path).rows.columns)


def test_a_foreign_file_is_an_error_with_its_name(tmp_path):
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "a.parquet").write_bytes(b"nothing")
    with pytest.raises(PgbbError, match=r"a\.parquet holds no results"):
        store.load_all(tmp_path, "toy")


@pytest.mark.parametrize("place, sizes", [("cpu", [10] * 12), ("gpu: any", [100, 20])])
def test_processes_take_as_many_replicates_as_their_device_runs_side_by_side(place, sizes):
    task = runner._Task("linear", "cell", {}, tuple(range(120)))
    pieces = runner._pieces([task], place)
    assert [len(piece.seeds) for piece in pieces] == sizes
    assert [seed for piece in pieces for seed in piece.seeds] == list(range(120))


def test_processes_give_the_same_rows_as_a_loop(tmp_path, monkeypatch):
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # a run sets it for its processes
    for jobs in (1, 2):
        runner.run("blocking", quick=True, cells="n200", replicates=12, jobs=jobs, out=tmp_path / str(jobs))
    one, two = (store.load_all(tmp_path / str(jobs) / "quick", "blocking")["n200"].rows for jobs in (1, 2))
    assert one.drop(columns="seconds").equals(two.drop(columns="seconds"))


def test_an_unknown_study_lists_the_known_ones_and_an_unknown_cell_the_cells(tmp_path):
    with pytest.raises(InvalidValue, match=r"'budget'.*'linear'.*'ablation'"):
        registry.get("nothing")
    with pytest.raises(InvalidValue, match="Cells: n, S, sigma, J"):
        runner.run("budget", cells="nothing", out=tmp_path)
    with pytest.raises(InvalidValue, match="regular expression"):
        runner.run("budget", cells="(", out=tmp_path)


def test_cells_have_names_of_their_own_and_plain_settings():
    for study in registry.every():
        for cells in (study.cells(), study.quick.cells()):
            assert bool(cells) != bool(study.judges) and all(json.loads(json.dumps(s)) == s for s in cells.values())
            assert len({json.dumps(s, sort_keys=True) for s in cells.values()}) == len(cells)
            assert all("/" not in name and " " not in name for name in cells)
    assert cell_name(blocks=5, gamma="star", n=10, epsilon=0.5) == "S5-gammastar-n10-eps0.5"


def test_every_study_counts_what_the_paper_has():
    size = {name: len(registry.get(name).cells()) for name in registry.NAMES}
    assert size["linear"] == 5 * 12 and size["gamma"] == 3 * 12 and size["k"] == 12
    assert size["ess"] == 0 and size["families"] == 5 * 12 and size["budget"] == 4
    assert registry.get("linear").replicates == 100 and registry.get("blocking").replicates == 300
    assert replace(registry.get("census")).data == ("census80.parquet", "census00.parquet")


def test_on_a_gpu_replicates_run_side_by_side_and_one_by_one_elsewhere(toy, tmp_path, monkeypatch):
    sizes = []

    def run(settings, seeds):
        sizes.append(len(seeds))
        return [toy.run(settings, seed) for seed in seeds]

    study = replace(runner.get("toy"), run=run)
    monkeypatch.setattr(runner, "get", lambda name: study)
    monkeypatch.setattr(runner, "SIDE_BY_SIDE", 3)
    runner.run("toy", out=tmp_path / "cpu", cells="a")
    assert sizes == [1, 1, 1, 1]
    monkeypatch.setattr(provenance, "device", lambda: "gpu: any")
    runner.run("toy", out=tmp_path / "gpu", cells="a")
    assert sizes[4:] == [3, 1]
    one, many = (store.load(tmp_path / where / "toy" / "a.parquet").rows for where in ("cpu", "gpu"))
    assert many["device"].unique().tolist() == ["gpu: any"]
    assert one[["replicate", "value"]].equals(many[["replicate", "value"]])


@pytest.mark.parametrize("method", ["pgbb", "sgld"])
def test_fits_side_by_side_are_those_one_by_one(method):
    study = registry.get("linear")
    settings = next(s for s in study.quick.cells().values() if s["method"] == method)
    settings = {**settings, "n": 500, "constants": {**settings["constants"], "steps": 60}}
    together = study.run(settings, [3, 5])
    alone = [study.run(settings, [seed])[0] for seed in (3, 5)]
    for ours, theirs in zip(together, alone, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            assert a["mean"] == pytest.approx(b["mean"], abs=1e-3) and a["coefficient"] == b["coefficient"]
    assert together[0][0]["mean"] != pytest.approx(together[1][0]["mean"], abs=1e-3)


def test_what_misses_is_listed_with_its_reason(toy, monkeypatch):
    line = goal({"method": "pgbb", "n": 5}, "mae", 0.2, False, "less than .1")
    study = runner.get("toy")
    section = report.Section(study, {}, [Table("t", [line, replace(line, verdict="met")])], {}, {})
    monkeypatch.setitem(report.REASONS, "toy", (("pgbb (mae|width)", "too few records."),))
    assert report.misses(section) == ["- 1 figures: too few records.", "  - mae 0.2 (method pgbb, n 5)"]
    monkeypatch.setitem(report.REASONS, "toy", (("sgld", "another reason."),))
    assert report.misses(section)[0] == "- 1 figures: reason not found."
