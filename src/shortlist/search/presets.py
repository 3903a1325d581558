"""The named pipelines."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shortlist.errors import InvalidInput
from shortlist.index.index import Index
from shortlist.index.lexical import ExactLexicalIndex
from shortlist.index.postings import FieldWeight
from shortlist.models import SearchMode, ToolId
from shortlist.search.exemplars import EXEMPLARS, ExemplarRetriever, LiftedFusion, Memory
from shortlist.search.families import (
    ANY_ORDER,
    NO_COPIES,
    Copies,
    CopyOfFirst,
    Deprecated,
    Families,
    FirstKnown,
    ServerOrder,
)
from shortlist.search.fitted import Fitted
from shortlist.search.fusion import AdaptiveFusion, DenseRetriever, FeatureReader, LexicalRetriever
from shortlist.search.modes import (
    Exhaustive,
    NameScores,
    PlainScores,
    RankFusion,
    RegexScores,
    SingleArm,
    TfIdfScores,
    WeightedFusion,
    exact_match,
    fuzzy_match,
    prefix_match,
)
from shortlist.search.pipeline import (
    Acting,
    CoUse,
    Diversity,
    FollowUp,
    Fuse,
    Pipeline,
    Preferred,
    Retriever,
    SpelledNames,
    Stage,
    Together,
)
from shortlist.search.spelling import Speller
from shortlist.text.documents import FIELDS
from shortlist.text.queries import Expansions

STACKONE_ALPHA = 0.2
"""Their published mix: α·BM25 + (1−α)·TF-IDF."""
EVEN = dict.fromkeys(FIELDS, FieldWeight(1.0, 0.0, 1.0))


def nothing_together(_: ToolId) -> Mapping[ToolId, float]:
    """Return nothing: no tools are known to be called together."""
    return {}


@dataclass(frozen=True, slots=True)
class Parts:
    """What pipelines are built from, for one version of the index."""

    index: Index
    fitted: Fitted
    lexical: LexicalRetriever
    reader: FeatureReader
    speller: Speller
    together: Together = nothing_together
    memory: Memory | None = None
    order: ServerOrder = ANY_ORDER
    copies: Copies = NO_COPIES

    @classmethod
    def of(cls, index: Index, fitted: Fitted, expansions: Expansions | None = None) -> "Parts":
        lexical = LexicalRetriever(index)
        return cls(index, fitted, lexical, FeatureReader(index, lexical), Speller(index, expansions))

    def stages(self) -> dict[str, Stage]:
        return {
            "names": SpelledNames(self.index),
            "action": Acting(self.index),
            "context": FollowUp(self.index),
            "together": CoUse(self.index, self.together),
            "deprecated": Deprecated(self.index),
            "first known": FirstKnown(self.index, self.order),
            "preferred": Preferred(self.index),
            "families": Families(self.index, self.order),
            "diversity": Diversity(self.index),
            "copies": CopyOfFirst(self.index, self.copies),
        }


def _default(parts: Parts) -> Pipeline:
    fuse = AdaptiveFusion(parts.reader, parts.fitted.fusion, parts.index.ids)
    learned = {EXEMPLARS: ExemplarRetriever(parts.index, parts.memory)} if parts.memory else {}
    return Pipeline(
        name="default",
        retrievers={"lexical": parts.lexical, "dense": DenseRetriever(parts.index), **learned},
        fuse=LiftedFusion(fuse, parts.index.ids) if learned else fuse,
        stages=parts.stages(),
        fitted_on=parts.fitted.fitted_on,
    )


def _both(name: str, fuse: Callable[[Parts], Fuse]) -> Callable[[Parts], Pipeline]:
    return lambda parts: Pipeline(
        name=name,
        retrievers={"lexical": parts.lexical, "dense": DenseRetriever(parts.index)},
        fuse=fuse(parts),
        stages=parts.stages(),
    )


def _alone(name: str, retriever: Callable[[Parts], Retriever]) -> Callable[[Parts], Pipeline]:
    return lambda parts: Pipeline(
        name=name,
        retrievers={name: retriever(parts)},
        fuse=SingleArm(name, parts.index.ids),
        stages=parts.stages(),
    )


def stackone(parts: Parts, alpha: float = STACKONE_ALPHA) -> Pipeline:
    """Mix BM25 and TF-IDF as StackOne published it."""
    plain = _plain(parts.index)
    return Pipeline(
        name="stackone",
        retrievers={"bm25": Exhaustive(PlainScores(plain)), "tfidf": Exhaustive(TfIdfScores(plain))},
        fuse=WeightedFusion({"bm25": alpha, "tfidf": 1 - alpha}, parts.index.ids),
        stages=parts.stages(),
    )


def weighted(parts: Parts, dense: float) -> Pipeline:
    """Mix the two arms by one fixed weight."""
    return _both("weighted", lambda p: WeightedFusion({"lexical": 1 - dense, "dense": dense}, p.index.ids))(parts)


def _plain(index: Index) -> ExactLexicalIndex:
    return index.reindexed(EVEN)


PIPELINES: Mapping[str, Callable[[Parts], Pipeline]] = {
    "default": _default,
    "weighted": lambda parts: weighted(parts, parts.fitted.fixed_dense),
    "rrf": _both("rrf", lambda parts: RankFusion({"lexical": 1.0, "dense": 1.0}, parts.index.ids)),
    "lexical": _alone("lexical", lambda parts: parts.lexical),
    "dense": _alone("dense", lambda parts: DenseRetriever(parts.index)),
    "bm25": _alone("bm25", lambda parts: Exhaustive(PlainScores(_plain(parts.index)))),
    "tfidf": _alone("tfidf", lambda parts: Exhaustive(TfIdfScores(_plain(parts.index)))),
    "stackone": stackone,
    "fuzzy": _alone("fuzzy", lambda parts: Exhaustive(NameScores(parts.index, fuzzy_match))),
    "prefix": _alone("prefix", lambda parts: Exhaustive(NameScores(parts.index, prefix_match))),
    "exact": _alone("exact", lambda parts: Exhaustive(NameScores(parts.index, exact_match))),
    "regex": _alone("regex", lambda parts: Exhaustive(RegexScores(parts.index))),
}

BY_MODE: Mapping[SearchMode, str] = {
    "hybrid": "default",
    "lexical": "lexical",
    "dense": "dense",
    "fuzzy": "fuzzy",
    "regex": "regex",
    "prefix": "prefix",
    "exact": "exact",
}


def pipeline(name: str, parts: Parts) -> Pipeline:
    """Build a pipeline by name."""
    if name not in PIPELINES:
        raise InvalidInput(f"No pipeline {name!r}: there are {', '.join(PIPELINES)}.")
    return PIPELINES[name](parts)
