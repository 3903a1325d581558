"""A gateway with two weeks of made-up use behind it, and a browser window that notes whatever goes wrong in it."""

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
from mcp import Client
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, sync_playwright

from tests_all.browser.accessibility import DESK
from tests_all.browser.chromium import ARGUMENTS, install
from tests_all.browser.seed import seed
from tests_all.browser.walked import REQUESTED
from tests_all.support import SHORTLIST, environment, process


@contextmanager
def browser() -> Iterator[Browser]:
    """Start Chromium without a window on a screen."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=install(), args=list(ARGUMENTS))
        yield started
        started.close()


@contextmanager
def gateway(folder: Path, *options: str) -> Iterator[str]:
    """Serve over HTTP after two weeks of use, the demo servers unless told otherwise; give the way in."""
    seed(folder / "data" / "shortlist" / "events.sqlite", time.time())
    with process([*SHORTLIST, "serve", "--http", "127.0.0.1:0", "--open", *options], environment(folder)) as lines:
        yield lines.after("dashboard: ").partition(" ")[0]


def use(url: str, *calls: tuple[str, Mapping[str, Any]]) -> None:
    """Call tools of a gateway as a client does; beside this thread, in which the browser's driver has its loop."""

    async def run() -> None:
        async with Client(url) as client:
            for name, arguments in calls:
                await client.call_tool(name, dict(arguments))

    with ThreadPoolExecutor() as elsewhere:
        elsewhere.submit(anyio.run, run).result()


def wait_until_searchable(url: str) -> None:
    """Wait until every demo server's tools are admitted and the model has read them."""

    async def search() -> None:
        async with Client(url) as client:
            while True:
                answer = str(await client.call_tool("search_tools", {"query": "give a customer the money back"}))
                if "stripe__create_refund" in answer and " yet" not in answer:
                    return
                await anyio.sleep(0.2)

    async def run() -> None:
        with anyio.fail_after(120):
            await search()

    with ThreadPoolExecutor() as elsewhere:
        elsewhere.submit(anyio.run, run).result()


@dataclass
class Watched:
    """A window, and everything in it that should not happen: errors, refused content, requests to elsewhere."""

    page: Page
    base: str
    elsewhere: tuple[str, ...] = ()
    """Other addresses that may be asked for, as the login page of a server."""
    problems: list[str] = field(default_factory=list)

    @classmethod
    @contextmanager
    def open(cls, browser: Browser, link: str, **more: Any) -> Iterator["Watched"]:
        """Open a window with nothing in it."""
        context = browser.new_context(**{"viewport": DESK, **more})
        watched = cls(context.new_page(), "http://" + urlsplit(link).netloc)
        watched._watch(context)
        try:
            yield watched
        finally:
            context.close()

    def go(self, path: str) -> Page:
        """Visit an address of the dashboard."""
        self.page.goto(f"{self.base}{path}")
        return self.page

    def scrolls_sideways(self) -> bool:
        return bool(self.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))

    def _watch(self, context: BrowserContext) -> None:
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("download", lambda started: REQUESTED.add(("GET", urlsplit(started.url).path)))
        self.page.on("dialog", lambda dialog: self.problems.append(f"a dialog: {dialog.message}"))
        context.on("request", self._check)

    def _note(self, said: ConsoleMessage) -> None:
        if said.type in ("error", "warning"):  # what the policy of the pages refuses is an error
            self.problems.append(said.text)

    def _check(self, asked: Request) -> None:
        if asked.url.startswith(self.base):
            REQUESTED.add((asked.method, urlsplit(asked.url).path))
        elif not asked.url.startswith(self.elsewhere):
            self.problems.append(f"asked for {asked.url}")
