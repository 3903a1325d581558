"""What a caller may see of a search: tools in reach, and no words of the others."""

from collections.abc import Mapping
from dataclasses import replace

from shortlist.access.catalog import ScopedCatalog
from shortlist.models import SearchResult


def in_reach(result: SearchResult, tools: ScopedCatalog, offset: int = 0) -> SearchResult:
    """Keep what is in reach: the index may be behind the catalog, and it knows the words of every tool."""
    is_all_in_reach = all(hit.tool.id in tools and not hit.family for hit in result.hits)
    if is_all_in_reach and not offset and not result.did_you_mean:
        return result
    hits = tuple(
        hit._replace(family=tuple(i for i in hit.family if i in tools)) if hit.family else hit
        for hit in result.hits
        if hit.tool.id in tools
    )
    found = replace(result, hits=hits[offset:])
    return found if tools.is_whole or not result.did_you_mean else _without_hidden_words(found)


def known_corrections(result: SearchResult, tools: ScopedCatalog) -> Mapping[str, str] | None:
    """Return the corrections of a query that its explanation may name, of a result in reach; None: all of them."""
    return None if tools.is_whole else result.did_you_mean


def _without_hidden_words(result: SearchResult) -> SearchResult:
    """Leave out corrections to words that no hit shows: they may be those of tools out of reach."""
    from shortlist.search.spelling import respelled  # noqa: PLC0415 - only for a typing error of a limited caller

    shown = " ".join(f"{hit.tool.name} {hit.tool.title} {hit.tool.description}" for hit in result.hits).lower()
    known = {typed: meant for typed, meant in result.did_you_mean.items() if meant.lower() in shown}
    typed = {meant: typed for typed, meant in result.did_you_mean.items() if typed not in known}
    return replace(
        result,
        hits=tuple(hit._replace(wish=respelled(hit.wish, typed)) for hit in result.hits),
        wishes=tuple(wish._replace(text=respelled(wish.text, typed)) for wish in result.wishes),
        did_you_mean=known,
    )
