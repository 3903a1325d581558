"""Requests that only one replica can serve, passed on to it: they belong to something that runs in its process.

These are the answer to a question of a running call, the cancellation of a call, a stream that a client resumes, a
call that waits for answers (`requestState`), and a task. Their ids begin with the number of the replica. The request is
sent on as it came, with the client's own credentials, so that its replica checks them as for any other. Where that
replica is gone, what ran there is gone too, and the client is told so at once.
"""

import logging
import re
import secrets
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.to_thread
import httpx2
from mcp_types import CONNECTION_CLOSED
from pydantic_core import to_json
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from shortlist.errors import StoreError
from shortlist.front.streams import STREAM_HEADERS, cancel_on_disconnect, encode_event
from shortlist.large import parsed
from shortlist.storage.shared import ReplicaStore

REPLICA_BITS, REQUEST_BITS = 20, 32
"""Of the id of a request to a client: the number of the replica comes first. JavaScript reads 53 bits exactly."""
ANNOUNCE_SECONDS = 3.0
CONNECT_SECONDS = 2.0
FORWARDED = "x-shortlist-forwarded"
"""Marks a request that a replica has passed on; it is never passed on again."""
LAST_EVENT = "last-event-id"
GONE = "The replica that served this call has stopped. The call may have run or not; call again if that is safe."
COOKIE = "shortlist-"
"""Begins the names of the dashboard's cookies."""
PAGE_BYTES = 64 * 1024
"""The largest form of the dashboard that is passed on."""
_PAGE_MARK = re.compile(r"r(?P<replica>\d{1,7})(-|$)")
_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "te", "upgrade", "host", "content-length"})
_TOWARDS_ONE = ("notifications/cancelled", "notifications/progress")
_STANDALONE = "_GET_stream"
"""The SDK's name of the stream that belongs to no request."""
GONE_STATUS, SILENT_STATUS = 410, 504
"""Stand for the answer of a replica whose process has ended, and of one that does not answer in time."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PeerAnswer:
    """What another replica answers."""

    status: int
    body: bytes = b""


class Peers:
    """The other replicas on the same store, and which of them a request must go to."""

    def __init__(self, store: ReplicaStore) -> None:
        self._store = store
        self.number = secrets.randbelow((1 << REPLICA_BITS) - 1) + 1
        self.url = ""
        """Where the others reach this replica, once it has joined them."""
        self.has_joined = anyio.Event()
        self._urls: Mapping[str, str] = {}
        self._http: httpx2.AsyncClient | None = None

    @property
    def urls(self) -> tuple[str, ...]:
        """Return where the other replicas are reached, as far as the store last said."""
        return tuple(self._urls.values())

    @property
    def mark(self) -> str:
        """Begins every id that is only known to this replica."""
        return f"{self.number}-"

    @property
    def page_mark(self) -> str:
        """Begins the links of this replica's dashboard, and is part of the name of its cookie."""
        return f"r{self.number}"

    @property
    def first_request(self) -> int:
        """The number before the id of the first request to a client."""
        return self.number << REQUEST_BITS

    @asynccontextmanager
    async def joined(self, url: str) -> AsyncIterator[None]:
        """Let the others find this replica at an address until this ends."""
        self.url = url
        timeout = httpx2.Timeout(None, connect=CONNECT_SECONDS)
        async with httpx2.AsyncClient(timeout=timeout, follow_redirects=False) as self._http:
            self.has_joined.set()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._keep_announcing, url)
                yield
                tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True), suppress(StoreError):
                await anyio.to_thread.run_sync(self._store.leave, str(self.number))

    async def ask(self, where: str, question: bytes, authorization: str, seconds: float) -> PeerAnswer:
        """Return what another replica answers; see GONE_STATUS and SILENT_STATUS for one that does not."""
        try:
            with anyio.fail_after(seconds):
                if self._http is None:
                    return PeerAnswer(SILENT_STATUS)
                headers = {"Authorization": authorization}
                response = await self._http.post(where, content=question, headers=headers)
        except httpx2.ConnectError as error:
            return PeerAnswer(GONE_STATUS if _is_refused(error) else SILENT_STATUS)
        except (httpx2.HTTPError, TimeoutError):
            return PeerAnswer(SILENT_STATUS)
        return PeerAnswer(response.status_code, response.content)

    async def passed_on(self, scope: Scope, receive: Receive, send: Send, body: bytes) -> bool:
        """Pass a request on to the replica that it belongs to; return False where it is to be served here."""
        headers = Headers(scope=scope)
        if self._http is None or FORWARDED in headers:
            return False
        if scope["method"] == "GET":
            return await self._resume(headers, scope, receive, send)
        if not _may_belong_elsewhere(body):
            return False
        message = _parsed(body)
        if message.get("method") in _TOWARDS_ONE:
            await self._tell_others(scope, body)
            return False
        replica = _replica_of(message)
        if replica is None or replica == self.number:
            return False
        url = await self._url(str(replica))
        return url is not None and await self._relay(url, scope, receive, send, body)

    async def page_passed_on(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Pass a request for a page on to the replica where its browser is signed in, or whose link or login it is."""
        visit = HTTPConnection(scope) if scope["type"] == "http" else None
        if self._http is None or visit is None or FORWARDED in visit.headers:
            return False
        given = (visit.query_params.get(name, "") for name in ("state", "key"))
        named = (*given, *(name.removeprefix(COOKIE) for name in visit.cookies))
        owners = [found["replica"] for name in named if (found := _PAGE_MARK.match(name)) is not None]
        if str(self.number) in owners or int(visit.headers.get("content-length", 0)) > PAGE_BYTES:
            return False
        urls = [url for owner in owners if (url := await self._url(owner)) is not None]
        if not urls:
            return False
        body, more = b"", True
        while more and len(body) <= PAGE_BYTES:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        host = (b"host", visit.headers.get("host", "").encode("latin-1"))  # forms are checked against it
        if not await self._relay(urls[0], scope, receive, send, body, host):
            await PlainTextResponse("The gateway where you signed in has stopped. Sign in again.", 503)(
                scope, receive, send
            )
        return True

    async def _resume(self, headers: Headers, scope: Scope, receive: Receive, send: Send) -> bool:
        """Resume a stream where it began; where that replica is gone, end the call that it belonged to."""
        replica, _, rest = headers.get(LAST_EVENT, "").partition("-")
        if not replica.isdecimal() or len(replica) > 7 or int(replica) == self.number or not rest:
            return False
        url = await self._url(replica)
        if url is not None and await self._relay(url, scope, receive, send, b""):
            return True
        stream = rest.partition("-")[2]
        if stream in ("", _STANDALONE):
            scope["headers"] = [(name, value) for name, value in scope["headers"] if name != LAST_EVENT.encode()]
            return False
        number: int | str = int(stream) if stream.isdecimal() and len(stream) < 18 else stream
        error = {"jsonrpc": "2.0", "id": number, "error": {"code": CONNECTION_CLOSED, "message": GONE}}
        await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
        event = encode_event({"event": "message", "data": to_json(error)})
        await send({"type": "http.response.body", "body": event, "more_body": False})
        return True

    async def _tell_others(self, scope: Scope, body: bytes) -> None:
        """Pass a notification on to all others: only the one where the request runs does something about it."""

        async def tell(url: str) -> None:
            if self._http is not None:
                # A replica that hangs must not hold up the client.
                with suppress(httpx2.HTTPError), anyio.move_on_after(CONNECT_SECONDS):
                    await self._http.post(f"{url}{scope['path']}", content=body, headers=_onward(scope))

        async with anyio.create_task_group() as tasks:
            for url in self._urls.values():
                tasks.start_soon(tell, url)

    async def _relay(
        self, url: str, scope: Scope, receive: Receive, send: Send, body: bytes, *more: tuple[bytes, bytes]
    ) -> bool:
        """Relay one exchange; return False where the other replica could not be reached and nothing was sent."""
        if self._http is None:
            return False
        query = f"?{scope['query_string'].decode('latin-1')}" if scope.get("query_string") else ""
        where, headers = f"{url}{scope['path']}{query}", [*_onward(scope), *more]
        asked = self._http.build_request(scope["method"], where, content=body, headers=headers)
        try:
            response = await self._http.send(asked, stream=True)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            return False
        try:
            head = [(n.lower(), v) for n, v in response.headers.raw if n.lower().decode("latin-1") not in _HOP]
            await send({"type": "http.response.start", "status": response.status_code, "headers": head})
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(cancel_on_disconnect, receive, tasks.cancel_scope)
                with suppress(httpx2.HTTPError):  # the other replica stopped; the client sees that its stream ended
                    async for part in response.aiter_raw():
                        await send({"type": "http.response.body", "body": part, "more_body": True})
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await response.aclose()
        return True

    async def _url(self, replica: str) -> str | None:
        if replica not in self._urls:
            await self._look()
        return self._urls.get(replica)

    async def _keep_announcing(self, url: str) -> None:
        is_known = True
        while True:
            try:
                await anyio.to_thread.run_sync(self._store.announce, str(self.number), url)
                await self._look()
                is_known = True
            except StoreError as error:
                if is_known:
                    logger.warning("other replicas cannot find this one: %s", error)
                is_known = False
            await anyio.sleep(ANNOUNCE_SECONDS)

    async def _look(self) -> None:
        with suppress(StoreError):
            self._urls = await anyio.to_thread.run_sync(self._store.others, str(self.number))


def _is_refused(error: BaseException | None) -> bool:
    """Return whether the other machine answered that nothing listens there, so that the process has ended."""
    while error is not None and not isinstance(error, ConnectionRefusedError):
        error = error.__cause__ or error.__context__
    return error is not None


def _may_belong_elsewhere(body: bytes) -> bool:
    """Return whether a message may be one of those; most are calls, and are not parsed for this."""
    if b'"method"' not in body or b'"requestState"' in body or b'"tasks/' in body:
        return True
    return any(method.encode() in body for method in _TOWARDS_ONE)


def _replica_of(message: Mapping[str, Any]) -> int | None:
    """Return the replica that a message belongs to; None where any can serve it."""
    if "method" not in message:
        number = message.get("id")
        replica = number >> REQUEST_BITS if isinstance(number, int) else 0
        return replica or None
    params = message.get("params")
    if not isinstance(params, dict):
        return None
    named = params.get("taskId") if str(message["method"]).startswith("tasks/") else params.get("requestState")
    mark = named.partition("-")[0] if isinstance(named, str) else ""
    return int(mark) if mark.isdecimal() and len(mark) < 8 else None


def _parsed(body: bytes) -> Mapping[str, Any]:
    try:
        message = parsed(body)
    except ValueError:
        return {"method": ""}
    return message if isinstance(message, dict) else {"method": ""}


def _onward(scope: Scope) -> list[tuple[bytes, bytes]]:
    kept: Iterable[tuple[bytes, bytes]] = scope["headers"]
    return [*((n, v) for n, v in kept if n.decode("latin-1") not in _HOP), (FORWARDED.encode(), b"1")]
