"""The servers behind this gateway as an MCP registry: API v0.1, each caller sees those in its reach.

Every entry leads back to the gateway, never to the server itself: commands, addresses and keys of servers stay here.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from shortlist.access.catalog import ScopedCatalog
from shortlist.access.principal import NOBODY, Principal
from shortlist.front.border import Border
from shortlist.front.server import PRINCIPAL
from shortlist.gateway.state import GatewayState
from shortlist.models import Json
from shortlist.text.tokens import one_line

SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
OFFICIAL = "io.modelcontextprotocol.registry/official"
LOCAL_NAMESPACE = "local.shortlist"
DEFAULT_LIMIT, MOST = 30, 100
LONGEST = 100
"""Characters of a title or description that the schema allows."""


def registry_routes(state: GatewayState, border: Border) -> list[Route]:
    """Return the read-only routes of a registry, behind the same tokens as `/mcp`."""
    published = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")

    async def listed(request: Request) -> Response:
        entries = await _entries(state, request, published)
        asked = request.query_params
        limit, cursor = asked.get("limit", str(DEFAULT_LIMIT)), asked.get("cursor", "")
        if not limit.isdecimal() or not 1 <= int(limit) <= MOST:
            return _problem(422, f"limit is {limit!r}; pass a number from 1 to {MOST}")
        words = asked.get("search", "").lower()
        fitting = [name for name in sorted(entries) if words in name.lower() and name > cursor]
        shown = fitting[: int(limit)]
        more = {"nextCursor": shown[-1]} if len(fitting) > len(shown) else {}
        return JSONResponse({"servers": [entries[name] for name in shown], "metadata": {"count": len(shown), **more}})

    async def versions(request: Request) -> Response:
        entry = (await _entries(state, request, published)).get(request.path_params["name"])
        if entry is None:
            return _not_found(request)
        return JSONResponse({"servers": [entry], "metadata": {"count": 1}})

    async def version(request: Request) -> Response:
        entry = (await _entries(state, request, published)).get(request.path_params["name"])
        if entry is None or request.path_params["version"] not in ("latest", entry["server"]["version"]):
            return _not_found(request)
        return JSONResponse(entry)

    return [
        Route("/v0.1/servers", listed, middleware=[border.guard]),
        Route("/v0.1/servers/{name:path}/versions", versions, middleware=[border.guard]),
        Route("/v0.1/servers/{name:path}/versions/{version}", version, middleware=[border.guard]),
    ]


async def _entries(state: GatewayState, request: Request, published: str) -> Mapping[str, dict[str, Any]]:
    principal: Principal = request.scope.get(PRINCIPAL, NOBODY)
    reach = await anyio.to_thread.run_sync(state.reach, principal)
    base = state.settings.oauth.resource or f"{request.url.scheme}://{request.url.netloc}/mcp"
    remote = _remote(base, with_token=not principal.anonymous)
    meta = {"status": "active", "statusChangedAt": published, "publishedAt": published, "updatedAt": published}
    entries: dict[str, dict[str, Any]] = {}
    for server in reach.servers:
        described = _described(state, reach, server, _namespace(base))
        entries[described["name"]] = {
            "server": {**described, "remotes": [remote]},
            "_meta": {OFFICIAL: {**meta, "isLatest": True}},
        }
    return entries


def _described(state: GatewayState, reach: ScopedCatalog, server: str, namespace: str) -> dict[str, Any]:
    known, peer = reach.server(server), state.upstreams.peer(server)
    count = len(reach.members(server))
    said = known.description if known is not None else ""
    title = known.title if known is not None else ""
    version = str(peer.info.get("version") or "") if peer is not None else ""
    return {
        "$schema": SCHEMA,
        "name": f"{namespace}/{re.sub(r'[^a-zA-Z0-9._-]', '-', server)}",
        **({"title": one_line(title, LONGEST)} if title else {}),
        "description": one_line(said, LONGEST) or f"{count} tool{'' if count == 1 else 's'}",
        "version": version if re.fullmatch(r"[\w.+-]{1,100}", version) and version != "latest" else "0",
    }


def _remote(url: str, *, with_token: bool) -> dict[str, Json]:
    token = {"description": "A token of this gateway", "isRequired": True, "isSecret": True}
    header = {"name": "Authorization", "value": "Bearer {token}", "isSecret": True, "variables": {"token": token}}
    return {"type": "streamable-http", "url": url, **({"headers": [header]} if with_token else {})}


def _namespace(url: str) -> str:
    """Return the reverse-DNS namespace of this gateway's address."""
    host = urlsplit(url).hostname or ""
    try:
        ip_address(host)
    except ValueError:
        return ".".join(reversed(host.split("."))) if "." in host else LOCAL_NAMESPACE
    return LOCAL_NAMESPACE


def _not_found(request: Request) -> Response:
    return _problem(404, f"No server {request.path_params['name']!r} in that version")


def _problem(status: int, detail: str) -> Response:
    title = {404: "Not Found", 422: "Unprocessable Entity"}[status]
    body = {"title": title, "status": status, "detail": detail}
    return JSONResponse(body, status, media_type="application/problem+json")
