import shutil
import sys
from pathlib import Path

import pytest

from tests.helpers import run


@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java")
def test_everything_on_spark():
    """In a process of its own, which starts a Java machine."""
    pytest.importorskip("pyspark")
    file = Path(__file__).with_name("sparks.py")
    done = run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--noconftest", file)
    assert done.returncode == 0, done.stdout[-6000:]
