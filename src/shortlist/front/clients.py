"""The way back to a client over the SDK's session, with or without one of its requests in flight."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from mcp.server.connection import Connection, allowed_log_levels
from mcp.server.context import ServerRequestContext
from mcp.shared.message import ServerMessageMetadata
from mcp_types import ClientCapabilities, LoggingMessageNotification, ServerRequest
from pydantic import BaseModel, ConfigDict

from shortlist.gateway.workspaces import Caller
from shortlist.models import Json

RequestContext: TypeAlias = ServerRequestContext[Any, Any]

LOG_METHOD = "notifications/message"
_CAPABILITY_OF = {"sampling/createMessage": "sampling", "elicitation/create": "elicitation", "roots/list": "roots"}


class _Asked(BaseModel):
    method: str
    params: dict[str, Any] | None = None


class _Answered(BaseModel):
    model_config = ConfigDict(extra="allow")


def connection_of(context: RequestContext) -> Connection:
    """Return the connection of a request. The SDK has no public way to it; this is the only place that reaches in."""
    connection: Connection = context.session._connection
    return connection


class ClientExchange:
    """The way back to a client, over the SDK's session of its request."""

    def __init__(self, context: RequestContext, caller: Caller) -> None:
        self._session = context.session
        self._request_id = context.request_id
        self._let_go = context.close_sse_stream
        self._log_levels = allowed_log_levels(context.protocol_version, context.meta)
        self._caller = caller

    @property
    def caller(self) -> Caller:
        return self._caller

    def can(self, method: str) -> bool:
        """Return whether the client declared the capability; a modern one answers in its next round trip."""
        reachable = self._caller.era == "modern" or self._session.can_send_request
        return reachable and _declares(self._session.client_capabilities, method)

    async def ask(self, method: str, params: Mapping[str, Json]) -> dict[str, Json]:
        """Send the client a request on the stream of its own request."""
        # The typed helpers would drop what they do not know; these two models carry everything.
        asked = cast("ServerRequest", _Asked(method=method, params=dict(params)))
        related = ServerMessageMetadata(related_request_id=self._request_id)
        answered = await self._session.send_request(asked, _Answered, metadata=related)
        return answered.model_dump(mode="json")

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        await self._session.report_progress(progress, total, message)

    async def pause(self) -> None:
        """End the stream of this request; later messages are kept until the client asks for them."""
        if self._let_go is not None:
            await self._let_go()

    async def log(self, params: Mapping[str, Json]) -> None:
        """Send a log entry on this request's stream; a modern client gets only the levels it asked for.

        Raise ValidationError for an entry that the protocol does not allow.
        """
        entry = LoggingMessageNotification.model_validate({"method": LOG_METHOD, "params": dict(params)})
        if entry.params.level in self._log_levels:
            await self._session.send_notification(entry, related_request_id=self._request_id)


@dataclass(frozen=True, slots=True, eq=False)
class Link:
    """A legacy connection, which can be notified while no request is in flight."""

    connection: Connection
    caller: Caller


class IdleExchange:
    """A legacy client that can be asked while none of its calls is in flight."""

    def __init__(self, link: Link) -> None:
        self._link = link

    @property
    def caller(self) -> Caller:
        return self._link.caller

    def can(self, method: str) -> bool:
        connection = self._link.connection
        return connection.has_standalone_channel and _declares(connection.client_capabilities, method)

    async def ask(self, method: str, params: Mapping[str, Json]) -> dict[str, Json]:
        return await self._link.connection.send_raw_request(method, dict(params) or None)

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Drop it: no request is in flight that it could belong to."""

    async def pause(self) -> None:
        """Do nothing: no request of the client is open."""

    async def log(self, params: Mapping[str, Json]) -> None:
        await self._link.connection.notify(LOG_METHOD, dict(params))


def _declares(capabilities: ClientCapabilities | None, method: str) -> bool:
    capability = _CAPABILITY_OF.get(method)
    return capability is not None and getattr(capabilities, capability, None) is not None
