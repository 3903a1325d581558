"""Why a tool ranks where it does: in data, and in text."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from shortlist.models import Query, ToolId
from shortlist.search.exemplars import EXEMPLARS
from shortlist.search.fusion import CANDIDATE_FEATURES, QUERY_FEATURES, named
from shortlist.search.pipeline import Pipeline, PipelineRun, Ranking, Request, Retriever
from shortlist.search.presets import Parts
from shortlist.text.asks import read_ask
from shortlist.text.documents import FIELDS
from shortlist.text.queries import wishes
from shortlist.text.tokens import clean_text, one_line

SHOWN = 80
"""Characters that are shown of a request."""


@dataclass(frozen=True, slots=True)
class TermMatch:
    """A query term that the tool has, the fields it is in, and its contribution."""

    asked: str
    found: str
    fields: tuple[str, ...]
    idf: float
    score: float


@dataclass(frozen=True, slots=True)
class Arm:
    """A retriever's own view of the tool."""

    score: float
    rank: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Everything that determined a tool's rank."""

    tool: ToolId
    rank: int | None
    score: float | None
    matches: tuple[TermMatch, ...]
    unmatched: tuple[str, ...]
    arms: Mapping[str, Arm]
    parts: Mapping[str, float]
    """The contribution of each feature to the fused score."""
    query: Mapping[str, float]
    """What the query was like, which decides how much each feature counts."""
    stages: Mapping[str, tuple[int | None, int | None]]
    """The rank before and after each stage that moved it."""
    read_as: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The English words that words of another language were read as, the likeliest first."""
    corrected: Mapping[str, str] = field(default_factory=dict)
    """Words taken for typing errors, and what they were read as."""
    reading: tuple[str, ...] = ()
    """How the request was read: what was set aside as pasted, what it follows on from, and its wishes."""

    def text(self) -> str:
        """Render the explanation as text."""
        place = f"rank {self.rank}" if self.rank else "not among the results"
        lines = [f"{self.tool}: {place}" + (f", score {self.score:.2f}" if self.score is not None else "")]
        lines += [f"  {line}" for line in self.reading]
        lines += [f"  {word!r} read as {', '.join(senses)}" for word, senses in self.read_as.items()]
        lines += [f"  {typed!r} taken as {meant!r}" for typed, meant in self.corrected.items()]
        lines += [
            f"  {m.asked!r} found as {m.found!r} in {', '.join(m.fields)}: {m.score:.2f} (idf {m.idf:.1f})"
            for m in self.matches
        ]
        if self.unmatched:
            lines.append(f"  not mentioned: {', '.join(self.unmatched)}")
        for name, arm in self.arms.items():
            lines.append(f"  {name}: score {arm.score:.3f}, " + (f"rank {arm.rank}" if arm.rank else "no match"))
        parts = sorted(self.parts.items(), key=lambda part: -abs(part[1]))
        lines += [f"  {name:<15} {value:+.2f}" for name, value in parts if abs(value) >= 0.01]
        lines += [f"  stage {name}: rank {before} → {after}" for name, (before, after) in self.stages.items()]
        return "\n".join(lines)


def explain(parts: Parts, pipeline: Pipeline, request: Request, run: PipelineRun, row: int) -> Explanation:
    """Collect what the retrievers, the fusion and the stages made of one row."""
    position = _rank(run.ranking, row)
    matches, unmatched = _matches(parts, request, row)
    return Explanation(
        tool=parts.index.ids[row],
        rank=position,
        score=float(run.ranking.scores[position - 1]) if position else None,
        matches=matches,
        unmatched=unmatched,
        arms={name: _arm(retriever, request, row) for name, retriever in pipeline.retrievers.items()},
        parts=_parts(run, row),
        query=named(QUERY_FEATURES, run.fused.evidence.query) if run.fused.evidence else {},
        stages=_stages(run, row),
        read_as=_read_as(request),
        corrected=request.corrected,
        reading=tuple(_reading(request.query)),
    )


def _reading(query: Query) -> Iterator[str]:
    ask = read_ask(clean_text(query.text))
    if ask.characters:
        yield f"asked: {one_line(ask.text, SHOWN)!r}; {ask.characters:,} characters are pasted"
    if query.relation != "new":
        called = f" after {query.recent_tools[0]}" if query.recent_tools else ""
        yield f"the request {query.relation}{called}"
    for wish in wishes(ask.text):
        yield f"wish: {one_line(wish.text, SHOWN)!r}" + (
            f", about {one_line(wish.about, SHOWN)!r}" if wish.about else ""
        )


def _read_as(request: Request) -> Mapping[str, tuple[str, ...]]:
    reading = request.analysed.reading
    return {u.text: tuple(sense.english for sense in u.senses) for u in (reading.units if reading else ()) if u.senses}


def _arm(retriever: Retriever, request: Request, row: int) -> Arm:
    """Ask a retriever for a row's score and its rank among everything that matches."""
    mask = request.among.rows
    score = float(retriever.score(request, np.array([row]))[0]) if mask is None or mask[row] else 0.0
    if score <= 0:
        return Arm(score, None)
    better = retriever.retrieve(request, max(request.among.size, 1)).scores > score
    return Arm(score, int(np.count_nonzero(better)) + 1)


def _rank(ranking: Ranking, row: int) -> int | None:
    found = np.flatnonzero(ranking.rows == row)
    return int(found[0]) + 1 if len(found) else None


def _matches(parts: Parts, request: Request, row: int) -> tuple[tuple[TermMatch, ...], tuple[str, ...]]:
    lexical, found, missed = parts.index.lexical, [], []
    for asked in request.analysed.terms:
        options = []
        for term, weight in parts.lexical.stand_ins(asked):
            postings = lexical.postings(term)
            at = np.flatnonzero(postings.rows == row)
            if len(at):
                score = weight * lexical.idf(term) * float(postings.weights[at[0]])
                options.append(
                    TermMatch(asked.term, term, _fields(int(postings.fields[at[0]])), lexical.idf(term), score)
                )
        if options:
            found.append(max(options, key=lambda match: match.score))
        else:
            missed.append(asked.term)
    return tuple(sorted(found, key=lambda match: -match.score)), tuple(missed)


def _fields(bits: int) -> tuple[str, ...]:
    return tuple(field for position, field in enumerate(FIELDS) if bits >> position & 1)


def _parts(run: PipelineRun, row: int) -> Mapping[str, float]:
    evidence, weights = run.fused.evidence, run.fused.weights
    if evidence is None or weights is None or row not in evidence.rows:
        return {}
    values = evidence.candidates[int(np.flatnonzero(evidence.rows == row)[0])] * weights
    learned = run.found.signals.get(EXEMPLARS)
    lift = {} if learned is None else {EXEMPLARS: float(learned[run.found.rows == row][0])}
    return {**named(CANDIDATE_FEATURES, values), **lift}


def _stages(run: PipelineRun, row: int) -> Mapping[str, tuple[int | None, int | None]]:
    moved, before = {}, _rank(run.fused.ranking, row)
    for name, ranking in run.after.items():
        after = _rank(ranking, row)
        if after != before:
            moved[name] = (before, after)
        before = after
    return moved
