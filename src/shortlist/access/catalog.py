"""The catalog as one scope sees it. Whatever answers a request gets this, and cannot name anything outside it."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from rapidfuzz import process

from shortlist.access.scope import EVERYTHING, Scope, implied
from shortlist.catalog.catalog import Catalog, CatalogDiff
from shortlist.catalog.naming import Names
from shortlist.catalog.toolsets import Toolset
from shortlist.config.settings import Settings
from shortlist.errors import InvalidInput, ShortlistError, ToolNotFound
from shortlist.models import PROGRAMS, Filters, Server, Tool, ToolId

SUGGESTED_NAMES = 3
SIMILAR_ENOUGH = 60
SHORTEST_GUESS = 3
LONGEST_SUGGESTED = 60


class ScopedCatalog:
    """The tools, servers and toolsets that a scope reaches, without what is excluded for everybody.

    Making one may look at every tool, so make it in a worker thread.
    """

    def __init__(
        self,
        catalog: Catalog,
        names: Names,
        toolsets: Mapping[str, Toolset],
        scope: Scope,
        hidden: "Hidden",
        *,
        before: "ScopedCatalog | None" = None,
    ) -> None:
        self.scope = scope
        self._catalog, self._names, self._all_toolsets, self._hidden = catalog, names, toolsets, hidden
        self._uses: Mapping[ToolId, tuple[ToolId, ...]] = {}
        self._reach = _reach(scope, catalog, before)
        self._admit_programs()
        self._members = catalog.members if self.is_whole else self._within_reach(before)

    def _admit_programs(self) -> None:
        """Reach exactly those saved programs whose tools are all in reach, whatever the scope says of programs."""
        programs = {tool.id: tool.uses for tool in self._catalog.of_server(PROGRAMS) if tool.uses is not None}
        if not programs:
            return
        is_open = "see" in self.scope.actions
        shown = {i: uses for i, uses in programs.items() if is_open and i not in self._hidden.tools}
        self._uses = {i: uses for i, uses in shown.items() if all(used in self for used in uses)}
        if self._reach is not None:
            self._reach = frozenset(self._reach - programs.keys()).union(self._uses)
        unmet = programs.keys() - self._uses.keys()
        self._hidden = replace(self._hidden, tools=self._hidden.tools.union(unmet))

    def __contains__(self, tool_id: ToolId) -> bool:
        return (
            tool_id in self._catalog.tools
            and tool_id not in self._hidden.tools
            and (self._reach is None or tool_id in self._reach)
        )

    def __iter__(self) -> Iterator[ToolId]:
        return (tool_id for server in self._catalog.servers for tool_id in self.members(server))

    def __len__(self) -> int:
        return sum(len(self.members(server)) for server in self._catalog.servers)

    @property
    def is_whole(self) -> bool:
        """Return whether nothing is out of reach."""
        return self._reach is None and not self._hidden.tools

    def __getitem__(self, tool_id: ToolId) -> Tool:
        if tool_id not in self:
            raise ToolNotFound(tool_id)
        return self._catalog.tools[tool_id]

    def check_call(self, tool_id: ToolId) -> None:
        """Raise CallNotAllowed unless the scope lets its principal call a tool in reach."""
        if tool_id not in self:
            raise ToolNotFound(tool_id)
        called = self._uses.get(tool_id, (tool_id,))
        if self.scope is not EVERYTHING and not all(map(self.scope.may_call, called)):
            raise CallNotAllowed(self.name(tool_id), _not_callable(self.scope))

    def name(self, tool_id: ToolId) -> str:
        """Return the name under which a client sees a tool."""
        return self._names.by_id.get(tool_id, tool_id)

    def named(self, name: str) -> ToolId | None:
        """Return the tool that clients see under exactly this name."""
        tool_id = self._names.by_name.get(name)
        return tool_id if tool_id is not None and tool_id in self else None

    def find(self, name: str) -> Tool:
        """Resolve a wire name, an id or a unique bare name; raise ToolNotFound with names that are in reach."""
        tool_id = self.named(name) or (name if name in self else None)
        if tool_id is not None:
            return self._catalog.tools[tool_id]
        bare = [i for server in self._catalog.servers if (i := f"{server}/{name}") in self]
        if len(bare) == 1:
            return self._catalog.tools[bare[0]]
        raise ToolNotFound(name, suggestions=[self.name(tool_id) for tool_id in bare[:SUGGESTED_NAMES]])

    def similar(self, name: str) -> tuple[str, ...]:
        """Return the names that look most like this one; compares with every name, so call it in a worker thread."""
        if len(name) < SHORTEST_GUESS:
            return ()
        names = self._names.by_name if self.is_whole else [n for n, i in self._names.by_name.items() if i in self]
        found = process.extract(name[:200], list(names), limit=SUGGESTED_NAMES, score_cutoff=SIMILAR_ENOUGH)
        return tuple(match for match, _, _ in found)

    def within(self, filters: Filters, members: frozenset[ToolId] | None = None) -> Filters:
        """Narrow a search to what is in reach, and to these tools where they are given."""
        among = self._reach if members is None else members if self._reach is None else members & self._reach
        return replace(filters, among=among, exclude=self._hidden.tools)

    def visible(self) -> frozenset[ToolId] | None:
        """Return every tool in reach; None means the whole catalog."""
        return None if self.is_whole else frozenset(self)

    @cached_property
    def servers(self) -> tuple[str, ...]:
        """The servers of which at least one tool is in reach."""
        return tuple(name for name in self._catalog.servers if self.members(name))

    @cached_property
    def labels(self) -> Mapping[str, tuple[str, ...]]:
        """The categories and tags of the tools in reach; reads every tool, so ask for it in a worker thread."""
        tools = [self._catalog.tools[tool_id] for tool_id in self]
        categories, tags = {tool.category for tool in tools}, {tag for tool in tools for tag in tool.tags}
        return {"categories": tuple(sorted(categories - {""})), "tags": tuple(sorted(tags))}

    def server(self, name: str) -> Server | None:
        """Return what is known about a server in reach."""
        return self._catalog.servers.get(name) if name in self.servers or self.has_server(name) else None

    def members(self, server: str) -> Sequence[ToolId]:
        """Return the tools of a server that are in reach."""
        return self._members.get(server, ())

    def _within_reach(self, before: "ScopedCatalog | None") -> dict[str, tuple[ToolId, ...]]:
        reach, hidden = self._reach, self._hidden.tools
        same = before is not None and before.scope == self.scope and before._hidden == self._hidden
        kept: dict[str, tuple[ToolId, ...]] = {}
        for server, ids in self._catalog.members.items():
            if before is not None and same and before._catalog.members.get(server) is ids:
                kept[server] = before._members[server]
            elif "see" in self.scope.actions and self.scope.covers_server(server) and hidden.isdisjoint(ids):
                kept[server] = ids
            else:
                kept[server] = tuple(i for i in ids if (reach is None or i in reach) and i not in hidden)
        return kept

    def has_server(self, server: str) -> bool:
        """Return whether the prompts and resources of a server are in reach: only where the whole server is."""
        return self._hidden.has_server(self.scope, server)

    def knows_server(self, server: str) -> bool:
        """Return whether the caller may be told that a server exists, before its tools are known."""
        return self.scope.names_server(server) and server not in self._hidden.servers

    @cached_property
    def toolsets(self) -> Mapping[str, Toolset]:
        """The toolsets in reach, each with only the tools in reach."""
        if self.is_whole:
            return self._all_toolsets
        narrowed = {
            name: replace(toolset, tools=tuple(i for i in toolset.tools if i in self))
            for name, toolset in self._all_toolsets.items()
        }
        return {name: toolset for name, toolset in narrowed.items() if toolset.tools or not self.scope.is_limited}

    def toolset(self, name: str) -> Toolset:
        """Return a toolset; raise InvalidInput with names that are in reach."""
        found = self.toolsets.get(name)
        if found is None:
            raise InvalidInput(f"No toolset {name!r}. {did_you_mean(name, tuple(self.toolsets))}")
        return found


class CallNotAllowed(ShortlistError):
    """A tool in reach that is not called; `why` states the reason, and who can change it."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name} was NOT invoked: {why}")


def _not_callable(scope: Scope) -> str:
    why = (
        "your token may call only tools that are configured as read_only"
        if "read" in scope.actions
        else "your token may find tools, not call them"
    )
    return f"{why}. The operator of this gateway can change that."


def needs_confirmation(tool_id: ToolId, scope: Scope, settings: Settings) -> bool:
    """Return whether the person must agree to a call. A tool whose effect is not configured counts as destructive."""
    name, _, tool = tool_id.partition("/")
    server = settings.servers.get(name)
    asked = {scope.confirm, server.confirm} if server is not None else {scope.confirm}
    if asked == {"never"}:
        return False
    override = server.tools.get(tool) if server is not None else None
    effect = (override.effect if override is not None else None) or "destructive"
    return not implied(effect).isdisjoint(asked)


@dataclass(frozen=True, slots=True)
class Hidden:
    """What `--exclude` hides from everybody."""

    servers: frozenset[str] = frozenset()
    tools: frozenset[ToolId] = frozenset()

    def has_server(self, scope: Scope, server: str) -> bool:
        """Return whether a scope holds a whole server that is not hidden."""
        return scope.covers_server(server) and server not in self.servers


def _reach(scope: Scope, catalog: Catalog, before: ScopedCatalog | None) -> frozenset[ToolId] | None:
    """Return the tools in reach; None: all of them. Who may not see tools reaches none."""
    if "see" not in scope.actions:
        return frozenset()
    if not scope.is_limited:
        return None
    if before is None or before.scope != scope or before._reach is None:
        return frozenset(_covered(scope, catalog))
    diff: CatalogDiff = before._catalog.diff(catalog)
    if not diff.added and not diff.removed:
        return before._reach
    return (before._reach - diff.removed) | frozenset(filter(scope.covers, diff.added))


def _covered(scope: Scope, catalog: Catalog) -> Iterator[ToolId]:
    for server, ids in catalog.members.items():
        yield from ids if scope.covers_server(server) else filter(scope.covers, ids)


def called_so(names: Collection[str], known: Sequence[str]) -> dict[str, frozenset[str]]:
    """Return what is called by each of some names: by exactly this one, or else by it in another case."""
    found: dict[str, frozenset[str]] = {}
    for name in names:
        alike = [each for each in known if each.casefold() == name.casefold()]
        if alike:
            found[name] = frozenset({name} if name in alike else alike)
    return found


def did_you_mean(name: str, known: Sequence[str], *, lists: bool = True) -> str:
    """Suggest the known name that looks most like this one, or list the known names where that is wanted.

    Labels, which servers write as they like, are not listed: a long one may be a text for the model.
    """
    short = [each for each in known if len(each) <= LONGEST_SUGGESTED]
    similar = process.extractOne(name, short, score_cutoff=SIMILAR_ENOUGH)
    if similar:
        return f"Did you mean {similar[0]!r}?"
    if not lists:
        return ""
    more = " …" if len(known) > 20 else ""
    return f"There are {', '.join(known[:20])}{more}." if known else "There are none."
