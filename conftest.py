"""What holds for every test and every example: it leaves nothing behind, and its order does not matter.

It lies here, not in `tests/`, because the examples in `src/` are tests too.
"""

import random
from pathlib import Path

import pytest

from tests.state import EACH_FILE, differences, taken

FIRST = (
    "test_noise_aware",
    "test_calibrate",
    "test_method",
    "test_kernels",
    "test_quick",
    "test_sklearn",
)
"""A minute each: no worker should end with one."""


def pytest_addoption(parser):
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run files, and tests in a file, in a random order")


def pytest_collection_modifyitems(config, items):
    for item in items:
        if isinstance(item, pytest.DoctestItem):
            item.add_marker("quick")  # all of them take some seconds
    seed = config.getoption("--shuffle")
    if seed is None:
        items.sort(key=lambda item: Path(item.path).stem not in FIRST)
        return
    order = random.Random(seed)
    files = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    groups = list(files.values())
    order.shuffle(groups)
    for group in groups:
        order.shuffle(group)
    items[:] = [item for group in groups for item in group]


def refuse(left):
    if left:
        pytest.fail("left behind, and other tests would see it:\n  " + "\n  ".join(left), pytrace=False)


@pytest.fixture(autouse=True, scope="module")
def a_file_leaves_nothing_behind():
    before = taken(EACH_FILE)
    yield
    refuse(differences(before))


@pytest.fixture(autouse=True)
def a_test_leaves_nothing_behind(a_file_leaves_nothing_behind):
    before = taken()
    yield
    refuse(differences(before))
