"""Other gateways that use a server which this gateway runs."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractContextManager
from itertools import count
from typing import Any, Protocol

import anyio
from anyio.abc import TaskGroup
from mcp import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    SERVER_INFO_META_KEY,
    UNSUPPORTED_PROTOCOL_VERSION,
    ErrorData,
)

from shortlist.config.settings import StdioTransport, Transport
from shortlist.errors import UpstreamError
from shortlist.models import Json
from shortlist.upstream.errors import UpstreamNotSent, UpstreamRefused, UpstreamUnavailable
from shortlist.upstream.events import CallOptions, Client, OnProgress, Peer
from shortlist.upstream.framing import Message
from shortlist.upstream.host import Host
from shortlist.upstream.leases import FAILURES

logger = logging.getLogger(__name__)

GRACE_SECONDS = 1.0
"""How much longer than the other gateway this one waits for an answer: that one decides when the time is over."""
NOT_RELAYED = ("notifications/progress", "notifications/cancelled", "notifications/subscriptions/acknowledged")
"""Notifications of a server that concern one request or one connection."""
_OF_THE_CONNECTION = ("notifications/initialized", "notifications/cancelled", "notifications/roots/list_changed")
"""Concern the connection between the two gateways alone."""


class Attachable(Protocol):
    """A server as other gateways use it."""

    async def connected(self) -> Peer: ...

    async def request(self, method: str, params: Mapping[str, Json], options: CallOptions) -> dict[str, Json]: ...

    async def notify(self, method: str, params: Mapping[str, Json]) -> None: ...

    async def watch(self, uris: Iterable[str], watcher: object) -> None: ...


class Attachment:
    """One gateway that uses a server of this one: its requests are relayed, and the server's questions to it."""

    def __init__(
        self,
        server: Attachable,
        send: Callable[[Message], Coroutine[Any, Any, None]],
        tasks: TaskGroup,
        admitted: Callable[[], AbstractContextManager[bool]],
    ) -> None:
        self._server = server
        self._send = send
        self._tasks = tasks
        self._admitted = admitted
        self._running: dict[int | str, anyio.CancelScope] = {}
        self._asked: dict[str, asyncio.Future[dict[str, Json]]] = {}
        self._questions = count(1)
        self._watched: set[str] = set()

    async def take(self, message: Message) -> None:
        """Act on a message of the other gateway, without waiting for what it leads to."""
        method, number = message.get("method"), message.get("id")
        params = message.get("params") or {}
        if method is None:
            self._answered(message)
        elif number is not None:
            self._tasks.start_soon(self._serve, number, method, params, message.get("seconds"))
        elif (
            method == "notifications/cancelled"
            and (scope := self._running.get(params.get("requestId", ""))) is not None
        ):
            scope.cancel()
        elif method not in _OF_THE_CONNECTION:
            await self._server.notify(method, params)

    async def ask(self, method: str, params: Mapping[str, Json]) -> dict[str, Json]:
        """Put a question of the server to the other gateway, whose client it is for."""
        number = f"question-{next(self._questions)}"
        self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            await self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": dict(params)})
            return await self._asked[number]
        finally:
            del self._asked[number]

    def tell(self, method: str, params: Mapping[str, Json]) -> None:
        """Pass a notification of the server on."""
        self._tasks.start_soon(self._send, {"jsonrpc": "2.0", "method": method, "params": dict(params)})

    async def end(self) -> None:
        """Watch nothing any more for the other gateway, and refuse the questions that it has not answered."""
        for waiting in self._asked.values():
            if not waiting.done():
                waiting.set_exception(MCPError(METHOD_NOT_FOUND, "The gateway of the client has stopped"))
        if self._watched:
            await self._server.watch((), self)

    def _answered(self, message: Message) -> None:
        waiting = self._asked.get(str(message.get("id")))
        if waiting is None or waiting.done():
            return
        if "error" in message:
            waiting.set_exception(MCPError.from_error_data(ErrorData.model_validate(message["error"])))
        else:
            waiting.set_result(message.get("result") or {})

    async def _serve(self, number: int | str, method: str, params: Mapping[str, Json], seconds: float | None) -> None:
        answer: Message = {"jsonrpc": "2.0", "id": number}
        with anyio.CancelScope() as scope:
            self._running[number] = scope
            try:
                answer["result"] = await self._answer(method, params, seconds)
            except UpstreamRefused as error:
                answer["error"] = {"code": error.code, "message": error.reason, "data": error.data}
            except MCPError as error:
                answer["error"] = error.error.model_dump(mode="json", exclude_none=True)
            except UpstreamError as error:
                kind = type(error).__name__
                answer |= {"failed": kind if kind in FAILURES else UpstreamUnavailable.__name__, "reason": error.said}
            except Exception:  # our own bug must not end the connection to the other gateway
                logger.exception("a request %r of another gateway could not be relayed", method)
                answer["error"] = {"code": INTERNAL_ERROR, "message": "Internal error"}
            finally:
                del self._running[number]
        if not scope.cancelled_caught:
            await self._send(answer)

    async def _answer(self, method: str, params: Mapping[str, Json], seconds: float | None) -> dict[str, Json]:
        match method:
            case "ping":
                return {}
            case "server/discover":
                return _discovered(await self._server.connected())
            case "initialize":
                return _initialized(await self._server.connected())
            case "resources/subscribe" | "resources/unsubscribe":
                change = self._watched.add if method.endswith("/subscribe") else self._watched.discard
                change(str(params.get("uri")))
                await self._server.watch(self._watched, self)
                return {}
            case "subscriptions/listen":
                self._watched = set(params.get("notifications", {}).get("resourceSubscriptions", ()))
                await self._server.watch(self._watched, self)
                await anyio.sleep_forever()
        return await self._relayed(method, params, seconds)

    async def _relayed(self, method: str, params: Mapping[str, Json], seconds: float | None) -> dict[str, Json]:
        token = (params.get("_meta") or {}).get("progressToken")
        options = CallOptions(
            caller=self,
            on_progress=self._progress(token) if token is not None else None,
            timeout_seconds=seconds + GRACE_SECONDS if seconds is not None else None,
        )
        with self._admitted() as is_admitted:
            if not is_admitted:
                raise UpstreamNotSent("", "the gateway that runs it is stopping; the request was not sent")
            return await self._server.request(method, params, options)

    def _progress(self, token: Json) -> OnProgress:
        async def report(progress: float, total: float | None, message: str | None) -> None:
            params = {"progressToken": token, "progress": progress, "total": total, "message": message}
            told = {key: value for key, value in params.items() if value is not None}
            await self._send({"jsonrpc": "2.0", "method": "notifications/progress", "params": told})

        return report


class Attachments(set[Attachment]):
    """The gateways that use one server of this gateway."""

    def tell(self, method: str, params: Mapping[str, Json]) -> None:
        """Pass a notification of the server on to all of them."""
        if method not in NOT_RELAYED:
            for attachment in self:
                attachment.tell(method, params)


class Watchers(dict[object, frozenset[str]]):
    """The resources of a server that this gateway (None) and the attached ones are subscribed to."""

    def note(self, watcher: object, uris: Iterable[str]) -> None:
        self[watcher] = frozenset(uris)
        if not self[watcher]:
            del self[watcher]

    @property
    def uris(self) -> frozenset[str]:
        return frozenset[str]().union(*self.values())


class LeasedClient:
    """Answers the questions of a server that clients of several gateways use."""

    def __init__(self, inner: Client, attached: Attachments) -> None:
        # The server must not work on the files of one of those clients.
        self.capabilities = {name: value for name, value in inner.capabilities.items() if name != "roots"}
        self._inner = inner
        self._attached = attached

    async def answer(
        self, server: str, method: str, params: Mapping[str, Json], callers: tuple[Any, ...]
    ) -> dict[str, Json]:
        """Ask the gateway whose call is in flight; refuse where calls of several are."""
        using = {caller if isinstance(caller, Attachment) else None for caller in callers}
        if len(using) > 1:
            raise MCPError(
                METHOD_NOT_FOUND,
                f"Clients of several gateways use {server!r}, so it is not clear which {method} is for",
            )
        if method == "roots/list":
            raise MCPError(METHOD_NOT_FOUND, "Method not found", method)
        gateway = using.pop() if using else None
        if gateway is not None:
            return await gateway.ask(method, params)
        return await self._inner.answer(server, method, params, callers)


def leased_client(host: Host, transport: Transport, attached: Attachments) -> Client | None:
    """Return who answers the questions of a server."""
    if host.client is None or host.leases is None or not isinstance(transport, StdioTransport):
        return host.client
    return LeasedClient(host.client, attached)


def _discovered(peer: Peer) -> dict[str, Json]:
    if peer.era != "modern":
        raise MCPError(METHOD_NOT_FOUND, "Method not found")
    return {
        "supportedVersions": [peer.protocol_version],
        "capabilities": dict(peer.capabilities),
        "instructions": peer.instructions,
        "_meta": {SERVER_INFO_META_KEY: dict(peer.info)},
    }


def _initialized(peer: Peer) -> dict[str, Json]:
    if peer.era != "legacy":
        supported = {"supported": [peer.protocol_version]}
        raise MCPError(UNSUPPORTED_PROTOCOL_VERSION, "This server speaks a newer protocol", supported)
    return {
        "protocolVersion": peer.protocol_version,
        "capabilities": dict(peer.capabilities),
        "serverInfo": dict(peer.info),
        "instructions": peer.instructions,
    }
