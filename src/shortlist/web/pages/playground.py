"""The search playground: results of one or two pipelines, with explanations."""

from collections.abc import Mapping
from dataclasses import dataclass

from shortlist.demo import FIRST_SEARCHES
from shortlist.errors import ShortlistError
from shortlist.models import Filters, Hit, Query, SearchResult, ToolId
from shortlist.search.explain import Explanation
from shortlist.search.presets import PIPELINES
from shortlist.search.searcher import Explained
from shortlist.text.tokens import one_line
from shortlist.web.page import Page, Visit

LIMITS = (5, 10, 20)
SMALLEST_PART = 0.01
"""Smaller contributions are not shown."""

MEANINGS: Mapping[str, str] = {
    "default": "lexical and dense search, weighted by the query",
    "weighted": "lexical and dense search, with a fixed weight",
    "rrf": "reciprocal rank fusion of lexical and dense search",
    "lexical": "BM25F over nine fields",
    "dense": "embeddings only",
    "bm25": "BM25 over one field",
    "tfidf": "TF-IDF cosine over one field",
    "stackone": "BM25 and TF-IDF over one field",
    "fuzzy": "names similar to the query",
    "prefix": "names that start with the query",
    "exact": "names equal to the query",
    "regex": "names and descriptions that match a pattern",
}
"""A short description of each pipeline."""


@dataclass(frozen=True, slots=True)
class ExplainedHit:
    """One hit with its explanation, and its rank in the other column."""

    hit: Hit
    why: Explanation
    name: str
    elsewhere: int | None

    @property
    def parts(self) -> list[tuple[str, float]]:
        """Contributions of the features, the largest first."""
        shown = [(name, value) for name, value in self.why.parts.items() if abs(value) >= SMALLEST_PART]
        return sorted(shown, key=lambda part: -abs(part[1]))

    @property
    def largest_part(self) -> float:
        return max((abs(value) for _, value in self.parts), default=1.0)

    @property
    def boost(self) -> float | None:
        """What the stages added to the fused score."""
        if not self.why.parts:
            return None
        added = self.hit.score - sum(self.why.parts.values())
        return added if abs(added) >= SMALLEST_PART else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One pipeline's result, or the error."""

    pipeline: str
    meaning: str
    result: SearchResult | None = None
    reasons: tuple[ExplainedHit, ...] = ()
    problem: str = ""

    @property
    def best(self) -> Mapping[str, float]:
        """Each retriever's largest score among the hits, the scale of its bars."""
        scores: dict[str, float] = {}
        for reason in self.reasons:
            for arm, view in reason.why.arms.items():
                scores[arm] = max(scores.get(arm, 0.0), view.score)
        return scores


def page(visit: Visit) -> Page:
    """Run the query with the chosen pipelines; nothing is recorded."""
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
    # As the gateway searches for a client: only visible tools, near-duplicates collapsed.
    filters = visit.reach.within(Filters())
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
    reasons = [ExplainedHit(hit, why, visit.reach.name(why.tool), others.get(why.tool)) for hit, why in pairs]
    return Column(pipeline=name, meaning=meaning, result=answer.result, reasons=tuple(reasons))


def _ranks(found: Mapping[str, Explained | str], but: str) -> Mapping[ToolId, int]:
    """Return the ranks of the tools in the other column."""
    others = [a for name, a in found.items() if name != but and not isinstance(a, str)]
    return {hit.tool.id: hit.rank for answer in others for hit in answer.result.hits}
