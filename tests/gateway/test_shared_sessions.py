"""Legacy sessions of gateways that share a store: idle ones leave the memory, and come back when they are used."""

import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import pytest
import uvicorn

from shortlist.errors import StoreError
from shortlist.front import resumption
from shortlist.front.http import build_app
from shortlist.front.peers import Peers
from shortlist.front.replicas import Replica
from shortlist.front.resumption import ResumableSessions
from shortlist.storage.shared import SharedStores, StoredSession
from tests.gateway.support import DEADLINE_SECONDS, Fixture, serve
from tests.gateway.test_legacy_calls import ACCEPT, RawSession, messages

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]


class KnownSessions:
    """A session store in memory, which can be away."""

    def __init__(self) -> None:
        self.known: dict[str, StoredSession] = {}
        self.is_away = False
        self.asked_to_open, self.may_open = threading.Event(), threading.Event()
        self.may_open.set()

    def open(self, session: str, stored: StoredSession) -> None:
        self.asked_to_open.set()
        self.may_open.wait(DEADLINE_SECONDS)
        self._answer()
        self.known[session] = stored

    def find(self, session: str) -> StoredSession | None:
        self._answer()
        return self.known.get(session)

    def change(self, session: str, level: str, subscriptions: Sequence[str]) -> None:
        self._answer()
        self.known[session] = replace(self.known[session], level=level, subscriptions=tuple(subscriptions))

    def touch(self, sessions: Sequence[str]) -> None:  # noqa: ARG002
        self._answer()

    def end(self, session: str) -> None:
        self._answer()
        self.known.pop(session, None)

    def _answer(self) -> None:
        if self.is_away:
            raise StoreError("the database is away")


class NoReplicas:
    """A gateway that is alone on its store."""

    def announce(self, replica: str, url: str) -> None: ...

    def others(self, replica: str) -> dict[str, str]:  # noqa: ARG002
        return {}

    def leave(self, replica: str) -> None: ...


@contextmanager
def few_held(monkeypatch: pytest.MonkeyPatch, most: int) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setattr(resumption, "HELD_SESSIONS", most)
        patched.setattr(resumption, "REST_SECONDS", 0.0)
        patched.setattr(resumption, "RETRY_SECONDS", 0.01)
        yield


@asynccontextmanager
async def gateway(store: KnownSessions, alpha: Fixture) -> AsyncIterator[tuple[ResumableSessions, "Clients"]]:
    async with serve(alpha) as served, httpx2.AsyncClient(headers=ACCEPT, timeout=DEADLINE_SECONDS) as http:
        rest: Any = dict.fromkeys(("leases", "grants", "changes", "key", "spooled"))
        shared = SharedStores(sessions=store, replicas=NoReplicas(), **rest)
        app = build_app(served.front, "127.0.0.1", replica=Replica(served.front, shared, Peers(NoReplicas())))
        config = uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=1)
        socket = config.bind_socket()
        socket.listen()
        server = uvicorn.Server(config)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [socket])
            try:
                with anyio.fail_after(DEADLINE_SECONDS):
                    yield app.state.sessions, Clients(http, f"http://127.0.0.1:{socket.getsockname()[1]}/mcp")
            finally:
                server.should_exit = True


class Clients:
    """Opens sessions with one gateway."""

    def __init__(self, http: httpx2.AsyncClient, url: str) -> None:
        self._http, self._url = http, url

    async def open(self, count: int) -> list[RawSession]:
        opened = [RawSession(self._http, self._url, "2025-11-25") for _ in range(count)]
        for session in opened:
            await session.open()
        return opened


async def held(manager: ResumableSessions, count: int) -> None:
    while len(manager._server_instances) > count:
        await anyio.sleep(0.01)


async def says(session: RawSession, text: str) -> bool:
    answer = messages(await session.call("alpha__echo", {"text": text}))[-1]
    return bool(answer["result"]["content"][0]["text"] == text)


async def test_idle_sessions_beyond_those_that_are_held_leave_the_memory_and_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with few_held(monkeypatch, 2):
        async with gateway(KnownSessions(), Fixture("alpha")) as (manager, clients):
            opened = await clients.open(6)
            await held(manager, 3)
            for number, session in enumerate((*opened, *opened)):
                assert await says(session, f"text {number}")
            await held(manager, 3)
            for session in opened:
                ended = await session.http.delete(session.url, headers=session.headers)
                assert ended.status_code == 200
            await held(manager, 0)
            assert manager._sharing is not None
            assert not manager._sharing.sessions.keys
            assert not manager._open


async def test_a_session_with_a_running_call_stays_in_memory_and_its_call_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alpha, release = Fixture("alpha"), anyio.Event()

    async def wait(*_: object) -> object:
        alpha.waiting.set()
        await release.wait()
        return await alpha.tool_echo(None, None, {"text": "kept"})

    alpha.tool_wait = wait  # type: ignore[method-assign]
    with few_held(monkeypatch, 1):
        async with gateway(KnownSessions(), alpha) as (manager, clients), anyio.create_task_group() as tasks:
            (first,) = await clients.open(1)
            answers: list[str] = []

            async def call() -> None:
                answers.append(messages(await first.call("alpha__wait", {}))[-1]["result"]["content"][0]["text"])

            tasks.start_soon(call)
            await alpha.waiting.wait()
            await clients.open(4)
            await held(manager, 3)
            release.set()
    assert answers == ["kept"]


async def test_a_session_that_ended_elsewhere_ends_here_though_its_notice_was_lost() -> None:
    store = KnownSessions()
    async with gateway(store, Fixture("alpha")) as (manager, clients):
        kept, ended = await clients.open(2)
        store.end(ended.headers["Mcp-Session-Id"])
        await manager.changed_anywhere()
        assert await says(kept, "kept")
        assert (await ended.call("alpha__echo", {"text": "late"})).status_code == 404


async def test_a_session_that_is_being_stored_is_not_taken_for_one_that_has_ended() -> None:
    store = KnownSessions()
    store.may_open.clear()
    async with gateway(store, Fixture("alpha")) as (manager, clients), anyio.create_task_group() as tasks:
        opened: list[RawSession] = []

        async def open_one() -> None:
            opened.extend(await clients.open(1))

        tasks.start_soon(open_one)
        await anyio.to_thread.run_sync(store.asked_to_open.wait, DEADLINE_SECONDS)
        await manager.changed_anywhere()  # the database is back after an outage
        store.may_open.set()
        while not opened:
            await anyio.sleep(0.01)
        assert await says(opened[0], "kept")


async def test_a_log_level_that_was_set_while_the_store_was_away_holds_and_is_stored_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = KnownSessions()
    with few_held(monkeypatch, 1):
        async with gateway(store, Fixture("alpha")) as (manager, clients), anyio.create_task_group() as tasks:
            early = (await clients.open(1))[0]
            store.is_away = True
            late = (await clients.open(1))[0]
            for session in (early, late):
                answer = messages(await session.post("logging/setLevel", {"level": "debug"}, id=3))[-1]
                assert answer["result"] == {}
            store.is_away = False
            await manager.changed_anywhere()
            tasks.start_soon(manager.keep_stored)
            while {stored.level for stored in store.known.values()} != {"debug"} or len(store.known) < 2:
                await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()


async def test_a_session_that_could_not_be_stored_stays_in_memory_until_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = KnownSessions()
    with few_held(monkeypatch, 1):
        async with gateway(store, Fixture("alpha")) as (manager, clients), anyio.create_task_group() as tasks:
            store.is_away = True
            opened = await clients.open(4)
            assert len(manager._server_instances) == 4
            assert all([await says(session, "away") for session in opened])
            store.is_away = False
            tasks.start_soon(manager.keep_stored)
            while len(store.known) < 4:
                await anyio.sleep(0.01)
            await clients.open(4)
            await held(manager, 4)
            assert all([await says(session, "back") for session in opened])
            tasks.cancel_scope.cancel()


async def test_a_session_that_ended_while_the_store_was_away_ends_there_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, alpha = KnownSessions(), Fixture("alpha")
    with few_held(monkeypatch, 10):
        async with gateway(store, alpha) as (manager, clients), anyio.create_task_group() as tasks:
            ended, other = await clients.open(2)
            store.is_away = True
            assert (await ended.end()).status_code == 200
            assert (await ended.ping()).status_code == 404
            assert len(store.known) == 2
            store.is_away = False
            assert (await ended.ping()).status_code == 404
            tasks.start_soon(manager.keep_stored)
            while len(store.known) > 1:
                await anyio.sleep(0.01)
            assert await says(other, "still there")
            tasks.cancel_scope.cancel()
