from itertools import pairwise

from shortlist.models import Query
from shortlist.search.searcher import Searcher
from tests.fakes import WORKPLACE, HashingEmbedder, catalog


def searcher() -> Searcher:
    made = Searcher(catalog(WORKPLACE), HashingEmbedder())
    made.prepare()
    return made


BOTH = "merge the pull request and send an email to Ana"


def test_every_wish_is_served_before_one_is_served_twice() -> None:
    found = searcher().search(Query(text=BOTH, limit=5))
    assert {hit.tool.name for hit in found.hits[:2]} == {"merge_pull_request", "send_email"}


def test_the_answer_says_which_hit_is_for_which_wish() -> None:
    found = searcher().search(Query(text=BOTH, limit=5))
    by_name = {hit.tool.name: hit.wish for hit in found.hits[:2]}
    assert by_name == {"merge_pull_request": "merge the pull request", "send_email": "send an email to Ana"}
    assert [wish.text for wish in found.wishes] == ["merge the pull request", "send an email to Ana"]


def test_ranks_and_scores_of_a_merged_answer_fall() -> None:
    hits = searcher().search(Query(text=BOTH, limit=6)).hits
    assert [hit.rank for hit in hits] == list(range(1, len(hits) + 1))
    assert all(before.score >= after.score for before, after in pairwise(hits))
    assert len({hit.tool.id for hit in hits}) == len(hits)


def test_one_wish_is_answered_as_ever() -> None:
    found = searcher().search(Query(text="merge the pull request", limit=5))
    assert found.wishes == ()
    assert all(hit.wish == "" for hit in found.hits)
