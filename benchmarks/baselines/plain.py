"""The three reference points: words alone, vectors alone, and the two fused as most articles do."""

import math
import re

import numpy as np
from benchmarks.baselines.dense import Vectors
from benchmarks.baselines.documents import as_text, ids_of, name_of, text_of
from benchmarks.baselines.lexical import Scores, okapi
from benchmarks.baselines.protocol import Baseline, Embed, Tools, required
from benchmarks.baselines.scored import Scored

RRF_K = 60


def plain_bm25(tools: Tools, _embed: Embed | None = None) -> Baseline:
    """BM25 over name and description: lowercased words, names left whole, stop-words scored."""
    index = okapi([words(text_of(tool)) for tool in tools])
    return Scored("plain-bm25", ids_of(tools), lambda query: index.scores(words(query)))


def dense(tools: Tools, embed: Embed | None, name: str = "dense") -> Baseline:
    """Cosine over `name: description`."""
    texts = [f"{name_of(tool)}: {as_text(tool.get('description'))}" for tool in tools]
    vectors = Vectors(texts, required(name, embed))
    return Scored(name, ids_of(tools), vectors.scores, floor=-math.inf)


def equal_rrf(tools: Tools, embed: Embed | None) -> Baseline:
    """Reciprocal rank fusion with equal weights of `plain-bm25` and `dense`, each over the whole catalog."""
    arms = (dense(tools, required("rrf", embed)), plain_bm25(tools))
    ids = ids_of(tools)
    row = {tool_id: i for i, tool_id in enumerate(ids)}

    def score(query: str) -> Scores:
        total = np.zeros(len(ids))
        for arm in arms:
            for position, tool_id in enumerate(arm.rank(query, len(ids)), start=1):
                total[row[tool_id]] += 1 / (RRF_K + position)
        return total

    return Scored("rrf", ids, score)


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())
