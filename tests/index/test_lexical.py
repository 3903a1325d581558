from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.index.lexical import ExactLexicalIndex
from shortlist.text.documents import FIELDS, Document
from tests.fakes import words

documents = st.fixed_dictionaries({field: st.lists(words, max_size=4) for field in FIELDS})


def scores(index: ExactLexicalIndex, term: str) -> dict[int, tuple[float, int]]:
    found = index.postings(term)
    return {
        row: (weight, fields)
        for row, weight, fields in zip(found.rows.tolist(), found.weights.tolist(), found.fields.tolist(), strict=True)
        if index.alive[row]
    }


def with_words(**fields: Sequence[str]) -> Document:
    return {field: list(fields.get(field, ())) for field in FIELDS}


@given(st.lists(documents, max_size=6), st.lists(documents, max_size=6), st.sets(st.integers(0, 11)))
def test_an_updated_index_weighs_every_word_like_a_fresh_one(
    first: list[Document], later: list[Document], gone: set[int]
) -> None:
    every = [*first, *later]
    removed = {row for row in gone if row < len(every)}
    updated = ExactLexicalIndex.build(first)
    updated = updated.changed([row for row in removed if row < len(first)], later).changed(list(removed), ())
    kept = [row for row in range(len(every)) if row not in removed]
    fresh = ExactLexicalIndex.build([every[row] for row in kept])
    assert updated.live == fresh.live
    for term in {term for document in every for field in FIELDS for term in document[field]}:
        assert updated.frequency(term) == fresh.frequency(term)
        assert updated.idf(term) == fresh.idf(term)
        assert scores(updated, term) == {kept[row]: found for row, found in scores(fresh, term).items()}


@given(st.lists(documents, max_size=6), st.sets(st.integers(0, 5)))
def test_a_restored_index_is_the_one_that_was_saved(every: list[Document], gone: set[int]) -> None:
    index = ExactLexicalIndex.build(every[: len(every) // 2])
    index = index.changed((), every[len(every) // 2 :]).changed([row for row in gone if row < len(every)], ())
    restored = ExactLexicalIndex.restore(list(index.vocabulary), index.state())
    for term in index.vocabulary:
        assert restored.idf(term) == index.idf(term)
        assert scores(restored, term) == scores(index, term)
    assert restored.name_sizes.tolist() == index.name_sizes.tolist()


def test_many_updates_are_merged_without_losing_any() -> None:
    index = ExactLexicalIndex.build([with_words(name=["seed"])])
    for number in range(200):
        index = index.changed((), [with_words(name=["common", f"own{number}"])])
        index = index.changed([index.size - 1] if number % 2 else [], ())
    assert index.frequency("common") == 100
    assert len(scores(index, "common")) == 100
    assert scores(index, "own42")
    assert not scores(index, "own43")


def test_removing_twice_counts_once() -> None:
    index = ExactLexicalIndex.build([with_words(name=["a"]), with_words(name=["a"])])
    index = index.changed([0], ()).changed([0], ())
    assert index.frequency("a") == 1


def test_a_word_counts_most_in_the_name() -> None:
    index = ExactLexicalIndex.build([with_words(**{field: ["word"]}) for field in FIELDS])
    weight = {field: scores(index, "word")[row][0] for row, field in enumerate(FIELDS)}
    assert max(weight, key=lambda field: weight[field]) == "name"
    assert min(weight, key=lambda field: weight[field]) == "boilerplate"


def test_repeating_a_word_soon_stops_helping() -> None:
    filler = [f"w{n}" for n in range(17)]
    once, often, flood = (
        scores(ExactLexicalIndex.build([with_words(description=["spam"] * n + filler)]), "spam")[0][0]
        for n in (1, 3, 500)
    )
    assert once < often < flood < 2.5 * once


def test_the_rarer_word_tells_more() -> None:
    index = ExactLexicalIndex.build([with_words(name=["create", f"thing{n}"]) for n in range(10)])
    assert index.idf("unheard") > index.idf("thing3") > index.idf("create") > 0


def test_an_empty_index_answers() -> None:
    index = ExactLexicalIndex.build([])
    assert (index.size, index.live, len(index.postings("x").rows), index.frequency("x")) == (0, 0, 0, 0)
    assert index.idf("x") == pytest.approx(float(np.log1p(1)))


def test_documents_without_words_have_rows_too() -> None:
    index = ExactLexicalIndex.build([with_words(), with_words()])
    index = index.changed((), [with_words(name=["late"])])
    assert set(scores(index, "late")) == {2}
