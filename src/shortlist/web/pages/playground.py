"""The search playground: what a query finds by one pipeline or by two, and why."""

from collections.abc import Mapping
from dataclasses import dataclass

from shortlist.demo import FIRST_SEARCHES
from shortlist.errors import ShortlistError
from shortlist.models import Filters, Hit, Query, SearchResult, ToolId
from shortlist.search.explain import Explanation
from shortlist.search.presets import PIPELINES
from shortlist.search.searcher import Explained
from shortlist.text.clean import one_line
from shortlist.web.page import Page, Visit

LIMITS = (5, 10, 20)
SMALLEST_PART = 0.01
"""Less than this a feature does not change the order."""

MEANINGS: Mapping[str, str] = {
    "default": "words and meaning, weighed by what the query is like",
    "weighted": "words and meaning, by one fixed weight",
    "rrf": "words and meaning, by their ranks alone",
    "lexical": "words alone, over nine fields",
    "dense": "meaning alone",
    "bm25": "words over one field, as most others do it",
    "tfidf": "words over one field, as a cosine",
    "stackone": "BM25 and TF-IDF over one field",
    "fuzzy": "names that look like the query",
    "prefix": "names that begin like the query",
    "exact": "names that the query spells",
    "regex": "names and descriptions that match a pattern",
}
"""What each pipeline goes by."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One hit with the reason of its place, and its place in the other column."""

    hit: Hit
    why: Explanation
    name: str
    elsewhere: int | None

    @property
    def parts(self) -> list[tuple[str, float]]:
        """Give what each feature added, the weightiest first."""
        shown = [(name, value) for name, value in self.why.parts.items() if abs(value) >= SMALLEST_PART]
        return sorted(shown, key=lambda part: -abs(part[1]))

    @property
    def largest_part(self) -> float:
        return max((abs(value) for _, value in self.parts), default=1.0)

    @property
    def boost(self) -> float | None:
        """Give what the stages added to the fused score."""
        if not self.why.parts:
            return None
        added = self.hit.score - sum(self.why.parts.values())
        return added if abs(added) >= SMALLEST_PART else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One pipeline's answer, or why there is none."""

    pipeline: str
    meaning: str
    result: SearchResult | None = None
    reasons: tuple[Reason, ...] = ()
    problem: str = ""

    @property
    def best(self) -> Mapping[str, float]:
        """Give each arm's largest score among the hits, to draw the others against."""
        scores: dict[str, float] = {}
        for reason in self.reasons:
            for arm, view in reason.why.arms.items():
                scores[arm] = max(scores.get(arm, 0.0), view.score)
        return scores


def page(visit: Visit) -> Page:
    """Answer the query of the address by the pipelines that it names; nothing is recorded."""
    text = visit.query.get("q", "").strip()
    limit = next((n for n in LIMITS if str(n) == visit.query.get("limit")), LIMITS[0])
    chosen = (visit.query.get("a") or "default", visit.query.get("b", ""))
    found = {name: _ask(visit, text, limit, name) for name in chosen if name and text}
    return Page(
        "playground.html",
        f"{one_line(text, 60)} · Playground" if text else "Playground",
        {
            "text": text,
            "limit": limit,
            "limits": LIMITS,
            "chosen": chosen,
            "pipelines": tuple(PIPELINES),
            "columns": [_column(visit, name, answer, _ranks(found, name)) for name, answer in found.items()],
            "examples": FIRST_SEARCHES,
        },
    )


def _ask(visit: Visit, text: str, limit: int, pipeline: str) -> Explained | str:
    # As the gateway asks for a client: among what the caller may see, near-duplicates as one.
    filters = Filters(among=visit.state.visible(visit.session.caller))
    query = Query(text=text, limit=limit, filters=filters, collapse=True, pipeline=pipeline)
    try:
        return visit.sources.explained(query)
    except ShortlistError as error:
        return str(error)


def _column(visit: Visit, name: str, answer: Explained | str, others: Mapping[ToolId, int]) -> Column:
    meaning = MEANINGS.get(name, "")
    if isinstance(answer, str):
        return Column(pipeline=name, meaning=meaning, problem=answer)
    pairs = zip(answer.result.hits, answer.explanations, strict=True)
    reasons = [Reason(hit, why, visit.state.snapshot.name(why.tool), others.get(why.tool)) for hit, why in pairs]
    return Column(pipeline=name, meaning=meaning, result=answer.result, reasons=tuple(reasons))


def _ranks(found: Mapping[str, Explained | str], but: str) -> Mapping[ToolId, int]:
    """Give the places of the tools in the other column."""
    others = [a for name, a in found.items() if name != but and not isinstance(a, str)]
    return {hit.tool.id: hit.rank for answer in others for hit in answer.result.hits}
