"""The other ways in: a token, no dashboard at all, and a gateway on stdio; and a server that means harm."""

import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from playwright.sync_api import Browser, expect

from shortlist.config.settings import hash_token
from tests_all.browser.accessibility import DESK, PHONE, check_looks
from tests_all.browser.hostile import SCRIPT, TRICK
from tests_all.browser.watching import Watched, use
from tests_all.support import SHORTLIST, environment, process

HOSTILE = Path(__file__).with_name("hostile.py")
TAME = Path(__file__).parent.parent.parent / "tests" / "servers" / "modern.py"


def configure(folder: Path, programs: dict[str, Path], **ours: Any) -> Path:
    # Everything that these servers list is admitted: the pages must be safe whatever they show.
    admitted = {"shortlist": {"trust": "auto"}}
    servers = {name: {"command": sys.executable, "args": [str(path)], **admitted} for name, path in programs.items()}
    path = folder / "shortlist.json"
    path.write_text(json.dumps({"mcpServers": servers, "shortlist": ours}))
    return path


def serve(config: Path, *options: str) -> Any:
    return process(
        [*SHORTLIST, "serve", "--config", str(config), "--http", "127.0.0.1:0", *options], environment(config.parent)
    )


def test_a_server_that_means_harm_is_only_read(chromium: Browser, tmp_path: Path) -> None:
    with serve(configure(tmp_path, {"evil": HOSTILE}), "--open") as lines:
        link = lines.after("dashboard: ").partition(" ")[0]
        lines.after("server 'evil' is ready")
        with Watched.open(chromium, link) as watched:
            watched.page.goto(link)
            watched.page.wait_for_selector("h1")
            use(f"{watched.base}/mcp", ("search_tools", {"query": TRICK}))
            tool = quote(f"evil/run0{SCRIPT}", safe="")
            for path in ("/servers", "/servers/evil", "/tools", f"/tools/{tool}", f"/search?q={quote(TRICK)}"):
                page = watched.go(path)
                expect(page.locator("body")).to_contain_text("<script>" if path != "/servers" else "evil")
                assert page.evaluate("window.taken === undefined")
            for path in ("/servers/evil", "/tools"):
                for size in (DESK, PHONE):
                    watched.page.set_viewport_size(size)
                    page = watched.go(path)
                    assert not watched.scrolls_sideways()
                table = page.get_by_role("region", name=re.compile("^Tools"))
                page.set_viewport_size(DESK)
                assert table.evaluate("region => region.scrollWidth <= region.clientWidth")  # no column is pushed out
            page = watched.go("/activity")
            expect(page.locator("tbody")).to_contain_text("<script>window.taken = 1</script>", timeout=15_000)
            assert page.evaluate("window.taken === undefined")
            assert watched.problems == []


def test_a_token_opens_what_it_may_see_and_signing_out_closes_it(chromium: Browser, tmp_path: Path) -> None:
    tokens = {
        "ada": {"hash": hash_token("ada-secret")},
        "bob": {"hash": hash_token("bob-secret"), "servers": ["one"]},
    }
    with serve(configure(tmp_path, {"one": TAME, "two": TAME}, tokens=tokens)) as lines:
        link = lines.after("dashboard: ").partition(" ")[0]
        lines.after("server 'two' is ready")
        with Watched.open(chromium, link) as watched:
            page = watched.page
            page.goto(link)
            for token, refused in (("guessed", True), ("bob-secret", False)):
                page.get_by_label("Token").fill(token)
                page.get_by_role("button", name="Sign in").click()
                assert page.get_by_role("alert").count() == refused
                if refused:
                    check_looks(page)
            expect(page.get_by_role("heading", level=1)).to_have_text("Welcome, bob")
            check_looks(page)
            watched.go("/servers")
            expect(page.locator("tbody tr")).to_have_count(1)
            assert page.request.get(f"{watched.base}/servers/two").status == 404
            assert page.request.get(f"{watched.base}/activity").status == 403
            page.get_by_role("button", name="Sign out").click()
            expect(page.get_by_label("Token")).to_be_visible()
            assert all("401" in problem for problem in watched.problems)  # the browser's own word for a closed door


@pytest.mark.parametrize("way", ["option", "configuration"])
def test_a_dashboard_can_be_switched_off(tmp_path: Path, way: str) -> None:
    off = {"dashboard": False} if way == "configuration" else {}
    options = ("--no-dashboard",) if way == "option" else ()
    with serve(configure(tmp_path, {"one": TAME}, **off), *options) as lines:
        base = lines.after("serving ").removesuffix("/mcp")
        assert httpx2.get(f"{base}/").status_code == 404
        assert httpx2.get(f"{base}/open?key=x").status_code == 404
        assert httpx2.get(f"{base}/healthz").status_code == 200


def test_over_stdio_the_same_record_is_shown_by_a_command(chromium: Browser, tmp_path: Path) -> None:
    config = configure(tmp_path, {"one": TAME})
    with ThreadPoolExecutor() as elsewhere:
        elsewhere.submit(anyio.run, _use_over_stdio, config).result()
    command = [*SHORTLIST, "dashboard", "--config", str(config)]
    with process(command, environment(tmp_path)) as lines:
        link = lines.after("dashboard: ").partition(" ")[0]
        with Watched.open(chromium, link) as watched:
            watched.page.goto(link)
            expect(watched.page.locator(".tile").nth(1)).to_contain_text("Calls")
            expect(watched.page.locator(".tile").nth(1).locator("dd").first).to_have_text("1")
            page = watched.go("/activity")
            expect(page.locator("tbody")).to_contain_text("say something back over stdio")
            page = watched.go("/servers/one")
            expect(page.get_by_role("link", name="one__echo")).to_be_visible()
            expect(page.get_by_role("button", name="Reconnect")).to_have_count(0)
            page = watched.go("/search?q=echo")
            expect(page.locator(".hit").first).to_contain_text("one__echo")
            assert watched.problems == []


async def _use_over_stdio(config: Path) -> None:
    command = StdioServerParameters(
        command=SHORTLIST[0], args=["serve", "--own", "--config", str(config)], env=environment(config.parent)
    )
    async with Client(stdio_client(command)) as client:
        with anyio.fail_after(60):
            while "one__echo" not in str(
                await client.call_tool("search_tools", {"query": "say something back over stdio"})
            ):
                await anyio.sleep(0.2)
        await client.call_tool("call_tool", {"name": "one__echo", "arguments": {"text": "hello"}})
