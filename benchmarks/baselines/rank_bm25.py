"""`rank_bm25` over the fields that articles on Hermes' tool search name: one text per tool, split on whitespace."""

import numpy as np
from benchmarks.baselines.documents import ids_of, parameters_of, text_of
from benchmarks.baselines.protocol import Baseline, Embed, Tools, package


class RankBM25:
    """`BM25Okapi` over `name description parameters`; like its `get_top_n`, it always fills the list."""

    name = "rank-bm25"

    def __init__(self, tools: Tools) -> None:
        texts = [f"{text_of(tool)} {' '.join(parameters_of(tool))}" for tool in tools]
        self._ids = ids_of(tools)
        self._index = package("rank_bm25").BM25Okapi([text.lower().split() for text in texts])

    def rank(self, query: str, limit: int) -> list[str]:
        scores = self._index.get_scores(query.lower().split())
        return [self._ids[row] for row in np.argsort(scores)[::-1][: max(limit, 0)]]


def rank_bm25(tools: Tools, _embed: Embed | None = None) -> Baseline:
    return RankBM25(tools)
