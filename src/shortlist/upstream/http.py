"""Servers over HTTP: Streamable HTTP in both eras, and the HTTP+SSE transport of 2024-11-05.

Every request has a POST of its own. What goes wrong with that POST fails that request and no other one. A request
is repeated only where it certainly did not reach the server, or where repeating it is harmless: never `tools/call`.
"""

import logging
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import urljoin, urlsplit

import anyio
import anyio.lowlevel
import anyio.to_thread
import httpx2
from anyio.abc import TaskGroup
from mcp.shared._httpx_utils import redirect_location
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types import INTERNAL_ERROR, METHOD_NOT_FOUND
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from shortlist.config.settings import HttpTransport, SseTransport
from shortlist.errors import shortened
from shortlist.large import written
from shortlist.upstream.bodies import ENCODINGS, BodyTooLarge, decoded, read_body, responding
from shortlist.upstream.errors import ConnectionFailed
from shortlist.upstream.events import OnPause
from shortlist.upstream.framing import (
    EventSplitter,
    EventTooLarge,
    Message,
    NotificationTooLarge,
    ServerSentEvent,
    decode,
    decode_beside,
    error_message,
    read_line_beside,
    unreadable,
)
from shortlist.upstream.wire import Deliver

logger = logging.getLogger(__name__)

CONNECT_SECONDS = 15.0
KEEP_ALIVE_SECONDS = 3.0
"""Idle connections are closed before common servers close them (5 s): a request must not meet that moment."""
NOTICE_SECONDS = 10.0
"""How long a notification may take; nothing waits for it."""
RETRY_SECONDS = (0.05, 0.1, 0.2, 0.4)
"""Pauses between attempts of a request that was certainly not received."""
RESUME_ATTEMPTS = 3
RESUME_MILLISECONDS = 1_000
LONGEST_STREAM_PAUSE = 30.0
EVENTS_AT_ONCE = 50
"""After so many events of one server the others get their turn."""
IDLE_BYTES = 64 * 1024
"""After so many bytes of comments and empty lines, which cost time and bring nothing, the server waits."""
FLOOD_PAUSE_SECONDS = 0.02
EVENT_ID_CHARACTERS = 4_096
"""The id of an event goes back in a header; a longer one is ignored."""
ERROR_CHARACTERS = 300
REFUSAL_BYTES = 64 * 1024
"""How much of an error response is read."""
_SESSION_HEADER = "mcp-session-id"
_NEVER_REPEATED = "tools/call"
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
_PASSING = (502, 503, 504)
"""What a proxy answers while the server behind it is gone."""


@dataclass(slots=True)
class HttpNotes:
    """What HTTP responses revealed about the server beside the messages."""

    status: int | None = None
    """Of the last refusal (4xx, 5xx)."""
    challenge: str | None = None
    """The WWW-Authenticate header of a 401, or an empty text where it had none."""
    lost: anyio.Event = field(default_factory=anyio.Event)
    """Set when the server requires credentials, has forgotten the session, or cannot be reached."""

    def see(self, response: httpx2.Response) -> None:
        if response.status_code < 400:
            return
        self.status = response.status_code
        if response.status_code == 401:
            self.challenge = response.headers.get("www-authenticate", "")
            self.lost.set()
        elif response.status_code == 404 and _SESSION_HEADER in response.request.headers:
            self.lost.set()


@dataclass(slots=True)
class _Stream:
    """One response as events: what is needed to ask for the rest of it after it broke off."""

    last_event_id: str | None = None
    retry_milliseconds: int = RESUME_MILLISECONDS
    is_answered: bool = False


class HttpChannel:
    """Streamable HTTP to one endpoint."""

    def __init__(self, url: str, client: httpx2.AsyncClient, tasks: TaskGroup, limit: int, notes: HttpNotes) -> None:
        self._url = url
        self._client = client
        self._tasks = tasks
        self._limit = limit
        self._notes = notes
        self._deliver: Deliver = lambda _: None
        self._session: str | None = None
        self._version: str | None = None
        self._waiting = 0

    async def run(self, deliver: Deliver) -> None:
        """Deliver messages until cancelled; each response has its own stream, so none marks the end of the server."""
        self._deliver = deliver
        await anyio.sleep_forever()

    async def send(self, message: Message, headers: Mapping[str, str], on_pause: OnPause | None = None) -> None:
        """POST a message; return once a request's answer was delivered."""
        method = message.get("method")
        if method == "initialize":
            self._version = None  # the version of an earlier probe does not belong on the handshake
        elif MCP_PROTOCOL_VERSION_HEADER in headers:
            self._version = headers[MCP_PROTOCOL_VERSION_HEADER]
        if method is None or "id" not in message:
            await self._tell(message, headers)
            if method == "notifications/initialized" and self._session:
                self._tasks.start_soon(self._follow_server_stream)
            return
        self._waiting += 1
        try:
            await self._request(message, headers, on_pause)
        except ConnectionFailed as error:
            if isinstance(error, _Unreachable) and self._waiting == 1:
                self._notes.lost.set()  # unreachable, and nobody else is served: connect anew
            raise
        finally:
            self._waiting -= 1

    def post(self, message: Message, headers: Mapping[str, str]) -> None:
        """Send a notification in the background; in the modern era closing the stream has already cancelled."""
        is_cancel = message.get("method") == "notifications/cancelled"
        if not (is_cancel and self._version in MODERN_PROTOCOL_VERSIONS):
            self._tasks.start_soon(self._tell, message, headers)

    async def close(self) -> None:
        """End the session at the server, where there is one."""
        if self._session is None:
            return
        with anyio.move_on_after(NOTICE_SECONDS / 10, shield=True):
            try:
                async with self._open("DELETE", self._headers({})):
                    pass
            except ConnectionFailed as error:
                logger.debug("the session was not ended: %r", error)

    def _headers(self, more: Mapping[str, str]) -> dict[str, str]:
        headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        if self._session:
            headers[_SESSION_HEADER] = self._session
        if self._version:
            headers[MCP_PROTOCOL_VERSION_HEADER] = self._version
        return headers | dict(more)

    async def _tell(self, message: Message, headers: Mapping[str, str]) -> None:
        with anyio.move_on_after(NOTICE_SECONDS):
            try:
                async with self._open("POST", self._headers(headers), await written(message)):
                    pass
            except ConnectionFailed as error:
                logger.debug("a notification was not delivered: %s", error)

    async def _request(self, message: Message, headers: Mapping[str, str], on_pause: OnPause | None) -> None:
        body, pauses = await written(message), iter(RETRY_SECONDS)
        harmless = message["method"] != _NEVER_REPEATED
        while True:
            stream = _Stream()
            try:
                async with self._open("POST", self._headers(headers), body) as response:
                    await self._read(response, message, stream)
                    if stream.is_answered:
                        return
                break
            except ConnectionFailed as error:
                if stream.last_event_id is not None:
                    break
                pause = next(pauses, None)
                if pause is None or not (isinstance(error, _Unreachable) or (error.sent and harmless)):
                    raise
                harmless = harmless and not error.sent  # what may have been received is repeated once
                await anyio.sleep(pause)
        if on_pause is not None:
            await on_pause()
        await self._resume(message, stream)

    async def _read(self, response: httpx2.Response, message: Message, stream: _Stream) -> None:
        refusal = await self._refused(response)
        if refusal is not None:
            self._answer(refusal, message, stream)
            return
        if message["method"] == "initialize":
            self._session = response.headers.get(_SESSION_HEADER) or self._session
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "application/json":
            await self._read_json(response, message, stream)
        elif kind == "text/event-stream":
            await self._read_events(response, message, stream)
            if not stream.is_answered and stream.last_event_id is None:
                raise ConnectionFailed("the stream of its answer ended without the answer")
        else:
            reason = f"it answered with content type {kind[:100]!r} instead of JSON or an event stream"
            self._answer(error_message(None, INTERNAL_ERROR, reason), message, stream)

    async def _read_json(self, response: httpx2.Response, message: Message, stream: _Stream) -> None:
        try:
            answer = await decode_beside(await read_body(response, self._limit))
        except BodyTooLarge as error:
            answer = error_message(None, INTERNAL_ERROR, f"{error} (see limits.message_bytes)")
        except ValueError as error:
            answer = error_message(None, INTERNAL_ERROR, unreadable(error))
        if not _answers(answer, message):
            answer = error_message(None, INTERNAL_ERROR, "its response does not answer this request")
        self._answer(answer, message, stream)

    async def _read_events(self, response: httpx2.Response, message: Message | None, stream: _Stream) -> None:
        try:
            async for event in _events(response, self._limit):
                await self._take(event, message, stream)
                if stream.is_answered:
                    return
        except (BodyTooLarge, EventTooLarge) as error:
            if message is None:
                raise ConnectionFailed(str(error)) from None
            self._answer(error_message(None, INTERNAL_ERROR, str(error)), message, stream)

    async def _take(self, event: ServerSentEvent, message: Message | None, stream: _Stream) -> None:
        if event.id is not None and len(event.id) <= EVENT_ID_CHARACTERS:
            stream.last_event_id = event.id
        if event.retry_milliseconds is not None:
            stream.retry_milliseconds = event.retry_milliseconds
        if not event.data or event.event != "message":
            return
        try:
            received = await decode_beside(event.data)
        except NotificationTooLarge as error:
            logger.debug("dropped %s", error)
            return
        except ValueError as error:
            if message is None:
                return
            received = error_message(None, INTERNAL_ERROR, unreadable(error))
        if message is not None and "method" not in received:
            if _answers(received, message):
                self._answer(received, message, stream)
        else:
            self._deliver(received)

    def _answer(self, answer: Message, message: Message, stream: _Stream) -> None:
        """Deliver the answer of a request, which came in that request's own response."""
        stream.is_answered = True
        self._deliver({**answer, "id": message["id"]})

    async def _refused(self, response: httpx2.Response) -> Message | None:
        """Return the error that an HTTP status stands for; raise where it says nothing about the request."""
        status = response.status_code
        if (location := redirect_location(response)) is not None:
            where = shortened(str(location), ERROR_CHARACTERS)
            reason = f"it redirects to {where}, which is not followed; configure that URL if it is the server"
            return error_message(None, INTERNAL_ERROR, reason)
        if status == 202:
            return error_message(None, INTERNAL_ERROR, "it accepted the request without answering it (HTTP 202)")
        if status < 400:
            return None
        try:
            answer = decode(await read_body(response, REFUSAL_BYTES))
        except (BodyTooLarge, ValueError):
            answer = {}
        if isinstance(answer.get("error"), dict):
            return answer
        if status == 404 and self._session is not None:
            raise ConnectionFailed("it has forgotten the session (HTTP 404)", sent=False)
        if status in (401, *_PASSING):
            raise ConnectionFailed(f"it answered HTTP {status}", sent=status != 401)
        code = METHOD_NOT_FOUND if status == 404 else INTERNAL_ERROR
        return error_message(None, code, f"it answered HTTP {status}")

    async def _resume(self, message: Message | None, stream: _Stream) -> None:
        """Ask for the rest of an answer whose stream ended early, by the id of its last event."""
        failures = 0
        while failures < RESUME_ATTEMPTS:
            await anyio.sleep(min(max(stream.retry_milliseconds / 1000, RETRY_SECONDS[0]), LONGEST_STREAM_PAUSE))
            seen = stream.last_event_id
            try:
                async with self._open("GET", self._headers({"last-event-id": seen or ""})) as response:
                    if response.status_code >= 400:
                        raise ConnectionFailed(f"it answered HTTP {response.status_code}")
                    await self._read_events(response, message, stream)
            except ConnectionFailed as error:
                logger.debug("a stream could not be resumed: %s", error)
                failures += 1
            if stream.is_answered:
                return
            failures = 0 if stream.last_event_id != seen else failures
        raise ConnectionFailed("the stream of its answer ended, and the rest of it could not be read")

    async def _follow_server_stream(self) -> None:
        """Keep the stream of a legacy server open on which it sends what belongs to no request."""
        stream, pause = _Stream(), 1.0
        while not self._notes.lost.is_set():
            more = {"last-event-id": stream.last_event_id} if stream.last_event_id is not None else {}
            try:
                async with self._open("GET", self._headers(more)) as response:
                    if 400 <= response.status_code < 500:
                        return  # a server need not have one
                    if response.status_code < 300:
                        pause = 1.0
                        await self._read_events(response, None, stream)
            except ConnectionFailed as error:
                logger.debug("the server's stream broke off: %s", error)
            await anyio.sleep(max(pause, min(stream.retry_milliseconds / 1000, LONGEST_STREAM_PAUSE)))
            pause = min(pause * 2, LONGEST_STREAM_PAUSE)

    @asynccontextmanager
    async def _open(
        self, method: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> AsyncIterator[httpx2.Response]:
        """Send a request and yield its response; errors of the transport become ConnectionFailed."""
        try:
            async with responding(self._client, method, self._url, headers, body) as response:
                self._notes.see(response)
                yield response
        except _NOT_SENT as error:
            raise _Unreachable(f"it cannot be reached: {_words(error)}", sent=False) from error
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
            raise ConnectionFailed(f"the connection failed: {_words(error)}") from error


@asynccontextmanager
async def open_http(
    transport: HttpTransport, limit: int, notes: HttpNotes, auth: httpx2.Auth | None
) -> AsyncIterator[HttpChannel]:
    """Open Streamable HTTP to an endpoint; nothing is sent before the first message."""
    async with (
        http_client(transport.headers, auth, await trusted()) as client,
        anyio.create_task_group() as tasks,
    ):
        channel = HttpChannel(transport.url, client, tasks, limit, notes)
        try:
            yield channel
        finally:
            await channel.close()
            tasks.cancel_scope.cancel()


class SseChannel:
    """The HTTP+SSE transport: one stream carries every answer, and messages are posted beside it."""

    def __init__(self, client: httpx2.AsyncClient, tasks: TaskGroup, notes: HttpNotes) -> None:
        self._client = client
        self._tasks = tasks
        self._notes = notes
        self._endpoint = ""
        self._events: AsyncIterator[ServerSentEvent] | None = None

    async def find_endpoint(self, url: str, events: AsyncIterator[ServerSentEvent]) -> None:
        """Read where messages are to be posted; it must be on the same origin."""
        self._events = events
        async for event in events:
            if event.event == "endpoint":
                self._endpoint = urljoin(url, event.data.decode("utf-8", "replace"))
                if urlsplit(self._endpoint)[:2] != urlsplit(url)[:2]:
                    raise ConnectionFailed("it names an endpoint of another origin")
                return
        raise ConnectionFailed("the event stream ended before it named its endpoint")

    async def run(self, deliver: Deliver) -> None:
        """Deliver the messages of the stream until it ends."""
        if self._events is None:
            return
        try:
            async for event in self._events:
                is_message = event.event == "message" and event.data
                # One that cannot be read fails the request that it names, and nothing else.
                if is_message and (message := await read_line_beside(event.data)) is not None:
                    deliver(message)
        except (ConnectionFailed, EventTooLarge, BodyTooLarge) as error:
            logger.debug("the event stream ended: %s", error)

    async def send(self, message: Message, headers: Mapping[str, str], on_pause: OnPause | None = None) -> None:  # noqa: ARG002
        """POST a message; its answer comes on the stream."""
        try:
            more = {"content-type": "application/json", **headers}
            async with responding(self._client, "POST", self._endpoint, more, await written(message)) as response:
                self._notes.see(response)
                status = response.status_code
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise ConnectionFailed(
                f"the message was not accepted: {_words(error)}", sent=not isinstance(error, _NOT_SENT)
            ) from error
        if status >= 400:
            raise ConnectionFailed(f"it answered HTTP {status}", sent=False)

    def post(self, message: Message, headers: Mapping[str, str]) -> None:
        self._tasks.start_soon(self._tell, message, headers)

    async def _tell(self, message: Message, headers: Mapping[str, str]) -> None:
        with anyio.move_on_after(NOTICE_SECONDS):
            try:
                await self.send(message, headers)
            except ConnectionFailed as error:
                logger.debug("a notification was not delivered: %s", error)


@asynccontextmanager
async def open_sse(
    transport: SseTransport, limit: int, notes: HttpNotes, auth: httpx2.Auth | None
) -> AsyncIterator[SseChannel]:
    """Open the event stream of an older server and read where its messages go."""
    async with (
        http_client(transport.headers, auth, await trusted()) as client,
        anyio.create_task_group() as tasks,
        responding(client, "GET", transport.url, {"accept": "text/event-stream"}) as response,
    ):
        notes.see(response)
        response.raise_for_status()
        channel = SseChannel(client, tasks, notes)
        await channel.find_endpoint(transport.url, _events(response, limit))
        try:
            yield channel
        finally:
            tasks.cancel_scope.cancel()


async def trusted() -> ssl.SSLContext:
    """Return the certificates that are trusted; reading them takes 80 ms, once and in a thread."""
    return await anyio.to_thread.run_sync(_trusted)


@cache
def _trusted() -> ssl.SSLContext:
    return httpx2.create_ssl_context()


def http_client(
    headers: Any, auth: httpx2.Auth | None = None, verify: ssl.SSLContext | bool = True
) -> httpx2.AsyncClient:
    """Return a client without a read timeout: every request has a deadline of its own, and streams rest for hours."""
    from shortlist.upstream.interim import bounded  # noqa: PLC0415 (httpcore2 takes long to import; stdio needs none)

    client = httpx2.AsyncClient(
        headers={**ENCODINGS, **dict(headers)},
        auth=auth,
        verify=verify,
        timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS, pool=CONNECT_SECONDS),
        limits=httpx2.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=KEEP_ALIVE_SECONDS),
    )
    return bounded(client)


class _Unreachable(ConnectionFailed):
    """No connection to the server could be opened."""


async def _events(response: httpx2.Response, limit: int) -> AsyncIterator[ServerSentEvent]:
    splitter, idle_bytes = EventSplitter(limit), 0
    async for part in decoded(response):
        idle_bytes += len(part)
        for number, event in enumerate(splitter.feed(part), 1):
            idle_bytes = 0
            yield event
            if number % EVENTS_AT_ONCE == 0:
                await anyio.lowlevel.checkpoint()
        if idle_bytes > IDLE_BYTES and splitter.is_idle:
            await anyio.sleep(FLOOD_PAUSE_SECONDS)
            idle_bytes = 0


def _answers(received: Message, message: Message) -> bool:
    """Return whether a message answers a request: it has its id, as a text or a number, or none."""
    return "method" not in received and str(received.get("id", "")) in ("", "None", str(message["id"]))


def _words(error: Exception) -> str:
    return shortened(str(error), ERROR_CHARACTERS) or type(error).__name__  # it may repeat what the server sent
