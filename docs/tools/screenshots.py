"""Screenshots of the built site, wide, dark and on a phone: the page of a release, the first page, and a how-to.

    python docs/tools/screenshots.py site

Those of the page of a release go into the documentation, with few colours so that they stay small; the others lie in
build/screenshots, to be looked at. Needs Debian's chromium, and Pillow, which matplotlib brings.
"""

import sys
from io import BytesIO
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.report.chromium import Chromium

IMAGES, LOOK = ROOT / "docs" / "images", ROOT / "build" / "screenshots"
PAGES = {
    "report": ("tutorial/schooling.html", IMAGES),
    "index": ("index.html", LOOK),
    "files": ("howto/files.html", LOOK),
}
VIEWS = {
    "wide": {"width": 1200, "height": 2000},
    "dark": {"width": 1200, "height": 900, "dark": True},
    "phone": {"width": 390, "height": 1500, "phone": True},
}
COLOURS = 64


def take(browser: Chromium, page: Path, view: dict[str, int | bool], target: Path) -> None:
    """One image, in few colours."""
    browser.open(page, **view)
    browser.settle()
    target.parent.mkdir(parents=True, exist_ok=True)
    browser.screenshot(target, full=False)
    image = Image.open(BytesIO(target.read_bytes())).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    image.save(target, optimize=True)
    print(f"{target.relative_to(ROOT)}: {target.stat().st_size:,} bytes, {image.width} × {image.height}")


def main(site: Path) -> None:
    """Write all of them."""
    browser = Chromium()
    try:
        browser.call("Emulation.setScrollbarsHidden", hidden=True)
        for name, (page, folder) in PAGES.items():
            for view, size in VIEWS.items():
                take(browser, site / page, size, folder / f"{name}-{view}.png")
    finally:
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
