import os
import stat

import pytest

from pgbb._io import put_in_place, write_new, write_whole
from pgbb.errors import InvalidValue, PgbbError


def test_a_file_is_replaced_whole_and_nothing_is_left_beside_it(tmp_path):
    path = tmp_path / "a.bin"
    assert write_whole(path, b"first") == path and write_whole(str(path), b"second") == path
    assert path.read_bytes() == b"second" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failure_leaves_the_old_content_and_nothing_beside_it(tmp_path, monkeypatch, step):
    path = write_whole(tmp_path / "a.bin", b"old")

    def broken(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, broken)
    with pytest.raises(PgbbError, match=r"a\.bin cannot be written: No space left on device\. Choose a folder"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_the_caller_chooses_the_class_of_the_error(tmp_path):
    with pytest.raises(InvalidValue, match="No such file"):
        write_whole(tmp_path / "nowhere" / "a.bin", b"", InvalidValue)


def test_a_new_file_replaces_nothing_and_is_for_its_owner_if_asked(tmp_path):
    path = tmp_path / "a.bin"
    write_new(path, b"mine", mode=0o600)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        write_new(path, b"other")
    put_in_place(path, tmp_path / "b.bin")
    assert [p.name for p in tmp_path.iterdir()] == ["b.bin"] and (tmp_path / "b.bin").read_bytes() == b"mine"
