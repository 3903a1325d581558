"""One fault of a server costs one call: nothing else fails, nothing is done twice, and the server is soon back."""

import json
import socket
import ssl
import threading
from collections.abc import AsyncIterator
from functools import cache
from typing import Any, Literal

import anyio
import anyio.lowlevel
import httpx2
import pytest

from shortlist.config import Limits
from shortlist.errors import UpstreamError
from shortlist.fairness import Allowance
from shortlist.large import LARGE_BYTES
from shortlist.upstream import framing, http
from shortlist.upstream.errors import UpstreamRefused, UpstreamTimeout, UpstreamUnavailable
from shortlist.upstream.events import CallOptions, Notified, StateChanged
from shortlist.upstream.framing import ServerSentEvent
from shortlist.upstream.host import Cadence
from shortlist.upstream.http import HttpNotes, SseChannel
from shortlist.upstream.interim import MOST_INTERIM
from shortlist.upstream.pool import UpstreamPool
from shortlist.upstream.wire import ASKED_PER_SECOND, MAX_ASKED, Deliver, Wire
from tests.upstream.rough_http import HOSTILE, rough_server
from tests.upstream.support import DEADLINE_SECONDS, SMALL, pool_of, script, text_of, web

pytestmark = pytest.mark.anyio
eras = pytest.mark.parametrize("era", ["legacy", "modern"])
Era = Literal["legacy", "modern"]
SHORT = CallOptions(timeout_seconds=0.2)
NEVER_BY_ITSELF = Cadence(first_retry_seconds=600, longest_retry_seconds=600, ping_seconds=600)


@eras
async def test_a_failed_http_answer_fails_its_own_call_alone_and_is_not_repeated(era: Era) -> None:
    async with rough_server(era) as rough, pool_of(web("rough", rough.url)) as (pool, recorder):
        answers: list[str] = []

        async def wait() -> None:
            answers.append(text_of(await pool.call_tool("rough", "wait", {})))

        with anyio.fail_after(DEADLINE_SECONDS):
            async with anyio.create_task_group() as tasks:
                for _ in range(8):
                    tasks.start_soon(wait)
                while rough.waiting < 8:
                    await anyio.sleep(0)
                with pytest.raises(UpstreamUnavailable, match="may have received"):
                    await pool.call_tool("rough", "drop", {})
                rough.release.set()
        assert answers == ["{}"] * 8
        assert rough.received["drop"] == 1
        assert recorder.states("rough") == ["ready"]


async def test_connections_that_the_server_closes_between_calls_cost_no_call() -> None:
    async with rough_server() as rough, pool_of(web("rough", rough.url)) as (pool, _):
        rough.closes_after_answers = True
        for number in range(20):
            assert json.loads(text_of(await pool.call_tool("rough", "echo", {"n": number}))) == {"n": number}
        assert rough.received["echo"] == 20


async def test_a_server_that_does_not_answer_a_cancellation_is_called_all_the_same() -> None:
    async with rough_server("legacy") as rough, pool_of(web("rough", rough.url)) as (pool, _):
        rough.answers_cancelled = False
        with anyio.fail_after(DEADLINE_SECONDS):
            for _ in range(3):
                with pytest.raises(UpstreamTimeout):
                    await pool.call_tool("rough", "hang", {}, options=SHORT)
            assert text_of(await pool.call_tool("rough", "echo", {})) == "{}"


async def test_a_call_does_not_wait_for_the_back_off_of_a_server_that_is_up_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    settings = web("rough", f"http://127.0.0.1:{port}/mcp")
    async with pool_of(settings, cadence=NEVER_BY_ITSELF) as (pool, recorder):
        await recorder.state("rough", "failed")
        async with rough_server(port=port):
            assert text_of(await pool.call_tool("rough", "echo", {})) == "{}"


async def test_a_process_that_died_is_started_by_the_next_call() -> None:
    async with pool_of(script("frail"), cadence=NEVER_BY_ITSELF) as (pool, _):
        for _ in range(2):
            with pytest.raises(UpstreamUnavailable, match="may have received"):
                await pool.call_tool("frail", "die", {})
            assert text_of(await pool.call_tool("frail", "echo", {})) == "{}"


async def test_a_process_that_closes_its_stdin_and_lives_on_is_started_anew() -> None:
    async with pool_of(script("frail")) as (pool, _):
        assert text_of(await pool.call_tool("frail", "deafen", {})) == "deaf"
        with anyio.fail_after(DEADLINE_SECONDS):
            while True:
                try:
                    assert text_of(await pool.call_tool("frail", "echo", {})) == "{}"
                    return
                except UpstreamUnavailable:
                    await anyio.sleep(0.05)


async def test_a_server_that_sends_interim_responses_without_end_fails_its_own_call_alone() -> None:
    async with rough_server() as rough, pool_of(web("rough", rough.url)) as (pool, recorder):
        few = await pool.call_tool("rough", "interim", {"times": MOST_INTERIM})
        assert json.loads(text_of(few)) == {"times": MOST_INTERIM}
        with pytest.raises(UpstreamUnavailable, match="more than 16 interim responses"):
            await pool.call_tool("rough", "interim", {"times": 10_000})
        assert text_of(await pool.call_tool("rough", "echo", {})) == "{}"
        assert recorder.states("rough") == ["ready"]


SECOND = b'{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"of another call"}]}}'
FOLLOWS = {
    "a byte": b"x",
    "an end of line": b"\r\n",
    "bytes without end": b"\x00" * 300_000,
    "an interim response": b"HTTP/1.1 100 Continue\r\n\r\n",
    "half a response": b"HTTP/1.1 200 OK\r\nContent-Le",
    "a second response": b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(SECOND), SECOND),
}


@eras
@pytest.mark.parametrize("follows", FOLLOWS)
async def test_what_a_server_sends_after_a_response_reaches_no_other_call(follows: str, era: Era) -> None:
    async with rough_server(era) as rough, pool_of(web("rough", rough.url)) as (pool, recorder):
        rough.follows = FOLLOWS[follows]
        for number in range(5):
            answer = await pool.call_tool("rough", "echo", {"n": number, "size": "x" * 70_000 * (number % 2)})
            assert json.loads(text_of(answer))["n"] == number
        assert rough.received["echo"] == 5
        assert recorder.states("rough") == ["ready"]


@pytest.mark.parametrize("tool", ["bomb", "shout"])
async def test_the_limit_of_a_message_counts_decoded_bytes_of_any_content_type(tool: str) -> None:
    async with rough_server() as rough, pool_of(web("rough", rough.url), limits=SMALL) as (pool, recorder):
        with pytest.raises(UpstreamRefused, match="over the limit of 1,000,000 bytes"):
            await pool.call_tool("rough", tool, {})
        assert text_of(await pool.call_tool("rough", "echo", {})) == "{}"
        assert recorder.states("rough") == ["ready"]


@pytest.mark.parametrize("fault", HOSTILE)
async def test_a_hostile_response_fails_its_own_call_with_a_reason(fault: str) -> None:
    unanswered = {"comments for ever", "answers that nobody asked for", "chunks of a byte"}
    async with rough_server() as rough, pool_of(web("rough", rough.url), limits=SMALL) as (pool, recorder):
        failed: list[UpstreamError] = []

        async def call() -> None:
            try:
                options = SHORT if fault in unanswered else CallOptions()
                await pool.call_tool("rough", fault, {}, options=options)
            except UpstreamError as error:
                failed.append(error)

        with anyio.fail_after(DEADLINE_SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                assert text_of(await pool.call_tool("rough", "echo", {})) == "{}"
            assert text_of(await pool.call_tool("rough", "echo", {})) == "{}"
        assert rough.received[fault] == 1
        assert isinstance(failed[0], UpstreamTimeout) == (fault in unanswered)
        assert 10 < len(str(failed[0])) < 1_000
        assert recorder.states("rough") == ["ready"]


async def test_a_proxy_that_answers_for_the_server_is_named() -> None:
    async with rough_server() as rough, pool_of(web("rough", rough.url)) as (pool, _):
        with pytest.raises(UpstreamUnavailable, match="HTTP 503"):
            await pool.call_tool("rough", "unavailable", {})
        with pytest.raises(UpstreamRefused, match="not valid JSON-RPC"):
            await pool.call_tool("rough", "wrong", {})


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_answer_of_another_request_is_given_to_nobody(era: Era) -> None:
    async with rough_server(era) as rough, pool_of(web("rough", rough.url)) as (pool, _):
        for tool in ("mixed up", "backwards"):
            with pytest.raises(UpstreamRefused, match="does not answer this request"):
                await pool.call_tool("rough", tool, {})
        assert (await pool.call_tool("rough", "mixed up events", {}))["by"] == "itself"


async def _fails(pool: UpstreamPool, tool: str, error: type[Exception], match: str | None = None) -> None:
    with pytest.raises(error, match=match):
        await pool.call_tool("rough", tool, {})


async def test_a_server_that_ceases_to_answer_is_left_alone_until_it_does() -> None:
    async with rough_server() as rough:
        settings = web("rough", rough.url, timeout_seconds=0.1)
        async with pool_of(settings, limits=Limits(breaker_failures=3)) as (pool, recorder):
            rough.hangs = True
            for _ in range(3):
                await _fails(pool, "hang", UpstreamTimeout)
            await _fails(pool, "echo", UpstreamUnavailable, "it is down .*it is tried again in")
            assert (pool.states["rough"], pool.status()["rough"].circuit) == ("down", "open")
            assert rough.received == {"hang": 3}
            rough.hangs = False
            await recorder.until(lambda e: isinstance(e, StateChanged) and e.status.circuit == "half_open")
            assert text_of(await pool.call_tool("rough", "echo", {})) == "{}"
            assert (pool.states["rough"], pool.status()["rough"].circuit) == ("ready", "closed")


async def test_errors_that_a_tool_returns_leave_its_server_in_use() -> None:
    async with (
        rough_server() as rough,
        pool_of(web("rough", rough.url), limits=Limits(breaker_failures=2)) as (pool, _),
    ):
        for _ in range(5):
            assert (await pool.call_tool("rough", "fail", {}))["isError"]
            await _fails(pool, "wrong", UpstreamRefused)
        assert pool.status()["rough"].circuit == "closed"


async def test_an_impatient_caller_does_not_open_the_circuit_for_others() -> None:
    async with (
        rough_server() as rough,
        pool_of(web("rough", rough.url), limits=Limits(breaker_failures=2)) as (pool, _),
    ):
        for _ in range(3):
            with pytest.raises(UpstreamTimeout):
                await pool.call_tool("rough", "hang", {}, options=SHORT)
        assert text_of(await pool.call_tool("rough", "echo", {})) == "{}"


async def test_a_storm_of_log_messages_is_cut_to_the_allowance_and_counted() -> None:
    async with pool_of(script("loud", "storm", "5000"), limits=Limits(notifications_per_second=10)) as (pool, recorder):
        assert text_of(await pool.call_tool("loud", "echo", {})) == "{}"
        passed = sum(isinstance(event, Notified) for event in recorder.events)
        assert 0 < passed < 1_000
        assert pool.status()["loud"].dropped == 5_000 - passed


def test_an_allowance_fills_up_again_with_time() -> None:
    now = [0.0]
    allowance = Allowance(per_second=2, clock=lambda: now[0])
    assert [allowance.spend() for _ in range(22)] == [True] * 20 + [False] * 2
    now[0] = 1.0
    assert [allowance.spend() for _ in range(3)] == [True, True, False]
    assert allowance.dropped == 3


class _Unread:
    """A channel to a server that reads nothing: what is sent to it waits for ever."""

    def __init__(self) -> None:
        self.sending, self.posted = 0, 0

    async def run(self, deliver: Deliver) -> None:
        for number in range(5_000):
            deliver({"jsonrpc": "2.0", "id": number, "method": "ping"})
            await anyio.lowlevel.checkpoint()

    async def send(self, *_: Any) -> None:
        self.sending += 1
        await anyio.sleep_forever()

    def post(self, *_: Any) -> None:
        self.posted += 1

    async def asked(self, *_: Any) -> dict[str, Any]:
        return {}

    def notified(self, *_: Any) -> None:
        """Nobody listens."""


async def test_requests_of_a_server_that_reads_no_answers_do_not_pile_up() -> None:
    channel = _Unread()
    async with anyio.create_task_group() as tasks:
        await tasks.start(Wire(channel, channel, {}).run)
    assert channel.sending == MAX_ASKED
    assert channel.posted < 1_000


class _Reading(_Unread):
    """A channel to a server that reads every answer, and asks without end."""

    async def send(self, *_: Any) -> None:
        self.sending += 1


async def test_a_server_that_asks_without_end_is_answered_at_a_bearable_pace() -> None:
    channel = _Reading()
    async with anyio.create_task_group() as tasks:
        await tasks.start(Wire(channel, channel, {}).run)
    assert ASKED_PER_SECOND <= channel.sending < 2_500
    assert channel.posted < 1_000


class _Loose(_Unread):
    """A channel to a server that writes the id of a request in its own way."""

    def __init__(self, written: Any) -> None:
        super().__init__()
        self._written = written
        self._sent = anyio.Event()

    async def run(self, deliver: Deliver) -> None:
        await self._sent.wait()
        deliver({"jsonrpc": "2.0", "id": self._written, "result": {"by": "itself"}})
        await anyio.sleep_forever()

    async def send(self, *_: Any) -> None:
        self._sent.set()


@pytest.mark.parametrize("written", [1, "1", 1.0])
async def test_an_answer_is_recognised_whether_its_id_is_a_number_a_text_or_a_fraction(written: Any) -> None:
    channel = _Loose(written)
    async with anyio.create_task_group() as tasks:
        wire = Wire(channel, channel, {})
        await tasks.start(wire.run)
        with anyio.fail_after(DEADLINE_SECONDS):
            assert await wire.send("ping", {}) == {"by": "itself"}
        tasks.cancel_scope.cancel()


async def test_an_event_that_is_no_message_does_not_end_the_stream_of_the_others() -> None:
    async def events() -> AsyncIterator[ServerSentEvent]:
        for data in (b"garbage", b"[1]", b'{"jsonrpc": "2.0", "id": 7, "result": {}', b'{"jsonrpc": "2.0", "id": 8}'):
            yield ServerSentEvent(data=data)

    received: list[Any] = []
    async with anyio.create_task_group() as tasks, httpx2.AsyncClient() as client:
        channel = SseChannel(client, tasks, HttpNotes())
        channel._events = events()
        await channel.run(received.append)
    assert [message["id"] for message in received] == [7, 8]
    assert "not valid" in received[0]["error"]["message"]


async def test_trusted_certificates_are_read_once_and_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    @cache
    def noted() -> ssl.SSLContext:
        threads.append(threading.current_thread())
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    monkeypatch.setattr(http, "_trusted", noted)
    monkeypatch.setattr(ssl, "create_default_context", None)  # which a client calls that is given no certificates

    for _ in range(2):
        async with rough_server() as rough, pool_of(web("rough", rough.url)) as (pool, _):
            assert text_of(await pool.call_tool("rough", "echo", {})) == "{}"
    assert len(threads) == 1
    assert threading.main_thread() not in threads


@eras
async def test_a_call_ends_in_its_time_though_its_answer_is_still_being_parsed(
    era: Era, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()

    def slow(data: bytes, *_: Any) -> Any:
        assert goes_on.wait(DEADLINE_SECONDS)
        return json.loads(data)

    async with rough_server(era) as rough, pool_of(web("rough", rough.url)) as (pool, _):
        monkeypatch.setattr(framing, "read_json", slow)
        try:
            with anyio.fail_after(DEADLINE_SECONDS / 2), pytest.raises(UpstreamTimeout, match="did not answer within"):
                await pool.call_tool("rough", "echo", {"text": "x" * LARGE_BYTES}, options=SHORT)
        finally:
            goes_on.set()
