"""The docs show every page as it is."""

import re
from pathlib import Path

from shortlist.web.app import PAGES

DOCS = Path(__file__).parent.parent.parent / "docs"
PICTURES = {
    "/": "overview",
    "/search": "playground",
    "/servers": "servers",
    "/servers/{server:path}": "server",
    "/tools": "tools",
    "/tools/{tool:path}": "tool",
    "/add": "add",
    "/review": "review",
    "/misses": "misses",
    "/experiments": "experiments",
    "/experiments/{experiment:path}": "experiment",
    "/activity": "activity",
    "/activity/{event}": "event",
}


def test_every_page_has_a_picture_in_the_docs() -> None:
    shown = re.findall(r"images/dashboard-([a-z]+)\.png", (DOCS / "dashboard.md").read_text("utf-8"))
    assert PAGES.keys() - PICTURES.keys() == {"/activity/feed"}  # rows for a page that is open, not a page
    assert set(PICTURES.values()) <= set(shown)
    for name in shown:
        assert (DOCS / "images" / f"dashboard-{name}.png").read_bytes().startswith(b"\x89PNG")
