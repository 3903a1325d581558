"""Tools in named sets, presets over them, and the intents that narrow a search to some of them."""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from types import MappingProxyType
from typing import TypeAlias

from shortlist.catalog.catalog import Catalog
from shortlist.config.settings import Effect, PresetSettings, ToolsetSettings
from shortlist.models import SearchResult, Server, Tool, ToolId
from shortlist.text.tokens import terms

Cost: TypeAlias = Callable[[Tool], int]
UsedWith: TypeAlias = Callable[[ToolId], frozenset[ToolId]]

BUILT_IN_PRESETS = ("default", "full")
_GLOB = frozenset("*?[")

INTENT_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "file_processing": "file filesystem folder directory document pdf csv spreadsheet storage drive archive",
        "web_research": "web browse browser crawl scrape fetch url search news page internet",
        "code_quality": "code lint test review refactor static repository git pull format coverage",
        "security_audit": "security vulnerability audit secret scan threat compliance cve permission",
        "academic_writing": "academic paper citation latex arxiv scholar bibliography journal research",
        "data_analysis": "data analytics sql query database warehouse chart statistics dataset metrics table",
        "llm_interaction": "llm model prompt completion embedding chat agent openai anthropic inference",
        "visual_qa": "image screenshot visual vision picture photo ocr video pixel",
        "devops_ci": "deploy ci pipeline build kubernetes docker container cluster infrastructure release",
        "team_coordination": "task project issue ticket board sprint calendar meeting team assign schedule",
        "communication": "message email mail chat channel notify sms send slack call",
        "seo_audit": "seo keyword ranking backlink sitemap meta crawl lighthouse",
        "design_review": "design figma layout component style color accessibility prototype mockup",
        "voice_ui": "voice speech audio transcribe tts microphone sound spoken",
        "project_setup": "scaffold template init bootstrap repository create install setup environment",
    }
)
"""The built-in intents, by the words whose toolsets they mean; users map more in their configuration."""


@dataclass(frozen=True, kw_only=True)
class Toolset:
    """A named set of tools, in the order of their ids."""

    name: str
    description: str = ""
    tools: tuple[ToolId, ...] = ()
    labels: str = ""
    """Its name, description, categories and tags: what intents are matched on."""
    categories: Callable[[], Iterable[str]] = field(default=tuple, compare=False, repr=False)
    """Reads the categories of its tools. That opens every tool, so it happens only when an intent is given."""

    @cached_property
    def words(self) -> frozenset[str]:
        return frozenset(terms(" ".join((self.labels, *sorted(set(self.categories()))))))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsetRules:
    """What decides which tools a configured toolset holds, beside the catalog."""

    toolsets: tuple[ToolsetSettings, ...] = ()
    effects: Mapping[ToolId, Effect] = field(default_factory=dict)
    """Configured effects; a tool without one has what its annotations claim."""
    co_use: UsedWith | None = None

    def holds(self, toolset: ToolsetSettings, tool: Tool, server: Server) -> bool:
        """Return whether a tool meets every condition of a toolset."""
        return (
            (not toolset.servers or tool.server in toolset.servers)
            and (not toolset.tools or any(fnmatchcase(tool.id, glob) for glob in toolset.tools))
            and (not toolset.tags or not set(toolset.tags).isdisjoint((*tool.tags, *server.tags)))
            and (not toolset.categories or not set(toolset.categories).isdisjoint((tool.category, *server.categories)))
            and (not toolset.effects or not effect_of(tool, self.effects.get(tool.id)).isdisjoint(toolset.effects))
            and (not toolset.used_with or tool.id in self._partners(toolset))
        )

    def _partners(self, toolset: ToolsetSettings) -> frozenset[ToolId]:
        co_use = self.co_use or _no_co_use
        return frozenset(partner for tool_id in toolset.used_with for partner in (tool_id, *co_use(tool_id)))


NO_RULES = ToolsetRules()


def toolsets_of(catalog: Catalog, rules: ToolsetRules = NO_RULES) -> dict[str, Toolset]:
    """Return one toolset per server, then the configured ones; a configured name replaces a server's."""
    found = {name: _server_toolset(catalog, name) for name in catalog.servers}
    for rule in rules.toolsets:
        held = [i for i, tool in catalog.tools.items() if rules.holds(rule, tool, catalog.servers[tool.server])]
        found[rule.name] = _configured(rule, held)
    return found


def renewed_toolsets(
    before: Mapping[str, Toolset], old: Catalog, catalog: Catalog, rules: ToolsetRules
) -> dict[str, Toolset]:
    """Return what `toolsets_of` returns, looking only at the tools in which two catalogs differ."""
    configured = {rule.name for rule in rules.toolsets}
    diff = old.diff(catalog)
    touched = diff.added | diff.changed | diff.removed
    moved = {tool_id.partition("/")[0] for tool_id in touched} | configured
    known = old.servers
    relabelled = {
        name
        for name, server in catalog.servers.items()
        if (was := known.get(name)) is not server and was != server  # nearly all are the same object
    }
    again = moved | relabelled
    found = {
        name: before[name] if name not in again and name in before else _server_toolset(catalog, name)
        for name in catalog.servers
    }
    touched |= {i for name in relabelled for i in catalog.members.get(name, ())}  # labels decide for all its tools
    for rule in rules.toolsets:
        found[rule.name] = _renewed(before[rule.name], rule, touched, catalog, rules)
    return found


def _renewed(
    before: Toolset, rule: ToolsetSettings, touched: frozenset[ToolId], catalog: Catalog, rules: ToolsetRules
) -> Toolset:
    tools = catalog.tools
    if rule.used_with:  # the log may have changed as well
        partners = sorted(rules._partners(rule))
        return _configured(rule, [i for i in partners if i in tools and _holds(rules, rule, tools[i], catalog)])
    held = frozenset(i for i in touched if i in tools and _holds(rules, rule, tools[i], catalog))
    if held == touched.intersection(before.tools):
        return before
    return _configured(rule, sorted((frozenset(before.tools) - touched) | held))


def _holds(rules: ToolsetRules, rule: ToolsetSettings, tool: Tool, catalog: Catalog) -> bool:
    return rules.holds(rule, tool, catalog.servers[tool.server])


def effect_of(tool: Tool, configured: Effect | None = None) -> frozenset[Effect]:
    """Return what a tool may do: as configured, else as its annotations claim. Without either it may write."""
    destructive: frozenset[Effect] = frozenset({"write", "destructive"})
    if configured is not None:
        return destructive if configured == "destructive" else frozenset({configured})
    if tool.annotations.read_only:
        return frozenset({"read_only"})
    return destructive if tool.annotations.destructive else frozenset({"write"})


def preset_tools(
    preset: PresetSettings | str,
    toolsets: Mapping[str, Toolset],
    tools: Mapping[ToolId, Tool],
    cost: Cost,
    budget: int,
) -> tuple[ToolId, ...]:
    """Return the tools a preset binds, in a stable order.

    `full` is everything; `default` is as many whole toolsets as fit in the budget of tokens, in order.
    """
    if isinstance(preset, PresetSettings):
        return tuple(dict.fromkeys(_preset_members(preset, toolsets, tools)))
    if preset == "full":
        return tuple(dict.fromkeys(i for toolset in toolsets.values() for i in toolset.tools))
    return tuple(dict.fromkeys(_affordable(toolsets.values(), tools, cost, budget)))


def toolsets_for_intent(
    intent: str, toolsets: Mapping[str, Toolset], mapped: Mapping[str, tuple[str, ...]]
) -> tuple[str, ...]:
    """Return the names of the toolsets an intent narrows to; none when it matches nothing.

    A configured mapping of the intent decides alone. An unknown intent is read as words.
    """
    if intent in mapped:
        return tuple(name for name in mapped[intent] if name in toolsets)
    wanted = frozenset(terms(INTENT_WORDS.get(intent, intent.replace("_", " "))))
    return tuple(name for name, toolset in toolsets.items() if wanted & toolset.words)


def toolset_of(tool: Tool) -> str:
    """Return the toolset of a tool where nothing is configured: its category, else its server."""
    return tool.category or tool.server


def suggest_toolsets(
    result: SearchResult, name_of: Callable[[Tool], str] = toolset_of
) -> tuple[tuple[str, float], ...]:
    """Rank toolsets by the share of relevance that their hits have; the shares add up to 1."""
    best = max((hit.score for hit in result.hits), default=0.0)
    belief: dict[str, float] = defaultdict(float)
    for hit in result.hits:
        belief[name_of(hit.tool)] += math.exp(hit.score - best)
    whole = sum(belief.values())
    ranked = sorted(belief.items(), key=lambda item: (-item[1], item[0]))
    return tuple((name, part / whole) for name, part in ranked if name)


def match_ids(patterns: Iterable[str], ids: Collection[ToolId]) -> Iterator[ToolId]:
    """Yield the ids that any of the globs matches, pattern by pattern."""
    for pattern in patterns:
        if pattern in ids:
            yield pattern
        elif not _GLOB.isdisjoint(pattern):
            yield from (tool_id for tool_id in ids if fnmatchcase(tool_id, pattern))


def _server_toolset(catalog: Catalog, name: str) -> Toolset:
    server, tools = catalog.servers[name], catalog.members.get(name, ())
    return Toolset(
        name=name,
        description=server.description,
        tools=tools,
        labels=" ".join((name, server.title, *server.categories, *server.tags, server.description)),
        categories=lambda: (
            tool.category for tool_id in tools if (tool := catalog.tools[tool_id]).category in tool.keywords
        ),
    )


def _configured(rule: ToolsetSettings, tools: Iterable[ToolId]) -> Toolset:
    labels = " ".join((rule.name, rule.description, *rule.tags, *rule.categories))
    return Toolset(name=rule.name, description=rule.description, tools=tuple(tools), labels=labels)


def _preset_members(
    preset: PresetSettings, toolsets: Mapping[str, Toolset], tools: Mapping[ToolId, Tool]
) -> Iterator[ToolId]:
    for name in preset.toolsets:
        if name in toolsets:
            yield from toolsets[name].tools
    yield from match_ids(preset.tools, tools)


def _affordable(toolsets: Iterable[Toolset], tools: Mapping[ToolId, Tool], cost: Cost, budget: int) -> Iterator[ToolId]:
    left = budget
    for toolset in toolsets:
        price = sum(cost(tools[tool_id]) for tool_id in toolset.tools)
        if price <= left:
            left -= price
            yield from toolset.tools


def _no_co_use(_: ToolId) -> frozenset[ToolId]:
    return frozenset()
