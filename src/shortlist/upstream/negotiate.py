"""Finds out which protocol era a server speaks, once, when it connects.

Only positive evidence makes a server modern; every refusal of `server/discover` falls back to `initialize`.
"""

from collections.abc import Mapping

import anyio
from mcp import MCPError
from mcp_types import SERVER_INFO_META_KEY, UNSUPPORTED_PROTOCOL_VERSION
from mcp_types.version import (
    HANDSHAKE_PROTOCOL_VERSIONS,
    LATEST_HANDSHAKE_VERSION,
    LATEST_MODERN_VERSION,
    MODERN_PROTOCOL_VERSIONS,
)

from shortlist.models import Json
from shortlist.upstream.errors import ClosedByProbe, ConnectionFailed
from shortlist.upstream.events import Peer
from shortlist.upstream.wire import Wire, client_info

DISCOVER_SECONDS = 8.0
"""A legacy server that ignores unknown requests must not use up the whole start time."""


class NoCommonVersion(Exception):
    """The server speaks only protocol versions that this client does not."""

    def __init__(self, offered: object) -> None:
        super().__init__(
            f"it speaks protocol {offered!r}, while this gateway speaks {HANDSHAKE_PROTOCOL_VERSIONS!r} "
            f"and {MODERN_PROTOCOL_VERSIONS!r}; update the server"
        )


async def negotiate(wire: Wire, *, probe: bool = True) -> Peer:
    """Agree on a version and tell the wire to speak it; `probe=False` goes straight to the handshake."""
    peer = await _discover(wire, LATEST_MODERN_VERSION) if probe else None
    if peer is not None:
        return peer
    try:
        return await _handshake(wire)
    except MCPError as error:
        # A slow server took the late probe as the opening of a modern connection: it says so here.
        mutual = _mutual(error)
        peer = await _discover(wire, mutual) if mutual else None
        if peer is None:
            raise
        return peer


async def _discover(wire: Wire, version: str) -> Peer | None:
    raw: Mapping[str, Json] | None = None
    with anyio.move_on_after(DISCOVER_SECONDS):
        try:
            raw = await wire.send("server/discover", {"_meta": wire.envelope(version)})
        except ConnectionFailed as error:
            if wire.closed.is_set():
                raise ClosedByProbe from None
            if not error.sent:
                raise
        except MCPError as error:
            mutual = _mutual(error)
            if mutual and mutual != version:
                return await _discover(wire, mutual)
            _refuse_strangers(error)
    return _adopt(wire, raw) if raw is not None else None


def _adopt(wire: Wire, raw: Mapping[str, Json]) -> Peer | None:
    offered = raw.get("supportedVersions")
    mutual = [v for v in MODERN_PROTOCOL_VERSIONS if isinstance(offered, list) and v in offered]
    if not mutual:
        return None
    wire.speak(mutual[-1], "modern")
    meta = _object(raw.get("_meta"))
    return Peer(
        protocol_version=mutual[-1],
        era="modern",
        capabilities=_object(raw.get("capabilities")),
        info=_object(meta.get(SERVER_INFO_META_KEY)),
        instructions=str(raw.get("instructions") or ""),
    )


async def _handshake(wire: Wire) -> Peer:
    params = {
        "protocolVersion": LATEST_HANDSHAKE_VERSION,
        "capabilities": wire.capabilities,
        "clientInfo": client_info(),
    }
    raw = await wire.send("initialize", params)
    version = raw.get("protocolVersion")
    if version not in HANDSHAKE_PROTOCOL_VERSIONS:
        raise NoCommonVersion(version)
    wire.speak(version, "legacy")
    await wire.notify("notifications/initialized", {})
    return Peer(
        protocol_version=version,
        era="legacy",
        capabilities=_object(raw.get("capabilities")),
        info=_object(raw.get("serverInfo")),
        instructions=str(raw.get("instructions") or ""),
    )


def _supported(error: MCPError) -> list[Json]:
    data = error.data if error.code == UNSUPPORTED_PROTOCOL_VERSION else None
    supported = data.get("supported") if isinstance(data, dict) else None
    return supported if isinstance(supported, list) else []


def _mutual(error: MCPError) -> str | None:
    mutual = [v for v in MODERN_PROTOCOL_VERSIONS if v in _supported(error)]
    return mutual[-1] if mutual else None


def _refuse_strangers(error: MCPError) -> None:
    """Raise for a server that names its versions and shares none of either era."""
    supported = _supported(error)
    if supported and not any(v in HANDSHAKE_PROTOCOL_VERSIONS for v in supported):
        raise NoCommonVersion(supported)


def _object(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}
