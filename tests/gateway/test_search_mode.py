import json
import threading
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from shortlist.config.settings import Limits, TelemetrySettings, ToolsetSettings
from shortlist.errors import StoreError
from shortlist.gateway import tools
from shortlist.gateway.state import Seams
from shortlist.gateway.view import ServeOptions
from shortlist.storage.memory import MemoryResults
from shortlist.telemetry.events import Called, CircleBroken, Event, Searched
from shortlist.text.asks import Ask, read_ask
from tests.gateway.support import Era, Fixture, serve, words
from tests.upstream.support import script

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]
eras = pytest.mark.parametrize("era", ["legacy", "modern"])


def pair() -> tuple[Fixture, Fixture]:
    return Fixture("alpha"), Fixture("beta", "modern")


async def search(client: Client, **arguments: Any) -> str:
    return words(await client.call_tool("search_tools", arguments))


@eras
async def test_the_menu_is_four_tools(era: Era) -> None:
    async with serve(*pair()) as served, served.client(era) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
    assert names == ["search_tools", "describe_tools", "call_tool", "read_result"]


async def test_the_minimal_menu_is_search_and_call() -> None:
    async with serve(*pair(), options=ServeOptions(menu="minimal")) as served, served.client() as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
    assert names == ["search_tools", "call_tool"]


@pytest.mark.parametrize("as_list", [False, True])
async def test_what_a_long_text_asks_for_is_found_beside_the_event_loop(
    as_list: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers: list[threading.Thread] = []

    def reading(text: str) -> Ask:
        readers.append(threading.current_thread())
        return read_ask(text)

    monkeypatch.setattr(tools, "read_ask", reading)
    text = "ERROR: connection reset by peer\n" * 1_000 + "\nadd two numbers"
    async with serve(*pair()) as served, served.client() as client:
        found = await search(client, **{"queries": [text]} if as_list else {"query": text})
    assert "alpha__add" in found
    assert len(readers) == 1
    assert readers[0] is not threading.current_thread()


@eras
async def test_a_client_searches_describes_and_calls(era: Era) -> None:
    async with serve(*pair()) as served, served.client(era) as client:
        found = await search(client, query="add two numbers")
        described = words(await client.call_tool("describe_tools", {"names": ["alpha__add"]}))
        result = await client.call_tool("call_tool", {"name": "alpha__add", "arguments": {"a": 2, "b": 3}})
    assert "alpha__add(a: number, b: number)" in found
    assert '"required":["a","b"]' in described
    assert "server: alpha" in described
    assert result.structured_content == {"total": 5}


async def test_the_same_tool_of_two_servers_is_shown_twice_unless_they_are_configured_to_be_the_same() -> None:
    async with serve(*pair()) as served, served.client() as client:
        found = await search(client, query="add two numbers", limit=2)
    assert "alpha__add" in found
    assert "beta__add" in found
    assert "also:" not in found


async def test_several_queries_share_one_list_of_tools() -> None:
    async with serve(*pair()) as served, served.client() as client:
        found = await search(client, queries=["add two numbers", "say a text back", "sum of numbers, add"], limit=2)
    assert found.count("alpha__add(a: number, b: number)") == 1
    assert found.startswith("1. 'add two numbers': ")


async def test_json_is_structured_content_for_programs() -> None:
    async with serve(*pair()) as served, served.client() as client:
        result = await client.call_tool("search_tools", {"query": "add numbers", "format": "json"})
        plain = await client.call_tool("search_tools", {"query": "add numbers"})
    assert result.structured_content is not None
    assert result.structured_content["tools"]["alpha__add"]["signature"].startswith("alpha__add(")
    assert json.loads(words(result)) == result.structured_content
    assert plain.structured_content is None


async def test_an_answer_stays_within_its_tokens_and_names_what_it_left_out() -> None:
    async with serve(*pair()) as served, served.client() as client:
        found = await search(client, query="ask the client for something", max_tokens=90, limit=10)
    assert "Left out to stay within 90 tokens: " in found


async def test_a_search_for_what_is_not_there_says_so_and_does_not_pad() -> None:
    async with serve(*pair()) as served, served.client() as client:
        found = await search(client, query="launch the rocket to jupiter tomorrow morning")
    assert found.startswith("No confident match")
    assert "Connected servers: alpha, beta." in found
    assert "(" not in found.split("Closest:")[-1].split("Connected")[0]


async def test_servers_are_preferred_and_with_only_nothing_else_is_searched() -> None:
    async with serve(*pair()) as served, served.client() as client:
        preferred = await search(client, query="add two numbers", servers=["beta"], limit=9)
        only = await search(client, query="add two numbers", servers=["beta"], only=True)
        guessed = await search(client, query="add two numbers", servers=["bete"])
        wrong = await client.call_tool("search_tools", {"query": "add", "servers": ["bete"], "only": True})
    assert preferred.index("beta__add") < preferred.index("alpha__add")
    assert "Preferred: servers beta. Other tools were searched too; pass only: true to leave them out." in preferred
    assert "beta__add" in only
    assert "alpha__" not in only
    assert "Searched only: servers beta." in only
    assert "__add" in guessed
    assert "No server 'bete'." in guessed
    assert wrong.is_error
    assert "Did you mean 'beta'?" in words(wrong)


async def test_names_in_hints_are_read_in_any_case() -> None:
    async with serve(*pair()) as served, served.client() as client:
        found = await search(client, query="add two numbers", servers=["Beta"], only=True)
    assert "Searched only: servers beta." in found
    assert "beta__add" in found


async def test_an_unknown_category_or_tag_is_named_with_the_closest_one(tmp_path: Path) -> None:
    listed = {"name": "play", "description": "Play a song.", "category": "Music", "tags": ["audio"]}
    content = {"tools/list": {"tools": [{**listed, "inputSchema": {"type": "object"}}]}}
    (tmp_path / "player.json").write_text(json.dumps(content))
    player = script("player", str(tmp_path / "player.json"), file="listing.py")
    async with serve(others={"player": player}) as served, served.client() as client:
        hinted = await search(client, query="play a song", category="musik", tags=["nope"])
        wrong = await client.call_tool("search_tools", {"query": "play a song", "tags": ["nope"], "only": True})
        known = await search(client, query="play a song", category="music", tags=["AUDIO"], only=True)
    assert "No category 'musik'. Did you mean 'Music'?" in hinted
    assert hinted.endswith("No tag 'nope'.")
    assert "Preferred:" not in hinted
    assert "player__play" in hinted
    assert wrong.is_error
    assert "No tag 'nope'." in words(wrong)
    assert "Searched only: category Music, tags audio." in known
    assert "player__play" in known


async def test_a_wrong_hint_never_hides_a_tool() -> None:
    hints: list[dict[str, Any]] = [
        {"intent": "voice_ui"},
        {"category": "music"},
        {"tags": ["x"]},
        {"servers": ["alpha"]},
    ]
    for hint in hints:
        async with serve(*pair()) as served, served.client() as client:
            hinted = await search(client, query="add two numbers", **hint)
        assert "alpha__add" in hinted
        assert "beta__add" in hinted


async def test_several_wishes_are_answered_one_by_one() -> None:
    async with serve(*pair()) as served, served.client() as client:
        found = await search(client, query="add two numbers and ask the model for a poem")
    assert "- add two numbers: " in found
    assert "- ask the model for a poem: " in found
    assert "queries: [...] searches for each by itself" in found


async def test_an_intent_that_matches_nothing_searches_everything_and_says_so() -> None:
    sets = {"sums": ToolsetSettings(name="sums", tools=("*/add",))}
    async with (
        serve(*pair(), toolsets=sets, intents={"maths": ("sums",)}) as served,
        served.client() as client,
    ):
        narrowed = await search(client, query="say a text back", intent="maths", only=True, limit=9)
        everything = await search(client, query="say a text back", intent="voice_ui")
    assert "__echo" not in narrowed
    assert "__echo" in everything
    assert "'voice_ui' matches no toolset here: everything was searched" in everything


async def test_searching_in_circles_is_broken_until_something_is_called() -> None:
    events: list[Event] = []
    async with (
        serve(*pair(), seams=Seams(record=events.append)) as served,
        served.client("legacy") as client,
    ):
        answers = [await search(client, query="add two numbers") for _ in range(5)]
        await client.call_tool("call_tool", {"name": "alpha__add", "arguments": {"a": 1, "b": 1}})
        after = await search(client, query="add two numbers")
    assert [a.startswith("You have searched") for a in answers] == [False, False, False, True, True]
    assert "add(a: number" in after
    done = [type(event) for event in events if isinstance(event, Searched | CircleBroken | Called)]
    assert done == [Searched] * 3 + [CircleBroken] * 2 + [Called, Searched]


async def test_wrong_arguments_are_answered_and_never_sent() -> None:
    async with serve(*pair()) as served, served.client() as client:
        result = await client.call_tool("call_tool", {"name": "alpha__add", "arguments": {"a": "two"}})
        assert served.fixtures["alpha"].calls == []
    assert result.is_error
    said = words(result)
    assert "alpha__add was NOT invoked" in said
    assert "arguments.a: 'two' is not of type 'number'" in said
    assert '"required":["a","b"]' in said


@pytest.mark.parametrize(("kept", "quoted"), [("omit", False), ("keep", True)])
async def test_the_reason_of_a_failure_quotes_arguments_only_where_they_are_recorded(kept: Any, quoted: bool) -> None:
    events: list[Event] = []
    seams, telemetry = Seams(record=events.append), TelemetrySettings(arguments=kept)
    async with serve(*pair(), seams=seams, telemetry=telemetry) as served, served.client() as client:
        await client.call_tool("call_tool", {"name": "alpha__add", "arguments": {"a": "open sesame"}})
    (call,) = (event for event in events if isinstance(event, Called))
    assert "is not of type 'number'" in call.reason
    assert ("open sesame" in call.reason) is quoted


async def test_the_reason_of_a_failure_is_left_out_where_there_are_too_many_values_to_look_for_on_the_event_loop() -> (
    None
):
    events: list[Event] = []
    values = [0] * 2_000
    async with serve(*pair(), seams=Seams(record=events.append)) as served, served.client() as client:
        await client.call_tool("call_tool", {"name": "alpha__add", "arguments": {"a": values}})
    (call,) = (event for event in events if isinstance(event, Called))
    assert call.reason == "…"


async def test_arguments_as_a_text_of_json_mean_the_same() -> None:
    async with serve(*pair()) as served, served.client() as client:
        result = await client.call_tool("call_tool", {"name": "alpha__add", "arguments": '{"a": 1, "b": 2}'})
    assert words(result) == "3"


async def test_a_schema_that_cannot_be_evaluated_lets_the_call_through_and_says_so() -> None:
    fixture = Fixture("alpha")
    fixture.tools["echo"] = ("Echo.", {"type": "object", "properties": {"text": {"pattern": "(?=x)"}}})
    async with serve(fixture) as served, served.client() as client:
        result = await client.call_tool("call_tool", {"name": "alpha__echo", "arguments": {"text": "hi"}})
    assert words(result).startswith("hi\n[The arguments were not checked: ")


async def test_an_unknown_tool_gets_a_suggestion() -> None:
    async with serve(*pair()) as served, served.client() as client:
        called = await client.call_tool("call_tool", {"name": "alpha__ad", "arguments": {}})
        described = await client.call_tool("describe_tools", {"names": ["alpha__ad", "beta__add"]})
    assert "'alpha__add'" in words(called)
    assert called.is_error
    assert "No tool 'alpha__ad'" in words(described)
    assert "server: beta" in words(described)


async def test_errors_repeat_only_the_beginning_of_a_name_that_a_client_made_up() -> None:
    long = "alpha__ad" + "x" * 1_000_000
    async with serve(*pair()) as served, served.client() as client:
        called = await client.call_tool("call_tool", {"name": long, "arguments": {}})
        direct = await client.call_tool(long, {})
        described = await client.call_tool("describe_tools", {"names": [long]})
    for each in (called, direct, described):
        assert "xxx… (1,000,009 characters)" in words(each)
        assert len(words(each)) < 1_000


async def test_a_bare_name_reaches_a_tool_only_where_it_is_unique() -> None:
    alpha, beta = pair()
    beta.tools.pop("echo")
    async with serve(alpha, beta) as served, served.client() as client:
        alone = await client.call_tool("call_tool", {"name": "echo", "arguments": {"text": "x"}})
        shared = await client.call_tool("call_tool", {"name": "add", "arguments": {"a": 1, "b": 2}})
    assert words(alone) == "x"
    assert "Did you mean 'alpha__add', 'beta__add'?" in words(shared)


@pytest.mark.parametrize(
    ("alias", "arguments"),
    [
        ("execute_tool", {"tool_name": "alpha__add", "arguments": {"a": 1, "b": 2}}),
        ("call_loaded_tool", {"tool": "alpha__add", "args": {"a": 1, "b": 2}}),
        ("alpha__add", {"a": 1, "b": 2}),
    ],
)
async def test_names_known_from_elsewhere_call_tools_in_their_own_shapes(alias: str, arguments: Any) -> None:
    async with serve(*pair()) as served, served.client() as client:
        assert words(await client.call_tool(alias, arguments)) == "3"


async def test_other_names_known_from_elsewhere_are_accepted_too() -> None:
    async with serve(*pair()) as served, served.client() as client:
        found = words(await client.call_tool("discover_tools", {"query": "add numbers", "compact": True}))
        sets = words(await client.call_tool("list_available_toolsets", {}))
    assert "alpha__add" in found
    assert sets.splitlines()[0].startswith("alpha (")


async def test_call_tool_does_not_call_itself() -> None:
    async with serve(*pair()) as served, served.client() as client:
        result = await client.call_tool("call_tool", {"name": "execute_tool", "arguments": {}})
    assert result.is_error
    assert "cannot call itself" in words(result)


@eras
async def test_a_long_result_is_paged_and_searched(era: Era) -> None:
    limits = Limits(result_characters=2_000)
    async with serve(*pair(), limits=limits) as served, served.client(era) as client:
        first = await client.call_tool("call_tool", {"name": "alpha__long", "arguments": {"size": 900}})
        notice = first.content[-1].text  # type: ignore[union-attr]
        handle = notice.split("handle='")[1].split("'")[0]
        text, offset = first.content[0].text, 0  # type: ignore[union-attr]
        while "Read on" in notice:
            offset = int(notice.split("offset=")[1].split(")")[0])
            page = await client.call_tool("read_result", {"handle": handle, "offset": offset})
            text += page.content[0].text  # type: ignore[union-attr]
            notice = page.content[-1].text  # type: ignore[union-attr]
        passage = words(await client.call_tool("read_result", {"handle": handle, "query": "line 777"}))
        bad = await client.call_tool("read_result", {"handle": "no-such-handle"})
    assert text == "".join(f"line {i} of alpha\n" for i in range(900))
    assert "line 777 of alpha" in passage
    assert bad.is_error


async def test_a_long_result_that_cannot_be_kept_is_shortened_and_says_so() -> None:
    class Broken(MemoryResults):
        def keep(self, *_: Any) -> None:
            raise StoreError("the database is away")

    limits, seams = Limits(result_characters=2_000), Seams(results=Broken())
    async with serve(*pair(), limits=limits, seams=seams) as served, served.client() as client:
        result = await client.call_tool("call_tool", {"name": "alpha__long", "arguments": {"size": 900}})
    assert not result.is_error
    assert "line 1 of alpha" in words(result)
    assert "line 899 of alpha" not in words(result)
    assert "The rest cannot be kept" in words(result)


@pytest.mark.parametrize(
    ("tool", "arguments", "says"),
    [
        ("search_tools", {}, "'query' is missing"),
        ("search_tools", {"query": "   "}, "'query' is missing"),
        ("search_tools", {"query": 5}, "'query' must be a string"),
        ("search_tools", {"query": "x", "limit": "many"}, "'limit' must be a whole number"),
        ("search_tools", {"query": "x", "detail": "huge"}, "'detail' must be one of compact, standard, full"),
        ("search_tools", {"queries": ["q"] + [f"q{i}" for i in range(8)]}, "at most 7"),
        ("search_tools", {"query": "x", "toolsets": ["nix"]}, "No toolset 'nix'"),
        ("describe_tools", {"names": []}, "at least one"),
        ("describe_tools", {"names": [f"n{i}" for i in range(11)]}, "at most 10"),
        ("call_tool", {"arguments": {}}, "'name' is missing"),
        ("call_tool", {"name": "alpha__add", "arguments": [1]}, "must be an object"),
        ("call_tool", {"name": "alpha__add", "arguments": "{oops"}, "is not valid JSON"),
        ("read_result", {}, "'handle' is missing"),
    ],
)
async def test_a_wrong_question_is_answered_with_what_would_be_right(tool: str, arguments: Any, says: str) -> None:
    async with serve(Fixture("alpha")) as served, served.client() as client:
        result = await client.call_tool(tool, arguments)
    assert result.is_error
    assert says in words(result)


@eras
async def test_instructions_and_list_are_the_same_bytes_for_every_client(era: Era) -> None:
    async with serve(*pair()) as served:
        async with served.client(era) as one:
            first = (one.instructions, (await one.list_tools()).model_dump_json())
        async with served.client(era) as two:
            second = (two.instructions, (await two.list_tools()).model_dump_json())
    assert first == second


@eras
async def test_instructions_say_when_to_search_and_name_the_servers(era: Era) -> None:
    async with serve(*pair()) as served:
        client = Client(served.front.server, mode="legacy" if era == "legacy" else "auto")
        async with client:
            said = client.instructions or ""
    assert "search_tools" in said
    assert "- alpha (" in said
    assert "The alpha fixture." in said


async def test_control_characters_never_reach_the_reader_of_a_search() -> None:
    fixture = Fixture("alpha")
    _, schema = fixture.tools["echo"]
    fixture.tools["echo"] = ("Say \x1b[31ma text\u200b back.\u202e", schema)
    async with serve(fixture) as served, served.client() as client:
        found = await search(client, query="say a text back \x1b[2J")
    assert "Say a text back." in found
    assert not set(found) & {"\x1b", "\u200b", "\u202e"}
