import pytest

from tests.report.chromium import Chromium, executable


@pytest.fixture(scope="session")
def browser():
    if executable() is None:
        pytest.skip("no Chromium here: install Debian's package `chromium` to test the page")
    chromium = Chromium()
    yield chromium
    chromium.close()
