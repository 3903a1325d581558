"""What is wrong with a page for those who cannot see it well: our own audit, and axe."""

from importlib.resources import files
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

AUDIT = Path(__file__).with_name("audit.js").read_text("utf-8")
AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")
RUN = "() => axe.run(document, {resultTypes: ['violations']})"


def problems_of(page: Page) -> list[str]:
    """Return every problem that either finds, with the element it is about."""
    seen: list[str] = list(page.evaluate(AUDIT))
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(AXE)
    report: Any = page.evaluate(RUN)
    return seen + [
        f"axe {violation['id']}: {node['html'][:160]}"
        for violation in report["violations"]
        for node in violation["nodes"]
    ]
