"""The pages over what was recorded: figures, use, misses, experiments, activity."""

import re
from dataclasses import replace
from typing import Any

import pytest

from shortlist.telemetry.events import (
    Called,
    EventsLost,
    Exposed,
    ProgramEnded,
    Searched,
    SessionOpened,
    ToolsListed,
)
from shortlist.telemetry.experiments.metrics import METRICS
from shortlist.telemetry.experiments.plan import Experiment, Variant, start_experiment
from shortlist.telemetry.measures import FoundTool
from tests.gateway.support import Fixture
from tests.storage.both import about_files
from tests.web.support import TOKENS, Seen, Visitor, visiting, write

pytestmark = pytest.mark.anyio
WHO: dict[str, Any] = {"caller": "claude", "workspace": "session:1"}
SEARCH = Searched(
    **WHO,
    query="sum up <b>two</b> numbers",
    hits=(FoundTool(tool="alpha/echo", rank=1, score=2.0), FoundTool(tool="alpha/add", rank=2, score=1.5)),
    confidence="low",
    probability=0.3,
    tokens=100,
    steps={"lexical": 4.0},
)
CALL = Called(**WHO, tool="alpha/add", outcome="ok", milliseconds=20.0, native=False)
EVENTS = (
    SessionOpened(**WHO, mode="search", tools=4, tokens=50),
    ToolsListed(**WHO, tools=4, tokens=350, upfront=10_000),
    SEARCH,
    CALL,
    replace(CALL, outcome="error"),
    replace(CALL, tool="alpha/long"),  # no search returned it
    replace(CALL, tool="alpha/none", outcome="unknown"),
)
RECORD_PAGES = ("/misses", "/experiments", "/experiments/shape", "/activity", "/activity/feed")


def text(page: Seen) -> str:
    return re.sub(r"\s+", " ", page.words)


async def test_the_overview_shows_the_figures_of_the_record() -> None:
    async with visiting(Fixture("alpha"), events=EVENTS) as visitor:
        await visitor.enter()
        words = text(await visitor.read("/?range=24h"))
    assert "Tokens saved 9,500 95.0% of listing all tools" in words  # 10,000 less 350, 50 and 100
    assert "Calls 3 0.33 searches per call" in words
    assert "Found by search 50.0% 0% ranked first" in words  # add at rank 2; long by no search
    assert "Calls not found 1" in words
    assert "Error rate 33.3%" in words
    assert "alpha__add 2 50.0%" in words
    assert "share of first calls that needed a search" in words.lower()


@pytest.mark.parametrize("address", ["/", "/?range=7d", "/?range=30d", "/?range=never"])
async def test_an_overview_of_nothing_says_so(address: str) -> None:
    async with visiting(Fixture("alpha")) as visitor:
        await visitor.enter()
        page = await visitor.read(address)
    assert "No data in this time range" in page.words


async def test_lost_events_are_shown() -> None:
    async with visiting(Fixture("alpha"), events=[*EVENTS, EventsLost(count=12, reason="queue full")]) as visitor:
        await visitor.enter()
        words = text(await visitor.read("/"))
    assert "12 events could not be recorded: 12 queue full" in words


async def test_tools_are_sorted_and_picked_by_their_use() -> None:
    async with visiting(Fixture("alpha"), events=EVENTS) as visitor:
        await visitor.enter()
        views = {view: await names(visitor, f"view={view}") for view in ("", "called", "failing", "unseen", "uncalled")}
        by_name = await names(visitor, "q=ECHO")
        by_tokens = await names(visitor, "sort=tokens")
        nothing = await names(visitor, "q=zzz")
        wild = await names(visitor, "view=x&sort=y&page=99999999999")
    assert views[""][:2] == ["alpha__add", "alpha__long"]
    assert views["called"] == ["alpha__add", "alpha__long"]
    assert views["failing"] == ["alpha__add"]
    assert views["uncalled"] == ["alpha__echo"]
    assert "alpha__add" not in views["unseen"]
    assert "alpha__ask_user" in views["unseen"]
    assert by_name == ["alpha__echo"]
    assert by_tokens[0] == "alpha__add"
    assert nothing == []
    assert wild == views[""]


async def names(visitor: Visitor, query: str) -> list[str]:
    page = (await visitor.http.get(f"/tools?{query}")).text
    return re.findall(r'<th scope="row"><a class="name" href="/tools/[^"]*">([^<]*)</a>', page)


async def test_tools_that_say_the_same_are_shown_together() -> None:
    async with visiting(Fixture("alpha"), Fixture("beta")) as visitor:
        await visitor.enter()
        listed = text(await visitor.read("/tools?view=twins"))
        one = text(await visitor.read("/tools/alpha%2Fadd"))
    assert "alpha__add Add two numbers. near-duplicate of beta__add" in listed
    assert "Near-duplicates beta__add" in one


async def test_a_tools_page_shows_its_calls() -> None:
    async with visiting(Fixture("alpha"), events=EVENTS) as visitor:
        await visitor.enter()
        words = text(await visitor.read("/tools/alpha%2Fadd"))
    assert "Calls 2 20 ms on average" in words
    assert "MRR 0.50" in words
    assert "rank 2" in words
    assert '"inputSchema"' in words


async def test_a_server_shows_how_its_calls_ended() -> None:
    async with visiting(Fixture("alpha"), events=EVENTS) as visitor:
        await visitor.enter()
        words = text(await visitor.read("/servers/alpha"))
    assert "Calls 3 20 ms on average" in words
    assert "Error rate 33.3%" in words


async def test_misses_name_the_search_that_went_before() -> None:
    again = replace(SEARCH, query="sum up two numbers please")
    empty = replace(SEARCH, query="zzz", hits=(), workspace="session:2")
    async with visiting(Fixture("alpha"), events=[*EVENTS, SEARCH, again, empty]) as visitor:
        await visitor.enter()
        all_of_them = text(await visitor.read("/misses"))
        unfound = text(await visitor.read("/misses?kind=unfound"))
    assert "sum up <b>two</b> numbers” called, not found 1×, last just now Called alpha__long" in unfound
    assert "Top hits: alpha__echo, alpha__add" in unfound
    assert "Rephrased as “sum up two numbers please”" in all_of_them
    assert "Rephrased as" not in unfound
    assert "Called alpha/none, which does not exist" in all_of_them
    assert "“zzz” no results 1×" in all_of_them


async def test_a_program_is_one_row_with_its_calls_inside() -> None:
    inner = [replace(CALL, program="p1"), replace(CALL, tool="alpha/echo", program="p1")]
    ended = ProgramEnded(
        caller="local",
        workspace="w",
        program="p1",
        source="a = 1\na",
        outcome="ok",
        milliseconds=5.0,
        calls={"done": 2},
    )
    async with visiting(Fixture("alpha"), events=[CALL, *inner, ended]) as visitor:
        await visitor.enter()
        for address in ("/activity", "/activity?kind=program"):
            page = (await visitor.http.get(address)).text
            assert page.count("<tr data-id") == (2 if address == "/activity" else 1)
            assert "<summary>2 calls</summary>" in page
            inside = page.partition("<ol>")[2].partition("</ol>")[0]
            assert inside.count("<li>") == 2
            assert inside.index("add</a>") < inside.index("echo</a>")
        calls = (await visitor.http.get("/activity?kind=called")).text
    assert calls.count("<tr data-id") == 3


async def test_activity_comes_latest_first_and_goes_on_from_where_it_was() -> None:
    async with visiting(Fixture("alpha"), events=EVENTS) as visitor:
        await visitor.enter()
        page = await visitor.read("/activity")
        newest = int(next(found["data-id"] or "" for tag, found in page.elements if tag == "tr" and "data-id" in found))
        nothing = await visitor.http.get(f"/activity/feed?after={newest}")
        write(visitor.storage, [replace(CALL, milliseconds=777.0)])
        new = await visitor.http.get(f"/activity/feed?after={newest}")
        searches = text(await visitor.read("/activity?kind=searched"))
        wild = await visitor.http.get("/activity/feed?after=99999999999999999999&kind=x'")
    assert newest == len(EVENTS)
    assert nothing.text.strip() == ""
    assert new.text.count("<tr") == 1
    assert "777 ms" in new.text
    assert "<html" not in new.text
    assert "2 hits, first alpha__echo" in searches
    assert "alpha/long" not in searches
    assert wild.status_code == 200


async def test_an_experiment_is_listed_and_has_a_page() -> None:
    events = [replace(CALL, workspace=f"session:{n}") for n in range(4)]
    async with visiting(Fixture("alpha")) as visitor:
        plan = Experiment(
            name="shape", variants=(Variant(detail="compact"), Variant(detail="full")), metric="errors", minimum=2
        )
        start_experiment(visitor.storage.experiments, plan)
        exposed = [
            Exposed(caller="claude", workspace=f"session:{n}", experiment="shape", variant=plan.variants[n % 2].name)
            for n in range(4)
        ]
        write(visitor.storage, [*exposed, *events])
        await visitor.enter()
        listed, page = text(await visitor.read("/experiments")), text(await visitor.read("/experiments/shape"))
        missing = await visitor.http.get("/experiments/none")
    assert "shape" in listed
    assert "running" in listed
    assert "detail=compact 2 control, workspaces" in page
    assert METRICS["errors"].meaning in page
    assert "H1: fewer tools are active than in the control" in page
    assert missing.status_code == 404


async def test_an_experiment_that_is_not_sound_needs_attention() -> None:
    async with visiting(Fixture("alpha")) as visitor:
        plan = Experiment(name="shape", variants=(Variant(limit=5), Variant(limit=10)), metric="errors", minimum=2)
        start_experiment(visitor.storage.experiments, plan)
        one = plan.variants[0].name
        exposed = [
            Exposed(caller="claude", workspace=f"session:{n}", experiment="shape", variant=one) for n in range(60)
        ]
        write(visitor.storage, exposed)
        await visitor.enter()
        page = await visitor.read("/")
    assert "Experiment shape: the sample-ratio check failed" in text(page)
    assert "/experiments/shape" in page.links()


@pytest.mark.parametrize("path", RECORD_PAGES)
async def test_what_all_callers_do_is_not_for_a_limited_token(path: str) -> None:
    async with visiting(Fixture("alpha"), Fixture("beta"), events=EVENTS, tokens=TOKENS) as visitor:
        await visitor.sign_in("bob-secret")
        answer = await visitor.http.get(path)
    assert answer.status_code == 403
    assert "numbers" not in answer.text


async def test_a_limited_token_is_shown_no_figures() -> None:
    async with visiting(Fixture("alpha"), Fixture("beta"), events=EVENTS, tokens=TOKENS) as visitor:
        await visitor.sign_in("bob-secret")
        start, server = text(await visitor.read("/")), text(await visitor.read("/servers/beta"))
    assert "Your token can use 11 tools from 1 server" in start
    assert "Misses" not in start
    assert "Calls 0" in server


@about_files
@pytest.mark.parametrize("damage", ["gone", "damaged"])
async def test_a_record_that_cannot_be_read_takes_nothing_else_down(damage: str) -> None:
    async with visiting(Fixture("alpha"), events=EVENTS) as visitor:
        await visitor.enter()
        for file in visitor.folder.iterdir():
            file.unlink()
        if damage == "damaged":
            (visitor.folder / "events.sqlite").write_bytes(b"no database" * 1_000)
        record = [await visitor.http.get(path) for path in ("/", *RECORD_PAGES)]
        others = [
            await visitor.http.get(path) for path in ("/search?q=add", "/servers", "/tools", "/tools/alpha%2Fadd")
        ]
    assert {answer.status_code for answer in record} == {503}
    assert {answer.status_code for answer in others} == {200}
