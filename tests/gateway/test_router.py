from collections.abc import Mapping
from typing import Any

import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client, MCPError

from shortlist.front.answerer import Answerer
from shortlist.gateway import router
from shortlist.gateway.callers import Caller
from shortlist.gateway.calling import shown_uris
from shortlist.gateway.results import SeenUris
from shortlist.gateway.router import from_uri, to_uri
from shortlist.gateway.view import ServeOptions
from tests.gateway.support import Era, Fixture, serve

pytestmark = pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")
PASSTHROUGH = ServeOptions(mode="passthrough")
eras = pytest.mark.parametrize("era", ["legacy", "modern"])


class Asked:
    """A client that answers everything, or nothing."""

    answers_in_place = True

    def __init__(self, caller: Caller, able: bool = True) -> None:
        self.caller = caller
        self._able = able

    def can(self, method: str) -> bool:
        return self._able and bool(method)

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        return {"by": self.caller.session, "of": method, **params}

    async def progress(self, progress: float, total: float | None, message: str | None) -> None: ...

    async def pause(self) -> None: ...

    async def log(self, params: Mapping[str, Any]) -> None: ...


ONE, TWO = Caller(era="legacy", session="one"), Caller(era="legacy", session="two")


@given(st.text(min_size=1), st.text())
def test_a_uri_leads_back_to_its_server(server: str, uri: str) -> None:
    assert from_uri(to_uri(server, uri)) == (server, uri)


def test_two_servers_never_share_a_uri() -> None:
    assert to_uri("my server", "x://") != to_uri("my_server", "x://")


def test_links_and_embedded_resources_of_results_are_remembered() -> None:
    seen = SeenUris()
    blocks = [
        {"type": "resource_link", "uri": "a://1"},
        {"type": "resource", "resource": {"uri": "b://2", "text": ""}},
        {"type": "text", "text": "c://3"},
        "no block at all",
    ]
    seen.note("me", "one", shown_uris({"content": blocks}))
    assert [seen.servers("me", uri) for uri in ("a://1", "b://2", "c://3")] == [("one",), ("one",), ()]
    assert seen.servers("somebody else", "a://1") == ()


@pytest.mark.anyio
async def test_a_servers_question_goes_to_the_client_whose_call_is_in_flight() -> None:
    assert await Answerer().answer("s", "roots/list", {}, (Asked(ONE), Asked(ONE))) == {"by": "one", "of": "roots/list"}


@pytest.mark.anyio
async def test_a_question_while_several_clients_call_is_put_to_none_of_them() -> None:
    with pytest.raises(MCPError, match="not clear which one"):
        await Answerer().answer("s", "sampling/createMessage", {}, (Asked(ONE), Asked(TWO)))


@pytest.mark.anyio
async def test_a_client_that_cannot_answer_is_not_asked() -> None:
    assert await Answerer().answer("s", "roots/list", {}, (Asked(ONE, able=False), Asked(TWO))) == {
        "by": "two",
        "of": "roots/list",
    }
    with pytest.raises(MCPError, match="No connected client"):
        await Answerer().answer("s", "roots/list", {}, (Asked(ONE, able=False),))


@pytest.mark.anyio
async def test_while_nothing_is_in_flight_the_only_client_is_asked() -> None:
    answerer = Answerer()
    answerer.idle = lambda _: (Asked(TWO),)
    assert await answerer.answer("s", "roots/list", {}, ()) == {"by": "two", "of": "roots/list"}


@pytest.mark.anyio
@eras
async def test_an_unknown_resource_is_refused(era: Era) -> None:
    async with serve(Fixture("one"), Fixture("two")) as served, served.client(era) as client:
        for uri in ("nowhere://x", "shortlist://three/note://today"):
            with pytest.raises(MCPError, match="Unknown resource"):
                await client.read_resource(uri)


@pytest.mark.anyio
async def test_a_round_trip_that_nobody_opened_is_refused() -> None:
    async with (
        serve(Fixture("one"), Fixture("two"), options=ServeOptions(mode="passthrough")) as served,
        served.client("modern") as client,
    ):
        with pytest.raises(MCPError, match="Unknown requestState"):
            await client.call_tool("one__ask_user", {}, input_responses={}, request_state="guessed")


class Owner(Fixture):
    """Lists a resource of its own."""

    async def list_resources(self, *_: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[types.Resource(name="report", uri="report://q3")])

    async def read_resource(self, _: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=params.uri, text=self.name)])


class Mentioner(Owner):
    """Lists nothing, and mentions the resources of others in its results."""

    async def list_resources(self, *_: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[])

    async def tool_link(self, *_: Any) -> Any:
        uris = ("report://q3", "draft://1")
        return types.CallToolResult(content=[types.ResourceLink(name="it", uri=uri) for uri in uris])


async def read(client: Client, uri: str) -> str:
    content = (await client.read_resource(uri)).contents[0]
    assert isinstance(content, types.TextResourceContents)
    return content.text


@pytest.mark.anyio
@eras
async def test_a_server_cannot_take_over_a_uri_by_mentioning_it(era: Era) -> None:
    async with serve(Mentioner("evil"), Owner("good"), options=PASSTHROUGH) as served, served.client(era) as client:
        await client.call_tool("evil__link", {})
        assert await read(client, "report://q3") == "good"
        assert await read(client, "draft://1") == "evil"  # nobody else has it


@pytest.mark.anyio
@eras
async def test_a_uri_that_two_servers_have_must_be_read_with_its_server(era: Era) -> None:
    async with serve(Owner("one"), Owner("two"), options=PASSTHROUGH) as served, served.client(era) as client:
        with pytest.raises(MCPError, match=r"more than one server has it. Read shortlist://one/report://q3"):
            await client.read_resource("report://q3")
        assert await read(client, "shortlist://two/report://q3") == "two"


@pytest.mark.anyio
async def test_a_session_has_so_many_subscriptions_and_may_give_one_up_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(router, "MAX_SUBSCRIPTIONS", 2)
    first, second, third = (to_uri("one", f"memo://one/{number}") for number in range(3))
    async with serve(Fixture("one"), options=PASSTHROUGH) as served, served.client("legacy") as client:
        await client.subscribe_resource(first)
        await client.subscribe_resource(second)
        with pytest.raises(MCPError, match="More than 2 subscriptions"):
            await client.subscribe_resource(third)
        await client.unsubscribe_resource(first)
        await client.subscribe_resource(third)
