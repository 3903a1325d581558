"""Combines lexical and dense scores into one ranking, and estimates the confidence in its first hit.

The two default retrievers find candidates, features tell how much each arm counts for a query, and a calibration turns
the same features into the chance that the first hit is right, and that the catalog has a right tool at all. Text that
was pasted beside the request lowers the confidence. The numbers were fitted for each model, see `fitted`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shortlist.index.embedders import Vectors
from shortlist.index.index import Index
from shortlist.index.lexical import UNREAD, Matches
from shortlist.index.ports import NOTHING, Candidates, Rows
from shortlist.index.postings import SATURATION
from shortlist.index.vectors import SMALLEST, ExactVectorIndex
from shortlist.models import Confidence, Level, Scores, ToolId
from shortlist.search.pipeline import Evidence, Found, Fused, Matrix, Request, rank, spelled_rows
from shortlist.text.asks import Ask
from shortlist.text.heads import products_named
from shortlist.text.queries import QueryTerm
from shortlist.text.tokens import stem

NO_VECTORS = NOTHING._replace(deviation=1e-3)

CANDIDATE_FEATURES = (
    "lexical",  # the arm's score against the best one's
    "lexical_share",  # … against what a perfect match would have
    "coverage",  # the share of what was asked, by how telling it is, that the tool mentions at all
    "name_recall",  # the share of what was asked that stands in the name
    "name_precision",  # the share of the name that was asked for
    "server",  # the share of what was asked that names the server
    "lexical_rank",  # 1 for the first, 1/2 for the second …
    "cosine",
    "cosine_gap",  # how far behind the nearest
    "cosine_score",  # in standard deviations of the whole catalog's cosines
    "cosine_rank",
    "cosine_place",  # between the farthest candidate, 0, and the nearest, 1
    "exact",  # the query spells this name
)
QUERY_FEATURES = (
    "always",
    "coverage_best",  # of any candidate: is what was asked in this catalog at all
    "unknown",  # the share of the words that the catalog does not have
    "lexical_margin",  # first to second, of the first
    "cosine_best",
    "cosine_margin",
    "agreement",  # the arms put the same tool first
    "overlap",  # share of the arms' first ten in common
    "length",  # log of the words
    "identifier",  # it is, or holds, something spelled like a name
    "size",  # log of the number of tools
)


_NO_MATCH, _TENTH = np.array(0, np.float32), np.array(0.1, np.float32)
"""Arrays, because converting a number takes numpy as long as a hundred comparisons."""
NEAREST = 10
"""How many tools of the sample are compared with a query."""
HIGH, MEDIUM = 0.75, 0.4
"""Where `high` and `medium` begin, as the chance that the first hit is right."""
LOW, NONE_AT_MOST = 0.2, 0.19
"""Where `low` begins and `none` ends, so that no probability has two levels; the best on the training sets."""
LEVEL_ENDS: Mapping[Level, float] = {"none": LOW, "low": MEDIUM, "medium": HIGH, "high": math.inf}
"""The least chance that is no longer in a level."""
PASTED_AT_MOST = 0.35
"""The maximum confidence for a paste without a request; within `low`."""
NOTHING_ASKED = "reads like a request"
MEDIUM_AT_MOST = 0.74
"""The maximum confidence for a query that says only part of what is meant; within `medium`."""
FEW_TOOLS = 0.25
"""The `size` of ten tools. Among fewer, the first hit is right only as far as any is: it has hardly a rival."""
SURE = 0.8
"""A first hit this likely is never answered with `none`: a web search shares few words with its queries."""
SURE_BESIDE_A_PASTE = 0.85
"""Where `high` begins beside a paste: there the answers of development pastes are wrong more often than they say."""
MISSING_PRODUCT = 0.1
"""The odds of a match, relative to other requests, where a request names a product that no tool mentions: on training
requests over small sets of real servers, 0.6 % of those with a right tool and 5.5 % of the others do."""
FARTHEST = 4.0
"""Standardised features are clipped to this many standard deviations."""
_NEAR_END, _FAR_END = np.array((-FARTHEST, FARTHEST), np.float32).reshape(2, 1)

CONFIDENCE_FEATURES = (
    *(f"first_{name}" for name in CANDIDATE_FEATURES),
    *QUERY_FEATURES,
    "share",  # the first hit's part of all the belief
    "runner_up",  # the second's
    "spread",  # how many hits share the belief, as an entropy
    "gap",  # the first's score less the second's
    "parameters",  # the first hit says what it takes: one that does not is often as vague as others beside it
    "at_large",  # how near the tools of other catalogs come
)
_EXACT, _UNKNOWN, _COVERAGE, _AGREEMENT, _SHARE, _SIZE = map(
    CONFIDENCE_FEATURES.index, ("first_exact", "unknown", "first_coverage", "agreement", "share", "size")
)


class LexicalRetriever:
    """BM25F over the fields; a word with synonyms counts once, by the best match."""

    def __init__(self, index: Index) -> None:
        self._lexical = index.lexical

    def retrieve(self, request: Request, limit: int) -> Candidates:
        return self._lexical.retrieve(self.look_up(request), limit, request.among)

    def score(self, request: Request, rows: Rows) -> Scores:
        return self._lexical.score(self.look_up(request), rows)

    def look_up(self, request: Request) -> Matches:
        """Return what answers the terms of a request."""
        found: Matches | None = request.kept.get(self)
        if found is None:
            found = request.kept[self] = self._lexical.match(request.analysed.terms, self.stand_ins)
        return found

    def stand_ins(self, asked: QueryTerm) -> tuple[tuple[str, float], ...]:
        """Return the terms to look for that the catalog has, with their weights: the word and what may stand for it."""
        frequency = self._lexical.frequency
        known = tuple((t, w) for t, w in asked.instead if frequency(t)) if asked.instead else ()
        return ((asked.term, asked.weight), *known) if frequency(asked.term) else known


class DenseRetriever:
    """Cosine similarity between the query's vectors and every tool's."""

    def __init__(self, index: Index) -> None:
        self._vectors = index.dense

    def retrieve(self, request: Request, limit: int) -> Candidates:
        if self._vectors is None or request.vectors is None:
            return NO_VECTORS
        return self._vectors.retrieve(request.vectors, limit, request.among)

    def score(self, request: Request, rows: Rows) -> Scores:
        if self._vectors is None or request.vectors is None:
            return np.zeros(len(rows), np.float32)
        return self._vectors.score(request.vectors, rows)


class FeatureReader:
    """Reads the evidence off the index for the candidates of a request."""

    def __init__(self, index: Index, lexical: LexicalRetriever) -> None:
        self._index = index
        self._lexical = lexical

    def __call__(self, request: Request, candidates: Found) -> Evidence:
        rows, words, cosines = candidates.rows, candidates.signals.get("lexical"), candidates.signals.get("dense")
        lexical = np.zeros(len(rows), np.float32) if words is None else words
        dense = np.zeros(len(rows), np.float32) if cosines is None else self._cosines(cosines, rows, lexical)
        found = UNREAD if words is None else self._lexical.look_up(request)
        seen = _Seen(found, _ranked(lexical), _ranked(dense), candidates.spreads.get("dense", (0.0, 1.0)))
        lines = _lines(seen, found.gains(rows, self._index.size))
        if words is not None and (spelled := spelled_rows(self._index, request)):
            lines[-1] = [row in spelled for row in rows.tolist()]
        return Evidence(rows, lines.T, self._query(request, seen, lines))

    def _query(self, request: Request, seen: "_Seen", lines: Matrix) -> Matrix:
        """Describe the query, and how clearly each retriever answers it."""
        by_words, by_vectors, count = seen.by_words, seen.by_vectors, lines.shape[1]
        return np.array(
            (
                1.0,
                lines[2].item(lines[2].argmax()) if count else 0.0,
                seen.found.unknown,
                by_words.margin / max(by_words.best, 1e-6) if count > 1 else 1.0,
                max(by_vectors.best, 0.0),
                by_vectors.margin if count > 1 else 0.5,
                by_words.best > 0 and by_words.first == by_vectors.first,
                np.count_nonzero(np.minimum(by_words.ranks, by_vectors.ranks) >= _TENTH) / 10,
                math.log1p(request.analysed.words) / 4,
                bool(request.analysed.identifiers),
                math.log10(max(self._index.lexical.live, 1)) / 4,
            ),
            np.float32,
        )

    def _cosines(self, cosines: Matrix, rows: Rows, lexical: Matrix) -> Matrix:
        """Approximate a missing vector by lexical scores: the best lexical match counts as the nearest."""
        waiting = self._index.dense.waiting(rows) if self._index.dense else None
        if waiting is None or waiting.all():
            return cosines
        low, high = cosines[~waiting].min(), cosines[~waiting].max()
        guessed = low + (high - low) * lexical / max(float(lexical.max()), 1e-6)
        filled: Matrix = np.where(waiting, guessed, cosines).astype(np.float32)
        return filled


class _Arm(NamedTuple):
    """The candidates of one retriever, and how clearly its first one leads."""

    scores: Matrix
    ranks: Matrix
    """1 for the best, 1/2 for the next …; equal scores share a rank, and no match has none."""
    first: int
    worst: float
    best: float
    margin: float


def _ranked(scores: Matrix) -> _Arm:
    count = len(scores)
    if not count:
        return _Arm(scores, scores, 0, 0.0, 0.0, 0.0)
    rising = scores.copy()
    rising.sort()
    ranks = _reciprocals(count)[rising.searchsorted(scores, "right")]
    worst, best = rising.item(0), rising.item(-1)
    if worst <= 0:
        ranks[scores <= _NO_MATCH] = _NO_MATCH
    return _Arm(scores, ranks, int(ranks.argmax()), worst, best, best - rising.item(max(count - 2, 0)))


@lru_cache(maxsize=256)
def _reciprocals(count: int) -> Matrix:
    """Return the reciprocal rank, from the number of scores that are not better."""
    return np.concatenate([[0], 1 / np.arange(count, 0, -1)], dtype=np.float32)


class _Seen(NamedTuple):
    """What the features are made of."""

    found: Matches
    by_words: _Arm
    by_vectors: _Arm
    usual: tuple[float, float]
    """The mean and standard deviation of all cosines."""


def _lines(seen: _Seen, gains: Matrix) -> Matrix:
    """Write a line for each of the candidates' features: what was read, less a level, in parts of a span.

    All at once: with a hundred candidates it is the number of calls that takes the time.
    """
    (found, by_words, by_vectors, (mean, deviation)), dense = seen, seen.by_vectors.scores
    lines = np.zeros((len(CANDIDATE_FEATURES), len(dense)), np.float32)
    lines[0:2], lines[2:6], lines[6] = by_words.scores, gains, by_words.ranks
    lines[7:10], lines[10], lines[11] = dense, by_vectors.ranks, dense
    level = (0, 0, 0, 0, 0, 0, 0, 0, max(by_vectors.best, -1.0), mean, 0, by_vectors.worst, 0)
    most, asked = max(found.telling * (SATURATION + 1), 1e-6), max(found.telling, 1e-6)
    reach = max(by_vectors.best - by_vectors.worst, 1e-6)
    span = (max(by_words.best, 1e-6), most, asked, asked, 1, asked, 1, 1, 1, 4 * deviation, 1, reach, 1)
    levels_and_spans = np.array((*level, *span), np.float32).reshape(2, -1, 1)
    lines -= levels_and_spans[0]
    lines /= levels_and_spans[1]
    return lines


def named(names: Sequence[str], values: Matrix) -> dict[str, float]:
    """Return the numbers by their names, for explanations."""
    return dict(zip(names, values.tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class FusionWeights:
    """How much each feature counts, given what the query is like."""

    theta: Matrix
    glossed: Matrix | None = None
    """What is added for a request of another language, which was read word by word."""

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> "FusionWeights":
        """Read the part of a fitted file that is about fusion."""
        if tuple(raw["candidate_features"]) != CANDIDATE_FEATURES or tuple(raw["query_features"]) != QUERY_FEATURES:
            raise ValueError("the fusion weights belong to another version")
        glossed = np.array(raw["glossed"], np.float32) if "glossed" in raw else None
        return cls(np.array(raw["theta"], np.float32), glossed)

    def for_query(self, evidence: Evidence, *, is_glossed: bool = False) -> Matrix:
        weights: Matrix = self.theta.dot(evidence.query)
        return weights + self.glossed if is_glossed and self.glossed is not None else weights


class AdaptiveFusion:
    """A weighted sum of features whose weights depend on the query.

    Identifiers rely on lexical scores and sentences on vectors, and so does any query on the retriever with the clearer
    answer. The score is linear in the candidate's features, so it can be shown as a list of parts.
    """

    def __init__(self, reader: FeatureReader, weights: FusionWeights, ids: Sequence[ToolId]) -> None:
        self._reader = reader
        self._weights = weights
        self._ids = ids

    def __call__(self, request: Request, found: Found) -> Fused:
        rows, evidence = found.rows, self._reader(request, found)
        weights = self._weights.for_query(evidence, is_glossed=request.analysed.is_glossed)
        logits = evidence.candidates.dot(weights)
        return Fused(rank(logits, rows.astype(np.int32), self._ids, len(rows)), evidence, weights, logits)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Two logistic regressions over the features and their products; fitted on training sets, measured on others.

    The first row of each is for the first hit being right, the second for there being a right one.
    """

    centre: Matrix
    spread: Matrix
    weights: Matrix
    pairs: Matrix
    """By regression and feature, what the other features add to its weight."""
    bias: Matrix
    none_below: float
    """The chance of a match under which the answer is `none`, unless its first hit is sure."""

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> "Calibration":
        """Read the part of a fitted file that is about confidence."""
        if tuple(raw["features"]) != CONFIDENCE_FEATURES:
            raise ValueError("the calibration belongs to another version")
        arrays = {name: np.array(raw[name], np.float32) for name in ("centre", "spread", "weights", "pairs", "bias")}
        return cls(**arrays, none_below=float(raw["none_below"]))

    def judge(self, features: Matrix, proven: float = 0.0, missing: str | None = None) -> Confidence:
        """Judge an answer by its first hit; `proven`: how sure use makes it, `missing`: a product that no tool has."""
        right, there = self.chances(features)
        if missing is not None:
            there = there * MISSING_PRODUCT / (there * MISSING_PRODUCT + 1 - there)
        present = 1 - (1 - there) * (1 - proven)
        if features[_SIZE] < FEW_TOOLS and not features[_EXACT]:
            right *= present
        level = self._level(right, present)
        if level == "none":
            right = min(right, present, NONE_AT_MOST)
        else:
            right, present = max(right, LOW), max(right, present)
        reasons = (*_reasons(features.tolist()), *([f"no tool here mentions {missing}"] if missing else []))
        return Confidence(level=level, probability=right, match_probability=present, reasons=reasons)

    def chances(self, features: Matrix) -> tuple[float, float]:
        """Return the chance that the first hit is right where any is, and that any is."""
        usual = np.minimum(np.maximum((features - self.centre) / self.spread, _NEAR_END), _FAR_END)
        right, there = ((self.weights + self.pairs.dot(usual)).dot(usual) + self.bias).tolist()
        return _chance(right), _chance(there)

    def _level(self, right: float, present: float) -> Level:
        if present < self.none_below and right < SURE:
            return "none"
        return "high" if right >= HIGH else "medium" if right >= MEDIUM else "low"


def shown_chance(confidence: Confidence, decimals: int = 2) -> float:
    """Round the chance that the first hit is right as it is shown: never up to where the next level begins."""
    chance, end = round(confidence.probability, decimals), LEVEL_ENDS[confidence.level]
    return chance if chance < end or confidence.probability >= end else round(end - 10**-decimals, decimals)


def _chance(score: float) -> float:
    return 1 / (1 + math.exp(-min(max(score, -30.0), 30.0)))


NO_MATCH = Confidence(
    level="none", probability=0.0, match_probability=0.0, reasons=("no tool matches, or none passes the filters",)
)


def confidence_features(
    evidence: Evidence, logits: Matrix, first_row: int, *, parameters: bool, at_large: float
) -> Matrix:
    """Describe the first hit, the query, how the belief is spread over the candidates, and what others offer."""
    first = evidence.rows.tolist().index(first_row)
    behind = logits - logits[logits.argmax()]
    odds = np.exp(behind)
    total = sum(odds.tolist())
    entropy = math.log(total) - float(odds.dot(behind)) / total
    share, second, gap = float(odds[first]) / total, 0.0, 3.0
    if len(logits) > 1:
        odds[first] = -1.0
        runner_up = int(odds.argmax())
        second, gap = float(odds[runner_up]) / total, float(behind[first] - behind[runner_up])
    spread = (share, second, entropy, min(max(gap, -5.0), 5.0), parameters, at_large)
    return np.array((*evidence.candidates[first].tolist(), *evidence.query.tolist(), *spread), np.float32)


def _reasons(features: list[float]) -> tuple[str, ...]:
    found = []
    if features[_EXACT]:
        found.append("the query spells its name")
    if features[_UNKNOWN] > 0.34:
        found.append(f"{features[_UNKNOWN]:.0%} of the words are unknown here")
    if features[_COVERAGE] < 0.34:
        found.append(f"it mentions {features[_COVERAGE]:.0%} of what was asked")
    if features[_AGREEMENT]:
        found.append("words and meaning agree on it")
    if features[_SHARE] < 0.4:
        found.append("others are nearly as good")
    return tuple(found)


def as_asked(confidence: Confidence, ask: Ask) -> Confidence:
    """Lower the confidence as far as a message was pasted, or may have been."""
    if not ask.is_clear:
        return _mostly_pasted(confidence, ask.characters)
    if not ask.asks:
        return with_other_words(confidence)
    return beside_a_paste(confidence) if ask.characters else confidence


def with_other_words(confidence: Confidence) -> Confidence:
    """Lower a high confidence to medium: words of earlier turns, or of a paste, match what was not asked for now."""
    return _medium(confidence) if confidence.level == "high" else confidence


def beside_a_paste(confidence: Confidence) -> Confidence:
    """Lower a barely high confidence to medium: the request is about a text that was not searched by."""
    is_barely = confidence.level == "high" and confidence.probability < SURE_BESIDE_A_PASTE
    return _medium(confidence) if is_barely else confidence


def _mostly_pasted(confidence: Confidence, characters: int) -> Confidence:
    """Lower the confidence of an answer to a message in which nothing reads like a request."""
    others = [reason for reason in confidence.reasons if not reason.endswith(NOTHING_ASKED)]
    return replace(
        confidence,
        level="none" if confidence.level == "none" else "low",
        probability=min(confidence.probability, PASTED_AT_MOST),
        reasons=(*others, f"nothing in {characters:,} characters {NOTHING_ASKED}"),
    )


def _medium(confidence: Confidence) -> Confidence:
    return replace(confidence, level="medium", probability=min(confidence.probability, MEDIUM_AT_MOST))


@dataclass(frozen=True, slots=True)
class Background:
    """Vectors of a sample of tools from other catalogs, by one model.

    A query nearer to them than to its own catalog probably asks for something the catalog does not have.
    """

    sample: ExactVectorIndex

    @classmethod
    def of(cls, vectors: Vectors) -> "Background":
        return cls(ExactVectorIndex.of("", vectors))

    @classmethod
    def read(cls, path: Path) -> "Background":
        with np.load(path) as arrays:
            return cls(ExactVectorIndex.restore("", dict(arrays)))

    def write(self, path: Path) -> None:
        state = self.sample.state()
        np.savez(path, codes=state["codes"], scales=state["scales"])

    def first(self, dimensions: int) -> "Background":
        """Return the sample as embedded by a model that keeps only its first dimensions."""
        if dimensions == self.sample.dimensions:
            return self
        vectors = self.sample.vectors(np.arange(self.sample.size))[:, :dimensions]
        return Background.of(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), SMALLEST))

    def nearness(self, vectors: Vectors) -> float:
        """Return how near the nearest tools of the sample are to a query as a whole."""
        cosines = self.sample.cosines(vectors[:1])[0]
        cosines.partition(-NEAREST)
        return float(np.add.reduce(cosines[-NEAREST:]) / NEAREST)  # numpy takes three times as long for a mean


def missing_product(request: Request, index: Index) -> str | None:
    """Return a product that a request is about and no tool of the catalog mentions."""
    has = index.lexical.frequency
    return next((name for name in products_named(request.analysed.text) if not has(name) and not has(stem(name))), None)


def at_large(background: Background | None, request: Request) -> float:
    """Return how near tools of other catalogs are; 0 where the query or the model has no vectors for it."""
    return 0.0 if background is None or request.vectors is None else background.nearness(request.vectors)
