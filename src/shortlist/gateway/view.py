"""The served view: settings, catalog, names, toolsets and scopes as one immutable value, replaced as a whole."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from importlib.util import find_spec
from typing import Literal, TypeAlias

from shortlist.access.catalog import Hidden, ScopedCatalog, did_you_mean
from shortlist.access.principal import LOCAL, Principal
from shortlist.access.scope import (
    EVERYTHING,
    NOTHING,
    Scope,
    effects_of,
    scope_of_principal,
    scopes_of,
    server_of,
    unknown_names,
)
from shortlist.catalog.catalog import Catalog, CatalogDiff
from shortlist.catalog.naming import NO_NAMES, Names, names_of
from shortlist.catalog.toolsets import (
    BUILT_IN_PRESETS,
    NO_RULES,
    Toolset,
    ToolsetRules,
    UsedWith,
    match_ids,
    preset_tools,
    renewed_toolsets,
    toolsets_of,
)
from shortlist.config.settings import Mode, Settings
from shortlist.disclosure.budget import estimate_tokens
from shortlist.errors import InvalidConfig
from shortlist.models import PROGRAMS, Asker, Tool, ToolId

MOST_ADMITTED = 10_000
"""Principals whose catalog is looked up without working out their scope again."""
MenuName: TypeAlias = Literal["search", "minimal", "dynamic", "code"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """How this gateway is served; what is None follows the settings."""

    mode: Mode | None = None
    menu: MenuName = "search"
    preset: str | None = None
    toolsets: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    dynamic: bool = False
    toon: bool = False


NO_OPTIONS = ServeOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedView:
    """Everything the gateway decides by. `scoped` returns the part of it that a principal can reach."""

    settings: Settings
    options: ServeOptions
    catalog: Catalog
    toolsets: Mapping[str, Toolset]
    """Without those that are excluded."""
    excluded: Mapping[str, Toolset]
    hidden: Hidden
    mode: Mode = "search"
    """Never `auto`: that is decided when the view is made."""
    menu: MenuName | None = None
    names: Names = NO_NAMES
    bound: tuple[ToolId, ...] = ()
    """Listed for every client that can reach them. New tools come last, so that prompt caches stay valid."""
    bound_ids: frozenset[ToolId] = frozenset()
    scopes: Mapping[str, Scope] = field(default_factory=dict)
    """Of every token and of every rule of an issuer."""
    askers: Mapping[str, Asker] = field(default_factory=dict)
    """As whom the owner and each token ask, by name."""
    plain: bool = False
    """Names and URIs are the server's own: passthrough over a single server."""
    problems: tuple[str, ...] = ()
    """Names in the configuration that match nothing."""
    rules: ToolsetRules = NO_RULES
    scoped_catalogs: dict[Scope, ScopedCatalog] = field(default_factory=dict, compare=False)
    admitted: dict[Principal, ScopedCatalog] = field(default_factory=dict, compare=False)
    """The catalogs of principals that were served before: their scope follows from the view, and never changes."""

    def scope(self, principal: Principal) -> Scope:
        """Return the scope of a principal; empty if it is no longer valid."""
        return scope_of_principal(principal, self.scopes, self.settings)

    def scoped(self, principal: Principal, before: "ServedView | None" = None) -> ScopedCatalog:
        """Return the catalog that a principal can reach; the first time may take a moment."""
        scope = self.scope(principal)
        found = self.within(scope, before)
        if scope is not NOTHING:
            if len(self.admitted) >= MOST_ADMITTED:
                self.admitted.clear()
            self.admitted[principal] = found
        return found

    def within(self, scope: Scope, before: "ServedView | None" = None) -> ScopedCatalog:
        """Return the catalog that a scope reaches; principals with equal scopes share it."""
        found = self.scoped_catalogs.get(scope)
        if found is None:
            earlier = before.scoped_catalogs.get(scope) if before else None
            found = ScopedCatalog(
                self.catalog,
                self.names,
                self.toolsets,
                scope,
                self.hidden,
                before=earlier,
            )
            if scope is not NOTHING:  # unauthenticated callers must not fill the memory
                self.scoped_catalogs[scope] = found
        return found

    def tool_in_reach(self, principal: Principal, name: str) -> Tool | None:
        """Return the tool that a principal sees under exactly this name, without making its whole scoped catalog."""
        tool_id = self.names.by_name.get(name)
        if tool_id is not None and server_of(tool_id) == PROGRAMS:
            reached = self.scoped(principal)
            return reached[tool_id] if tool_id in reached else None  # noqa: SIM401 (not a dict)
        if tool_id is None or tool_id in self.hidden.tools or not self.scope(principal).covers(tool_id):
            return None
        return self.catalog.tools.get(tool_id)

    def server_in_reach(self, principal: Principal, server: str) -> bool:
        """Return whether a principal can reach a whole server, as `ScopedCatalog.has_server` does."""
        return self.hidden.has_server(self.scope(principal), server)

    def tokens(self, tools: Iterable[ToolId] | None) -> int:
        """Estimate what listing some tools costs, or all that are not hidden; opens only what was never counted."""
        known = self.catalog.hashes
        if tools is None:
            tools = (i for ids in self.catalog.members.values() for i in ids if i not in self.hidden.tools)
        return sum(_counted.get(known[i]) or definition_tokens(self.catalog.tools[i]) for i in tools if i in known)


def make_view(
    settings: Settings,
    options: ServeOptions,
    catalog: Catalog,
    *,
    co_use: UsedWith | None = None,
    before: ServedView | None = None,
) -> ServedView:
    """Derive a view; raise InvalidConfig where the settings cannot be served.

    The same settings and catalog always give the same view. With the view before, only what changed is derived, which
    still looks at every tool in the worst case: call it in a worker thread.
    """
    if before is not None and before.settings is settings and before.options == options:
        return _renewed(before, catalog)
    problems = check_settings(settings, options)
    scopes = scopes_of(settings)
    rules = ToolsetRules(toolsets=tuple(settings.toolsets.values()), effects=effects_of(settings), co_use=co_use)
    draft = _draft(settings, options, catalog, toolsets_of(catalog, rules))
    plain = _is_plain(draft)
    draft = replace(
        draft,
        rules=rules,
        scopes=scopes,
        askers={name: settings.asker(name) for name in (LOCAL, *settings.tokens)},
        plain=plain,
        names=names_of(catalog.members, plain=_plain_server(settings, plain)),
        problems=(*problems, *_unmatched(settings, catalog)),
    )
    return _finished(draft, before)


def _renewed(before: ServedView, catalog: Catalog) -> ServedView:
    settings, diff = before.settings, before.catalog.diff(catalog)
    toolsets = renewed_toolsets({**before.excluded, **before.toolsets}, before.catalog, catalog, before.rules)
    draft = _draft(settings, before.options, catalog, toolsets)
    plain, problems = _is_plain(draft), before.problems
    if diff.added or diff.removed:
        problems = (*check_settings(settings, before.options), *_unmatched(settings, catalog))
    names = _renewed_names(before, catalog, diff, plain)
    draft = replace(
        draft,
        rules=before.rules,
        scopes=before.scopes,
        askers=before.askers,
        plain=plain,
        names=names,
        problems=problems,
    )
    return _finished(draft, before)


def _renewed_names(before: ServedView, catalog: Catalog, diff: CatalogDiff, plain: bool) -> Names:
    own = _plain_server(before.settings, plain)
    if plain == before.plain:
        if not diff.added and not diff.removed:
            return before.names
        changed = before.names.changed(sorted(diff.added), sorted(diff.removed), plain=own)
        if changed is not None:
            return changed
    return names_of(catalog.members, plain=own)


def _plain_server(settings: Settings, plain: bool) -> str | None:
    """Return the server whose own names are kept."""
    return next(iter(settings.servers)) if plain else None


def _draft(settings: Settings, options: ServeOptions, catalog: Catalog, toolsets: Mapping[str, Toolset]) -> ServedView:
    """Return a view in which what is hidden is known, and nothing is named or bound yet."""
    excluded = {name: toolsets[name] for name in options.exclude if name in toolsets}
    return ServedView(
        settings=settings,
        options=options,
        catalog=catalog,
        toolsets={name: toolset for name, toolset in toolsets.items() if name not in options.exclude},
        excluded=excluded,
        hidden=Hidden(frozenset(options.exclude), frozenset(i for each in excluded.values() for i in each.tools)),
    )


def _finished(draft: ServedView, before: ServedView | None) -> ServedView:
    """Resolve the bound tools and build the scoped catalogs of earlier callers, so that no request waits for them."""
    view = replace(served_as(draft, draft.options, before), scoped_catalogs={}, admitted={})
    known = {EVERYTHING, *view.scopes.values()}
    for scope in tuple(before.scoped_catalogs) if before else ():
        if scope in known:
            view.within(scope, before)
    return view


def served_as(view: ServedView, options: ServeOptions, before: ServedView | None = None) -> ServedView:
    """Return a view as other options serve it: another menu and other bound tools, under the same names."""
    mode = _mode(view, options)
    bound = _bound_in_order(mode, view, options, before)
    menu, plain = _menu(mode, options, view.settings), view.plain and mode == "passthrough"
    return replace(view, mode=mode, menu=menu, bound=bound, bound_ids=frozenset(bound), plain=plain)


def listing_changes(before: ServedView, after: ServedView) -> frozenset[ToolId] | None:
    """Return the bound tools whose listing differs between two views; None where the lists differ for everybody."""
    if before.menu != after.menu or before.plain != after.plain:
        return None
    diff = before.catalog.diff(after.catalog)
    moved = before.bound_ids ^ after.bound_ids
    touched = (diff.changed | diff.added | diff.removed) & (before.bound_ids | after.bound_ids)
    renamed = frozenset[ToolId]()
    if before.names is not after.names:
        both = before.bound_ids & after.bound_ids
        renamed = frozenset(i for i in both if before.names.by_id.get(i) != after.names.by_id.get(i))
    return moved | touched | renamed


_counted: dict[str, int] = {}
"""Tokens of definitions by their content: the same in every catalog that has it, and counted once."""


def definition_tokens(tool: Tool) -> int:
    """Estimate what a tool costs when it is bound."""
    if not tool.content_hash:
        return estimate_tokens(tool.definition)
    if tool.content_hash not in _counted:
        _counted[tool.content_hash] = estimate_tokens(tool.definition)
    return _counted[tool.content_hash]


def _is_plain(view: ServedView) -> bool:
    return len(view.settings.servers) == 1 and _mode(view, view.options) == "passthrough"


def _mode(view: ServedView, options: ServeOptions) -> Mode:
    mode = "dynamic" if options.dynamic else options.mode or view.settings.mode
    if mode != "auto":
        return mode
    left = view.settings.limits.auto_tokens
    for ids in view.catalog.members.values():
        for tool_id in ids:
            if tool_id not in view.hidden.tools:
                left -= definition_tokens(view.catalog.tools[tool_id])
            if left < 0:
                return "search"
    return "passthrough"


def _menu(mode: Mode, options: ServeOptions, settings: Settings) -> MenuName | None:
    if mode in ("static", "passthrough"):
        return None
    if mode == "dynamic":
        return "dynamic"
    return "code" if settings.code.enabled and options.menu == "search" else options.menu


def _bound_in_order(
    mode: Mode, view: ServedView, options: ServeOptions, before: ServedView | None
) -> tuple[ToolId, ...]:
    hidden, tools = view.hidden.tools, view.catalog.tools
    wanted = dict.fromkeys(i for i in _bound(mode, view, options) if i not in hidden and i in tools)
    earlier = before.bound if before else ()
    return tuple(dict.fromkeys((*(i for i in earlier if i in wanted), *wanted)))


def _bound(mode: Mode, view: ServedView, options: ServeOptions) -> Iterable[ToolId]:
    settings, catalog, toolsets = view.settings, view.catalog, view.toolsets
    if mode == "passthrough":
        for name in catalog.servers:
            yield from catalog.members.get(name, ())
        return
    yield from _always(settings, catalog)
    for name in options.toolsets:
        yield from toolsets[name].tools if name in toolsets else ()
    preset = options.preset or settings.preset or ("default" if mode == "static" and not options.toolsets else None)
    if preset is not None:
        chosen = settings.presets.get(preset, preset)
        yield from preset_tools(chosen, toolsets, catalog.tools, definition_tokens, settings.limits.auto_tokens)


def _always(settings: Settings, catalog: Catalog) -> Iterator[ToolId]:
    yield from match_ids(map(_as_id_glob, settings.always_load), catalog.tools)
    for server in settings.servers.values():
        if server.always_load:
            members = catalog.members.get(server.name, ())
            yield from match_ids((f"{server.name}/{pattern}" for pattern in server.always_load), members)


def _as_id_glob(pattern: str) -> str:
    return pattern.replace("__", "/", 1)


# Names in the configuration


def check_settings(settings: Settings, options: ServeOptions) -> tuple[str, ...]:
    """Return the names that match nothing; raise InvalidConfig for those that would bind or hide the wrong tools."""
    _check_code(settings, options)
    preset, presets = options.preset or settings.preset, (*settings.presets, *BUILT_IN_PRESETS)
    if preset is not None and preset not in presets:
        raise InvalidConfig(f"No preset {preset!r}. {did_you_mean(preset, presets)}")
    toolsets = tuple(dict.fromkeys((*settings.servers, *settings.toolsets)))
    for option, names in (("--toolsets", options.toolsets), ("--exclude", options.exclude)):
        for name in names:
            if name not in toolsets:
                raise InvalidConfig(f"No toolset {name!r}, which {option} names. {did_you_mean(name, toolsets)}")
    doubts = (*_unknown_references(settings, toolsets), *unknown_names(settings), *_trusting(settings, options))
    return tuple(dict.fromkeys(doubts))


def _check_code(settings: Settings, options: ServeOptions) -> None:
    listing = options.dynamic or options.mode not in (None, "search", "auto")
    if options.menu == "code" and listing:
        raise InvalidConfig("--code works only with --mode search. Leave out one of the two.")
    if (options.menu == "code" or settings.code.enabled) and find_spec("pydantic_monty") is None:
        raise InvalidConfig("Code mode needs the extra `code`: pip install 'shortlist-mcp[code]'.")


def _trusting(settings: Settings, options: ServeOptions) -> Iterator[str]:
    """Describe excluded toolsets that depend on what servers declare about themselves."""
    for name in options.exclude:
        toolset = settings.toolsets.get(name)
        claims = [each for each in ("effects", "tags") if toolset is not None and getattr(toolset, each)]
        if claims:
            yield (
                f"--exclude {name!r} hides tools by {' and '.join(claims)}, which servers may state themselves: "
                "a server that states something else keeps its tools visible. Exclude servers or tool globs instead."
            )


def _unknown_references(settings: Settings, toolsets: Collection[str]) -> Iterator[str]:
    for preset in settings.presets.values():
        yield from (f"preset {preset.name!r}: no toolset {name!r}" for name in preset.toolsets if name not in toolsets)
    for intent, names in settings.intents.items():
        yield from (f"intent {intent!r}: no toolset {name!r}" for name in names if name not in toolsets)
    for toolset in settings.toolsets.values():
        unknown = (name for name in toolset.servers if name not in settings.servers)
        yield from (f"toolset {toolset.name!r}: no server {name!r}" for name in unknown)
    for pattern in settings.always_load:
        server, slash, _ = _as_id_glob(pattern).partition("/")
        if slash and not any(fnmatchcase(name, server) for name in settings.servers):
            yield f"always_load {pattern!r}: no server {server!r}"


def _unmatched(settings: Settings, catalog: Catalog) -> Iterator[str]:
    """Describe patterns of `always_load` and tool overrides that match no tool of a server whose tools are known."""
    for server in settings.servers.values():
        members = catalog.members.get(server.name) if server.always_load or server.tools else None
        if not members:
            continue
        for pattern in server.always_load:
            if not any(True for _ in match_ids((f"{server.name}/{pattern}",), members)):
                yield f"server {server.name!r}: always_load {pattern!r} matches no tool"
        known = frozenset(members) if server.tools else frozenset[ToolId]()
        for name in server.tools:
            if f"{server.name}/{name}" not in known:
                yield f"server {server.name!r}: no tool {name!r}, which 'tools' configures"


def settings_changes(before: Settings, after: Settings) -> tuple[str, ...]:
    """Describe in words what a new configuration changes."""
    return tuple(
        text
        for each in fields(Settings)
        if each.name != "source"
        and (old := getattr(before, each.name)) != (new := getattr(after, each.name))
        and (text := _change(each.name, old, new))
    )


def _change(name: str, old: object, new: object) -> str:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        parts = {
            "added": [key for key in new if key not in old],
            "removed": [key for key in old if key not in new],
            "changed": [key for key in new if key in old and new[key] != old[key]],
        }
        return f"{name}: " + "; ".join(f"{verb} {', '.join(keys)}" for verb, keys in parts.items() if keys)
    if name == "limits":
        moved = [f.name for f in fields(old) if getattr(old, f.name) != getattr(new, f.name)]  # type: ignore[arg-type]
        return "limits: " + ", ".join(f"{key} {getattr(old, key):,} → {getattr(new, key):,}" for key in moved)
    if name in ("mode", "preset"):
        return f"{name}: {old or 'none'} → {new or 'none'}"
    return f"{name} changed"
