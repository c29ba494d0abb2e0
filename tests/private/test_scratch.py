"""Rows in a scratch file: the same bits, nothing in the folder, and errors that cost nothing."""

import os
import stat

import numpy as np
import pandas as pd
import pytest

import pgbb
from pgbb.custody.ledger import Ledger
from pgbb.private import open_table, records
from pgbb.private.reading import stored_for
from pgbb.private.scratch import Scratch

N = 150_000  # three slabs
SCHEMA = pgbb.Schema(y=pgbb.Range(-5, 5))
MODEL = pgbb.Mean("y", scale=0.5)
DATA = pd.DataFrame({"y": np.random.default_rng(0).normal(1, 0.5, N)})


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "scratch"
    made.mkdir()
    return made


@pytest.fixture
def ledger(tmp_path):
    made = Ledger(tmp_path / "ledger.db")
    made.set("d", n=N, epsilon=4.0, delta=1e-6)
    return made


def fit(data=DATA, **given):
    return pgbb.fit(MODEL, data, schema=SCHEMA, epsilon=1.0, delta=1e-7, **given)


def descriptors(folder):
    """Modes and sizes of the open files of this process that lie in a folder, under any name or none."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith(f"{folder}/"):
                found.append(os.fstat(int(name)))
        except OSError:  # the list itself
            continue
    return [(stat.S_IMODE(s.st_mode), s.st_size, s.st_nlink) for s in found]


def test_a_fit_from_a_scratch_file_has_the_bits_of_one_from_memory_and_leaves_nothing(folder):
    seen = []
    one = fit(insecure_seed=3)
    two = fit(
        insecure_seed=3, scratch=folder, progress=lambda *_: seen.append((os.listdir(folder), descriptors(folder)))
    )
    assert all(np.array_equal(v, two.payload.tensors[k]) for k, v in one.payload.tensors.items())
    other = fit(DATA.assign(y=DATA.y[::-1].to_numpy() + (np.arange(N) == 0)), insecure_seed=3, scratch=str(folder))
    assert any(not np.array_equal(v, other.payload.tensors[k]) for k, v in one.payload.tensors.items())
    assert os.listdir(folder) == [] and seen and all(names == [] for names, _ in seen)
    if os.path.isdir("/proc/self/fd"):
        assert all(files == [(0o600, N * 12, 0)] for _, files in seen) and descriptors(folder) == []


def test_rows_come_back_as_they_were_written(folder):
    rows = np.random.default_rng(1).integers(0, 2**32, (1000, 3), dtype=np.uint32)
    kept = Scratch(folder, 1000, 3)
    for start in (0, 400, 900):
        kept.append(rows[start : min(start + 500, {0: 400, 400: 900, 900: 1000}[start])])
    assert np.array_equal(kept[0:1000], rows) and np.array_equal(kept[390:410], rows[390:410]) and kept[5:5].size == 0
    assert kept[0:10].ctypes.data % 64 == 0 and kept.view(np.float32)[0:10].dtype == np.float32
    os.ftruncate(kept._file.fileno(), 600)
    with pytest.raises(pgbb.PgbbError, match="shorter than what was written"):
        kept[0:1000]
    kept.close()


def test_a_folder_without_room_is_refused_and_refunded(folder, ledger):
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, before[1]))
    try:
        with pytest.raises(pgbb.PgbbError, match=r"failed: File too large.*150,000 records need .* GiB are free"):
            fit(scratch=folder, ledger=ledger, dataset="d")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert ledger.dataset("d").share == 0 and os.listdir(folder) == [] and descriptors(folder) == []


@pytest.mark.parametrize("how", ["cells", "longer", "gone"])
def test_a_file_that_changes_while_it_is_read_is_refused_and_refunded(how, folder, ledger, tmp_path, monkeypatch):
    path, real, pieces = tmp_path / "d.parquet", records._clamped, []
    DATA.to_parquet(path)
    monkeypatch.setattr(open_table, "CHUNK", 50_000)

    def clamped(piece, **given):
        pieces.append(piece.n)
        if len(pieces) == 1 and how == "gone":
            path.unlink()
        elif len(pieces) == 1:
            (DATA if how == "cells" else pd.concat([DATA, DATA])).iloc[::-1].to_parquet(tmp_path / "new.parquet")
            os.replace(tmp_path / "new.parquet", path)
        return real(piece, **given)

    monkeypatch.setattr(records, "_clamped", clamped)
    with pytest.raises(pgbb.PgbbError, match="has changed while it was read"):
        fit(path, scratch=folder, ledger=ledger, dataset="d")
    assert len(pieces) > 1
    assert ledger.dataset("d").share == 0 and os.listdir(folder) == [] and descriptors(folder) == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"scratch": "absent"}, "is no folder"),
        ({"scratch": __file__}, "is no folder"),
        ({"scratch": 3}, "the path of a folder"),
        ({"scratch": ".", "method": "dp_bootstrap"}, 'method = "calibrated" in one process'),
        ({"scratch": ".", "method": "pgbb"}, 'method = "calibrated" in one process'),
        ({"scratch": ".", "method": "sgld"}, 'method = "calibrated" in one process'),
        ({"scratch": ".", "cluster": "local:1"}, 'method = "calibrated" in one process'),
    ],
)
def test_scratch_is_a_folder_and_for_the_default_method_in_one_process(given, said, ledger):
    with pytest.raises(pgbb.InvalidValue, match=said):
        fit(**given, ledger=ledger, dataset="d")
    assert ledger.dataset("d").entries == ()


def test_a_folder_that_cannot_be_written_is_refused(folder):
    with pytest.raises(pgbb.InvalidValue, match="cannot take a file"):
        Scratch(folder / "absent", 10, 3)


def test_a_piece_without_records_is_no_error_wherever_a_mark_cuts_a_text_file(folder, tmp_path):
    """An open quotation mark ends a block, so that one record decides how many pieces there are."""
    problem, path = MODEL.prepare(SCHEMA), tmp_path / "d.csv"
    for place in range(4):
        path.write_text("x,y\n" + "".join(f"{i},{chr(34) * (i == place)}1\n" for i in range(4)))
        here, there = (stored_for(path, problem, SCHEMA, scratch=given) for given in (None, folder))
        assert np.array_equal(here.rows, there.rows[:]) and here.n == 4
        there.close()
