from shortlist.catalog.catalog import Catalog
from shortlist.models import Query, Tool
from shortlist.search.exemplars import EXEMPLARS
from shortlist.search.explain import FEATURE_MEANINGS, STAGE_MEANINGS, first_hit
from shortlist.search.fusion import CANDIDATE_FEATURES
from shortlist.search.searcher import Searcher
from tests.fakes import WORKPLACE, catalog

MERGE = "github/merge_pull_request"
SEVERAL = Query(text="merge the pull request and send an email about it")


def explained(query: Query) -> str:
    return Searcher(catalog(WORKPLACE)).explain(query, MERGE).text()


def test_an_explanation_shows_the_wishes_of_a_request() -> None:
    text = explained(SEVERAL)
    assert f"wish: 'merge the pull request', served first by {MERGE}" in text
    assert "wish: 'send an email about it', about 'merge the pull request', served first by mail/send_email" in text


def test_a_tool_is_explained_for_the_wish_that_it_serves() -> None:
    searcher = Searcher(catalog(WORKPLACE))
    found = searcher.explained(SEVERAL)
    assert [why.rank for why in found.explanations] == [hit.rank for hit in found.result.hits]
    assert [why.wish for why in found.explanations] == [hit.wish for hit in found.result.hits]
    mail = next(why for why in found.explanations if why.tool == "mail/send_email")
    alone = searcher.explain(Query(text="send an email about it"), "mail/send_email")
    assert (mail.score, mail.matches, mail.parts) == (alone.score, alone.matches, alone.parts)
    assert mail.confidence == next(wish.confidence for wish in found.result.wishes if wish.text == mail.wish)
    assert "serves the wish 'send an email about it'" in mail.text()
    assert "pull" not in mail.unmatched


def test_the_first_hit_is_explained_where_no_tool_is_named() -> None:
    searcher = Searcher(catalog(WORKPLACE))
    (first,) = searcher.explained(SEVERAL, first_hit).explanations
    assert (first.tool, first.rank) == (searcher.search(SEVERAL).hits[0].tool.id, 1)


def test_an_explanation_shows_what_was_pasted_and_what_a_request_follows_on_from() -> None:
    log = "\n".join(f"2026-03-01 10:00:{n:02} ERROR timeout" for n in range(40))
    text = explained(Query(text=f"{log}\n\nmerge it", relation="continues", recent_tools=("github/create_issue",)))
    assert "asked: 'merge it'; " in text
    assert "characters are pasted" in text
    assert "the request continues the chat, after the call of github/create_issue" in text


def test_an_explanation_shows_the_confidence_and_the_words_that_no_tool_mentions() -> None:
    searcher = Searcher(catalog(WORKPLACE))
    query = Query(text="merge the zorbnax")
    why, sure = searcher.explain(query, MERGE), searcher.search(query).confidence
    assert why.confidence == sure
    assert f"confidence: {sure.level}, {sure.probability:.0%} that the first hit is right" in why.text()
    assert all(reason in why.text() for reason in sure.reasons)
    assert why.unknown == ("zorbnax",)
    assert "no tool mentions zorbnax" in why.text()


def test_words_are_shown_as_they_are_written_not_as_stems() -> None:
    tool = Tool(id="photos/resize", name="resize", server="photos", description="Resizes pictures in a container.")
    searcher = Searcher(Catalog.of([tool, Tool(id="mail/send", name="send", description="Send a mail.")]))
    why = searcher.explain(Query(text="resize the picture of the containers, deleting mail"), "photos/resize")
    assert {(match.asked, match.found) for match in why.matches} == {
        ("resize", "resize"),
        ("picture", "pictures"),
        ("containers", "container"),
    }
    assert set(why.unmatched) == {"deleting", "mail"}
    assert "'picture' found as 'pictures' in description" in why.text()
    assert "'resize' in name" in why.text()


def test_every_feature_and_stage_is_explained_in_words() -> None:
    searcher = Searcher(catalog(WORKPLACE))
    assert FEATURE_MEANINGS.keys() == {*CANDIDATE_FEATURES, EXEMPLARS}
    assert STAGE_MEANINGS.keys() == searcher.pipeline.stages.keys()
    text = searcher.explain(Query(text="merge"), MERGE).text()
    assert "rank by words" in text
    assert not [name for name in (*FEATURE_MEANINGS, *STAGE_MEANINGS) if "_" in name and name in text]


def test_the_gloss_of_a_wish_too_short_to_tell_its_language_is_explained() -> None:
    text = explained(Query(text="den Pull Request zusammenführen und die E-Mail an Tom schicken"))
    assert "wish: 'die E-Mail an Tom schicken', read as '" in text


def test_an_explanation_says_that_a_language_is_not_supported() -> None:
    assert "Greek is not among the supported languages" in explained(Query(text="στείλε ένα email"))
