"""The words of an answer: hits within a budget of tokens, what was left out, and what to do next."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from shortlist.disclosure.budget import estimate_tokens, fit
from shortlist.disclosure.render import Entry, entry_of, entry_row, entry_text
from shortlist.disclosure.toon import entries_text
from shortlist.gateway.metatools import SearchRequest
from shortlist.models import Hit, Json, SearchResult, ToolId
from shortlist.text.clean import one_line

SHOWN_QUERY = 80
SHOWN_SERVERS = 30
CLOSEST = 3
OVERHEAD_TOKENS = 40
"""What the lines around the hits cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What an answer says about the place it is given in."""

    name_of: Callable[[ToolId], str]
    note_of: Callable[[Hit], str]
    servers: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()
    explanations: Mapping[ToolId, str] = field(default_factory=dict)
    toon: bool = False


def search_answer(request: SearchRequest, results: Sequence[SearchResult], around: Surroundings) -> dict[str, Json]:
    """Give the tools/call result of a search: text, or structured content for programs."""
    entries = _entries(request, results, around)
    budget = None if request.max_tokens is None else max(request.max_tokens - OVERHEAD_TOKENS * len(results), 0)
    kept, left_out = _within(budget, entries)
    if request.format == "json":
        return _structured(results, kept, left_out, around)
    toon = request.format == "toon" or (around.toon and request.format is None)
    lines = [
        *_heads(results, around),
        entries_text(kept, toon=toon),
        *_left_out(entries, kept, left_out, request),
        *(around.explanations[i] for i in around.explanations),
        *_spelling(results),
        *around.notes,
        *around.suggestions,
    ]
    return text_result("\n".join(line for line in lines if line))


def text_result(text: str, *, is_error: bool = False) -> dict[str, Json]:
    """Give a tools/call result that holds one text."""
    result: dict[str, Json] = {"content": [{"type": "text", "text": text}]}
    return {**result, "isError": True} if is_error else result


def answer_tokens(answer: Mapping[str, Json]) -> int:
    """Estimate what an answer costs its reader."""
    return sum(estimate_tokens(block["text"]) for block in answer["content"])


def circle_answer(query: str, names: Sequence[str], times: int) -> dict[str, Json]:
    """Say that a search goes in circles, instead of answering it once more."""
    return text_result(
        f"You have searched {times} times and found the same tools: {', '.join(names)}. "
        f"Searching again for {one_line(query, SHOWN_QUERY)!r} will not change that. Use call_tool on one of "
        "them, describe_tools to read their schemas, or tell the user that no connected tool fits."
    )


def _entries(request: SearchRequest, results: Sequence[SearchResult], around: Surroundings) -> tuple[Entry, ...]:
    """Merge the hits of all queries into one map, each tool once, best ranks first."""
    merged: dict[ToolId, Hit] = {}
    for hit in sorted((hit for r in results if _fits(r) for hit in r.hits), key=lambda hit: hit.rank):
        merged.setdefault(hit.tool.id, hit)
    return tuple(entry_of(hit, request.detail, around.name_of, around.note_of(hit)) for hit in merged.values())


def _fits(result: SearchResult) -> bool:
    return result.confidence.level != "none"


def _within(budget: int | None, entries: tuple[Entry, ...]) -> tuple[tuple[Entry, ...], int]:
    if budget is None:
        return entries, 0
    return fit(entries, budget, lambda entry: estimate_tokens(entry_text(entry)))


def _heads(results: Sequence[SearchResult], around: Surroundings) -> list[str]:
    if len(results) == 1:
        return [_head(results[0], around)]
    lines = []
    for number, result in enumerate(results, 1):
        found = ", ".join(around.name_of(hit.tool.id) for hit in result.hits)
        asked = one_line(result.query.text, SHOWN_QUERY)
        lines.append(
            f"{number}. {asked!r}: {found} ({_confidence(result)})"
            if _fits(result)
            else f"{number}. {_no_match(result, around)}"
        )
    return lines


def _head(result: SearchResult, around: Surroundings) -> str:
    if not _fits(result):
        return _no_match(result, around)
    count = len(result.hits)
    return f"{count} tool{'' if count == 1 else 's'}, confidence {_confidence(result)}:"


def _confidence(result: SearchResult) -> str:
    return f"{result.confidence.level} {result.confidence.probability:.2f}"


def _no_match(result: SearchResult, around: Surroundings) -> str:
    closest = [around.name_of(hit.tool.id) for hit in result.hits[:CLOSEST]]
    shown = ", ".join(around.servers[:SHOWN_SERVERS])
    more = len(around.servers) - SHOWN_SERVERS
    servers = f"{shown} and {more} more" if more > 0 else shown
    return (
        f"No confident match for {one_line(result.query.text, SHOWN_QUERY)!r}."
        + (f" Closest: {', '.join(closest)}." if closest else "")
        + (f" Connected servers: {servers}." if servers else " No server is connected.")
    )


def _left_out(entries: tuple[Entry, ...], kept: tuple[Entry, ...], left_out: int, request: SearchRequest) -> list[str]:
    if not left_out:
        return []
    names = ", ".join(entry.name for entry in entries[len(kept) :])
    return [f"Left out to stay within {request.max_tokens} tokens: {names}."]


def _spelling(results: Sequence[SearchResult]) -> list[str]:
    found = {unknown: known for result in results for unknown, known in result.did_you_mean.items()}
    if not found:
        return []
    return ["Did you mean " + ", ".join(f"{k!r} for {u!r}" for u, k in found.items()) + "?"]


def _structured(
    results: Sequence[SearchResult], kept: Sequence[Entry], left_out: int, around: Surroundings
) -> dict[str, Json]:
    answer: dict[str, Json] = {
        "queries": [
            {
                "query": result.query.text,
                "confidence": result.confidence.level,
                "probability": round(result.confidence.probability, 4),
                "tools": [around.name_of(hit.tool.id) for hit in result.hits],
                "fits": _fits(result),
            }
            for result in results
        ],
        "tools": {entry.name: entry_row(entry) for entry in kept},
        "left_out": left_out,
        "notes": [*around.notes, *around.suggestions],
        "explanations": {around.name_of(i): text for i, text in around.explanations.items()},
    }
    return {**text_result(json.dumps(answer, ensure_ascii=False)), "structuredContent": answer}
