import hashlib
import math
from collections.abc import Sequence

import numpy as np
import pytest

from shortlist.catalog.catalog import Catalog
from shortlist.catalog.readers import read_catalog
from shortlist.errors import InvalidInput
from shortlist.evals.bench import Bench
from shortlist.index.embedders import Progress, Vectors

TOOLS = [
    {"name": "send_email", "description": "Send an email message to somebody."},
    {"name": "list_files", "description": "List the files in a folder."},
    {"name": "get_weather", "description": "Get the weather forecast for a city."},
    {"name": "create_issue", "description": "Open a new issue in a repository."},
]


class WordEmbedder:
    """Adds up a random but fixed vector for each word."""

    model_id = "words@1"
    dimensions = 64

    def __init__(self) -> None:
        self.documents = 0

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        self.documents += len(texts)
        if progress:
            progress(len(texts), len(texts))
        return np.stack([self.embed_query(text) for text in texts])

    def embed_query(self, text: str) -> Vectors:
        total = sum((self._word(word) for word in text.lower().split()), np.zeros(self.dimensions))
        unit: Vectors = (total / (np.linalg.norm(total) or 1)).astype(np.float32)
        return unit

    def _word(self, word: str) -> Vectors:
        seed = int.from_bytes(hashlib.sha256(word.strip(".").encode()).digest()[:4])
        vector: Vectors = np.random.default_rng(seed).normal(size=self.dimensions).astype(np.float32)
        return vector


@pytest.fixture
def catalog() -> Catalog:
    return read_catalog(TOOLS).catalog


def test_a_pipeline_ranks_behind_the_searcher_with_its_confidence(catalog: Catalog) -> None:
    answer = Bench(catalog).contender("default").rank("send an email", 3)
    assert answer.ids[0] == "send_email"
    assert 0 <= answer.probability <= answer.match_probability <= 1
    assert answer.milliseconds > 0


def test_an_empty_query_finds_nothing_and_stops_nothing(catalog: Catalog) -> None:
    answer = Bench(catalog).contender("default").rank("  ", 3)
    assert (answer.ids, answer.level) == ((), "none")


def test_an_unknown_pipeline_is_refused_with_those_there_are(catalog: Catalog) -> None:
    with pytest.raises(InvalidInput, match="lexical"):
        Bench(catalog).contender("nope")


def test_a_contender_carries_what_its_pipeline_was_fitted_on(catalog: Catalog) -> None:
    bench = Bench(catalog)
    assert bench.contender("lexical").fitted_on == frozenset()
    assert isinstance(bench.contender("default").fitted_on, frozenset)


def test_only_pipelines_that_look_at_vectors_are_embedded(catalog: Catalog) -> None:
    embedder = WordEmbedder()
    bench = Bench(catalog, embedder)
    assert bench.contender("lexical").embedder == ""
    assert embedder.documents == 0
    dense = bench.contender("dense")
    assert (dense.embedder, embedder.documents) == ("words@1", 4)
    assert dense.rank("weather forecast for a city", 1).ids == ("get_weather",)


def test_the_catalog_is_embedded_once_for_all_pipelines_and_samples(catalog: Catalog) -> None:
    embedder = WordEmbedder()
    bench = Bench(catalog, embedder)
    bench.contender("dense")
    bench.contender("default")
    some = {tool_id: catalog.tools[tool_id] for tool_id in ("send_email", "list_files")}
    built = bench.build(["dense", "lexical"], some)
    assert embedder.documents == 4
    assert set(built["dense"].rank("list files in a folder", 5).ids) <= set(some)
    assert built["lexical"].rank("list files", 5).ids == ("list_files",)


def test_each_part_can_be_left_out(catalog: Catalog) -> None:
    bench = Bench(catalog, WordEmbedder())
    variants = bench.without_each("default")
    assert {"lexical", "dense"} <= variants.keys()
    for part, variant in variants.items():
        answer = variant.rank("send an email message", 2)
        assert answer.ids[0] == "send_email", part
        assert math.isnan(answer.probability)


def test_a_pipeline_can_be_asked_without_what_comes_around_its_fusion(catalog: Catalog) -> None:
    bench, several = Bench(catalog, WordEmbedder()), "Send an email message. Then list the files in a folder."
    bare, full = bench.bare("weighted"), bench.contender("weighted")
    assert bare.rank("list_files", 1).ids == ("list_files",)
    assert set(bare.rank(several, 2).ids) == set(full.rank(several, 2).ids) == {"send_email", "list_files"}
    assert bare.pipeline != full.pipeline


def test_a_number_can_be_swept_between_two_arms(catalog: Catalog) -> None:
    bench = Bench(catalog, WordEmbedder())
    for name in ("alpha", "dense"):
        make = bench.swept(name)
        assert [make(value).rank("list the files", 1).ids for value in (0.0, 1.0)] == [("list_files",)] * 2


def test_what_cannot_be_swept_is_refused(catalog: Catalog) -> None:
    with pytest.raises(InvalidInput, match="alpha, dense"):
        Bench(catalog).swept("nope")
