"""What holds for every test and every example: it leaves nothing behind, and its order does not matter.

It lies here, not in `tests/`, because the examples in `src/` are tests too.
"""

import gc
import os
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

if "PYTEST_XDIST_WORKER" not in os.environ:  # before JAX is imported; workers and sub-processes have it from here
    COMPILED = tempfile.TemporaryDirectory(prefix="pgbb-tests-")
    """Programs of this run, as the command line keeps them: one that many tests need is compiled once."""
    os.environ["JAX_COMPILATION_CACHE_DIR"] = COMPILED.name
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

from tests.state import EACH_FILE, differences, taken

# Every run tries the same examples, and waits for them on a busy machine; `--hypothesis-profile default` tries others.
settings.register_profile("tests", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")

FIRST = (
    "test_method", "test_dask", "test_quick", "test_noise_aware", "test_kernels", "test_sklearn", "test_box",
    "test_bad_data", "test_sums", "test_counts", "test_batch_sums", "test_fit", "test_page", "test_forecast",
    "test_audit", "test_comparison", "test_instruments", "test_registry", "test_session", "test_ledger",
    "test_kernel", "test_plan", "test_groups", "test_calibrate", "test_front_door", "test_repro", "test_checkpoint",
    "test_exact", "test_absent", "test_compiled", "test_augmented", "test_linear", "test_unblocked",
    "test_r_reader", "test_poisson_on_device", "test_manners", "test_dp_mcmc",
)  # fmt: skip
"""Most of ten seconds of processor time each or more, the longest first: no worker should end with one."""


def pytest_addoption(parser):
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run files, and tests in a file, in a random order")


def pytest_collection_modifyitems(config, items):
    for item in items:
        if isinstance(item, pytest.DoctestItem) and Path(item.path).stem != "sklearn":  # whose example is a fit
            item.add_marker("quick")  # all others take some seconds together
    seed = config.getoption("--shuffle")
    if seed is None:
        items.sort(key=lambda item: (*FIRST, Path(item.path).stem).index(Path(item.path).stem))
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


def pytest_collection_finish():
    """What is here by now stays: Python need not go through it each time that it looks for garbage."""
    gc.collect()
    gc.freeze()


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
