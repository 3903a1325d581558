from shortlist.models import Query
from shortlist.search.searcher import Searcher
from tests.fakes import WORKPLACE, catalog

MERGE = "github/merge_pull_request"


def explained(query: Query) -> str:
    return Searcher(catalog(WORKPLACE)).explain(query, MERGE).text()


def test_an_explanation_shows_the_wishes_of_a_request() -> None:
    text = explained(Query(text="merge the pull request and send an email about it"))
    assert "wish: 'merge the pull request'" in text
    assert "wish: 'send an email about it', about 'merge the pull request'" in text


def test_an_explanation_shows_what_was_pasted_and_what_a_request_follows_on_from() -> None:
    log = "\n".join(f"2026-03-01 10:00:{n:02} ERROR timeout" for n in range(40))
    text = explained(Query(text=f"{log}\n\nmerge it", relation="continues", recent_tools=("github/create_issue",)))
    assert "asked: 'merge it'; " in text
    assert "characters are pasted" in text
    assert "the request continues after github/create_issue" in text
