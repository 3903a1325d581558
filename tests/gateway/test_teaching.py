"""Who teaches searches: principals, each for itself; never a caller over HTTP without a token."""

import pytest

from shortlist.access.principal import ANONYMOUS, OWNER
from shortlist.gateway.callers import Caller
from shortlist.gateway.state import Seams
from shortlist.models import UNIDENTIFIED
from shortlist.storage.port import LearnedPair
from shortlist.telemetry.events import Called, Event, Searched
from shortlist.telemetry.exemplars import exemplars_of
from tests.gateway.support import Fixture, serve, token_caller
from tests.gateway.test_http import connect, listening

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_client_over_http_without_a_token_is_recorded_as_nobody() -> None:
    events: list[Event] = []
    async with (
        serve(Fixture("alpha"), seams=Seams(record=events.append)) as served,
        listening(served) as base,
        connect(f"{base}/mcp", "modern") as client,
    ):
        await client.call_tool("search_tools", {"query": "add two numbers"})
        await client.call_tool("call_tool", {"name": "alpha__add", "arguments": {"a": 1, "b": 2}})
    acts = [event for event in events if isinstance(event, (Searched, Called))]
    assert len(acts) == 2
    assert {event.caller for event in acts} == {UNIDENTIFIED}


def test_calls_of_nobody_become_no_exemplars() -> None:
    pairs = [
        LearnedPair(caller=who, query="q", tool="t", successes=5, errors=0, last=0) for who in (UNIDENTIFIED, "ada")
    ]
    assert [exemplar.by.name for exemplar in exemplars_of(pairs, 0.0, lambda name: name)] == ["ada"]


async def test_nobody_is_not_served_what_the_owner_taught() -> None:
    async with serve(Fixture("alpha")) as served:
        askers = [
            served.gateway.state.asker(caller)
            for caller in (Caller(principal=OWNER), Caller(principal=ANONYMOUS), token_caller("ada"))
        ]
    assert len({asker.group for asker in askers}) == 3
