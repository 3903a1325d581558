"""The dashboard as a control room: what needs attention, why calls failed, and switching servers on and off."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from shortlist.cli.editing import ConfigSwitch
from shortlist.config.settings import TokenSettings, hash_token
from shortlist.errors import InvalidInput
from shortlist.telemetry.events import ToolsLoaded
from shortlist.web.controls import Controls
from tests.gateway.support import Fixture
from tests.telemetry.happenings import act, call, search
from tests.web.support import TOKENS, Seen, Visitor, visiting

pytestmark = pytest.mark.anyio


class Switch:
    """A configuration of one disabled server."""

    def __init__(self) -> None:
        self.turned: list[tuple[str, bool]] = []

    def turn(self, name: str, *, on: bool) -> None:
        self.turned.append((name, on))

    def disabled(self) -> Sequence[str]:
        return ("resting",)


async def test_what_needs_attention_comes_first_each_with_a_link() -> None:
    failing = [call("alpha/add", "error", reason="no such account") for _ in range(6)]
    events = [*failing, call("alpha/ad", "unknown")]
    async with visiting(Fixture("alpha"), events=events) as visitor:
        await visitor.enter()
        page = await visitor.read("/")
    assert page.words.index("Needs attention") < page.words.index("Tokens saved")
    assert "alpha__add fails in 100% of 6 calls" in page.words
    assert "1 call of tools that do not exist" in page.words
    assert {"/tools/alpha%2Fadd", "/misses?kind=unknown"} <= set(page.links())


async def test_nothing_recorded_shows_how_to_connect_a_client() -> None:
    async with visiting(Fixture("alpha")) as visitor:
        await visitor.enter()
        page = await visitor.read("/")
    assert "Needs attention" not in page.words
    assert "Connect a client" in page.words
    links = [link.partition("?")[0] for link in page.links()]
    assert "cursor://anysphere.cursor-deeplink/mcp/install" in links
    assert "vscode:mcp/install" in links


async def test_the_calls_of_the_tile_are_those_of_the_chart() -> None:
    events = [call("alpha/add"), call("alpha/add", "error"), call("alpha/add", "invalid_arguments")]
    async with visiting(Fixture("alpha"), events=[*events, call("alpha/ad", "unknown")]) as visitor:
        await visitor.enter()
        text = (await visitor.http.get("/?range=24h")).text
    tile = re.search(r"<dt>Calls</dt>\s*<dd>(\d+)</dd>", text)
    assert tile is not None
    table = text.partition("<strong>Calls</strong>")[2].partition("</table>")[0]
    numbers = re.findall(r'<td class="number">(\d+)</td>', table)
    assert sum(map(int, numbers)) == int(tile[1]) == 3


async def test_a_tool_page_shows_why_its_calls_failed() -> None:
    events = [call("alpha/add", "error", reason="quota used up") for _ in range(3)]
    async with visiting(Fixture("alpha"), events=[*events, call("alpha/add", "failed", reason="timed out")]) as visitor:
        await visitor.enter()
        words = (await visitor.read("/tools/alpha%2Fadd")).words
    assert re.search(r"Why calls failed\s+3× quota used up\s+1× timed out", words)


async def test_the_reason_of_a_failed_call_is_recorded_with_secrets_masked() -> None:
    events = [call("alpha/add", "error", reason="bad token ghp_0123456789abcdefghijABCDEFGHIJ012345")]
    async with visiting(Fixture("alpha"), events=events) as visitor:
        await visitor.enter()
        page = await visitor.read("/tools/alpha%2Fadd")
    assert "bad token" in page.words
    assert "ghp_0123456789" not in page.words


async def test_an_event_has_a_page_with_its_search_and_its_workspace() -> None:
    events = [search("add numbers", "alpha/add"), call("alpha/add", "error", reason="too large")]
    async with visiting(Fixture("alpha"), events=events) as visitor:
        await visitor.enter()
        feed = await visitor.read("/activity")
        numbers = sorted(int(link.rpartition("/")[2]) for link in feed.links() if re.fullmatch(r"/activity/\d+", link))
        page = await visitor.read(f"/activity/{numbers[-1]}")
        missing = await visitor.http.get("/activity/999999")
    assert "too large" in page.words
    assert "add numbers" in page.words
    assert f"/activity/{numbers[0]}" in page.links()
    assert missing.status_code == 404


async def test_a_load_shows_its_tools_by_the_name_that_clients_use() -> None:
    loaded = ToolsLoaded(**act(), toolset="", tools=("alpha/add", "alpha/echo"), milliseconds=1.0)
    async with visiting(Fixture("alpha"), events=[loaded]) as visitor:
        await visitor.enter()
        words = (await visitor.read("/activity")).words
    assert "alpha__add, alpha__echo" in words
    assert "alpha/add" not in words


async def test_a_filtered_list_of_tools_says_how_many_there_are_in_all() -> None:
    async with visiting(Fixture("alpha"), Fixture("beta")) as visitor:
        await visitor.enter()
        every = re.search(r"(\d+) of (\d+)", (await visitor.read("/tools")).words)
        some = re.search(r"(\d+) of (\d+)", (await visitor.read("/tools?q=alpha__add")).words)
    assert every is not None
    assert some is not None
    assert some.groups() == ("1", every[2])


async def test_sign_out_is_offered_only_to_those_who_can_come_back() -> None:
    async with visiting(Fixture("alpha")) as visitor:
        await visitor.enter()
        assert "Sign out" not in (await visitor.read("/servers")).words
    async with visiting(Fixture("alpha"), tokens=TOKENS) as visitor:
        await visitor.sign_in("ada-secret")
        assert "Sign out" in (await visitor.read("/servers")).words


async def posted(visitor: Visitor, path: str, csrf: str) -> int:
    return (await visitor.post(path, csrf=csrf)).status_code


async def test_a_server_is_disabled_and_enabled_by_a_form_of_this_session_alone() -> None:
    switch = Switch()
    async with visiting(Fixture("alpha"), controls=Controls(switch=switch)) as visitor:
        await visitor.enter()
        csrf = await visitor.csrf()
        listed = await visitor.read("/servers")
        assert await posted(visitor, "/servers/alpha/disable", csrf="wrong") == 403
        elsewhere = {"Origin": "http://evil.example"}
        assert (await visitor.post("/servers/alpha/disable", headers=elsewhere, csrf=csrf)).status_code == 403
        assert switch.turned == []
        assert await posted(visitor, "/servers/alpha/disable", csrf=csrf) == 303
        assert await posted(visitor, "/servers/resting/enable", csrf=csrf) == 303
        assert await posted(visitor, "/servers/alpha/enable", csrf=csrf) == 404
        assert await posted(visitor, "/servers/nobody/disable", csrf=csrf) == 404
    assert switch.turned == [("alpha", False), ("resting", True)]
    assert "resting disabled" in listed.words


async def test_only_full_rights_show_settings_and_switch_servers() -> None:
    switch, reader = Switch(), TokenSettings(name="eve", hash=hash_token("eve-secret"), can=("see",))
    async with visiting(
        Fixture("alpha"), tokens={**TOKENS, "eve": reader}, controls=Controls(switch=switch)
    ) as visitor:
        await visitor.sign_in("eve-secret")
        csrf = await visitor.csrf()
        page = await visitor.read("/servers/alpha")
        assert await posted(visitor, "/servers/alpha/disable", csrf=csrf) == 403
        assert await posted(visitor, "/servers/resting/enable", csrf=csrf) == 403
    assert "Disable" not in page.words
    assert "Call timeout" not in page.words
    assert switch.turned == []


async def test_the_servers_page_shows_those_in_trouble_first() -> None:
    events = [call("beta/add", "error"), call("alpha/add")]
    async with visiting(Fixture("alpha"), Fixture("beta"), events=events) as visitor:
        await visitor.enter()
        page: Seen = await visitor.read("/servers")
    assert page.words.index("beta") < page.words.index("alpha")


def test_a_switch_keeps_comments_and_names_what_is_disabled(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(
        '{\n  // mine\n  "mcpServers": {"one": {"command": "x"}, "two": {"command": "y", "enabled": false}}\n}\n'
    )
    switch = ConfigSwitch(path)
    assert switch.disabled() == ["two"]
    switch.turn("one", on=False)
    switch.turn("two", on=True)
    assert switch.disabled() == ["one"]
    assert "// mine" in path.read_text()
    switch.turn("one", on=True)
    assert json.loads(path.read_text().replace("// mine", ""))["mcpServers"] == {
        "one": {"command": "x"},
        "two": {"command": "y"},
    }
    with pytest.raises(InvalidInput, match="No server 'three'"):
        switch.turn("three", on=False)
