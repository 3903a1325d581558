"""What holds for every ranking, whatever was asked of whatever catalog."""

import json
import random
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.catalog.catalog import Catalog
from shortlist.index.ports import Among, Candidates
from shortlist.index.vectors import LARGE
from shortlist.index.vectors import best as best_rows
from shortlist.index.vectors import masked as keep
from shortlist.models import Filters, Query, SearchMode, SearchResult, ToolId
from shortlist.search.fitted import fitted_for
from shortlist.search.modes import RankFusion, SingleArm, WeightedFusion
from shortlist.search.pipeline import Found, Fuse, Request, _together, rank
from shortlist.search.presets import PIPELINES, Parts
from shortlist.search.searcher import Searcher
from shortlist.text.queries import analyse
from shortlist.text.tokens import clean_text
from tests.fakes import HashingEmbedder, catalogs, searcher, sentences, tool

VERBS = ["create", "list", "get", "delete", "update", "send", "search", "export"]
THINGS = ["event", "calendar", "issue", "branch", "message", "channel", "file", "pod", "log", "row", "email", "invoice"]
MANY = Catalog.of(
    tool(
        f"{server}/{verb}_{thing}",
        f"{verb.capitalize()} one {thing} of the {server} service.",
        annotations={"readOnlyHint": verb in ("list", "get", "search")},
        _meta={"tags": [thing], "category": verb},
    )
    for server, verb, thing in product(("acme", "globex", "initech"), VERBS, THINGS)
)
"""More tools than fusion looks at closely, with many ties among them."""

scored = st.dictionaries(st.integers(0, 30), st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0]), max_size=20)
IDS = [f"tool{number * 7 % 31:02}" for number in range(31)]
any_text = st.one_of(
    sentences, st.text(max_size=60), st.sampled_from(["🎉", "zzzz", "acme", "'; DROP TABLE x; --"])
).filter(lambda text: bool(clean_text(text).strip()))
filters = st.builds(
    Filters,
    servers=st.none() | st.frozensets(st.sampled_from(["acme", "globex", "nowhere"]), min_size=1),
    categories=st.none() | st.frozensets(st.sampled_from(VERBS), min_size=1, max_size=3),
    tags=st.none() | st.frozensets(st.sampled_from(THINGS), min_size=1, max_size=5),
    read_only=st.none() | st.booleans(),
    among=st.none() | st.frozensets(st.sampled_from(sorted(MANY.tools)), min_size=1, max_size=150),
    exclude=st.frozensets(st.sampled_from(sorted(MANY.tools)), max_size=5),
)


@pytest.fixture(scope="module")
def many() -> Searcher:
    return searcher(MANY)


def ranked(scores: dict[int, float], limit: int) -> list[tuple[int, float]]:
    rows, values = np.array(list(scores), np.int32), np.array(list(scores.values()), np.float32)
    return list(rank(values, rows, IDS, limit))


@given(scored, st.integers(1, 25), st.randoms())
def test_the_order_of_the_input_does_not_matter_and_ties_break_on_the_id(
    scores: dict[int, float], limit: int, order: random.Random
) -> None:
    shuffled = list(scores.items())
    order.shuffle(shuffled)
    expected = sorted(scores.items(), key=lambda pair: (-pair[1], IDS[pair[0]]))[:limit]
    assert ranked(dict(shuffled), limit) == ranked(scores, limit) == expected


@given(
    st.integers(0, 2**32),
    st.one_of(st.integers(1, 400), st.integers(LARGE - 1, LARGE + 500)),
    st.sampled_from([3, 30, 10_000]),
    st.sampled_from([0.001, 0.2, 1.0]),
    st.booleans(),
)
def test_candidates_are_the_best_of_each_arm_with_their_ties(
    seed: int, size: int, levels: int, matching: float, masked: bool
) -> None:
    random = np.random.default_rng(seed)
    one, other = (
        np.where(random.random(size) < matching, random.integers(0, levels, size), 0).astype(np.float32)
        for _ in range(2)
    )
    mask = random.random(size) < 0.7 if masked else None
    allowed = set(range(size)) if mask is None else set(np.flatnonzero(mask).tolist())
    found = {}
    for name, scores in (("one", one), ("other", other)):
        rows = best_rows(keep(scores, mask), 50)
        found[name] = Candidates(rows, scores[rows])
    chosen = set(_together(found, Among(size=size, rows=mask), 50).tolist())
    assert chosen <= allowed
    assert len(chosen) >= min(50, len(allowed))
    best: set[int] = set()
    for scores in (keep(one, mask), keep(other, mask)):
        last = np.sort(scores)[::-1][: min(50, size)][-1]
        best |= allowed & set(np.flatnonzero((scores >= last) & (scores > 0)).tolist())
    assert chosen >= best
    assert chosen == best or len(best) < 50 or len(allowed) <= 100


@given(scored, scored, st.integers(1, 25), st.sampled_from([WeightedFusion, RankFusion]))
def test_the_order_of_the_retrievers_does_not_matter(
    one: dict[int, float], other: dict[int, float], limit: int, fusion: type[WeightedFusion] | type[RankFusion]
) -> None:
    signals = {"a": spread(one), "b": spread(other)}
    request = Request(Query(text="x", limit=limit), analyse("x"), Among())
    weights = {"a": 0.3, "b": 0.7}
    straight = fusion(weights, IDS)(request, together(signals)).ranking
    reverse = fusion(dict(reversed(weights.items())), IDS)(request, together(dict(reversed(signals.items())))).ranking
    assert list(straight) == list(reverse)


@given(scored, scored, st.permutations(range(31)), st.sampled_from(["weighted", "rrf", "alone"]))
def test_the_rows_that_tools_stand_in_do_not_matter(
    one: dict[int, float], other: dict[int, float], order: list[int], kind: str
) -> None:
    def fused(ids: list[ToolId], places: list[int]) -> list[tuple[ToolId, float]]:
        fusions: dict[str, Fuse] = {
            "weighted": WeightedFusion({"a": 0.3, "b": 0.7}, ids),
            "rrf": RankFusion({"a": 1.0, "b": 1.0}, ids),
            "alone": SingleArm("a", ids),
        }
        signals = {"a": spread(one)[places], "b": spread(other)[places]}
        ranking = fusions[kind](Request(Query(text="x"), analyse("x"), Among()), together(signals)).ranking
        return [(ids[row], score) for row, score in ranking]

    assert fused(IDS, list(range(31))) == fused([IDS[row] for row in order], order)


def together(signals: dict[str, np.ndarray[tuple[int], np.dtype[np.float32]]]) -> Found:
    return Found(np.arange(31), signals, {})


def spread(scores: dict[int, float]) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    row = np.zeros(31, np.float32)
    row[list(scores)] = list(scores.values())
    return row


@given(any_text, st.sampled_from(sorted(PIPELINES.keys() - {"regex"})))
def test_a_pipeline_gives_the_same_answer_with_its_retrievers_in_any_order(
    many: Searcher, text: str, name: str
) -> None:
    pipeline = PIPELINES[name](Parts.of(many.index, fitted_for("hashing")))
    turned = replace(pipeline, retrievers=dict(reversed(list(pipeline.retrievers.items()))))
    request = Request(
        Query(text=text), analyse(text), many.index.among(Filters()), HashingEmbedder().embed_query(text)[None]
    )
    assert list(pipeline.run(request).ranking) == list(turned.run(request).ranking)


@given(any_text, filters, st.integers(1, 120))
def test_filters_act_before_the_cut_so_the_limit_is_filled(
    many: Searcher, text: str, asked: Filters, limit: int
) -> None:
    mask = many.index.among(asked).rows
    passing = set(MANY.tools) if mask is None else {many.index.ids[row] for row in np.flatnonzero(mask).tolist()}
    result = many.search(Query(text=text, limit=limit, filters=asked))
    found = [hit.tool.id for hit in result.hits]
    assert set(found) <= passing
    assert len(found) == len(set(found)) == min(limit, len(passing))


@given(sentences.filter(bool), filters, st.sampled_from(["lexical", "dense", "fuzzy", "prefix", "exact"]))
def test_filters_only_ever_take_away_in_every_mode(many: Searcher, text: str, asked: Filters, mode: SearchMode) -> None:
    everything = many.search(Query(text=text, limit=1_000, mode=mode))
    filtered = many.search(Query(text=text, limit=1_000, mode=mode, filters=asked))
    mask = many.index.among(asked).rows
    kept = [hit.tool.id for hit in everything.hits if mask is None or mask[many.index.rows[hit.tool.id]]]
    assert [hit.tool.id for hit in filtered.hits] == kept


@given(any_text, st.integers(1, 30))
def test_a_larger_limit_only_adds_to_the_end(many: Searcher, text: str, limit: int) -> None:
    few, more = ([hit.tool.id for hit in many.search(Query(text=text, limit=n)).hits] for n in (limit, limit + 20))
    assert few == more[:limit]


def answer(result: SearchResult) -> list[tuple[ToolId, float]]:
    return [(hit.tool.id, round(hit.score, 4)) for hit in result.hits]


@given(st.lists(catalogs, min_size=2, max_size=3), sentences.filter(bool), st.booleans())
def test_a_searcher_that_was_updated_answers_like_a_new_one(versions: list[Catalog], text: str, dense: bool) -> None:
    updated = searcher(versions[0], dense=dense)
    updated.search(Query(text=text))
    for version in versions[1:]:
        updated.update(version)
    updated.prepare()
    query = Query(text=text, limit=50)
    assert answer(updated.search(query)) == answer(searcher(versions[-1], dense=dense).search(query))


@pytest.fixture(scope="module")
def reordered() -> Searcher:
    """The same catalog in other rows: one server left and came back."""
    there_again = searcher(MANY)
    there_again.update(MANY.without_server("globex"))
    there_again.update(MANY)
    there_again.prepare()
    return there_again


@given(any_text, st.booleans())
def test_tools_that_came_back_rank_where_they_did(many: Searcher, reordered: Searcher, text: str, wide: bool) -> None:
    query = Query(text=text, limit=40 if wide else 5)
    assert answer(reordered.search(query)) == answer(many.search(query))


@given(any_text)
def test_the_evidence_does_not_depend_on_rows(many: Searcher, reordered: Searcher, text: str) -> None:
    def seen(source: Searcher) -> dict[ToolId, list[float]]:
        evidence = source.evidence(Query(text=text))
        ids = [source.index.ids[row] for row in evidence.rows]
        return dict(zip(ids, evidence.candidates.round(4).tolist(), strict=True))

    assert seen(reordered) == seen(many)


@given(catalogs)
def test_definitions_leave_the_searcher_as_they_came(source: Catalog) -> None:
    for hit in searcher(source).search(Query(text="create", limit=50)).hits:
        assert json.dumps(hit.tool.mcp()) == json.dumps(source.tools[hit.tool.id].mcp())
        assert hit.tool.definition == source.tools[hit.tool.id].definition


@given(any_text)
def test_the_same_question_has_the_same_answer(many: Searcher, text: str) -> None:
    once, again = (many.search(Query(text=text)) for _ in range(2))
    assert (once.hits, once.confidence) == (again.hits, again.confidence)
    assert [hit.rank for hit in once.hits] == list(range(1, len(once.hits) + 1))
    assert [hit.score for hit in once.hits] == sorted((hit.score for hit in once.hits), reverse=True)
