"""Tools in named sets, presets over them, and the intents that narrow a search to some of them."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TypeAlias

from shortlist.catalog.catalog import Catalog
from shortlist.config.settings import Effect, PresetSettings, ToolsetSettings
from shortlist.models import SearchResult, Server, Tool, ToolId
from shortlist.text.tokens import terms

Cost: TypeAlias = Callable[[Tool], int]
CoUse: TypeAlias = Callable[[ToolId], frozenset[ToolId]]

BUILT_IN_PRESETS = ("default", "full")

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolset:
    """A named set of tools, in the order of their ids."""

    name: str
    description: str = ""
    tools: tuple[ToolId, ...] = ()
    words: frozenset[str] = frozenset()
    """Terms of its name, description, categories and tags: what intents are matched on."""


def toolsets_of(
    catalog: Catalog, rules: Iterable[ToolsetSettings] = (), co_use: CoUse | None = None
) -> dict[str, Toolset]:
    """Give one toolset per server and the configured ones after them; a configured name replaces a server's."""
    found = {name: _server_toolset(catalog.servers[name], tools) for name, tools in catalog.by_server.items()}
    for rule in rules:
        found[rule.name] = _configured(rule, catalog, co_use or _no_co_use)
    return found


def effect_of(tool: Tool) -> frozenset[Effect]:
    """Name what a tool may do by its annotations; what says nothing may write."""
    if tool.annotations.read_only:
        return frozenset({"read_only"})
    return frozenset({"write", "destructive"}) if tool.annotations.destructive else frozenset({"write"})


def preset_tools(
    preset: PresetSettings | str,
    toolsets: Mapping[str, Toolset],
    tools: Mapping[ToolId, Tool],
    cost: Cost,
    budget: int,
) -> tuple[ToolId, ...]:
    """Give the tools a preset binds, in a stable order.

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
    """Name the toolsets an intent narrows to; none when it matches nothing here.

    The user's own mapping decides alone where it has the intent; an unknown intent is read as words.
    """
    if intent in mapped:
        return tuple(name for name in mapped[intent] if name in toolsets)
    wanted = frozenset(terms(INTENT_WORDS.get(intent, intent.replace("_", " "))))
    return tuple(name for name, toolset in toolsets.items() if wanted & toolset.words)


def toolset_of(tool: Tool) -> str:
    """Name the set a tool belongs to where nothing is configured: its category, else its server."""
    return tool.category or tool.server


def suggest_toolsets(
    result: SearchResult, name_of: Callable[[Tool], str] = toolset_of
) -> tuple[tuple[str, float], ...]:
    """Rank toolsets by their hits' part of the belief in all hits; the parts add up to 1."""
    best = max((hit.score for hit in result.hits), default=0.0)
    belief: dict[str, float] = defaultdict(float)
    for hit in result.hits:
        belief[name_of(hit.tool)] += math.exp(hit.score - best)
    whole = sum(belief.values())
    ranked = sorted(belief.items(), key=lambda item: (-item[1], item[0]))
    return tuple((name, part / whole) for name, part in ranked if name)


def match_ids(patterns: Iterable[str], ids: Iterable[ToolId]) -> Iterator[ToolId]:
    """Give the ids that any of the globs matches, pattern by pattern."""
    known = tuple(ids)
    for pattern in patterns:
        yield from (tool_id for tool_id in known if fnmatchcase(tool_id, pattern))


def _server_toolset(server: Server, tools: Iterable[Tool]) -> Toolset:
    labels = " ".join((server.name, server.title, *server.categories, *server.tags))
    held = tuple(tools)
    categories = " ".join(sorted({tool.category for tool in held}))
    return Toolset(
        name=server.name,
        description=server.description,
        tools=tuple(tool.id for tool in held),
        words=frozenset(terms(f"{labels} {categories} {server.description}")),
    )


def _configured(rule: ToolsetSettings, catalog: Catalog, co_use: CoUse) -> Toolset:
    partners = frozenset(partner for tool_id in rule.used_with for partner in (tool_id, *co_use(tool_id)))
    members = [tool for tool in catalog.tools.values() if _belongs(tool, rule, catalog.servers[tool.server], partners)]
    labels = " ".join((rule.name, rule.description, *rule.tags, *rule.categories))
    return Toolset(
        name=rule.name,
        description=rule.description,
        tools=tuple(tool.id for tool in members),
        words=frozenset(terms(labels)),
    )


def _belongs(tool: Tool, rule: ToolsetSettings, server: Server, partners: frozenset[ToolId]) -> bool:
    return (
        (not rule.servers or tool.server in rule.servers)
        and (not rule.tools or any(fnmatchcase(tool.id, glob) for glob in rule.tools))
        and (not rule.tags or not set(rule.tags).isdisjoint((*tool.tags, *server.tags)))
        and (not rule.categories or not set(rule.categories).isdisjoint((tool.category, *server.categories)))
        and (not rule.effects or not effect_of(tool).isdisjoint(rule.effects))
        and (not rule.used_with or tool.id in partners)
    )


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
