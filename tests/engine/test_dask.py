import sys
from pathlib import Path

import pytest

from tests.helpers import rest, run


@pytest.mark.parametrize("which", rest(["not evidence", "evidence"], "not evidence"))
def test_everything_on_clusters(which):
    """In a process of its own: Dask has threads that stay, and draws from Python's generator."""
    file = Path(__file__).with_name("clusters.py")
    done = run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--noconftest", "-m", which, file)
    assert done.returncode == 0, done.stdout[-6000:]
