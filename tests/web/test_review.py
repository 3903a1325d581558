"""The review page: what is held, why, what changed, and decisions by somebody who may decide."""

import re

import pytest

from shortlist.catalog.readers import tool_from_mcp
from shortlist.config.settings import TokenSettings, hash_token
from shortlist.models import Tool
from shortlist.storage.port import PinStore
from shortlist.trust.definitions import ToolDefinition
from shortlist.trust.keeping import Keeper
from shortlist.trust.verdicts import Reason, ScanVerdict
from tests.gateway.support import Fixture
from tests.storage.both import about_files
from tests.web.support import Visitor, visiting

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]

ADMIN = TokenSettings(name="ada", hash=hash_token("ada-secret"))
READER = TokenSettings(name="eve", hash=hash_token("eve-secret"), can=("see",))
SCRIPT = "<script>alert(1)</script>"


class Finds:
    """A scanner that calls everything with "steal" dangerous."""

    def scan(self, definition: ToolDefinition, _: object = None) -> ScanVerdict:
        if "steal" not in str(definition.tool):
            return ScanVerdict()
        return ScanVerdict(
            "dangerous", (Reason("exfiltration", "description", (0, 5), f"steals {SCRIPT}", "dangerous"),)
        )


def tool(name: str, description: str) -> Tool:
    return tool_from_mcp({"name": name, "description": description, "inputSchema": {"type": "object"}}, "alpha")


def pins_of(visitor: Visitor) -> PinStore:
    return visitor.storage.pins


def listed(visitor: Visitor, *tools: Tool) -> list[str]:
    """List tools as the server does, and return the names of those that are served."""
    keeper = Keeper(pins_of(visitor), Finds, lambda _: "scan")
    return [each.name for each in keeper.admit("alpha", tools, {})]


def forms(page: str, verb: str) -> list[str]:
    return re.findall(rf'action="(/review/[0-9a-f]+/alpha/{verb})"', page)


async def held_page(visitor: Visitor) -> str:
    listed(visitor, tool("read", "Reads files."))
    assert listed(visitor, tool("read", "Reads files to steal."), tool("two", f"steal {SCRIPT}")) == []
    return (await visitor.http.get("/review")).text


async def test_held_tools_are_shown_with_their_reason_and_a_word_level_diff() -> None:
    async with visiting(Fixture("alpha")) as visitor:
        await visitor.enter()
        assert "Nothing is held." in (await visitor.read("/review")).words
        page = await held_page(visitor)
        overview = await visitor.read("/")
    assert "<ins>" in page
    assert "to steal" in re.sub("<[^>]+>", "", page)
    assert SCRIPT not in page  # a stranger's words stay words
    assert len(forms(page, "approve")) == 3  # each of two, and all
    assert "2 tools of alpha held for review" in overview.words


async def test_approved_tools_are_served_and_rejected_ones_stay_held() -> None:
    async with visiting(Fixture("alpha")) as visitor:
        await visitor.enter()
        page = await held_page(visitor)
        csrf = await visitor.csrf()
        everything, read, two = forms(page, "approve")
        assert (await visitor.post(read, csrf=csrf)).status_code == 303
        assert (await visitor.post(two.replace("approve", "reject"), csrf=csrf)).status_code == 303
        assert listed(visitor, tool("read", "Reads files to steal."), tool("two", f"steal {SCRIPT}")) == ["read"]
        assert (await visitor.post(read, csrf=csrf)).status_code == 400  # it is not held any more
        decided = pins_of(visitor).read("alpha").decisions
        assert [(each.name, each.approved) for each in decided] == [("read", True), ("two", False)]
        after = (await visitor.http.get("/review")).text
        assert everything not in after  # another set is held now
        assert (">rejected<" in after, two.replace("approve", "reject") in after) == (True, False)


async def test_everything_that_was_shown_of_a_server_is_approved_at_once_and_nothing_that_came_later() -> None:
    async with visiting(Fixture("alpha")) as visitor:
        await visitor.enter()
        everything = forms(await held_page(visitor), "approve")[0]
        csrf = await visitor.csrf()
        assert listed(visitor, tool("read", "Reads files to steal."), tool("three", "steal more")) == []
        assert (await visitor.post(everything, csrf=csrf)).status_code == 400
        assert pins_of(visitor).read("alpha").decisions == ()
        fresh = forms((await visitor.http.get("/review")).text, "approve")[0]
        assert (await visitor.post(fresh, csrf=csrf)).status_code == 303
        assert listed(visitor, tool("read", "Reads files to steal."), tool("three", "steal more")) == ["read", "three"]


async def test_only_full_rights_and_forms_of_this_session_decide() -> None:
    async with visiting(Fixture("alpha"), tokens={"ada": ADMIN, "eve": READER}) as visitor:
        await visitor.sign_in("ada-secret")
        path = forms(await held_page(visitor), "approve")[0]
        csrf = await visitor.csrf()
        assert (await visitor.post(path, csrf="guessed")).status_code == 403
        assert (await visitor.post(path, headers={"Origin": "http://evil.example"}, csrf=csrf)).status_code == 403
        visitor.http.cookies.clear()
        assert (await visitor.post(path, csrf=csrf)).status_code == 401
        await visitor.sign_in("eve-secret")
        assert (await visitor.http.get("/review")).status_code == 403
        assert (await visitor.post(path, csrf=await visitor.csrf())).status_code == 403
        assert pins_of(visitor).read("alpha").decisions == ()


@about_files
async def test_a_damaged_store_is_named_instead_of_shown_as_empty() -> None:
    async with visiting(Fixture("alpha")) as visitor:
        await visitor.enter()
        (visitor.folder / "trust.sqlite").write_bytes(b"no database" * 1000)
        answer = await visitor.http.get("/review")
    assert answer.status_code == 503
    assert "Nothing is held" not in answer.text
