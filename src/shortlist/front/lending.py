"""Answers the other gateways on the same store: about leases, and over the servers that this gateway runs."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from dataclasses import asdict

import anyio
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from shortlist.errors import StoreError
from shortlist.front.leases import AWAY_STATUS, HELD_PATH, NOT_HELD_STATUS, RENEW_PATH, SharedLeases
from shortlist.large import written
from shortlist.upstream.framing import LineSplitter, Message, decode_beside
from shortlist.upstream.leases import ATTACH_PATH, Lease, cancel_at_end
from shortlist.upstream.pool import UpstreamPool

FIRST_LINE_SECONDS = 10.0
MOST_BYTES = 64 * 1024 * 1024
"""The largest message of another gateway; its clients' messages are bounded by that gateway."""


class Renewal(BaseModel):
    """Leases of a gateway that does not reach the store itself."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    replica: str
    keys: tuple[str, ...]


class Lending:
    """Lets gateways on the same store use the servers that this one runs, and renew leases through it."""

    def __init__(
        self, pool: UpstreamPool, leases: SharedLeases, admitted: Callable[[], AbstractContextManager[bool]]
    ) -> None:
        self._pool = pool
        self._leases = leases
        self._admitted = admitted

    def routes(self) -> list[Route]:
        return [
            Route(ATTACH_PATH, endpoint=self, methods=["POST"]),
            Route(RENEW_PATH, endpoint=self._renew, methods=["POST"]),
            Route(HELD_PATH, endpoint=self._is_held, methods=["POST"]),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let another gateway use a server, over one request that stays open."""
        if not self._may_ask(Headers(scope=scope)):
            await PlainTextResponse("Not Found", 404)(scope, receive, send)
            return
        lines, wanted = _messages(receive), Message()
        with anyio.move_on_after(FIRST_LINE_SECONDS):
            wanted = await anext(lines, wanted)
        lease = self._leases.held(str(wanted.get("key")))
        if lease is not None:
            await self._serve(str(wanted.get("server")), lease, lines, send)
            return
        await PlainTextResponse("Another gateway runs this server", NOT_HELD_STATUS)(scope, receive, send)

    async def _renew(self, request: Request) -> Response:
        """Renew the leases of another gateway in the store, or say that this one does not reach it either."""
        if not self._may_ask(request.headers):
            return PlainTextResponse("Not Found", 404)
        try:
            asked = Renewal.model_validate_json(await request.body())
            holders = await self._leases.renewed_for(asked.replica, asked.keys)
        except ValidationError:
            return PlainTextResponse("replica and keys are required", 400)
        except StoreError as error:
            return PlainTextResponse(f"This gateway does not reach the store: {error}", AWAY_STATUS)
        return JSONResponse({key: asdict(holder) for key, holder in holders.items()})

    async def _is_held(self, request: Request) -> Response:
        """Answer whether this gateway runs a server, or is about to start it."""
        if not self._may_ask(request.headers):
            return PlainTextResponse("Not Found", 404)
        is_held = self._leases.held((await request.body()).decode("utf-8", "replace")) is not None
        return PlainTextResponse("" if is_held else "This gateway does not run it", 200 if is_held else NOT_HELD_STATUS)

    def _may_ask(self, headers: Headers) -> bool:
        return self._leases.is_valid(headers.get("authorization", ""))

    async def _serve(self, server: str, lease: Lease, lines: AsyncIterator[Message], send: Send) -> None:
        async def write(message: Message) -> None:
            await send({"type": "http.response.body", "body": await written(message) + b"\n", "more_body": True})

        await send({"type": "http.response.start", "status": 200, "headers": []})
        async with self._pool.attached(server, write, self._admitted) as attachment, anyio.create_task_group() as tasks:
            tasks.start_soon(cancel_at_end, lease, tasks.cancel_scope)
            async for message in lines:
                await attachment.take(message)
            tasks.cancel_scope.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _messages(receive: Receive) -> AsyncIterator[Message]:
    """Yield the messages of a request's body until its sender leaves."""
    splitter, event = LineSplitter(MOST_BYTES), await receive()
    while event["type"] == "http.request":
        for line in splitter.feed(event.get("body", b"")):
            if isinstance(line, bytes):
                yield await decode_beside(line)
        if not event.get("more_body"):
            return
        event = await receive()
