"""Prompts, resources, completion, logging and subscriptions of all servers, with names and URIs kept apart.

A prompt is `server__prompt` and a resource `shortlist://server/<its own URI>`. Over a single server in
passthrough nothing is renamed. Tool results are relayed untouched, so a URI inside one is its server's own:
the router remembers which server showed it, and finds the others by asking.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import anyio
from mcp import MCPError
from mcp_types import INVALID_PARAMS

from shortlist.catalog.naming import names_of
from shortlist.errors import ShortlistError
from shortlist.gateway.exchange import Exchange, Round
from shortlist.gateway.gateway import Gateway
from shortlist.gateway.uris import SCHEME, from_uri, to_uri
from shortlist.gateway.workspaces import Caller
from shortlist.models import Json
from shortlist.upstream.events import CallOptions, Notified

Result: TypeAlias = dict[str, Any]

LIST_SECONDS = 10.0
"""A server that does not list in time is left out; the others are not kept waiting."""
MAX_PAGES = 50
_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


@dataclass(frozen=True, slots=True)
class Listed:
    """How one kind of thing is listed: the method, the key of its items, and what of an item is renamed."""

    method: str
    key: str
    capability: str
    renamed: str


PROMPTS = Listed("prompts/list", "prompts", "prompts", "name")
RESOURCES = Listed("resources/list", "resources", "resources", "uri")
TEMPLATES = Listed("resources/templates/list", "resourceTemplates", "resources", "uriTemplate")


class Router:
    """Finds the server of a prompt or a resource, and relays."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._prompts: dict[str, tuple[str, str]] = {}
        self._watched: dict[str, dict[str, dict[object, str]]] = {}
        """Server to its URIs to who subscribed, and under what name."""
        self._levels: dict[object, str] = {}

    @property
    def _plain(self) -> str | None:
        """Name the only server whose names and URIs are kept, if that is how it is served."""
        state = self._gateway.state
        return next(iter(state.settings.servers)) if state.snapshot.plain else None

    def servers(self, caller: Caller, capability: str) -> list[str]:
        """Name the connected servers that have a capability and that a caller may use, in configuration order."""
        state = self._gateway.state
        return [
            name
            for name in state.upstreams.states()
            if (peer := state.upstreams.peer(name)) is not None
            and capability in peer.capabilities
            and state.may_use_server(caller, name)
        ]

    async def listing(self, exchange: Exchange, kind: Listed, cursor: str | None) -> Result:
        """List a kind of thing over all servers; a single server's own pages are relayed as they are."""
        if self._plain is not None:
            if self._plain not in self.servers(exchange.caller, kind.capability):
                return {kind.key: []}
            params = {"cursor": cursor} if cursor is not None else {}
            return await self._ask(exchange, self._plain, kind.method, params)
        found: dict[str, list[Any]] = {}
        async with anyio.create_task_group() as tasks:
            for server in self.servers(exchange.caller, kind.capability):
                found[server] = []
                tasks.start_soon(self._collect, exchange, server, kind, found[server])
        return {kind.key: self._renamed(kind, found)}

    async def _collect(self, exchange: Exchange, server: str, kind: Listed, items: list[Any]) -> None:
        with anyio.move_on_after(LIST_SECONDS):
            try:
                pages = _pages(lambda params: self._ask(exchange, server, kind.method, params), kind.key)
                items.extend([item async for item in pages if isinstance(item.get(kind.renamed), str)])
            except (ShortlistError, MCPError):
                return  # one server that fails takes nothing from the others

    def _renamed(self, kind: Listed, found: Mapping[str, list[Any]]) -> list[Any]:
        if kind is not PROMPTS:
            return [
                {**item, kind.renamed: to_uri(server, item[kind.renamed])}
                for server, items in found.items()
                for item in items
            ]
        names = names_of({server: [f"{server}/{item['name']}" for item in items] for server, items in found.items()})
        renamed = []
        for server, items in found.items():
            for item in items:
                shown = names.by_id[f"{server}/{item['name']}"]
                self._prompts[shown] = (server, item["name"])
                renamed.append({**item, "name": shown})
        return renamed

    async def get_prompt(self, exchange: Exchange, params: Mapping[str, Json], turn: Round) -> Result:
        """Relay prompts/get to the server of a prompt."""
        server, own = await self._prompt(exchange, str(params.get("name")))
        return await self._gateway.calling.request(exchange, server, "prompts/get", {**params, "name": own}, turn)

    async def read(self, exchange: Exchange, params: Mapping[str, Json], turn: Round) -> Result:
        """Relay resources/read to the server of a resource; the answer's URIs are shown as they were asked for."""
        asked = str(params.get("uri"))
        server, own = await self._resource(exchange, asked)
        result = await self._gateway.calling.request(exchange, server, "resources/read", {**params, "uri": own}, turn)
        if not asked.startswith(SCHEME) or not isinstance(result.get("contents"), list):
            return result
        return {**result, "contents": [_renamed_content(server, content) for content in result["contents"]]}

    async def complete(self, exchange: Exchange, params: Mapping[str, Json]) -> Result:
        """Relay completion/complete to the server of the prompt or template it is about."""
        reference = dict(params.get("ref") or {})
        if reference.get("type") == "ref/prompt":
            server, reference["name"] = await self._prompt(exchange, str(reference.get("name")))
        else:
            server, reference["uri"] = await self._resource(exchange, str(reference.get("uri")))
        return await self._ask(exchange, server, "completion/complete", {**params, "ref": reference})

    async def set_level(self, exchange: Exchange, holder: object, level: str) -> None:
        """Remember what a session wants to hear, and ask every server for the most talkative of them."""
        self._levels[holder] = level
        wanted = min(self._levels.values(), key=_LEVELS.index)
        for server in self.servers(exchange.caller, "logging"):
            peer = self._gateway.state.upstreams.peer(server)
            if peer is not None and peer.era == "legacy":
                await self._ask(exchange, server, "logging/setLevel", {"level": wanted})

    def level(self, holder: object) -> str | None:
        """Give the log level that a session has set."""
        return self._levels.get(holder)

    def wants(self, holder: object, level: str) -> bool:
        """Say whether a session asked for entries of this level; one that never asked gets all."""
        least = self._levels.get(holder)
        return least is None or level not in _LEVELS or _LEVELS.index(level) >= _LEVELS.index(least)

    def forget(self, holder: object) -> None:
        """Drop what a session that ended had asked for."""
        self._levels.pop(holder, None)
        for server, uris in self._watched.items():
            if any(holder in holders for holders in uris.values()):
                for holders in uris.values():
                    holders.pop(holder, None)
                self._gateway.spawn(lambda server=server: self._watch(server))  # type: ignore[misc]

    async def subscribe(self, exchange: Exchange, holder: object, uris: Iterable[str]) -> None:
        """Ask the servers of these resources for news of them, for one session or stream."""
        for uri in uris:
            server, own = await self._resource(exchange, uri)
            self._watched.setdefault(server, {}).setdefault(own, {})[holder] = uri
            await self._watch(server)

    async def unsubscribe(self, exchange: Exchange, holder: object, uri: str) -> None:
        server, own = await self._resource(exchange, uri)
        self._watched.get(server, {}).get(own, {}).pop(holder, None)
        await self._watch(server)

    def subscribers(self, event: Notified) -> Mapping[object, str]:
        """Give the sessions and streams that subscribed to the resource a server reports on, and their URI for it."""
        return dict(self._watched.get(event.server, {}).get(str(event.params.get("uri")), {}))

    async def _watch(self, server: str) -> None:
        uris = self._watched.get(server, {})
        for uri in [uri for uri, holders in uris.items() if not holders]:
            del uris[uri]
        await self._gateway.state.upstreams.watch(server, tuple(uris))

    async def _prompt(self, exchange: Exchange, name: str) -> tuple[str, str]:
        if self._plain is not None:
            return self._plain, name
        if name not in self._prompts:
            await self.listing(exchange, PROMPTS, None)
        server, own = self._prompts.get(name, ("", ""))
        if not server or not self._gateway.state.may_use_server(exchange.caller, server):
            raise MCPError(INVALID_PARAMS, f"Unknown prompt: {name}")
        return server, own

    async def _resource(self, exchange: Exchange, uri: str) -> tuple[str, str]:
        """Find the server of a URI: by its prefix, by who showed it, or by asking who lists it."""
        if self._plain is not None:
            return self._plain, uri
        able = self.servers(exchange.caller, "resources")
        server, own = from_uri(uri) or (self._gateway.state.uris.server(uri), uri)
        if server is None:
            server = await self._lister(exchange, uri, able)
        if server not in able:
            raise MCPError(INVALID_PARAMS, f"Unknown resource: {uri}", {"uri": uri})
        return server, own

    async def _lister(self, exchange: Exchange, uri: str, servers: Sequence[str]) -> str:
        if len(servers) == 1:
            return servers[0]
        listed = await self.listing(exchange, RESOURCES, None)
        names = {item["uri"]: item for item in listed["resources"]}
        return next((server for server in servers if to_uri(server, uri) in names), "")

    async def _ask(self, exchange: Exchange, server: str, method: str, params: Mapping[str, Json]) -> Result:
        options = CallOptions(caller=exchange)
        return await self._gateway.state.upstreams.request(server, method, params, options=options)


def _renamed_content(server: str, content: Json) -> Json:
    if not isinstance(content, dict) or not isinstance(content.get("uri"), str):
        return content
    return {**content, "uri": to_uri(server, content["uri"])}


async def _pages(ask: Callable[[Mapping[str, Json]], Any], key: str) -> Any:
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await ask({"cursor": cursor} if cursor is not None else {})
        for item in page.get(key) or ():
            if isinstance(item, dict):
                yield item
        cursor = page.get("nextCursor")
        if not isinstance(cursor, str):
            return
