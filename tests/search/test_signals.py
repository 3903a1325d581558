from shortlist.models import Query, Signal
from shortlist.search.searcher import Searcher


def test_a_hit_says_what_each_arm_made_of_it(workplace: Searcher) -> None:
    query = Query(text="create a calendar event", limit=5)
    for hit in workplace.search(query).hits:
        arms = workplace.explain(query, hit.tool.id).arms
        assert dict(hit.signals) == {name: Signal(arm.score, arm.rank) for name, arm in arms.items()}
        assert list(hit.signals) == ["lexical", "dense"]
        assert repr(hit.signals) == repr(dict(hit.signals))


def test_an_arm_that_does_not_know_a_tool_gives_it_no_rank(workplace: Searcher) -> None:
    hits = workplace.search(Query(text="calendar", limit=20)).hits
    unknown = [hit.signals["lexical"] for hit in hits if hit.signals["lexical"].score == 0]
    assert unknown
    assert all(signal.rank is None for signal in unknown)
