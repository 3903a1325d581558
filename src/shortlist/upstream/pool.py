"""All upstream servers together, each supervised on its own."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from shortlist.config.settings import EMPTY, Limits, ServerSettings
from shortlist.models import Json
from shortlist.upstream.events import CallOptions, Client, OnEvent, UpstreamStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded:
    """What a new configuration changed; servers named nowhere were left running untouched."""

    started: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()
    restarted: tuple[str, ...] = ()


class UpstreamPool:
    """An async context manager; entering starts every server in parallel and waits for none.

    Events arrive synchronously on the event loop, in order per server; `on_event` must not block.
    """

    def __init__(
        self,
        servers: Mapping[str, ServerSettings],
        *,
        on_event: OnEvent,
        client: Client | None = None,
        limits: Limits = Limits(),
        log_directory: str | None = None,
    ) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def status(self) -> Mapping[str, UpstreamStatus]:
        """Give every server's state, in configuration order."""
        raise NotImplementedError

    async def call_tool(
        self,
        server: str,
        name: str,
        arguments: Mapping[str, Json],
        *,
        options: CallOptions = CallOptions(),
    ) -> dict[str, Json]:
        """Call a tool by the server's own name for it; the raw `tools/call` result comes back untouched.

        Raises UpstreamRefused (a JSON-RPC error, to relay), UpstreamTimeout, UpstreamUnavailable.
        A modern server may answer `resultType: input_required`; retry it through `request` with
        `inputResponses` and `requestState` in the params.
        """
        raise NotImplementedError

    async def request(
        self,
        server: str,
        method: str,
        params: Mapping[str, Json] = EMPTY,
        *,
        options: CallOptions = CallOptions(),
    ) -> dict[str, Json]:
        """Send any other request (prompts/get, resources/read, completion/complete, …) and relay its result.

        While the server is connecting this waits, at most the request's timeout.
        """
        raise NotImplementedError

    async def notify(self, server: str, method: str, params: Mapping[str, Json] = EMPTY) -> None:
        """Send a notification (notifications/roots/list_changed); dropped when the server is not connected."""
        raise NotImplementedError

    async def refresh(self, server: str) -> None:
        """List a server's tools again now, and reconnect one that is `failed` or `needs_auth` at once."""
        raise NotImplementedError

    async def reload(self, servers: Mapping[str, ServerSettings]) -> Reloaded:
        """Start, stop and restart only what differs from the running configuration."""
        raise NotImplementedError

    async def settled(self, seconds: float) -> None:
        """Wait until no server is in its first attempt to connect, or the time is over."""
        raise NotImplementedError
