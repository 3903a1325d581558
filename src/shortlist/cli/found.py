"""How a search result is printed: for a person, and as JSON."""

from dataclasses import asdict
from typing import Any

from shortlist.disclosure.render import NameOf
from shortlist.models import SearchResult
from shortlist.text.tokens import one_line


def result_text(result: SearchResult, name_of: NameOf) -> str:
    """Return the hits by the names that clients use, with the confidence."""
    from shortlist.search.fusion import shown_chance  # noqa: PLC0415 - needs numpy, which a gateway starts without

    sure = result.confidence
    lines = [f"confidence: {sure.level} ({shown_chance(sure):.0%}), {result.milliseconds:.1f} ms"]
    if sure.level == "none":
        closest = " The closest:" if result.hits else " Nothing comes close."
        lines = [f"No good match here ({sure.match_probability:.0%} likely that there is one).{closest}"]
    lines += [f"{hit.rank}. {name_of(hit.tool.id)}  {one_line(hit.tool.description, 80)}" for hit in result.hits]
    lines += [f"searched for {meant!r} instead of {typed!r}" for typed, meant in result.did_you_mean.items()]
    return "\n".join([*lines, *result.notes])


def result_data(result: SearchResult, name_of: NameOf) -> dict[str, Any]:
    return {
        "query": result.query.text,
        "confidence": asdict(result.confidence),
        "hits": [
            {"id": h.tool.id, "name": name_of(h.tool.id), "score": h.score, "description": h.tool.description}
            for h in result.hits
        ],
        "did_you_mean": dict(result.did_you_mean),
        "notes": list(result.notes),
        "milliseconds": result.milliseconds,
    }
