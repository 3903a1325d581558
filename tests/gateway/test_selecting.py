"""smart_select_tools through a real gateway, its model a local server that speaks like OpenAI."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.responses import PlainTextResponse

from shortlist.config.load import load_settings
from shortlist.config.settings import SelectionSettings, TokenSettings, hash_token
from shortlist.errors import InvalidConfig
from shortlist.gateway.callers import Round
from shortlist.gateway.state import Seams
from shortlist.selection import CHATS
from shortlist.telemetry.events import Event, Searched
from tests.gateway.support import Fixture, Served, serve, token_caller, words
from tests.gateway.test_router import Asked
from tests.providers.wires import KEY, Provider, chat_dialects, serving

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]


@pytest.fixture
def provider() -> Iterator[Provider]:
    made = Provider()
    with serving(made, chat_dialects(made)["openai"]) as running:
        yield running


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for wire in CHATS.values():
        monkeypatch.delenv(wire.key_variable, raising=False)


def picking(provider: Provider) -> SelectionSettings:
    return SelectionSettings(provider="openai", model="tiny", base_url=provider.url, api_key=KEY)


async def select(served: Served, request: str = "add numbers") -> str:
    async with served.client() as client:
        assert [tool.name for tool in (await client.list_tools()).tools][-1] == "smart_select_tools"
        return words(await client.call_tool("smart_select_tools", {"request": request}))


async def test_the_models_pick_is_answered_with_signatures(provider: Provider) -> None:
    provider.said = '["beta__add", "alpha__add", "made__up"]'
    events: list[Event] = []
    seams = Seams(record=events.append)
    async with serve(Fixture("alpha"), Fixture("beta"), seams=seams, smart_select=picking(provider)) as served:
        answer = await select(served)
    prompt = provider.seen[0].body["messages"][1]["content"]
    assert answer.startswith("2 tools picked by openai:tiny from 22:\nbeta__add(a: number, b: number)")
    assert "named 1 that are not there" in answer
    assert "add numbers" in prompt
    assert "alpha__echo" in prompt
    (searched,) = [event for event in events if isinstance(event, Searched)]
    assert [hit.tool for hit in searched.hits] == ["beta/add", "alpha/add"]
    assert searched.mode == "select:model"


async def test_a_model_that_is_down_leaves_it_to_search_and_says_so(provider: Provider) -> None:
    provider.replies = [PlainTextResponse("overloaded", 503)] * 2
    async with serve(Fixture("alpha"), smart_select=picking(provider)) as served:
        answer = await select(served)
    assert "alpha__add(a: number, b: number)" in answer
    assert "Picked by search. openai does not answer: " in answer


async def test_without_a_key_search_picks_and_says_which_to_set() -> None:
    async with serve(Fixture("alpha"), smart_select=SelectionSettings()) as served:
        answer = await select(served)
    assert "alpha__add(" in answer
    assert "set GEMINI_API_KEY, OPENAI_API_KEY or ANTHROPIC_API_KEY" in answer


async def test_a_caller_is_picked_for_only_among_what_it_may_see(provider: Provider) -> None:
    provider.said = '["alpha__add", "beta__add"]'
    tokens = {"bob": TokenSettings(name="bob", hash=hash_token("x"), servers=("beta",))}
    bob = Asked(token_caller("bob"))
    async with serve(Fixture("alpha"), Fixture("beta"), tokens=tokens, smart_select=picking(provider)) as served:
        result = await served.gateway.call(bob, "smart_select_tools", {"request": "add"}, Round())
    assert "alpha__" not in provider.seen[0].body["messages"][1]["content"]
    assert "alpha__" not in result["content"][0]["text"]
    assert "beta__add(" in result["content"][0]["text"]


async def test_it_is_there_only_where_the_configuration_asks_for_it() -> None:
    async with serve(Fixture("alpha")) as served, served.client() as client:
        listed = [tool.name for tool in (await client.list_tools()).tools]
        answer = await client.call_tool("smart_select_tools", {"request": "add"})
    assert "smart_select_tools" not in listed
    assert answer.is_error
    assert "No tool 'smart_select_tools'" in words(answer)


async def test_a_request_that_is_missing_is_said(provider: Provider) -> None:
    async with serve(Fixture("alpha"), smart_select=picking(provider)) as served, served.client() as client:
        answer = await client.call_tool("smart_select_tools", {})
    assert answer.is_error
    assert "'request' is missing" in words(answer)


def test_the_configuration_names_who_picks(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    chosen = {"provider": "openai", "model": "m", "base_url": "http://localhost:1/v1", "api_key": "${MY_KEY}"}
    path.write_text(json.dumps({"mcpServers": {}, "shortlist": {"smart_select": chosen}}))
    settings = load_settings(path, {"MY_KEY": "k1"})
    assert settings.smart_select == SelectionSettings(
        provider="openai", model="m", base_url="http://localhost:1/v1", api_key="k1"
    )
    assert "k1" not in repr(settings)
    with pytest.raises(InvalidConfig, match=r"shortlist\.smart_select\.api_key.*MY_KEY"):
        load_settings(path, {})
    path.write_text(json.dumps({"shortlist": {"smart_select": True}}))
    assert load_settings(path, {}).smart_select == SelectionSettings()
    path.write_text(json.dumps({"shortlist": {"smart_select": {"provider": "nobody"}}}))
    with pytest.raises(InvalidConfig, match=r"smart_select"):
        load_settings(path, {})
