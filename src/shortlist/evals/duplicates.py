"""Tools that say the same: equal texts, or nearly equal sets of terms."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from shortlist.models import Tool, ToolId
from shortlist.text.tokens import terms

NEAR = 0.9
"""Jaccard overlap of the terms from which two tools count as the same."""


def near_duplicates(tools: Mapping[ToolId, Tool], *, threshold: float = NEAR) -> tuple[tuple[ToolId, ...], ...]:
    """Group tools whose name and description overlap; tools without words are left out."""
    sets = {tool_id: frozenset(terms(f"{tool.name} {tool.description}")) for tool_id, tool in tools.items()}
    described = {tool_id: found for tool_id, found in sets.items() if found and tools[tool_id].description}
    return _groups([pair for pair in _candidates(described, threshold) if _near(*pair, described, threshold)])


def _near(a: ToolId, b: ToolId, sets: Mapping[ToolId, frozenset[str]], threshold: float) -> bool:
    shared = len(sets[a] & sets[b])
    return shared >= threshold * (len(sets[a]) + len(sets[b]) - shared)


def _candidates(sets: Mapping[ToolId, frozenset[str]], threshold: float) -> Iterator[tuple[ToolId, ToolId]]:
    """Pair tools that share one of their rarest terms: near-equal sets must (prefix filtering)."""
    common = Counter(term for found in sets.values() for term in found)
    by_term: dict[str, list[ToolId]] = defaultdict(list)
    for tool_id, found in sets.items():
        rarest = sorted(found, key=lambda term: (common[term], term))
        prefix = rarest[: len(found) - math.ceil(threshold * len(found)) + 1]
        partners = {other for term in prefix for other in by_term[term]}
        yield from ((other, tool_id) for other in sorted(partners))
        for term in prefix:
            by_term[term].append(tool_id)


def _groups(pairs: Sequence[tuple[ToolId, ToolId]]) -> tuple[tuple[ToolId, ...], ...]:
    """Join pairs into families by following them to a common root."""
    parent: dict[ToolId, ToolId] = {}
    for a, b in pairs:
        parent[_root(parent, b)] = _root(parent, a)
    families: dict[ToolId, list[ToolId]] = defaultdict(list)
    for tool_id in sorted({each for pair in pairs for each in pair}):
        families[_root(parent, tool_id)].append(tool_id)
    return tuple(sorted(tuple(family) for family in families.values()))


def _root(parent: dict[ToolId, ToolId], tool_id: ToolId) -> ToolId:
    while (above := parent.get(tool_id, tool_id)) != tool_id:
        tool_id = above
    return tool_id
