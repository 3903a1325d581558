"""Wherever places are bounded in number, a caller that takes many of them displaces nobody who has fewer."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import anyio
import httpx2
import pytest
from benchmarks.asking import Asking
from hypothesis import given
from hypothesis import strategies as st

from shortlist.access.principal import ANONYMOUS, Principal
from shortlist.config.settings import Limits
from shortlist.errors import RequestRefused
from shortlist.fairness import gives_way, has_room
from shortlist.gateway import rounds
from shortlist.gateway.callers import Caller, Exchange, Round
from shortlist.models import Json
from shortlist.upstream import login, sessions
from tests.gateway.support import DEADLINE_SECONDS, Fixture, serve
from tests.gateway.test_http import TOKENS
from tests.gateway.test_legacy_calls import ACCEPT, RawSession
from tests.gateway.test_limits import ask, listening, status
from tests.gateway.test_sessions import ask as call
from tests.gateway.test_sessions import client, served_with
from tests.servers.protected import protected_server
from tests.upstream.support import MemoryLogins

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]
ADA, BOB = (Principal(kind="token", name=name, credential=name) for name in ("ada", "bob"))


@given(st.lists(st.sampled_from("abcde")), st.sampled_from("abcde"), st.sets(st.integers(0, 20)))
def test_an_entry_gives_way_only_to_a_caller_that_will_have_no_more_than_its_owner(
    owners: list[str], newcomer: str, staying: set[int]
) -> None:
    held = dict(enumerate(owners))
    found = gives_way(held, newcomer, lambda key: key not in staying)
    places = Counter([*owners, newcomer])
    may_go = [key for key in held if key not in staying and places[held[key]] >= places[newcomer]]
    if found is None:
        assert not may_go
    else:
        assert found in may_go
        assert all((places[held[key]], -key) <= (places[held[found]], -found) for key in may_go)


def test_one_caller_cannot_take_the_last_places_where_none_can_be_taken_away() -> None:
    taken: Counter[Principal] = Counter()
    while has_room(taken, BOB, 8):
        taken[BOB] += 1
    assert taken[BOB] == 6
    assert has_room(taken, ADA, 8)
    assert has_room({ANONYMOUS: 7}, ANONYMOUS, 8, alone=True)
    assert not has_room({ANONYMOUS: 8}, ADA, 8)


class Waiting(Asking):
    """A modern client of one principal, which comes back with answers."""

    def __init__(self, principal: Principal) -> None:
        self.caller = Caller(principal=principal)


async def _one_question(asker: Exchange, _: Mapping[str, Json]) -> dict[str, Json]:
    return await asker.ask("elicitation/create", {"message": "Which?"})


async def test_calls_that_wait_for_one_caller_leave_places_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "MAX_OPEN", 3)
    async with serve(Fixture("lab")) as served:
        calls = served.gateway.state.open_calls
        first, *_ = [await calls.start(Waiting(BOB), _one_question) for _ in range(3)]
        with pytest.raises(RequestRefused, match="Too many calls"):
            await calls.start(Waiting(BOB), _one_question)
        asked = await calls.start(Waiting(ADA), _one_question)
        with pytest.raises(RequestRefused, match="Too many calls"):
            await calls.start(Waiting(BOB), _one_question)
        answered = await calls.resume(Waiting(ADA), Round(state=str(asked["requestState"]), answers={"q1": {"a": 1}}))
        with pytest.raises(RequestRefused, match="Unknown requestState"):
            await calls.resume(Waiting(BOB), Round(state=str(first["requestState"]), answers={"q1": {}}))
    assert answered == {"a": 1}


async def test_connections_of_one_caller_displace_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MOST_SESSIONS", 3)
    async with served_with("per_workspace") as (served, _), client(served, "ada") as ada, AsyncExitStack() as stack:
        assert await call(ada, "echo", text="mine") == "mine"
        (of_ada,) = served.pool._sessions._open
        for _ in range(4):
            bob = await stack.enter_async_context(client(served, "bob"))
            assert await call(bob, "echo", text="theirs") == "theirs"
        assert of_ada in served.pool._sessions._open
        assert len(served.pool._sessions._open) == 3


@asynccontextmanager
async def opened(http: httpx2.AsyncClient, url: str, name: str) -> AsyncIterator[RawSession]:
    session = RawSession(http, url, "2025-06-18", {"Authorization": f"Bearer {name}-secret"})
    await session.open()
    yield session


async def test_sessions_of_one_caller_displace_its_own() -> None:
    async with (
        serve(Fixture("alpha"), tokens=TOKENS) as served,
        listening(served, Limits(sessions=3)) as (port, _),
        httpx2.AsyncClient(headers=ACCEPT, timeout=DEADLINE_SECONDS) as http,
        AsyncExitStack() as stack,
    ):
        url = f"http://127.0.0.1:{port}/mcp"
        ada = await stack.enter_async_context(opened(http, url, "ada"))
        of_bob = [await stack.enter_async_context(opened(http, url, "bob")) for _ in range(4)]
        calls = [await session.call("alpha__echo", {"text": "hello"}) for session in (ada, *of_bob)]
    assert [each.status_code for each in calls] == [200, 404, 404, 200, 200]


async def test_requests_that_one_caller_does_not_complete_leave_places_to_the_others() -> None:
    limits = Limits(arriving_requests=4, request_seconds=DEADLINE_SECONDS)
    async with serve(Fixture("alpha"), tokens=TOKENS) as served, listening(served, limits) as (port, _):
        head = "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer bob-secret\r\nContent-Length: 9\r\n\r\n{"
        of_ada = await ask(port, head.replace("bob", "ada").encode())
        of_bob = [await ask(port, head.encode()) for _ in range(5)]
        assert [await status(reader) for reader, _ in of_bob[:2]] == [503, 503]
        whole, _ = await ask(port, head.replace("9\r\n\r\n{", "2\r\n\r\n{}").encode())
        assert await status(whole) == 400  # it was read, and is not a message
        assert await status(of_bob[2][0]) == 503
        for reader, writer in (of_ada, *of_bob[3:]):
            writer.write(b"}       ")
            assert await status(reader) == 400


async def test_what_one_caller_was_sent_leaves_others_able_to_resume() -> None:
    async with (
        serve(
            Fixture("alpha"), tokens={name: replace(token, servers=None) for name, token in TOKENS.items()}
        ) as served,
        listening(served, Limits(resumption_bytes=20_000)) as (port, _),
        httpx2.AsyncClient(headers=ACCEPT, timeout=DEADLINE_SECONDS) as http,
    ):
        url = f"http://127.0.0.1:{port}/mcp"
        ada, bob = (
            RawSession(http, url, "2025-11-25", {"Authorization": f"Bearer {n}-secret"}) for n in ("ada", "bob")
        )
        await ada.open()
        await bob.open()
        token = {"progressToken": "p" * 500}  # progress makes the response a stream, which is kept
        first = (await ada.call("alpha__count", {}, _meta=token)).text.partition("id: ")[2].split()[0]
        for number in range(3, 43):
            assert "id: " in (await bob.call("alpha__count", {}, number, _meta=token)).text
        with anyio.fail_after(DEADLINE_SECONDS):
            async with http.stream("GET", url, headers={**ada.headers, "Last-Event-ID": first}) as resumed:
                lines = (line async for line in resumed.aiter_lines())
                assert await anext((line async for line in lines if "counted" in line), None)


async def test_logins_that_one_principal_does_not_finish_displace_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "MOST_PENDING", 3)
    now = [1_000.0]
    with protected_server() as wiki:
        logins = login.Logins(MemoryLogins(), clock=lambda: now[0])
        target = login.LoginTarget(server="wiki", url=f"{wiki.url}/mcp")

        async def begin(principal: str) -> str:
            return httpx2.URL(await logins.begin(target, principal, "http://127.0.0.1:1/callback")).params["state"]

        of_ada, of_bob = await begin("token:ada"), [await begin("token:bob") for _ in range(4)]
        assert logins.expects(of_ada)
        assert [logins.expects(state) for state in of_bob] == [False, False, True, True]
        now[0] += login.PENDING_SECONDS + 1
        await begin("token:ada")
        assert not logins.expects(of_bob[3])
