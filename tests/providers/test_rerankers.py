"""Rerankers against servers of their own wire formats."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import JSONResponse, PlainTextResponse, Response

from shortlist.errors import InvalidInput
from shortlist.library.filter import ToolFilter
from shortlist.models import Query
from shortlist.remote import Patience, ProviderEndpoint, ProviderRefused, ProviderUnavailable, Remote
from shortlist.search.rerank import WIRES, RemoteReranker, Reranker, mix, reranked, reranker_of
from shortlist.search.searcher import Searcher, SearchOptions
from tests.fakes import WORKPLACE, catalog, searcher
from tests.providers.wires import KEY, RERANKERS, Provider, serving


@pytest.fixture(params=RERANKERS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def provider(name: str) -> Iterator[Provider]:
    with serving(Provider(), RERANKERS[name]) as running:
        yield running


def reranker(name: str, provider: Provider, key: str = KEY, waited: list[float] | None = None) -> Any:
    sleep = (lambda _: None) if waited is None else waited.append
    return reranker_of(name, base_url=provider.url, api_key=key, sleep=sleep)


def impatient(name: str, provider: Provider) -> RemoteReranker:
    """Make a reranker that waits a fifth of a second for an answer, twice."""
    endpoint = ProviderEndpoint(
        provider=name, url=provider.url, headers={"Authorization": f"Bearer {KEY}"}, key_variable="K"
    )
    patience = Patience(seconds=0.2, attempts=2, wait_seconds=5.0)
    return RemoteReranker(WIRES[name], Remote(endpoint, sleep=lambda _: None), "a-model", patience)


class Backwards:
    """Likes best what was last."""

    model_id = "backwards"

    def scores(self, query: str, texts: Any) -> Any:  # noqa: ARG002
        return np.arange(len(texts), dtype=np.float32) * 100


def test_scores_come_back_in_the_order_of_the_texts(name: str, provider: Provider) -> None:
    scores = reranker(name, provider).scores("send email", ["read file", "send email now", "send money"])
    assert scores.argmax() == 1
    assert scores.argmin() == 0
    assert provider.seen[0].body["documents"] == ["read file", "send email now", "send money"]


def test_a_wrong_key_and_a_server_error_are_told_apart(name: str, provider: Provider) -> None:
    with pytest.raises(ProviderRefused, match="the key is not known"):
        reranker(name, provider, key="sk-wrong").scores("a", ["b"])
    provider.replies = [PlainTextResponse("oops", 500)] * 2
    with pytest.raises(ProviderUnavailable, match="500"):
        reranker(name, provider).scores("a", ["b"])


def test_too_many_requests_wait_as_long_as_the_provider_says(name: str, provider: Provider) -> None:
    provider.replies = [JSONResponse({"message": "slow down"}, 429, {"Retry-After": "1"})]
    waited: list[float] = []
    assert reranker(name, provider, waited=waited).scores("send", ["send mail", "read"]).argmax() == 0
    assert waited == [1.0]


def test_a_provider_that_asks_for_too_long_a_wait_is_given_up_at_once(name: str, provider: Provider) -> None:
    provider.replies = [JSONResponse({}, 429, {"Retry-After": "3600"})]
    waited: list[float] = []
    with pytest.raises(ProviderUnavailable, match="429"):
        reranker(name, provider, waited=waited).scores("a", ["b"])
    assert waited == []


def test_an_error_that_passes_is_tried_again(name: str, provider: Provider) -> None:
    provider.replies = [PlainTextResponse("oops", 500)]
    assert len(reranker(name, provider).scores("a", ["b", "c"])) == 2
    assert len(provider.seen) == 2


def test_a_provider_that_hangs_is_given_up_in_time(name: str, provider: Provider) -> None:
    provider.replies = [None, None]
    with pytest.raises(ProviderUnavailable, match="no answer within"):
        impatient(name, provider).scores("a", ["b"])
    assert len(provider.seen) == 2


def test_an_answer_cut_off_in_its_middle_is_a_failure_of_the_provider(name: str, provider: Provider) -> None:
    cut = Response('{"results": [{"index": 0, "relevance_sc', 200, media_type="application/json")
    provider.replies = [cut, cut]
    with pytest.raises(ProviderUnavailable, match="not JSON"):
        reranker(name, provider).scores("a", ["b"])


def test_an_answer_that_lacks_a_text_is_a_failure_of_the_provider(name: str, provider: Provider) -> None:
    provider.replies = [JSONResponse({"results": [{"index": 0, "relevance_score": 1.0}], "data": []})]
    with pytest.raises(ProviderUnavailable, match="no score for every text"):
        reranker(name, provider).scores("a", ["b", "c"])


def test_a_filter_reranks_its_best_and_says_what_it_took(name: str, provider: Provider) -> None:
    made = ToolFilter(
        catalog(WORKPLACE), embedding=None, reranker=reranker(name, provider), rerank_top=5, save_index=False
    )
    found = made.filter("merge a pull request")
    assert found.tools[0].id == "github/merge_pull_request"
    assert found.metrics.rerank_milliseconds is not None
    assert len(provider.seen[0].body["documents"]) == 5
    assert [tool.score for tool in found.tools] == sorted((tool.score for tool in found.tools), reverse=True)


@pytest.mark.parametrize(
    "reply",
    [
        JSONResponse({}, 429, {"Retry-After": "3600"}),
        JSONResponse({"detail": "no"}, 401),
        Response('{"results": [', 200, media_type="application/json"),
    ],
    ids=["429", "401", "cut off"],
)
def test_whatever_goes_wrong_the_ranking_stays_with_a_warning(name: str, provider: Provider, reply: Response) -> None:
    plain = ToolFilter(catalog(WORKPLACE), embedding=None).filter("merge a pull request")
    made = ToolFilter(catalog(WORKPLACE), embedding=None, reranker=reranker(name, provider))
    provider.replies = [reply, reply]
    found = made.filter("merge a pull request")
    assert found.names() == plain.names()
    assert any("Not reranked" in warning and name in warning for warning in found.warnings)


def test_a_reranker_that_is_down_leaves_the_ranking_and_a_warning(name: str, provider: Provider) -> None:
    plain = ToolFilter(catalog(WORKPLACE), embedding=None).filter("merge a pull request")
    made = ToolFilter(catalog(WORKPLACE), embedding=None, reranker=reranker(name, provider))
    provider.replies = [PlainTextResponse("oops", 503)] * 2
    found = made.filter("merge a pull request")
    assert found.names() == plain.names()
    assert any("Not reranked" in warning for warning in found.warnings)
    assert plain.metrics.rerank_milliseconds is None


def test_a_reranker_needs_a_key_or_an_address_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JINA_API_KEY", raising=False)
    with pytest.raises(InvalidInput, match="set JINA_API_KEY"):
        reranker_of("jina")
    with pytest.raises(InvalidInput, match="No reranker 'nobody'"):
        reranker_of("nobody")


def test_only_the_top_is_reordered_and_what_follows_stays_behind() -> None:
    result = searcher(WORKPLACE).search(Query(text="merge a pull request", limit=10))
    better = reranked(result, Backwards(), top=3)
    assert isinstance(Backwards(), Reranker)
    assert {hit.tool.id for hit in better.hits[:3]} == {hit.tool.id for hit in result.hits[:3]}
    assert [hit.tool.id for hit in better.hits[3:]] == [hit.tool.id for hit in result.hits[3:]]
    assert [hit.rank for hit in better.hits] == list(range(1, 11))
    assert better.steps[-1].name == "rerank"


def test_a_searcher_with_a_reranker_gives_the_reranked_answer() -> None:
    made = searcher(WORKPLACE)
    with_it = Searcher(made.index, made.embedder, options=SearchOptions(reranker=Backwards(), rerank_top=3))
    query = Query(text="merge a pull request", limit=10)
    after = reranked(made.search(query), Backwards(), top=3)
    assert [hit.tool.id for hit in with_it.search(query).hits] == [hit.tool.id for hit in after.hits]


@given(st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=9))
def test_a_reranker_without_an_opinion_changes_nothing(fused: list[float]) -> None:
    scores = np.array(fused, np.float32)
    assert np.allclose(mix(scores, np.full(len(fused), 0.5, np.float32)), scores)
