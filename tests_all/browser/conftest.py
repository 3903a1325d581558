"""One browser and one gateway for all tests; each test has a browser window of its own, already let in."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser

from tests_all.browser.watching import Watched, browser, gateway, wait_until_searchable


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture(scope="session")
def link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with gateway(tmp_path_factory.mktemp("gateway")) as found:
        wait_until_searchable(f"http://{urlsplit(found).netloc}/mcp")
        yield found


@pytest.fixture(scope="session")
def cookies(chromium: Browser, link: str) -> Any:
    """Follow the link, once for all."""
    with Watched.open(chromium, link) as watched:
        watched.page.goto(link)
        watched.page.wait_for_selector("h1:has-text('Overview')")
        assert watched.problems == []
        return watched.page.context.storage_state()


@pytest.fixture
def watched(chromium: Browser, link: str, cookies: Any) -> Iterator[Watched]:
    """Yield a signed-in window; whatever goes wrong in it fails the test."""
    with Watched.open(chromium, link, storage_state=cookies) as opened:
        yield opened
    assert opened.problems == []
