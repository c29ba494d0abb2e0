"""Screenshots of the page of a release, for the documentation: wide, dark and phone.

    python docs/tools/screenshots.py site/tutorial/schooling.html

Needs Debian's chromium, and Pillow, which matplotlib brings. Images have few colours and stay small.
"""

import sys
from io import BytesIO
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.report.chromium import Chromium

VIEWS = {
    "wide": {"width": 1200, "height": 2000},
    "dark": {"width": 1200, "height": 900, "dark": True},
    "phone": {"width": 390, "height": 1500, "phone": True},
}
COLOURS = 64


def main(page: str) -> None:
    """Write docs/images/report-*.png."""
    browser = Chromium()
    try:
        browser.call("Emulation.setScrollbarsHidden", hidden=True)
        for name, view in VIEWS.items():
            browser.open(page, **view)
            browser.settle()
            target = ROOT / "docs" / "images" / f"report-{name}.png"
            browser.screenshot(target, full=False)
            image = Image.open(BytesIO(target.read_bytes())).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
            image.save(target, optimize=True)
            print(f"{target.relative_to(ROOT)}: {target.stat().st_size:,} bytes, {image.width} × {image.height}")
    finally:
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1])
