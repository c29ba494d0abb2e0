"""Opens the built site from disk in a browser, without a network, and tries what a reader would.

    python docs/tools/look.py site

Every page, light, dark and on a phone: no error, no request beyond the disk, no finding of axe; search finds; the copy
button of a console block takes its commands alone. Needs Chromium, and says so where there is none.
"""

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.report.chromium import Chromium, executable

VIEWS = {
    "light": {"width": 1280, "height": 900},
    "dark": {"width": 1280, "height": 900, "dark": True},
    "phone": {"width": 390, "height": 900, "phone": True},
}
FINDINGS = "axe.run().then((r) => r.violations.map((v) => `${v.id}: ${v.nodes[0].html.slice(0, 120)}`))"
SEARCH = """(async () => {
  const field = document.querySelector("[data-md-component=search-query]");
  field.focus(); field.value = "ledger"; field.dispatchEvent(new Event("input", { bubbles: true }));
  field.dispatchEvent(new KeyboardEvent("keyup", { bubbles: true }));
  for (let i = 0; i < 100; i++) {
    const found = document.querySelector(".md-search-result__item h1");
    if (found) return found.textContent;
    await new Promise((done) => setTimeout(done, 100));
  }
  return "nothing";
})()"""
COPIED = """[...document.querySelectorAll(".language-console code")].map((code) => {
  code.setAttribute("data-md-copying", "");
  const text = code.innerText;
  code.removeAttribute("data-md-copying");
  return text;
})"""


def problems(site: Path) -> list[str]:
    """What is wrong, a line each."""
    axe = (Path(importlib.util.find_spec("axe_core_python").submodule_search_locations[0]) / "axe.min.js").read_text()
    pages = sorted(p for p in site.rglob("*.html") if p.name != "404.html" and "/assets/" not in str(p))
    found: list[str] = []
    for view, size in VIEWS.items():
        browser = Chromium()
        try:
            for page in pages:
                if "data-md-component" not in page.read_text(encoding="utf-8"):
                    continue  # a page of a release, which has tests of its own
                browser.open(page, **size)
                browser.settle()
                browser.value(axe + "; true")
                beyond = [url for url in browser.requests if not url.startswith(("file:", "data:"))]
                wrong = [*browser.errors, *beyond, *browser.value(FINDINGS)]
                texts = browser.value(COPIED)
                wrong += [f"copied: {t[:60]!r}" for t in texts if not t.strip() or t.startswith("$ ")]
                found += [f"{page.relative_to(site)}, {view}: {text}" for text in wrong]
            browser.open(site / "index.html", **size)
            browser.settle()
            if (title := browser.value(SEARCH)) != "Keep a ledger":
                found.append(f"search from disk, {view}: found {title}")
        finally:
            browser.close()
    return found


def main(folder: str) -> int:
    """Print the problems; 1 if there are any."""
    if executable() is None:
        print("no Chromium here: the site was not looked at. Install Debian's package chromium.")
        return 0
    found = problems(Path(folder).resolve())
    print(
        "\n".join(found) or f"{folder}: opened from disk, light, dark and on a phone; search, copying and axe are well."
    )
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
