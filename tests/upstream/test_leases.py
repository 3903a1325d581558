"""Two gateways that share servers over stdio: one runs the process, the other reaches it through the first."""

import json
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import anyio
import httpx2
import pytest
import uvicorn
from starlette.applications import Starlette

from shortlist.config import ServerSettings
from shortlist.errors import StoreError
from shortlist.front import leases as renewing
from shortlist.front import peers as peering
from shortlist.front.leases import HELD_PATH, RENEW_PATH, SharedLeases
from shortlist.front.lending import Lending
from shortlist.front.peers import Peers
from shortlist.storage.shared import LEASE_SECONDS, Holder, LeaseStore, SharedStores
from shortlist.upstream.errors import UpstreamNotSent, UpstreamRefused, UpstreamUnavailable
from shortlist.upstream.events import CallOptions, Notified
from shortlist.upstream.leases import ATTACH_PATH
from shortlist.upstream.pool import UpstreamPool
from tests.upstream.support import DEADLINE_SECONDS, Recorder, pool_of, script
from tests.upstream.test_pool import Person

pytestmark = pytest.mark.anyio
OLD, MODERN = script("old", "watchable"), script("modern", "stdio", file="modern.py")
ASKING = script("asking", file="../storage/asking_server.py")


@dataclass(slots=True)
class MemoryLeases:
    """Leases that expire when a test says so."""

    holders: dict[str, Holder] = field(default_factory=dict)

    replicas: dict[str, str] = field(default_factory=dict)

    def expire(self) -> None:
        self.holders = {key: replace(holder, is_expired=True) for key, holder in self.holders.items()}

    def take(self, key: str, replica: str, url: str, over: str = "") -> Holder:
        found = self.holders.get(key)
        if found is None or found.replica == replica or (found.is_expired and found.replica == over):
            self.holders[key] = Holder(replica, url)
        return self.holders[key]

    def renew(self, replica: str, keys: Sequence[str]) -> dict[str, Holder]:
        for key in keys:
            if key in self.holders and self.holders[key].replica == replica:
                self.holders[key] = replace(self.holders[key], is_expired=False)
        return {key: self.holders[key] for key in keys if key in self.holders}

    def release(self, key: str, replica: str) -> None:
        if key in self.holders and self.holders[key].replica == replica:
            del self.holders[key]

    def announce(self, replica: str, url: str) -> None:
        self.replicas[replica] = url

    def others(self, replica: str) -> dict[str, str]:
        return {other: url for other, url in self.replicas.items() if other != replica}

    def leave(self, replica: str) -> None:
        del self.replicas[replica]


@dataclass(slots=True)
class Reach:
    """The store as one gateway reaches it."""

    store: MemoryLeases
    is_away: bool = False
    failures: int = 0
    renewed_for: Counter[str] = field(default_factory=Counter)

    def take(self, key: str, replica: str, url: str, over: str = "") -> Holder:
        self._check()
        return self.store.take(key, replica, url, over)

    def renew(self, replica: str, keys: Sequence[str]) -> dict[str, Holder]:
        self._check()
        self.renewed_for[replica] += 1
        return self.store.renew(replica, keys)

    def release(self, key: str, replica: str) -> None:
        self._check()
        self.store.release(key, replica)

    def _check(self) -> None:
        if self.is_away:
            self.failures += 1
            raise StoreError("the store is away")


@dataclass(slots=True)
class SharingGateway:
    """A pool whose servers another one can use."""

    pool: UpstreamPool
    recorder: Recorder
    peers: Peers
    reach: Reach
    is_closing: bool = False

    async def process(self) -> str:
        return text_of(await self.pool.call_tool("asking", "who", {}))

    @property
    def has_come_back(self) -> bool:
        states = self.recorder.states("asking")
        return "stale" in states and states[-1] == "ready"

    async def seen(self) -> dict[str, Any]:
        return cast("dict[str, Any]", json.loads(text_of(await self.pool.call_tool("old", "seen", {}))))


def text_of(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


def stores_with(leases: LeaseStore) -> SharedStores:
    return SharedStores(
        sessions=cast("Any", None),
        replicas=cast("Any", None),
        leases=leases,
        grants=cast("Any", None),
        changes=cast("Any", None),
        key=lambda _: b"k" * 32,
        spooled=lambda _: 0,
    )


@asynccontextmanager
async def gateway(
    store: MemoryLeases, *servers: ServerSettings, clock: Callable[[], float] = time.monotonic, **more: Any
) -> AsyncIterator[SharingGateway]:
    """Run a gateway that takes leases, and lends its servers over HTTP."""
    reach, peers = Reach(store), Peers(store)
    leases = SharedLeases(stores_with(reach), peers, clock)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        async with peers.joined(url), leases.renewed(), pool_of(*servers, leases=leases, **more) as (pool, recorder):
            running = SharingGateway(pool, recorder, peers, reach)

            @contextmanager
            def admitted() -> Any:
                yield not running.is_closing

            app = Starlette(routes=Lending(pool, leases, admitted).routes())
            server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="critical"))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(server._serve, [listening])
                try:
                    yield running
                finally:
                    server.should_exit = server.force_exit = True


@asynccontextmanager
async def pair(*servers: ServerSettings, **more: Any) -> AsyncIterator[tuple[SharingGateway, SharingGateway]]:
    """Run two gateways; the first runs the servers."""
    store = MemoryLeases()
    async with gateway(store, *servers, **more) as one, gateway(store, *servers, **more) as two:
        yield one, two


@asynccontextmanager
async def knowing_pair(
    monkeypatch: pytest.MonkeyPatch, clock: Callable[[], float] = time.monotonic
) -> AsyncIterator[tuple[MemoryLeases, SharingGateway, SharingGateway]]:
    """Run two gateways that renew often and know each other; the first has the given clock, and runs the server."""
    monkeypatch.setattr(renewing, "RENEW_SECONDS", 0.02)
    monkeypatch.setattr(peering, "ANNOUNCE_SECONDS", 0.02)
    store = MemoryLeases()
    async with gateway(store, ASKING, clock=clock) as one, gateway(store, ASKING) as two:
        await until(lambda: one.peers.urls == (two.peers.url,) and two.peers.urls == (one.peers.url,))
        yield store, one, two


@contextmanager
def silent() -> Iterator[str]:
    """Yield the address of a gateway that hangs: it accepts connections, and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        while not condition():
            await anyio.sleep(0.005)


async def test_a_server_runs_once_and_both_gateways_use_it() -> None:
    async with pair(OLD) as (one, two):
        assert one.recorder.tools("old")[0].tools == two.recorder.tools("old")[0].tools
        await one.pool.call_tool("old", "echo", {})
        await two.pool.call_tool("old", "echo", {})
        assert (await one.seen())["calls"] == 3
        assert (await two.seen())["calls"] == 4
        with pytest.raises(UpstreamRefused, match="no such luck"):
            await two.pool.call_tool("old", "refuse", {})


async def test_progress_and_questions_reach_the_gateway_of_the_caller() -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    person = Person()
    async with pair(OLD, client=person) as (_, two):
        await two.pool.call_tool("old", "slow", {}, options=CallOptions(on_progress=on_progress))
        await until(lambda: heard == [(1.0, 2.0, "half")])
        answered = await two.pool.call_tool("old", "ask", {}, options=CallOptions(caller="alice"))
        assert json.loads(text_of(answered))["action"] == "accept"
        assert person.asked[0][3] == ("alice",)


async def test_a_call_that_is_cancelled_is_cancelled_at_the_server(tmp_path: Path) -> None:
    file = tmp_path / "never"
    async with pair(ASKING) as (_, two), anyio.create_task_group() as tasks:
        tasks.start_soon(two.pool.call_tool, "asking", "wait", {"file": str(file)})
        await until(Path(f"{file}.calls").exists)
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await until(Path(f"{file}.cancelled").exists)


async def test_a_modern_server_is_modern_through_another_gateway_and_announces_its_changes() -> None:
    async with pair(MODERN) as (one, two):
        assert two.pool.status()["modern"].era == "modern"
        first = await two.pool.call_tool("modern", "confirm", {"text": "x"})
        assert first["resultType"] == "input_required"
        await one.pool.call_tool("modern", "grow", {})
        await two.recorder.until(lambda event: any("grown" in tool.name for tool in getattr(event, "tools", ())))
        await two.pool.watch("modern", ["file:///a"])
        heard = two.recorder.events
        with anyio.fail_after(DEADLINE_SECONDS):
            while not any(isinstance(event, Notified) and event.params.get("uri") == "file:///a" for event in heard):
                await one.pool.call_tool("modern", "touch", {"text": "file:///a"})


async def test_the_other_gateway_starts_the_server_when_the_first_one_leaves() -> None:
    store, runs, leaves = MemoryLeases(), anyio.Event(), anyio.Event()

    async def first() -> None:
        async with gateway(store, OLD):
            runs.set()
            await leaves.wait()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first)
        await runs.wait()
        async with gateway(store, OLD) as two:
            await two.pool.call_tool("old", "echo", {})
            leaves.set()
            await until(lambda: [each.replica for each in store.holders.values()] == [str(two.peers.number)])
            assert (await two.seen())["calls"] == 1


async def test_a_gateway_that_lost_its_lease_ends_its_process_and_a_running_call_fails_with_a_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(renewing, "RENEW_SECONDS", 0.02)
    store, file = MemoryLeases(), tmp_path / "never"
    async with gateway(store, ASKING) as one, gateway(store, ASKING) as two:
        before = await one.process()
        assert await two.process() == before

        async def wait() -> None:
            with pytest.raises(UpstreamUnavailable, match="may have received the request"):
                await two.pool.call_tool("asking", "wait", {"file": str(file)})

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await until(Path(f"{file}.calls").exists)
            key = next(iter(store.holders))
            store.holders[key] = Holder(str(two.peers.number), two.peers.url)
        await until(lambda: all(each.has_come_back for each in (one, two)))
        after = await two.process()
        assert after != before
        assert await one.process() == after
        assert Path(f"{file}.calls").read_text() == "called\n"


async def test_a_gateway_that_was_stopped_and_goes_on_sends_nothing_to_a_server_that_another_one_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(renewing, "RENEW_SECONDS", 3_600.0)
    store, stopped = MemoryLeases(), [0.0]
    async with (
        gateway(store, ASKING, clock=lambda: time.monotonic() + stopped[0]) as one,
        gateway(store, ASKING) as two,
    ):
        before = await one.process()
        assert await two.process() == before
        key = next(iter(store.holders))
        store.holders[key] = Holder(str(two.peers.number), two.peers.url)
        stopped[0] = LEASE_SECONDS + 1
        with suppress(UpstreamNotSent):  # where the new connection is not there yet
            assert await one.process() != before
        await until(lambda: all(each.has_come_back for each in (one, two)))
        after = await one.process()
        assert after != before
        assert await two.process() == after


async def test_a_request_to_a_gateway_that_is_stopping_is_not_sent() -> None:
    async with pair(OLD) as (one, two):
        one.is_closing = True
        with pytest.raises(UpstreamUnavailable, match="was not sent"):
            await two.pool.call_tool("old", "echo", {})
        assert (await one.seen())["calls"] == 1


@pytest.mark.parametrize("authorization", ["", "Bearer nonsense", f"Bearer {(b'x' * 32).hex()}"])
async def test_only_gateways_on_the_same_store_reach_a_server_or_ask_about_its_lease(authorization: str) -> None:
    store = MemoryLeases()
    async with gateway(store, OLD) as one, httpx2.AsyncClient() as client:
        headers = {"Authorization": authorization} if authorization else {}
        (key,) = store.holders
        for path, body in (
            (ATTACH_PATH, b"{}\n"),
            (RENEW_PATH, json.dumps({"replica": str(one.peers.number), "keys": [key]}).encode()),
            (HELD_PATH, key.encode()),
        ):
            answer = await client.post(f"{one.peers.url}{path}", content=body, headers=headers)
            assert answer.status_code == 404


async def test_a_server_goes_on_while_no_gateway_reaches_the_store_and_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with knowing_pair(monkeypatch) as (store, one, two):
        before = await one.process()
        one.reach.is_away = two.reach.is_away = True
        store.expire()
        await until(lambda: min(one.reach.failures, two.reach.failures) >= 3)
        assert await one.process() == await two.process() == before
        two.reach.is_away = False  # the one that does not run the server is the first to reach the store again
        renewed = two.reach.renewed_for
        await until(lambda: renewed[str(two.peers.number)] >= 3 and renewed[str(one.peers.number)] >= 1)
        one.reach.is_away = False
        assert await one.process() == await two.process() == before
        assert [holder.replica for holder in store.holders.values()] == [str(one.peers.number)]


async def test_a_gateway_that_is_cut_off_from_the_store_keeps_its_lease_through_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with knowing_pair(monkeypatch) as (store, one, two):
        before = await two.process()
        one.reach.is_away = True
        store.expire()
        await until(lambda: two.reach.renewed_for[str(one.peers.number)] >= 2)
        await until(lambda: not any(holder.is_expired for holder in store.holders.values()))
        assert await one.process() == await two.process() == before
        key = next(iter(store.holders))
        store.holders[key] = Holder(str(two.peers.number), two.peers.url)  # and learns through it that it lost it
        await until(lambda: "stale" in one.recorder.states("asking"))
        one.reach.is_away = False
        await until(lambda: all(each.has_come_back for each in (one, two)))
        assert await two.process() != before


async def test_a_gateway_that_reaches_neither_the_store_nor_the_others_ends_its_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0.0]
    with silent() as url:
        async with knowing_pair(monkeypatch, lambda: time.monotonic() + clock[0]) as (store, one, two):
            before = await one.process()
            store.replicas["silent"] = url
            await until(lambda: url in one.peers.urls)
            one.reach.is_away = two.reach.is_away = True
            clock[0] = LEASE_SECONDS
            await until(lambda: "stale" in one.recorder.states("asking"))
            del store.replicas["silent"]
            one.reach.is_away = two.reach.is_away = False
            await until(lambda: all(each.has_come_back for each in (one, two)))
            assert await one.process() == await two.process() != before


async def test_an_expired_lease_is_taken_from_a_holder_that_does_not_answer_once_it_had_time_to_renew_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(renewing, "HOLDER_SECONDS", 0.05)
    clock, store = [0.0], MemoryLeases()
    leases = SharedLeases(stores_with(store), peers := Peers(store), lambda: clock[0])
    with silent() as url:
        async with peers.joined("http://127.0.0.1:1"):
            async with leases.taken("box", "recipe") as lease:
                key = lease.key
            store.holders[key] = Holder("other", url, is_expired=True)
            for clock[0] in (0.0, LEASE_SECONDS / 2, LEASE_SECONDS):
                async with leases.taken("box", "recipe") as lease:
                    assert lease.url == url
            clock[0] = LEASE_SECONDS + 1
            async with leases.taken("box", "recipe") as lease:
                assert lease.url is None


async def test_an_expired_lease_is_taken_at_once_from_a_holder_that_is_gone() -> None:
    store = MemoryLeases()
    leases = SharedLeases(stores_with(store), peers := Peers(store), lambda: 0.0)
    with silent() as url:
        pass
    async with peers.joined("http://127.0.0.1:1"):
        async with leases.taken("box", "recipe") as lease:
            key = lease.key
        store.holders[key] = Holder("other", url, is_expired=True)
        async with leases.taken("box", "recipe") as lease:
            assert lease.url is None
