"""Everything that the dashboard can do, done in Chromium over a real gateway with a configuration of its own."""

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.servers.protected import Protected, protected_server

from tests_all.browser.accessibility import check_looks
from tests_all.browser.watching import Watched, use
from tests_all.support import SHORTLIST, environment, process

SERVER = Path(__file__).parent.parent.parent / "tests" / "servers" / "modern.py"
SECONDS = 120.0


@pytest.fixture(scope="module")
def wiki() -> Iterator[Protected]:
    """Run a server that needs a login, and the authorization server that grants it."""
    with protected_server() as server:
        yield server


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory, wiki: Protected) -> Path:
    path = tmp_path_factory.mktemp("actions") / "shortlist.json"
    one = {"command": sys.executable, "args": [str(SERVER)], "shortlist": {"trust": "auto"}}
    path.write_text(json.dumps({"mcpServers": {"one": one, "wiki": {"url": f"{wiki.url}/mcp"}}}, indent=2))
    return path


@pytest.fixture(scope="module")
def signed_in(chromium: Browser, config: Path) -> Iterator[Watched]:
    command = [*SHORTLIST, "serve", "--config", str(config), "--http", "127.0.0.1:0", "--open"]
    with process(command, environment(config.parent)) as lines:
        link = lines.after("dashboard: ").partition(" ")[0]
        lines.after("server 'one' is ready")
        with Watched.open(chromium, link) as watched:
            watched.page.goto(link)
            watched.page.wait_for_selector("h1:has-text('Overview')")
            yield watched


@pytest.fixture
def watched(signed_in: Watched) -> Iterator[Watched]:
    yield signed_in
    assert signed_in.problems == []


def until(watched: Watched, path: str, found: Callable[[Page], bool]) -> Page:
    """Load a page again until it shows something: a change of the configuration is applied by and by."""
    deadline = time.monotonic() + SECONDS
    while True:
        page = watched.go(path)
        if found(page):
            return page
        assert time.monotonic() < deadline, page.locator("main").inner_text()
        page.wait_for_timeout(200)


def has(role: Any, name: str) -> Callable[[Page], bool]:
    return lambda page: page.get_by_role(role, name=name, exact=True).count() > 0


def has_not(role: Any, name: str) -> Callable[[Page], bool]:
    return lambda page: page.get_by_role(role, name=name, exact=True).count() == 0


def test_a_server_is_added_after_its_command_was_shown_then_disabled_enabled_restarted_and_removed(
    watched: Watched, config: Path
) -> None:
    page = watched.go("/servers")
    page.get_by_role("link", name="Add a server").click()
    check_looks(page)
    page.get_by_label("Command, URL or @name").fill(f"{sys.executable} {SERVER}")
    page.get_by_label("Name", exact=True).fill("two")
    page.get_by_label("Values, one NAME=VALUE per line").fill("API_KEY=sk-0123456789abcdefghij")
    page.get_by_role("button", name="Show what will run").click()
    proposal = page.get_by_role("region", name="Add two?")
    expect(proposal).to_contain_text(f"{sys.executable} {SERVER}")
    expect(proposal).not_to_contain_text("0123456789")
    assert "two" not in json.loads(config.read_text())["mcpServers"]
    check_looks(page)
    page.get_by_role("button", name="Add this server").click()
    expect(page.get_by_role("status").filter(has_text="Added")).to_be_visible()
    assert json.loads(config.read_text())["mcpServers"]["two"]["env"] == {"API_KEY": "sk-0123456789abcdefghij"}
    page = until(watched, "/servers", has("link", "two"))
    page = watched.go("/servers/two")
    page.get_by_role("button", name="Restart").click()
    expect(page.get_by_role("status").filter(has_text="restarts the server")).to_be_visible()
    page = until(watched, "/servers/two", has("button", "Disable"))
    page.get_by_role("button", name="Disable", exact=True).click()
    page = until(watched, "/servers", has("button", "Enable two"))
    page.get_by_role("button", name="Enable two").click()
    page = until(watched, "/servers", has("link", "two"))
    page = watched.go("/servers/two")
    page.get_by_role("button", name="Remove").click()
    until(watched, "/servers", has_not("link", "two"))
    assert json.loads(config.read_text())["mcpServers"].keys() == {"one", "wiki"}


def test_a_login_to_a_server_is_made_in_the_browser(watched: Watched, wiki: Protected) -> None:
    page = until(watched, "/", has("link", "Server wiki needs a login"))
    page.get_by_role("link", name="Server wiki needs a login").click()
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Log in to wiki")
    check_looks(page)
    watched.elsewhere = (wiki.url,)
    page.get_by_role("link", name="Continue to the login page").click()
    expect(page.get_by_role("status")).to_contain_text("Signed in to wiki")
    check_looks(page)
    page.get_by_role("link", name="Back to the servers").click()
    page = until(watched, "/servers/wiki", has("link", "wiki__whoami"))
    page.get_by_role("link", name="wiki__whoami", exact=True).click()
    page.get_by_role("button", name="Call").click()
    expect(page.get_by_role("region", name=re.compile("^Result"))).to_contain_text("you are signed in")


def test_what_is_not_there_is_said_on_a_page(watched: Watched) -> None:
    page = watched.go("/servers/nobody")
    expect(page.get_by_role("alert")).to_contain_text("No server 'nobody'")
    check_looks(page)
    assert all("404" in problem for problem in watched.problems)
    watched.problems.clear()


def test_a_tool_is_called_disabled_and_enabled(watched: Watched) -> None:
    page = until(watched, "/servers/one", has("link", "one__echo"))
    page.get_by_role("link", name="one__echo", exact=True).click()
    page.get_by_label(re.compile("^text")).fill("hello from the page")
    page.get_by_role("button", name="Call").click()
    result = page.get_by_role("region", name=re.compile("^Result"))
    expect(result).to_contain_text("hello from the page")
    check_looks(page)
    page.get_by_role("button", name="Disable").click()
    expect(page.get_by_role("status").filter(has_text="Disabled")).to_be_visible()
    page = until(watched, "/servers/one", has_not("link", "one__echo"))
    page.get_by_role("button", name="Enable one__echo").click()
    until(watched, "/servers/one", has("link", "one__echo"))


def test_a_miss_is_fixed_copied_as_a_case_and_dismissed(watched: Watched, config: Path) -> None:
    use(
        f"{watched.base}/mcp",
        ("search_tools", {"query": "zzyzx the frobnicator"}),
        ("call_tool", {"name": "one__echo", "arguments": {"text": "hello"}}),
    )
    page = until(watched, "/misses", lambda page: page.locator(".miss-group").count() > 0)
    group = page.locator(".miss-group", has_text="one__echo").first
    group.get_by_text("Actions").click()
    expect(group.get_by_label("Evaluation case")).to_have_value(re.compile('"gold": \\["one/echo"\\]'))
    check_looks(page)
    group.get_by_label(re.compile("^Keyword for")).fill("frobnicate")
    group.get_by_role("button", name="Add keyword").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Misses")
    tools = json.loads(config.read_text())["mcpServers"]["one"]["shortlist"]["tools"]
    assert tools == {"echo": {"keywords": ["frobnicate"]}}
    group = page.locator(".miss-group", has_text="one__echo").first
    group.get_by_text("Actions").click()
    group.get_by_label("Word that people write").fill("zzyzx")
    group.get_by_label("What tools call it").fill("echo")
    group.get_by_role("button", name="Add synonym").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Misses")
    assert "zzyzx => echo" in (config.parent / "expansions.txt").read_text()
    before = page.locator(".miss-group").count()
    group = page.locator(".miss-group").first
    group.get_by_text("Actions").click()
    group.get_by_role("button", name="Dismiss").click()
    expect(page.locator(".miss-group")).to_have_count(before - 1)


def test_a_time_range_and_a_caller_hold_on_every_page(watched: Watched) -> None:
    use(f"{watched.base}/mcp", ("call_tool", {"name": "one__echo", "arguments": {"text": "hello"}}))
    page = until(
        watched, "/", lambda page: page.get_by_role("region", name="Most called tools").locator("a").count() > 0
    )
    page.get_by_label("Time range").select_option("24h")
    page.get_by_label("Caller").fill("nobody at all")
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("status").filter(has_text="Nothing was recorded of nobody at all")).to_be_visible()
    menu = page.get_by_role("navigation", name="Pages")
    for name in ("Servers", "Tools", "Misses", "Activity", "Overview"):
        menu.get_by_role("link", name=name).click()
        expect(page.get_by_label("Time range")).to_have_value("24h")
        expect(page.get_by_label("Caller")).to_have_value("nobody at all")
    menu.get_by_role("link", name="Activity").click()
    expect(page.locator("#activity tbody tr")).to_have_count(0)


@pytest.mark.parametrize("name", ["overview", "servers", "tools", "misses", "activity"])
def test_a_table_is_downloaded(watched: Watched, name: str) -> None:
    page = watched.go("/" if name == "overview" else f"/{name}")
    with page.expect_download() as started:
        page.get_by_role("link", name="Download CSV").click()
    assert started.value.suggested_filename == f"shortlist-{name}.csv"
    head = Path(started.value.path()).read_text().splitlines()[0]
    assert {"overview": "time,", "servers": "server,", "tools": "tool,", "misses": "kind,", "activity": "time,"}[
        name
    ] in head
