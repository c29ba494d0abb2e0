import sys
from pathlib import Path

from tests.helpers import run


def test_everything_on_clusters():
    """In a process of its own: Dask has threads that stay, and draws from Python's generator."""
    file = Path(__file__).with_name("clusters.py")
    done = run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--noconftest", file)
    assert done.returncode == 0, done.stdout[-6000:]
