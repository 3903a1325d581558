"""Why a tool ranks where it does: in data, and in text."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from shortlist.models import Confidence, OtherAsk, Query, Relation, SearchResult, Tool, ToolId
from shortlist.schema import nested_properties, texts_of
from shortlist.search.exemplars import EXEMPLARS
from shortlist.search.fusion import CANDIDATE_FEATURES, NO_MATCH, QUERY_FEATURES, named, shown_chance
from shortlist.search.pipeline import Pipeline, PipelineRun, Ranking, Request, Retriever
from shortlist.search.presets import Parts
from shortlist.search.spelling import respelled
from shortlist.text.asks import read_ask
from shortlist.text.documents import FIELDS
from shortlist.text.queries import Wish
from shortlist.text.tokens import clean_text, one_line, split_identifier, terms

_WORD = re.compile(r"[\w'-]+")
SHOWN = 80
"""Characters that are shown of a request."""
SMALLEST_PART = 0.01
"""Smaller contributions are not shown."""

FEATURE_MEANINGS: Mapping[str, str] = {
    "lexical": "score by words, relative to the best tool",
    "lexical_share": "score by words, relative to a perfect match",
    "coverage": "share of the request that the tool mentions",
    "name_recall": "share of the request that is in the tool's name",
    "name_precision": "share of the tool's name that is in the request",
    "server": "share of the request that names the server",
    "lexical_rank": "rank by words",
    "cosine": "similarity in meaning",
    "cosine_gap": "similarity lost to the nearest tool",
    "cosine_score": "similarity relative to the whole catalog",
    "cosine_rank": "rank by meaning",
    "cosine_place": "similarity between the farthest candidate (0) and the nearest (1)",
    "exact": "the request spells the tool's name",
    EXEMPLARS: "earlier requests that led to this tool",
}
"""What each part of a fused score stands for."""
ARM_MEANINGS: Mapping[str, str] = {"lexical": "by words", "dense": "by meaning", EXEMPLARS: "by earlier requests"}
"""What each retriever goes by."""
STAGE_MEANINGS: Mapping[str, str] = {
    "names": "the request spells a tool's name",
    "action": "its name says what the request asks to do",
    "context": "servers and tools used last",
    "together": "tools that are often called together",
    "deprecated": "deprecated tools rank lower",
    "preferred": "hints of the caller",
    "families": "near-duplicates are shown as one",
    "diversity": "different tools are preferred",
    "copies": "copies follow their original",
    "first known": "lookalikes follow their original",
}
RELATIONS: Mapping[Relation, str] = {
    "new": "is new",
    "continues": "continues the chat",
    "repeats": "repeats the one before it",
    "accepts": "accepts an offer in the chat",
    "fills": "answers a question in the chat",
    "corrects": "corrects the one before it",
    "beside": "is read beside clearer requests",
}
"""How a request relates to what was said and called before it, in words."""


@dataclass(frozen=True, slots=True)
class TermMatch:
    """A word of the query that the tool has, as the tool writes it, the fields it is in, and its contribution."""

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
    """Words of the query that the tool does not mention."""
    unknown: tuple[str, ...] = ()
    """Words of the query that no tool mentions."""
    arms: Mapping[str, Arm]
    parts: Mapping[str, float]
    """The contribution of each feature to the fused score."""
    query: Mapping[str, float]
    """What the query was like, which decides how much each feature counts."""
    stages: Mapping[str, tuple[int | None, int | None]]
    """The rank before and after each stage that moved it."""
    read_as: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The English words that words of another language were read as, the likeliest first."""
    notes: tuple[str, ...] = ()
    """What a caller should know about the answer, such as that the language of the request is not supported."""
    corrected: Mapping[str, str] = field(default_factory=dict)
    """Words taken for typing errors, and what they were read as."""
    reading: tuple[str, ...] = ()
    """How the request was read: what was set aside as pasted, what it follows on from, what was taken from the chat."""
    wishes: tuple[str, ...] = ()
    """The things that the request asks for, if there are several, and the tool that serves each first."""
    wish: str = ""
    """The part of the request that the tool serves and that is explained here, if it asks for several things."""
    other: str = ""
    """What else may be asked, if the tool was found for that and is explained by it."""
    confidence: Confidence = NO_MATCH
    """How likely the first hit is right: the first for the wish, if there are several."""
    relation: Relation = "new"
    """How the request relates to the chat and the calls before it."""
    taken: str = ""
    """What was taken from earlier messages of the chat."""

    def text(self) -> str:
        """Render the explanation as text."""
        place = f"rank {self.rank}" if self.rank else "not among the results"
        lines = [f"{self.tool}: {place}" + (f", score {self.score:.2f}" if self.score is not None else "")]
        if self.wish:
            lines.append(f"  serves the wish {one_line(self.wish, SHOWN)!r}; its scores are those of this wish")
        if self.other:
            lines.append(
                f"  found for the other reading {one_line(self.other, SHOWN)!r}; the scores are for that reading"
            )
        lines += [f"  {line}" for line in (*self._confidence(), *self.notes, *self.reading, *self.wishes)]
        lines += [f"  {word!r} read as {'/'.join(senses)}" for word, senses in self.read_as.items()]
        lines += [f"  {typed!r} taken as {meant!r}" for typed, meant in self.corrected.items()]
        lines += [f"  {_match_line(match)}" for match in self.matches]
        if self.unmatched:
            words = len(self.matches) + len(self.unmatched)
            share = f"mentions {len(self.matches)} of {words} words of the request"
            lines.append(f"  {share}; not mentioned: {', '.join(self.unmatched)}")
        for name, arm in self.arms.items():
            place = f"rank {arm.rank}" if arm.rank else "no match"
            lines.append(f"  {ARM_MEANINGS.get(name, name)}: score {arm.score:.3f}, {place}")
        lines += [f"  {value:+.2f}  {FEATURE_MEANINGS.get(name, name)}" for name, value in self.shown]
        lines += [
            f"  rank {before or '–'} → {after or '–'}  {STAGE_MEANINGS.get(name, name)}"
            for name, (before, after) in self.stages.items()
        ]
        return "\n".join(lines)

    def limited_to(self, corrected: Mapping[str, str]) -> "Explanation":
        """Return the explanation for a caller who may know only of these corrections and not of every tool's words."""
        hidden = {meant: typed for typed, meant in self.corrected.items() if typed not in corrected}
        as_typed = {word: typed for meant, typed in hidden.items() for word in meant.split()}
        return replace(
            self,
            corrected={typed: meant for typed, meant in self.corrected.items() if typed in corrected},
            unmatched=tuple(dict.fromkeys(as_typed.get(word.lower(), word) for word in self.unmatched)),
            unknown=(),
            wishes=(),
            wish=respelled(self.wish, hidden),
        )

    @property
    def shown(self) -> list[tuple[str, float]]:
        """The contributions that matter, the largest first."""
        parts = [(name, value) for name, value in self.parts.items() if abs(value) >= SMALLEST_PART]
        return sorted(parts, key=lambda part: -abs(part[1]))

    def _confidence(self) -> Iterator[str]:
        sure = self.confidence
        about = "for this wish is right" if self.wish else "is right"
        yield (
            f"confidence: {sure.level}, {shown_chance(sure):.0%} that the first hit {about}, "
            f"{sure.match_probability:.0%} that the catalog has a tool for it"
        )
        if sure.reasons:
            yield f"why: {'; '.join(sure.reasons)}"
        if self.unknown:
            yield f"no tool mentions {', '.join(self.unknown)}"


@dataclass(frozen=True, slots=True)
class Explained:
    """An answer, and why each of its hits, or each tool that was asked about, is where it is."""

    result: SearchResult
    explanations: tuple[Explanation, ...]


def every_hit(result: SearchResult) -> tuple[ToolId, ...]:
    return tuple(hit.tool.id for hit in result.hits)


def first_hit(result: SearchResult) -> tuple[ToolId, ...]:
    return every_hit(result)[:1]


def _match_line(match: TermMatch) -> str:
    found = f" found as {match.found!r}" if match.found != match.asked else ""
    return f"{match.asked!r}{found} in {', '.join(match.fields)}: {match.score:.2f} (idf {match.idf:.1f})"


def explain(parts: Parts, pipeline: Pipeline, request: Request, run: PipelineRun, row: int) -> Explanation:
    """Collect what the retrievers, the fusion and the stages made of one row."""
    position = _rank(run.ranking, row)
    matches, unmatched, unknown = _matches(parts, request, row)
    return Explanation(
        tool=parts.index.ids[row],
        rank=position,
        score=float(run.ranking.scores[position - 1]) if position else None,
        matches=matches,
        unmatched=unmatched,
        unknown=unknown,
        arms={name: _arm(retriever, request, row) for name, retriever in pipeline.retrievers.items()},
        parts=_parts(run, row),
        query=named(QUERY_FEATURES, run.fused.evidence.query) if run.fused.evidence else {},
        stages=_stages(run, row),
        read_as=_read_as(request),
        corrected=request.corrected,
        relation=request.query.relation,
    )


def explain_answer(
    result: SearchResult,
    answers: Mapping[Wish, SearchResult],
    tools: Sequence[ToolId],
    explanations: Callable[[Query, Sequence[ToolId]], Sequence[Explanation]],
) -> Explained:
    """Explain tools of an answer, each by the wish that it serves; `answers` are those to the wishes of the query."""
    hits = {hit.tool.id: hit for hit in result.hits}
    asked = {wish.text: answer.query for wish, answer in answers.items()}
    others = {tool: hits[tool].other for tool in tools if tool in hits}
    serves = {tool: (hits[tool].wish or others[tool]) if tool in hits else "" for tool in tools}
    reading, wishes = tuple(read_lines(result.query)), tuple(_wish_lines(result, answers))
    found: dict[ToolId, Explanation] = {}
    for wish in dict.fromkeys(serves.values()):
        sure = next((served.confidence for served in result.wishes if served.text == wish), result.confidence)
        for why in explanations(asked.get(wish, result.query), [tool for tool in tools if serves[tool] == wish]):
            found[why.tool] = replace(
                why,
                rank=hits[why.tool].rank if why.tool in hits else None,
                corrected={**result.did_you_mean, **why.corrected},
                notes=result.notes,
                reading=reading,
                wishes=wishes,
                wish="" if others.get(why.tool) else wish,
                other=others.get(why.tool, ""),
                confidence=sure,
                relation=result.query.relation,
            )
    return Explained(result, tuple(found[tool] for tool in tools))


def read_lines(query: Query) -> Iterator[str]:
    """Say what a query asks, what was pasted into it, and what it follows on from."""
    ask = read_ask(clean_text(query.text))
    if ask.characters:
        yield from asked_lines(ask.text, ask.characters, ask.other)
    if query.relation != "new":
        yield f"the request {RELATIONS[query.relation]}{_after(query)}"


def asked_lines(asked: str, pasted: int, other: OtherAsk | None) -> Iterator[str]:
    """Say what is asked, how much is pasted, and what else may be asked."""
    yield f"asked: {one_line(asked, SHOWN)!r}" + (f"; {pasted:,} characters are pasted" if pasted else "")
    if other is not None:
        yield f"it may also ask ({other.likelihood:.0%}): {one_line(other.text, SHOWN)!r}"


def chat_lines(query: Query, taken: str) -> Iterator[str]:
    """Say how the last message of a chat relates to the messages before, and what was taken from them."""
    yield f"the request {RELATIONS[query.relation]}{_after(query)}"
    yield f"taken from the chat: {one_line(taken, SHOWN)!r}" if taken else "taken from the chat: nothing"


def _after(query: Query) -> str:
    return f", after the call of {query.recent_tools[0]}" if query.recent_tools else ""


def _wish_lines(result: SearchResult, answers: Mapping[Wish, SearchResult]) -> Iterator[str]:
    about = {wish.text: wish.about for wish in answers}
    said = {wish.text: wish.said for wish in answers}
    for served in result.wishes:
        line = f"wish: {one_line(served.text, SHOWN)!r}"
        if said.get(served.text):
            line += f", read as {one_line(said[served.text], SHOWN)!r}"
        if about.get(served.text):
            line += f", about {one_line(about[served.text], SHOWN)!r}"
        yield line + (f", served first by {served.first}" if served.first else "")


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


def _matches(
    parts: Parts, request: Request, row: int
) -> tuple[tuple[TermMatch, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the words that the tool has, those that it does not have, and those that no tool has."""
    lexical, found, missed, unknown = parts.index.lexical, [], [], []
    asked_words, tool_words = _spellings(_asked_texts(request)), _spellings(_texts(parts.index.tool(row)))
    for asked in request.analysed.terms:
        options, word = [], asked_words.get(asked.term, asked.term)
        stand_ins = parts.lexical.stand_ins(asked)
        for term, weight in stand_ins:
            postings = lexical.postings(term)
            at = np.flatnonzero(postings.rows == row)
            if len(at):
                idf, fields = lexical.idf(term), _fields(int(postings.fields[at[0]]))
                written = tool_words.get(term) or asked_words.get(term, term)
                options.append(TermMatch(word, written, fields, idf, weight * idf * float(postings.weights[at[0]])))
        if options:
            found.append(max(options, key=lambda match: match.score))
        else:
            missed.append(word)
        if not stand_ins:
            unknown.append(word)
    return tuple(sorted(found, key=lambda match: -match.score)), tuple(missed), tuple(unknown)


def _spellings(texts: Iterable[str]) -> Mapping[str, str]:
    """Return how the terms of some texts are written there: as whole words, not as stems."""
    found: dict[str, str] = {}
    for word in (word for text in texts for word in _WORD.findall(text)):
        for part in (*split_identifier(word), word):
            for term in terms(part):
                found.setdefault(term, part)
    return found


def _asked_texts(request: Request) -> Iterator[str]:
    reading = request.analysed.reading
    yield request.analysed.text
    yield from (sense.english for unit in (reading.units if reading else ()) for sense in unit.senses)


def _texts(tool: Tool) -> Iterator[str]:
    yield from (tool.name, tool.title, tool.description, tool.server, tool.category, *tool.tags, *tool.keywords)
    for name, schema in nested_properties(tool.input_schema):
        yield from (name, *texts_of(schema))


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
