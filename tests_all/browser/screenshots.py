"""Pictures of every page for the docs, over two weeks of made-up use. `python -m tests_all.browser.screenshots`"""

import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, Page, ViewportSize

from tests_all.browser.accessibility import DESK, PHONE
from tests_all.browser.seed import EXPERIMENT
from tests_all.browser.watching import Watched, browser, gateway, use

IMAGES = Path(__file__).parent.parent.parent / "docs" / "images"
TALL: ViewportSize = {"width": 1280, "height": 1400}
WORK = (
    ("search_tools", {"query": "who is on call tonight"}),
    ("call_tool", {"name": "pagerduty__list_oncalls", "arguments": {}}),
    ("search_tools", {"query": "post the summary in the incident channel"}),
    ("describe_tools", {"names": ["slack__slack_post_message"]}),
    ("call_tool", {"name": "slack__slack_post_message", "arguments": {"channel": "#incident", "text": "Fixed."}}),
    ("call_tool", {"name": "slack__slack_post_mesage", "arguments": {}}),
    ("search_tools", {"query": "roll back the last deployment"}),
    ("call_tool", {"name": "kubernetes__deployments_rollback", "arguments": {}}),
)
"""What a client does while the pictures are taken."""
SHOTS = {
    "overview": ("/", "light", TALL),
    "playground": ("/search?q=give+a+customer+the+money+back", "light", TALL),
    "compare": ("/search?q=open+a+PR&a=default&b=bm25", "dark", TALL),
    "servers": ("/servers", "light", DESK),
    "server": ("/servers/github", "dark", TALL),
    "tools": ("/tools", "light", DESK),
    "tool": ("/tools/slack%2Fslack_post_message", "light", TALL),
    "review": ("/review", "light", DESK),
    "misses": ("/misses", "light", DESK),
    "experiments": ("/experiments", "light", DESK),
    "experiment": (f"/experiments/{EXPERIMENT.name}", "light", TALL),
    "activity": ("/activity", "dark", DESK),
    "event": ("/activity/1", "light", DESK),
    "phone": ("/", "dark", PHONE),
}
"""Name to address, theme and size."""


def main() -> None:
    """Write a picture of each page."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, gateway(Path(folder)) as link, browser() as chromium:
        look(chromium, link)
    with tempfile.TemporaryDirectory() as folder, browser() as chromium:
        config = Path(folder) / "config.json"
        config.write_text('{"mcpServers": {}}')
        with gateway(Path(folder), "--config", str(config)) as link:
            add(chromium, link)


def look(chromium: Browser, link: str) -> None:
    with Watched.open(chromium, link) as watched:
        watched.page.goto(link)
        watched.page.wait_for_selector("h1:has-text('Overview')")
        until_vectors_are_there(watched)
        use(f"{watched.base}/mcp", *WORK)
        for name, (path, scheme, size) in SHOTS.items():
            watched.page.emulate_media(color_scheme=scheme)
            watched.page.set_viewport_size(size)
            shoot(watched.go(path), IMAGES / f"dashboard-{name}.png", size)


def add(chromium: Browser, link: str) -> None:
    """Show what adding a server would run."""
    with Watched.open(chromium, link) as watched:
        watched.page.goto(link)
        watched.page.wait_for_selector("h1:has-text('Overview')")
        page = watched.go("/add")
        page.get_by_label("Command, URL or @name").fill("npx -y @modelcontextprotocol/server-everything")
        page.get_by_label("Name", exact=True).fill("everything")
        page.get_by_role("button", name="Show what will run").click()
        page.wait_for_selector("h2:has-text('Add everything?')")
        shoot(page, IMAGES / "dashboard-add.png", DESK)


def until_vectors_are_there(watched: Watched) -> None:
    while watched.go("/search?q=anything").get_by_text("not ready yet").count():
        time.sleep(1)


def shoot(page: Page, path: Path, size: ViewportSize) -> None:
    """Take a picture of a page from its top, as high as the size says or the page is."""
    height = min(size["height"], page.evaluate("document.querySelector('main').getBoundingClientRect().bottom"))
    page.screenshot(path=path, full_page=True, clip={"x": 0, "y": 0, "width": size["width"], "height": height})
    print(path.relative_to(IMAGES.parent.parent))


if __name__ == "__main__":
    main()
