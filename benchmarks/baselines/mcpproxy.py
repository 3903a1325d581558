"""MCPProxy's index (Go, over bleve), rebuilt from its `SearchTools`: optional clauses whose scores add up."""

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from benchmarks.baselines.documents import as_text, ids_of, name_of, schema_of, server_of
from benchmarks.baselines.lexical import Scores, TermIndex
from benchmarks.baselines.protocol import Baseline, Embed, Tools
from benchmarks.baselines.scored import Scored

EXACT_BOOST = 5.0 + 4.0  # `tool_name` and `full_tool_name` hold the same name in its index
PREFIX_BOOST = 3.0
WILDCARD_BOOST = 2.5
TEXT_BOOST = 1.5
_STOP_WORDS = """
i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers
herself it its itself they them their theirs themselves what which who whom this that these those am is are
was were be been being have has had having do does did doing would should could ought a an the and but if or
because as until while of at by for with about against between into through during before after above below
to from up down in out on off over under again further then once here there when where why how all any both
each few more most other some such no nor not only own same so than too very
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())


def mcpproxy(tools: Tools, _embed: Embed | None = None) -> Baseline:
    """Classic TF-IDF over whole names, descriptions and schema text; boosts for exact names and prefixes."""
    names = [name_of(tool) for tool in tools]
    text = classic([words(searchable_text(tool)) for tool in tools])
    everything = classic([all_fields(tool) for tool in tools])
    rare = (1 + math.log(len(names) / 2)) ** 2 if names else 0.0  # idf squared of a keyword that one tool has

    def score(query: str) -> Scores:
        terms = words(query)
        boosts = np.array([name_boost(name, query) for name in names])
        return coordinated(everything, terms) + TEXT_BOOST * coordinated(text, terms) + rare * boosts

    return Scored("mcpproxy", ids_of(tools), score)


def searchable_text(tool: Mapping[str, Any]) -> str:
    return f"{name_of(tool)} {name_of(tool)} {as_text(tool.get('description'))} {schema_text(tool)}"


def all_fields(tool: Mapping[str, Any]) -> list[str]:
    """Composite of keyword fields, one term each, and of every analysed field: most words count twice."""
    keywords = [name_of(tool), name_of(tool), server_of(tool)]
    return [
        *keywords,
        *words(f"{as_text(tool.get('description'))} {schema_text(tool)} {searchable_text(tool)}"),
    ]


def schema_text(tool: Mapping[str, Any]) -> str:
    return json.dumps(schema_of(tool))


def words(text: str) -> list[str]:
    """Unicode words, which keep underscores and inner dots, lowercased and without English stop-words."""
    return [word for word in re.findall(r"\w+(?:[.'’]\w+)*", text.lower()) if word not in STOP_WORDS]


def classic(documents: Sequence[Sequence[str]]) -> TermIndex:
    """Lucene's old similarity: sqrt(frequency) x idf^2 / sqrt(length), idf = 1 + ln(N / (n + 1))."""
    lengths = np.array([max(len(document), 1) for document in documents], dtype=np.float64)
    index = TermIndex.counted(documents)
    return index.weighted(
        lambda rows, counts: np.sqrt(counts / lengths[rows]) * (1 + math.log(index.size / (len(rows) + 1))) ** 2
    )


def coordinated(index: TermIndex, terms: Sequence[str]) -> Scores:
    """Multiply the sum over terms by the share of the query's terms that the document has."""
    if not terms:
        return np.zeros(index.size)
    unique = Counter(terms)
    share = sum((count * index.matched([term]) for term, count in unique.items()), np.zeros(index.size)) / len(terms)
    return index.scores(terms) * share


def name_boost(name: str, query: str) -> float:
    """Keyword fields are compared as they are, case included."""
    wildcard = WILDCARD_BOOST if "_" in query and query in name else 0.0
    prefix = PREFIX_BOOST if query and name.startswith(query) else 0.0
    return (EXACT_BOOST if name == query else 0.0) + prefix + wildcard
