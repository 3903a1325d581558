"""What follows from one catalog: names, toolsets, what is bound in every workspace, and who may see what."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from shortlist.catalog.catalog import Catalog
from shortlist.catalog.naming import Names, names_of
from shortlist.catalog.toolsets import CoUse, Toolset, match_ids, preset_tools, toolsets_of
from shortlist.config.settings import Mode, Settings, TokenSettings
from shortlist.disclosure.budget import estimate_tokens
from shortlist.gateway.metatools import Menu
from shortlist.models import Tool, ToolId


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How this gateway is served; what is None follows the settings."""

    mode: Mode | None = None
    menu: Menu = "search"
    preset: str | None = None
    toolsets: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    dynamic: bool = False
    toon: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything the gateway decides by, for one catalog and one configuration."""

    catalog: Catalog
    mode: Mode
    """Never `auto`: that is decided here."""
    menu: Menu | None
    names: Names
    toolsets: Mapping[str, Toolset]
    bound: tuple[ToolId, ...]
    bound_ids: frozenset[ToolId] = frozenset()
    hidden: frozenset[ToolId] = frozenset()
    plain: bool = False
    """Names and URIs are the server's own: passthrough over a single server."""
    _visible: dict[str | None, frozenset[ToolId]] = field(default_factory=dict)

    def by_own_name(self, name: str) -> tuple[ToolId, ...]:
        """Give the tools that their servers call so."""
        return tuple(
            tool_id for server in self.catalog.servers if (tool_id := f"{server}/{name}") in self.catalog.tools
        )

    def name(self, tool_id: ToolId) -> str:
        return self.names.by_id.get(tool_id, tool_id)

    def visible(self, token: TokenSettings | None) -> frozenset[ToolId] | None:
        """Give the tools a caller may find, describe, load and call; None means all of them."""
        limited = token if token and token.limited else None
        if limited is None and not self.hidden:
            return None
        key = limited.name if limited else None
        if key not in self._visible:
            allowed = frozenset(self._allowed(limited) if limited else self.catalog.tools)
            self._visible[key] = allowed - self.hidden
        return self._visible[key]

    def tokens(self, tools: Iterable[ToolId] | None) -> int:
        """Estimate what listing some tools costs, or all that are not hidden; opens only what was never counted."""
        known = self.catalog.hashes
        wanted = (i for i in known if i not in self.hidden) if tools is None else (i for i in tools if i in known)
        return sum(_counted.get(known[i]) or definition_tokens(self.catalog.tools[i]) for i in wanted)

    def _allowed(self, token: TokenSettings) -> Iterable[ToolId]:
        for name in token.servers or ():
            yield from self.catalog.members.get(name, ())
        for name in token.toolsets or ():
            yield from self.toolsets[name].tools if name in self.toolsets else ()


def take_snapshot(catalog: Catalog, settings: Settings, options: Options, co_use: CoUse | None = None) -> Snapshot:
    """Derive a snapshot; the same catalog and configuration always give the same one."""
    toolsets = toolsets_of(catalog, settings.toolsets.values(), co_use)
    hidden = frozenset(i for name in options.exclude if name in toolsets for i in toolsets[name].tools)
    shown = {tool_id: tool for tool_id, tool in catalog.tools.items() if tool_id not in hidden}
    mode = _mode(settings, options, shown)
    plain = mode == "passthrough" and len(settings.servers) == 1
    return Snapshot(
        catalog=catalog,
        mode=mode,
        menu=_menu(mode, options),
        names=names_of(catalog.members, plain=plain),
        toolsets={name: toolset for name, toolset in toolsets.items() if name not in options.exclude},
        bound=tuple(i for i in dict.fromkeys(_bound(mode, settings, options, toolsets, shown)) if i in shown),
        hidden=hidden,
        plain=plain,
    )


def served_as(snapshot: Snapshot, settings: Settings, options: Options) -> Snapshot:
    """Give a snapshot as other options serve it: another menu and other bound tools, under the same names."""
    shown = {tool_id: tool for tool_id, tool in snapshot.catalog.tools.items() if tool_id not in snapshot.hidden}
    mode = _mode(settings, options, shown)
    bound = dict.fromkeys(_bound(mode, settings, options, snapshot.toolsets, shown))
    return replace(
        snapshot,
        mode=mode,
        menu=_menu(mode, options),
        bound=tuple(tool_id for tool_id in bound if tool_id in shown),
        plain=snapshot.plain and mode == "passthrough",
    )


_counted: dict[str, int] = {}
"""Tokens of definitions by their content: the same in every catalog that has it, and counted once."""


def definition_tokens(tool: Tool) -> int:
    """Estimate what a tool costs when it is bound."""
    if not tool.content_hash:
        return estimate_tokens(tool.definition)
    if tool.content_hash not in _counted:
        _counted[tool.content_hash] = estimate_tokens(tool.definition)
    return _counted[tool.content_hash]


def _mode(settings: Settings, options: Options, tools: Mapping[ToolId, Tool]) -> Mode:
    mode = "dynamic" if options.dynamic else options.mode or settings.mode
    if mode != "auto":
        return mode
    left = settings.limits.auto_tokens
    for tool in tools.values():
        left -= definition_tokens(tool)
        if left < 0:
            return "search"
    return "passthrough"


def _menu(mode: Mode, options: Options) -> Menu | None:
    if mode in ("static", "passthrough"):
        return None
    return "dynamic" if mode == "dynamic" else options.menu


def _bound(
    mode: Mode,
    settings: Settings,
    options: Options,
    toolsets: Mapping[str, Toolset],
    tools: Mapping[ToolId, Tool],
) -> Iterable[ToolId]:
    if mode == "passthrough":
        yield from tools
        return
    yield from _always(settings, tools)
    for name in options.toolsets:
        yield from toolsets[name].tools if name in toolsets else ()
    preset = options.preset or settings.preset or ("default" if mode == "static" and not options.toolsets else None)
    if preset is not None:
        chosen = settings.presets.get(preset, preset)
        yield from preset_tools(chosen, toolsets, tools, definition_tokens, settings.limits.auto_tokens)


def _always(settings: Settings, tools: Mapping[ToolId, Tool]) -> Iterable[ToolId]:
    yield from match_ids((pattern.replace("__", "/", 1) for pattern in settings.always_load), tools)
    for server in settings.servers.values():
        yield from match_ids((f"{server.name}/{pattern}" for pattern in server.always_load), tools)
