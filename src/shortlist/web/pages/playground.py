"""The search playground: results of one or two pipelines, with explanations."""

from collections.abc import Mapping
from dataclasses import dataclass

from shortlist.access.catalog import ScopedCatalog
from shortlist.access.principal import token_principal
from shortlist.demo import FIRST_SEARCHES
from shortlist.disclosure.budget import estimate_tokens
from shortlist.errors import ShortlistError
from shortlist.gateway.callers import in_reach, known_corrections
from shortlist.gateway.discovery import Surroundings, search_answer
from shortlist.gateway.tools import SearchRequest
from shortlist.models import Filters, Hit, Query, SearchResult, ToolId
from shortlist.search.explain import FEATURE_MEANINGS, SMALLEST_PART, Explained, Explanation
from shortlist.search.presets import PIPELINES
from shortlist.text.tokens import one_line
from shortlist.web.page import Page, Visit

LIMITS = (5, 10, 20)

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
    def parts(self) -> list[tuple[str, str, float]]:
        """The name, meaning and contribution of each feature, the largest first."""
        return [(name, FEATURE_MEANINGS.get(name, ""), value) for name, value in self.why.shown]

    @property
    def largest_part(self) -> float:
        return max((abs(value) for _, _, value in self.parts), default=1.0)

    @property
    def boost(self) -> float | None:
        """What the stages added to the fused score."""
        if not self.why.parts or self.why.score is None:
            return None
        added = self.why.score - sum(self.why.parts.values())
        return added if abs(added) >= SMALLEST_PART else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One pipeline's result, or the error."""

    pipeline: str
    meaning: str
    result: SearchResult | None = None
    reasons: tuple[ExplainedHit, ...] = ()
    problem: str = ""
    said: str = ""
    """The literal answer that a model gets."""

    @property
    def tokens(self) -> int:
        return estimate_tokens(self.said)

    @property
    def best(self) -> Mapping[str, float]:
        """Each retriever's largest score among the hits, the scale of its bars."""
        scores: dict[str, float] = {}
        for reason in self.reasons:
            for arm, view in reason.why.arms.items():
                scores[arm] = max(scores.get(arm, 0.0), view.score)
        return scores


@dataclass(frozen=True, slots=True)
class ChosenCaller:
    """The caller that a search is made as, and what it can reach."""

    name: str
    reach: ScopedCatalog


def page(visit: Visit) -> Page:
    """Run the query with the chosen pipelines, as the chosen caller; nothing is recorded."""
    asker = _asker(visit)
    text = visit.query.get("q", "").strip()
    limit = next((n for n in LIMITS if str(n) == visit.query.get("limit")), LIMITS[0])
    chosen = (visit.query.get("a") or "default", visit.query.get("b", ""))
    found = {name: _ask(visit, asker, text, limit, name) for name in chosen if name and text}
    return Page(
        "playground.html",
        f"{one_line(text, 60)} · Playground" if text else "Playground",
        {
            "text": text,
            "limit": limit,
            "limits": LIMITS,
            "chosen": chosen,
            "pipelines": tuple(PIPELINES),
            "columns": [_column(visit, asker, answer, name, _ranks(found, name)) for name, answer in found.items()],
            "asker": asker.name,
            "callers": [] if visit.limited else list(visit.state.settings.tokens),
            "examples": FIRST_SEARCHES,
        },
    )


def _asker(visit: Visit) -> ChosenCaller:
    """Return the caller that was chosen; only a visitor with full rights can choose another."""
    token = visit.state.settings.tokens.get(visit.query.get("as", "")) if not visit.limited else None
    return (
        ChosenCaller("", visit.reach)
        if token is None
        else ChosenCaller(token.name, visit.state.reach(token_principal(token)))
    )


def _ask(visit: Visit, asker: ChosenCaller, text: str, limit: int, pipeline: str) -> Explained | str:
    # As the gateway searches for a client: only visible tools, near-duplicates collapsed.
    filters = asker.reach.within(Filters())
    query = Query(text=text, limit=limit, filters=filters, collapse=True, pipeline=pipeline)
    try:
        return visit.sources.explained(query)
    except ShortlistError as error:
        return str(error)


def _column(
    visit: Visit, asker: ChosenCaller, answer: Explained | str, name: str, others: Mapping[ToolId, int]
) -> Column:
    meaning = MEANINGS.get(name, "")
    if isinstance(answer, str):
        return Column(pipeline=name, meaning=meaning, problem=answer)
    result = in_reach(answer.result, asker.reach)
    corrected = known_corrections(result, asker.reach)
    explained = {why.tool: why if corrected is None else why.limited_to(corrected) for why in answer.explanations}
    reasons = tuple(
        ExplainedHit(hit, explained[hit.tool.id], asker.reach.name(hit.tool.id), others.get(hit.tool.id))
        for hit in result.hits
    )
    said = _literal(visit, asker, result)
    return Column(pipeline=name, meaning=meaning, result=result, reasons=reasons, said=said)


def _literal(visit: Visit, asker: ChosenCaller, result: SearchResult) -> str:
    """Return the text that a model gets for this search."""
    around = Surroundings(
        name_of=asker.reach.name,
        note_of=lambda hit: visit.state.tool_note(hit.tool),
        servers=asker.reach.servers,
        notes=tuple(result.notes),
    )
    request = SearchRequest(queries=(result.query.text,), limit=result.query.limit)
    blocks = search_answer(request, [result], around)["content"]
    return "\n".join(str(block["text"]) for block in blocks)


def _ranks(found: Mapping[str, Explained | str], but: str) -> Mapping[ToolId, int]:
    """Return the ranks of the tools in the other column."""
    others = [a for name, a in found.items() if name != but and not isinstance(a, str)]
    return {hit.tool.id: hit.rank for answer in others for hit in answer.result.hits}
