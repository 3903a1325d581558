from dataclasses import replace

from shortlist.errors import ModelError
from shortlist.index.index import Index
from shortlist.models import Query
from shortlist.search.fitted import fitted_for
from shortlist.search.presets import PIPELINES, Parts
from shortlist.search.searcher import Searcher
from tests.fakes import MODES, WORKPLACE, HashingEmbedder, catalog, found, searcher

BROKEN = ModelError("The weights are damaged.")


def test_words_answer_until_the_vectors_are_there() -> None:
    source = Searcher(catalog(WORKPLACE), HashingEmbedder())
    early = source.search(Query(text="create a calendar event"))
    assert early.hits[0].tool.id == "calendar/create_event"
    assert "not ready yet" in early.notes[0]
    source.prepare()
    assert source.search(Query(text="create a calendar event")).notes == ()


def test_a_fallbacks_vectors_answer_meanwhile() -> None:
    fallback = HashingEmbedder()
    source = Searcher(catalog(WORKPLACE), HashingEmbedder("slow@1"), fallback=fallback)
    source.prepare_in_background().join()
    assert source.model_id == "slow@1"
    broken = Searcher(catalog(WORKPLACE), HashingEmbedder("broken@1", BROKEN), fallback=fallback)
    broken.prepare_in_background().join()
    assert broken.model_id == "hashing@1"


def test_a_model_that_cannot_be_loaded_is_told_and_words_answer() -> None:
    source = Searcher(catalog(WORKPLACE), HashingEmbedder("broken@1", BROKEN))
    source.prepare_in_background().join()
    result = source.search(Query(text="create a calendar event"))
    assert result.hits[0].tool.id == "calendar/create_event"
    assert "The weights are damaged." in result.notes


def test_a_model_that_fails_in_the_middle_is_told_and_words_answer() -> None:
    model = HashingEmbedder()
    source = Searcher(catalog(WORKPLACE), model)
    source.prepare()
    model.failure = BROKEN
    query = Query(text="create a calendar event")
    result = source.search(query)
    assert result.hits[0].tool.id == "calendar/create_event"
    assert result.notes == ("Using lexical search only: The weights are damaged.",)
    assert result == replace(searcher(WORKPLACE, dense=False).search(query), steps=result.steps, notes=result.notes)
    assert source.explain(query, "calendar/create_event").text()
    model.failure = None
    assert source.search(query).notes == ()


def test_a_tool_that_just_came_is_found_by_its_words() -> None:
    source = searcher(WORKPLACE)
    source.update(catalog({**WORKPLACE, "coffee/brew": "Brew an espresso."}))
    result = source.search(Query(text="brew espresso"))
    assert result.hits[0].tool.id == "coffee/brew"
    assert "1 new tools have no vectors yet" in result.notes[0]


def test_a_removed_tool_is_found_no_more_in_any_mode() -> None:
    source = searcher(WORKPLACE)
    source.update(catalog({i: text for i, text in WORKPLACE.items() if i != "mail/send_email"}))
    for mode in (*MODES, "regex"):
        assert "mail/send_email" not in found(source, "send_email", mode=mode, limit=20)


def test_every_step_is_timed_and_counted(workplace: Searcher) -> None:
    result = workplace.search(Query(text="create a calendar event"))
    assert [step.name for step in result.steps] == [
        "embed",
        "read",
        *workplace.pipeline.retrievers,
        "fuse",
        *workplace.pipeline.stages,
    ]
    assert result.milliseconds == sum(step.milliseconds for step in result.steps)


def test_every_pipeline_goes_by_its_name() -> None:
    parts = Parts.of(Index.build(catalog(WORKPLACE)), fitted_for(None))
    assert all(PIPELINES[name](parts).name == name for name in PIPELINES)


def test_the_first_tools_of_an_empty_catalog_are_searched_by_the_fallback_until_the_model_has_their_vectors() -> None:
    source = Searcher(catalog({}), HashingEmbedder("slow@1"), fallback=HashingEmbedder("quick@1"))
    source.prepare()
    source.update(catalog(WORKPLACE))
    assert source.model_id == "quick@1"
    source.prepare()
    assert source.model_id == "slow@1"
