"""What is wrong with a page for those who cannot see it well: our own audit, and axe."""

from importlib.resources import files
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from playwright.sync_api import Page, ViewportSize

from tests_all.browser.walked import LOOKED, Look

AUDIT = Path(__file__).with_name("audit.js").read_text("utf-8")
AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")
DESK: ViewportSize = {"width": 1280, "height": 860}
PHONE: ViewportSize = {"width": 390, "height": 844}
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
IS_DARK = "() => matchMedia('(prefers-color-scheme: dark)').matches"
RUN = "() => axe.run(document, {resultTypes: ['violations']})"


def check_looks(page: Page) -> None:
    """Audit the page as it is now, on a desk and on a phone, light and dark; nothing may stick out sideways."""
    for size in (DESK, PHONE):
        page.set_viewport_size(size)
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            assert problems_of(page) == []
            assert not page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
    page.set_viewport_size(DESK)


def problems_of(page: Page) -> list[str]:
    """Return every problem that either finds, with the element it is about."""
    size = page.viewport_size
    LOOKED.add(Look(urlsplit(page.url).path, size["width"] if size else 0, bool(page.evaluate(IS_DARK))))
    seen: list[str] = list(page.evaluate(AUDIT))
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(AXE)
    report: Any = page.evaluate(RUN)
    return seen + [
        f"axe {violation['id']}: {node['html'][:160]}"
        for violation in report["violations"]
        for node in violation["nodes"]
    ]
