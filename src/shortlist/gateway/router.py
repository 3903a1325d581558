"""Prompts, resources, completion, logging and subscriptions of all servers, with names and URIs kept apart.

A prompt is `server__prompt` and a resource `shortlist://server/<its own URI>`. Over a single server in passthrough
nothing is renamed. Tool results are relayed unchanged, so a URI inside one is its server's own. A URI without a server
belongs to the server that lists it; of several, to the one that showed it to this caller. Where no server lists it, it
belongs to the one that showed it. What two servers claim is refused: none can take over an address by mentioning it. A
caller reaches the prompts and resources of a server only where its scope holds the whole server.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

import anyio
import anyio.to_thread

from shortlist.access.catalog import ScopedCatalog
from shortlist.catalog.naming import names_of
from shortlist.config.settings import Action
from shortlist.errors import RequestRefused, ShortlistError, shortened
from shortlist.gateway.callers import METHOD_NOT_FOUND, Exchange, Round, session_of
from shortlist.gateway.calling import relay, under_policy
from shortlist.gateway.recording import AuditedRequest
from shortlist.gateway.relayed_tasks import METHODS, renamed
from shortlist.gateway.state import GatewayState
from shortlist.gateway.task_handles import RelayedTask
from shortlist.gateway.tools import McpResult
from shortlist.models import Json
from shortlist.text.tokens import clean_text, cleaned, one_line
from shortlist.trust.pins import ItemKind
from shortlist.upstream.errors import UpstreamRefused
from shortlist.upstream.events import CallOptions, Notified
from shortlist.upstream.offers import items_of, offered_items

logger = logging.getLogger(__name__)

SCHEME = "shortlist://"
APP_SCHEME, APPS = "ui://", "ui://shortlist/"
"""Hosts of MCP Apps show only `ui://` resources, so these keep their scheme and get the server in their path."""
FLAT_APP = "ui/resourceUri"
"""Where earlier versions of the extension name a tool's app."""
LIST_SECONDS = 10.0
"""A server that does not list in time is left out."""
MAX_TASKS = 50
"""How many tasks of a caller are asked after for one list."""
MAX_PROMPTS = 20_000
"""How many shown names of prompts are remembered; all are forgotten beyond that, and listed again when asked for."""
MAX_CONNECTIONS = 10_000
"""Of so many connections it is remembered that their lists were compared; all are forgotten beyond that."""
MAX_SUBSCRIPTIONS = 200
"""Resources that one session or stream may be subscribed to: finding the server of each can take a question to all."""
REPORTED_ADDRESSES = 1_024
"""Of so many invalid URIs it is remembered that they were logged."""
_LINES = ("name", "title", "mimeType")
"""Members of an item that a client shows on one line."""
_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


@dataclass(frozen=True, slots=True)
class ListedKind:
    """How one kind of thing is listed: the method, the key of its items, and which member of an item is renamed."""

    method: str
    key: str
    capability: Action
    renamed: str
    pinned: ItemKind


PROMPTS = ListedKind("prompts/list", "prompts", "prompts", "name", "prompt")
RESOURCES = ListedKind("resources/list", "resources", "resources", "uri", "resource")
TEMPLATES = ListedKind("resources/templates/list", "resourceTemplates", "resources", "uriTemplate", "template")


_Connected: TypeAlias = tuple[str, str, str]
"""A server, and the session and login with which a caller uses it: servers may list something else to each."""


class Router:
    """Finds the server of a prompt or a resource within a caller's reach, and relays."""

    def __init__(self, state: GatewayState) -> None:
        self._state = state
        self._prompts: dict[str, tuple[str, str]] = {}
        self._watched: dict[str, dict[str, dict[object, str]]] = {}
        """Server to its URIs to who subscribed, and under what name."""
        self._levels: dict[object, str] = {}
        self._compared: dict[_Connected, dict[ListedKind, set[str]]] = {}
        """Whole lists that were compared with their pins since the server last changed them, and names of prompts."""
        self._comparing: dict[_Connected, anyio.Lock] = {}
        state.on_change(self._forget_lists)

    def _plain(self, exchange: Exchange) -> str | None:
        """Return the only server, where its names and URIs are kept."""
        view = self._state.view_of(exchange.caller)
        return next(iter(view.settings.servers)) if view.plain else None

    def servers(self, tools: ScopedCatalog, capability: str) -> list[str]:
        """Return the connected servers with a capability that are wholly in reach, in configuration order."""
        allowed = capability == "logging" or capability in tools.scope.actions
        return [
            name
            for name in (self._state.upstreams.states if allowed else ())
            if (peer := self._state.upstreams.peer(name)) is not None
            and capability in peer.capabilities
            and tools.has_server(name)
        ]

    async def _reach(self, exchange: Exchange) -> ScopedCatalog:
        return (await self._state.admit(exchange.caller)).tools

    async def listing(self, exchange: Exchange, kind: ListedKind, cursor: str | None) -> McpResult:
        """List a kind of thing over all servers; a single server's own pages are relayed as they are."""
        servers = self.servers(await self._reach(exchange), kind.capability)
        plain = self._plain(exchange)
        if plain is not None:
            if plain not in servers:
                return {kind.key: []}
            params = {"cursor": cursor} if cursor is not None else {}
            page = await self._ask(exchange, plain, kind.method, params)
            listed = await admitted(self._state, plain, kind, _named(kind, items_of(page, kind.key)))
            if kind in (known := self._compared.get(self._connected(exchange, plain), {})):
                known[kind] |= _prompt_names(kind, listed)  # a page may be beyond what is read of a whole list
            return {**page, kind.key: [_shown(item) for item in listed]}
        found: dict[str, list[Any]] = {}
        async with anyio.create_task_group() as tasks:
            for server in servers:
                found[server] = []
                tasks.start_soon(self._collect, exchange, server, kind, found[server])
        return {kind.key: [_shown(item) for item in self._renamed(kind, found)]}

    async def _collect(self, exchange: Exchange, server: str, kind: ListedKind, items: list[Any]) -> None:
        with anyio.move_on_after(LIST_SECONDS):
            with suppress(ShortlistError):  # the items of the other servers are still listed
                items.extend(await self._whole(exchange, server, kind))

    async def _whole(self, exchange: Exchange, server: str, kind: ListedKind) -> list[dict[str, Any]]:
        """Return what a server lists of a kind, without what is held, and note that it was compared."""
        key = self._connected(exchange, server)
        if len(self._compared) > MAX_CONNECTIONS:
            self._compared.clear()
            self._comparing.clear()
        lists = self._compared.setdefault(key, {})
        listed = await admitted(
            self._state, server, kind, await listed_items(partial(self._ask, exchange, server), kind)
        )
        lists[kind] = _prompt_names(kind, listed)  # of no effect where the server announced a change meanwhile
        return listed

    async def _compare(self, exchange: Exchange, server: str, kind: ListedKind) -> frozenset[str]:
        """Have a whole list compared before something of it is used by name; return the names of the prompts in it.

        A server that answers with an error lists nothing. One that does not answer in time is refused: what it offers
        is unknown.
        """
        key = self._connected(exchange, server)
        async with self._comparing.setdefault(key, anyio.Lock()):
            if kind in (known := self._compared.get(key, {})):
                return frozenset(known[kind])
            try:
                with anyio.fail_after(LIST_SECONDS):
                    return frozenset(_prompt_names(kind, await self._whole(exchange, server, kind)))
            except UpstreamRefused:
                return frozenset()
            except TimeoutError:
                why = f"{server} does not list its {kind.key} now, so they cannot be checked. Try again."
                raise RequestRefused(why) from None

    def _connected(self, exchange: Exchange, server: str) -> "_Connected":
        settings = self._state.settings.servers.get(server)
        return (server, *session_of(settings, exchange.caller, self._state.rooted))

    def _forget_lists(self, change: object) -> None:
        """Have lists compared again that a server says have changed, and those of one that connects again."""
        if isinstance(change, Notified) and change.method.endswith("/list_changed"):
            for key in [key for key in self._compared if key[0] == change.server]:
                del self._compared[key]

    def _renamed(self, kind: ListedKind, found: Mapping[str, list[Any]]) -> list[Any]:
        if kind is not PROMPTS:
            return [
                {**item, kind.renamed: to_uri(server, item[kind.renamed])}
                for server, items in found.items()
                for item in items
            ]
        names = names_of({server: [f"{server}/{item['name']}" for item in items] for server, items in found.items()})
        renamed = []
        if len(self._prompts) + len(names.by_id) > MAX_PROMPTS:
            self._prompts.clear()
        for server, items in found.items():
            for item in items:
                shown = names.by_id[f"{server}/{item['name']}"]
                self._prompts[shown] = (server, item["name"])
                renamed.append({**item, "name": shown})
        return renamed

    async def get_prompt(self, exchange: Exchange, params: Mapping[str, Json], turn: Round) -> McpResult:
        """Relay prompts/get to the server of a prompt."""
        server, own = await self._prompt(exchange, str(params.get("name")))
        return await relay(self._state, exchange, server, "prompts/get", {**params, "name": own}, turn)

    async def read(self, exchange: Exchange, params: Mapping[str, Json], turn: Round) -> McpResult:
        """Relay resources/read to the server of a resource; the answer's URIs are shown as they were asked for."""
        asked = str(params.get("uri"))
        server, own = await self._resource(exchange, asked)
        result = await relay(self._state, exchange, server, "resources/read", {**params, "uri": own}, turn)
        if from_uri(asked) is None or not isinstance(result.get("contents"), list):
            return result
        return {**result, "contents": [_renamed_content(server, content) for content in result["contents"]]}

    async def complete(self, exchange: Exchange, params: Mapping[str, Json]) -> McpResult:
        """Relay completion/complete to the server of the prompt or template it is about."""
        reference = dict(params.get("ref") or {})
        if reference.get("type") == "ref/prompt":
            server, reference["name"] = await self._prompt(exchange, str(reference.get("name")))
        else:
            server, reference["uri"] = await self._resource(exchange, str(reference.get("uri")))
        return await self._ask(exchange, server, "completion/complete", {**params, "ref": reference})

    async def task(self, exchange: Exchange, method: str, params: Mapping[str, Json]) -> McpResult:
        """Relay a request about a task to its server, for the caller that started it."""
        if exchange.caller.era not in METHODS[method]:
            raise RequestRefused(f"Method not found: {method}", code=METHOD_NOT_FOUND)
        tools, tasks = await self._reach(exchange), self._state.relayed_tasks
        if method != "tasks/list":
            task = tasks.find(exchange.caller, tools, params.get("taskId"))
            return await self._ask_task(exchange, method, params, task)
        found = []
        for handle, task in list(tasks.of(exchange.caller, tools).items())[:MAX_TASKS]:
            with suppress(ShortlistError):  # the tasks of the other servers are still listed
                found.append(await self._ask_task(exchange, "tasks/get", {"taskId": handle}, task))
        return {"tasks": found}

    async def _ask_task(
        self, exchange: Exchange, method: str, params: Mapping[str, Json], task: RelayedTask
    ) -> McpResult:
        name, sent = task.tool.partition("/")[2], {**params, "taskId": task.own}
        asked = relay(self._state, exchange, task.server, method, sent, Round())
        return renamed(await under_policy(self._state, task.server, name, asked), str(params["taskId"]))

    async def set_level(self, exchange: Exchange, holder: object, level: str) -> None:
        """Remember the log level of a session, and ask every server for the most verbose one of all sessions."""
        self._levels[holder] = level
        wanted = min(self._levels.values(), key=_LEVELS.index)
        for server in self.servers(await self._reach(exchange), "logging"):
            peer = self._state.upstreams.peer(server)
            is_ready = self._state.upstreams.states.get(server) == "ready"
            if peer is not None and peer.era == "legacy" and is_ready:  # it is not worth starting a server
                await self._ask(exchange, server, "logging/setLevel", {"level": wanted})

    def level(self, holder: object) -> str | None:
        """Return the log level that a session has set."""
        return self._levels.get(holder)

    def wants(self, holder: object, level: str) -> bool:
        """Return whether a session asked for entries of this level; one that never asked gets all."""
        least = self._levels.get(holder)
        return least is None or level not in _LEVELS or _LEVELS.index(level) >= _LEVELS.index(least)

    def forget(self, holder: object) -> None:
        """Forget what a session that ended had asked for."""
        self._levels.pop(holder, None)
        for server, uris in self._watched.items():
            if any(holder in holders for holders in uris.values()):
                for holders in uris.values():
                    holders.pop(holder, None)
                self._state.background.spawn(f"unsubscribing at {server!r}", partial(self._watch, server))

    async def subscribe(self, exchange: Exchange, holder: object, uris: Iterable[str]) -> None:
        """Subscribe one session or stream to resources at their servers."""
        for uri in uris:
            if len(self.subscriptions(holder)) >= MAX_SUBSCRIPTIONS:
                raise RequestRefused(f"More than {MAX_SUBSCRIPTIONS} subscriptions. Unsubscribe from a resource first.")
            server, own = await self._resource(exchange, uri)
            self._watched.setdefault(server, {}).setdefault(own, {})[holder] = uri
            await self._watch(server)

    async def unsubscribe(self, exchange: Exchange, holder: object, uri: str) -> None:
        server, own = await self._resource(exchange, uri)
        self._watched.get(server, {}).get(own, {}).pop(holder, None)
        await self._watch(server)

    def subscriptions(self, holder: object) -> list[str]:
        """Return the URIs that a session has subscribed to."""
        watched = (holders for uris in self._watched.values() for holders in uris.values())
        return sorted(holders[holder] for holders in watched if holder in holders)

    def subscribers(self, event: Notified) -> Mapping[object, str]:
        """Return the sessions and streams that subscribed to a resource, each with its URI for it."""
        return dict(self._watched.get(event.server, {}).get(str(event.params.get("uri")), {}))

    async def _watch(self, server: str) -> None:
        uris = self._watched.get(server, {})
        for uri in [uri for uri, holders in uris.items() if not holders]:
            del uris[uri]
        await self._state.upstreams.watch(server, tuple(uris))

    async def _prompt(self, exchange: Exchange, name: str) -> tuple[str, str]:
        """Return the server of a prompt and its own name for it."""
        able = self.servers(await self._reach(exchange), "prompts")
        if (plain := self._plain(exchange)) is not None:
            server, own = plain, name
        else:
            if name not in self._prompts:
                await self.listing(exchange, PROMPTS, None)
            server, own = self._prompts.get(name, ("", ""))
        is_listed = server in able and (
            not self._gated(server) or own in await self._compare(exchange, server, PROMPTS)
        )
        if not is_listed or self._holds(server, PROMPTS, own):
            self._refuse(exchange, "prompts/get", name)
            raise RequestRefused(f"Unknown prompt: {name}")
        return server, own

    async def _resource(self, exchange: Exchange, uri: str) -> tuple[str, str]:
        """Return the server of a URI and its own URI: by the prefix, by who lists it, or by who showed it."""
        able = self.servers(await self._reach(exchange), "resources")
        if (plain := self._plain(exchange)) is not None:
            server, own = plain, uri
        else:
            server, own = from_uri(uri) or (await self._owner(exchange, uri, able), uri)
        if server in able and self._gated(server):
            for kind in (RESOURCES, TEMPLATES):
                await self._compare(exchange, server, kind)
        if server not in able or self._holds(server, RESOURCES, own) or self._holds(server, TEMPLATES, own):
            self._refuse(exchange, "resources/read", uri)
            raise RequestRefused(f"Unknown resource: {uri}", data={"uri": uri})
        return server, own

    def _gated(self, server: str) -> bool:
        settings = self._state.settings.servers.get(server)
        return self._state.seams.items is not None and settings is not None and settings.trust != "auto"

    def _holds(self, server: str, kind: ListedKind, own: str) -> bool:
        gate = self._state.seams.items
        return gate is not None and gate.holds(server, kind.pinned, own)

    def _refuse(self, exchange: Exchange, action: str, name: str) -> None:
        request = AuditedRequest(principal=exchange.caller.principal, action=action, name=name)
        self._state.audit.refused(request, "not in reach")

    async def _owner(self, exchange: Exchange, uri: str, servers: Sequence[str]) -> str:
        """Return the server that a URI without a server belongs to; empty where there is none, or more than one."""
        if len(servers) == 1:
            return servers[0]
        found: dict[str, list[Any] | None] = dict.fromkeys(servers)
        async with anyio.create_task_group() as tasks:
            for server in servers:
                tasks.start_soon(self._own_resources, exchange, server, found)
        listing = [server for server, items in found.items() if items and any(item["uri"] == uri for item in items)]
        shown = [name for name in self._state.uris.servers(exchange.caller.principal.key, uri) if name in servers]
        claimed = [name for name in listing if name in shown] or listing or shown
        silent = sorted(name for name, items in found.items() if items is None and name not in claimed)
        if len(claimed) > 1 or (claimed and silent):
            names = " or ".join(to_uri(name, uri) for name in claimed)
            why = "more than one server has it" if len(claimed) > 1 else f"{silent[0]} does not list its resources now"
            raise RequestRefused(f"{uri} does not name its server, and {why}. Read {names}.", data={"uri": uri})
        return claimed[0] if claimed else ""

    async def _own_resources(self, exchange: Exchange, server: str, found: dict[str, list[Any] | None]) -> None:
        """Note what a server lists; one that answers with an error lists nothing, one that is silent stays unknown."""
        with anyio.move_on_after(LIST_SECONDS):
            try:
                ask = partial(self._ask, exchange, server)
                items = await listed_items(ask, RESOURCES)
                found[server] = await admitted(self._state, server, RESOURCES, items)
            except UpstreamRefused:
                found[server] = []
            except ShortlistError:
                return

    async def _ask(self, exchange: Exchange, server: str, method: str, params: Mapping[str, Json]) -> McpResult:
        session, principal = session_of(self._state.settings.servers.get(server), exchange.caller, self._state.rooted)
        options = CallOptions(caller=exchange, session=session, principal=principal)
        return await self._state.upstreams.request(server, method, params, options=options)


def _renamed_content(server: str, content: Json) -> Json:
    if not isinstance(content, dict) or not isinstance(content.get("uri"), str):
        return content
    return {**content, "uri": to_uri(server, content["uri"])}


def _prompt_names(kind: ListedKind, items: Iterable[Mapping[str, Any]]) -> set[str]:
    return {item["name"] for item in items} if kind is PROMPTS else set()


async def listed_items(ask: Callable[..., Any], kind: ListedKind) -> list[dict[str, Any]]:
    """Return the items of a kind that one server lists and that have a name or URI."""
    return _named(kind, await offered_items(partial(ask, kind.method), kind.key))


def _named(kind: ListedKind, items: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [item for item in items if isinstance(item.get(kind.renamed), str)]


async def admitted(
    state: GatewayState, server: str, kind: ListedKind, items: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the items of a server that have an address and are not held for a review."""
    if kind is not PROMPTS:  # which are renamed
        items = [item for item in items if _is_address(server, kind, item[kind.renamed])]
    gate = state.seams.items
    if gate is None or not items:
        return items
    return [dict(item) for item in await anyio.to_thread.run_sync(gate.admit_items, server, kind.pinned, items)]


def _is_address(server: str, kind: ListedKind, uri: str) -> bool:
    """Return whether a URI can be shown as it is; one that cannot is logged."""
    is_valid = clean_text(uri) == uri and "\n" not in uri and "\t" not in uri
    if not is_valid:
        _report_address(server, kind.key, shortened(uri))
    return is_valid


@lru_cache(maxsize=REPORTED_ADDRESSES)
def _report_address(server: str, key: str, uri: str) -> None:
    """Log a URI that is not listed, once for all the lists that it is in."""
    logger.warning("%s of %r: %r is left out, since it has line breaks or invisible characters", key, server, uri)


def _shown(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return an item as clients list it: cleaned, and what names it on one line."""
    shown: dict[str, Any] = cleaned(item)
    for member in _LINES:
        if isinstance(shown.get(member), str) and "\n" in shown[member]:
            shown[member] = one_line(shown[member])
    if isinstance(shown.get("arguments"), list):
        shown["arguments"] = [_shown(each) if isinstance(each, dict) else each for each in shown["arguments"]]
    return shown


def to_uri(server: str, uri: str) -> str:
    """Put a server's name before its URI or URI template."""
    if uri.startswith(APP_SCHEME):
        return f"{APPS}{quote(server, safe='')}/{uri.removeprefix(APP_SCHEME)}"
    return f"{SCHEME}{quote(server, safe='')}/{uri}"


def from_uri(uri: str) -> tuple[str, str] | None:
    """Split one of our URIs into the server and its own URI; return None for any other URI."""
    if uri.startswith(APPS):
        server, _, own = uri.removeprefix(APPS).partition("/")
        return unquote(server), f"{APP_SCHEME}{own}"
    if not uri.startswith(SCHEME):
        return None
    server, _, own = uri.removeprefix(SCHEME).partition("/")
    return unquote(server), own


def with_app(server: str, definition: dict[str, Json]) -> dict[str, Json]:
    """Return a tool's definition whose app, a `ui://` resource that shows its results, is named as clients read it."""
    meta = definition.get("_meta")
    if not isinstance(meta, dict):
        return definition
    shown, renamed = meta.get("ui"), dict(meta)
    if isinstance(shown, dict) and _is_app(shown.get("resourceUri")):
        renamed["ui"] = {**shown, "resourceUri": to_uri(server, shown["resourceUri"])}
    if _is_app(meta.get(FLAT_APP)):
        renamed[FLAT_APP] = to_uri(server, meta[FLAT_APP])
    return {**definition, "_meta": renamed} if renamed != meta else definition


def _is_app(uri: Json) -> bool:
    return isinstance(uri, str) and uri.startswith(APP_SCHEME)
