"""Hermes Agent's `tool_search`, rebuilt from its source: BM25 behind two gates."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import Stemmer
from benchmarks.baselines.documents import as_text, ids_of, name_of, parameters_of, server_of
from benchmarks.baselines.lexical import Scores, TermIndex, okapi
from benchmarks.baselines.protocol import Baseline, Embed, Tools
from benchmarks.baselines.scored import Scored
from numpy.typing import NDArray

COVERAGE = 0.5  # of the query's words that some tool has
COVERAGE_FROM = 4  # such words; shorter queries need one


def hermes(tools: Tools, _embed: Embed | None = None) -> Baseline:
    """Offer no tool without the query's rarest token; where no tool has it, answer nothing."""
    names = np.array([name_of(tool).lower() for tool in tools])
    stem = Stemmer.Stemmer("english").stemWords
    index = okapi([stem(words(document(tool))) for tool in tools])

    def score(query: str) -> Scores:
        terms = stem(words(query))
        if not terms:
            return np.zeros(index.size)
        scores = np.where(admitted(index, terms), index.scores(terms), 0.0)
        scores[names == query.strip().lower()] = math.inf
        return scores

    return Scored("hermes", ids_of(tools), score)


def admitted(index: TermIndex, terms: Sequence[str]) -> NDArray[np.bool_]:
    rarest = min(terms, key=index.frequency)
    answerable = {term for term in terms if index.frequency(term)}
    enough = math.ceil(len(answerable) * COVERAGE) if len(answerable) >= COVERAGE_FROM else 1
    return (index.matched([rarest]) > 0) & (index.matched(answerable) >= enough)


def document(tool: Mapping[str, Any]) -> str:
    """Name in words, server where the name does not say it, description, names of the parameters."""
    name = re.sub(r"[_.:-]", " ", name_of(tool).removeprefix("mcp__"))
    server = "" if server_of(tool) in name.split() else server_of(tool)
    return f"{name} {server} {as_text(tool.get('description'))} {' '.join(parameters_of(tool))}"


def words(text: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Za-z0-9]+", text)]
