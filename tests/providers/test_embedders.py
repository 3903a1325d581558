"""Every embedding provider against a server of its own wire format, and everything that can go wrong with it."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.responses import JSONResponse, PlainTextResponse, Response

from shortlist.errors import InvalidInput
from shortlist.index.cache import StoredVectors
from shortlist.index.embedders import Embedder
from shortlist.index.providers import (
    WIRES,
    Account,
    Pace,
    RemoteEmbedder,
    azure_embedder,
    embedder_of,
    openai_embedder,
)
from shortlist.index.vectors import COOL_DOWN_SECONDS, QueryVectors
from shortlist.library.filter import ToolFilter
from shortlist.remote import Patience, ProviderRefused, ProviderUnavailable
from shortlist.storage.sqlite_vectors import SqliteVectors
from tests.fakes import DIMENSIONS, WORKPLACE, catalog
from tests.providers.wires import EMBEDDERS, KEY, Provider, serving, vector

TWICE = Patience(seconds=20.0, attempts=2, wait_seconds=5.0)
IMPATIENT = Patience(seconds=0.2, attempts=2, wait_seconds=5.0)


@pytest.fixture(params=EMBEDDERS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def provider(name: str) -> Iterator[Provider]:
    with serving(Provider(), EMBEDDERS[name]) as running:
        yield running


def embedder(name: str, provider: Provider, *, key: str = KEY, **more: Any) -> RemoteEmbedder:
    waited: list[float] = more.pop("waited", [])
    patience = more.pop("patience", TWICE)
    pace = Pace(documents=patience, query=patience, sleep=waited.append, **more.pop("pace", {}))
    query = {"api-version": "2024-10-21"} if name == "azure" else {}
    account = Account(base_url=provider.url, api_key=key, query=query)
    return embedder_of(name, "a-model", account=account, pace=pace, **more)


def unit(text: str) -> Any:
    found = np.array(vector(text), np.float32)
    return found / np.linalg.norm(found)


def test_documents_and_queries_come_back_as_unit_vectors_in_their_order(name: str, provider: Provider) -> None:
    made = embedder(name, provider)
    vectors = made.embed_documents(["send mail", "read file", "list pods"])
    assert np.allclose(vectors, [unit("send mail"), unit("read file"), unit("list pods")], atol=1e-5)
    assert np.allclose(made.embed_query("read file"), unit("read file"), atol=1e-5)
    assert made.dimensions == DIMENSIONS
    assert isinstance(made, Embedder)


def test_documents_and_queries_are_told_apart_where_the_provider_wants_it(name: str, provider: Provider) -> None:
    made = embedder(name, provider, dimensions=DIMENSIONS)
    made.embed_documents(["a document"])
    made.embed_query("a query")
    document, query = (seen.body for seen in provider.seen)
    kinds = {
        "voyage": lambda body: body["input_type"],
        "cohere": lambda body: body["input_type"],
        "gemini": lambda body: body["requests"][0]["taskType"],
    }
    if name in kinds:
        assert kinds[name](document) != kinds[name](query)
        assert "query" in kinds[name](query).lower()


def test_fewer_dimensions_are_asked_of_the_provider_and_not_cut_here(name: str, provider: Provider) -> None:
    made = embedder(name, provider, dimensions=8)
    found = made.embed_query("send mail")
    assert found.shape == (8,)
    assert np.isclose(np.linalg.norm(found), 1, atol=1e-5)
    assert "8" in str(provider.seen[0].body)


def test_batches_stay_within_the_provider_limit_and_run_side_by_side(name: str, provider: Provider) -> None:
    texts = [f"tool {number}" for number in range(50)]
    made = embedder(name, provider, dimensions=DIMENSIONS, pace={"batch": 5, "concurrency": 3})
    told: list[tuple[int, int]] = []
    vectors = made.embed_documents(texts, lambda done, total: told.append((done, total)))
    assert np.allclose(vectors, np.stack([unit(text) for text in texts]), atol=1e-5)
    assert len(provider.seen) == 10
    assert provider.most_under_way <= 3
    assert told[-1] == (50, 50)
    assert all(wire.batch <= 256 for wire in WIRES.values())


def test_a_wrong_key_is_an_error_that_names_the_provider_and_the_remedy(name: str, provider: Provider) -> None:
    with pytest.raises(ProviderRefused, match="the key is not known") as refused:
        embedder(name, provider, key="sk-wrong").embed_query("send mail")
    assert refused.value.status == 401
    assert refused.value.provider == name
    assert WIRES[name].key_variables[0] in str(refused.value)
    assert "sk-wrong" not in str(refused.value)
    assert len(provider.seen) == 1


def test_too_many_requests_wait_as_long_as_the_provider_says(name: str, provider: Provider) -> None:
    provider.replies = [JSONResponse({"message": "slow down"}, 429, {"Retry-After": "3"})]
    waited: list[float] = []
    assert embedder(name, provider, waited=waited).embed_query("send mail").shape == (DIMENSIONS,)
    assert waited == [3.0]


def test_a_date_in_retry_after_is_read_too() -> None:
    with serving(Provider(), EMBEDDERS["openai"]) as provider:
        until = format_datetime(datetime.now(UTC) + timedelta(seconds=4), usegmt=True)
        provider.replies = [JSONResponse({}, 503, {"Retry-After": until})]
        waited: list[float] = []
        embedder("openai", provider, waited=waited).embed_query("send mail")
    assert len(waited) == 1
    assert 1 < waited[0] <= 4


def test_a_provider_that_asks_for_too_long_a_wait_is_given_up_at_once(name: str, provider: Provider) -> None:
    provider.replies = [JSONResponse({}, 429, {"Retry-After": "600"})]
    waited: list[float] = []
    with pytest.raises(ProviderUnavailable, match="429"):
        embedder(name, provider, waited=waited).embed_query("send mail")
    assert waited == []
    assert len(provider.seen) == 1


def test_a_server_error_is_tried_again_and_then_said(name: str, provider: Provider) -> None:
    provider.replies = [PlainTextResponse("oops", 500)]
    made = embedder(name, provider)
    assert made.embed_query("send mail").shape == (DIMENSIONS,)
    provider.replies = [PlainTextResponse("oops", 500), PlainTextResponse("oops", 500)]
    with pytest.raises(ProviderUnavailable, match="500 oops"):
        made.embed_query("list pods")


def test_an_answer_that_does_not_come_in_time_is_a_failure_of_the_provider(name: str, provider: Provider) -> None:
    provider.replies = [None, None]
    with pytest.raises(ProviderUnavailable, match="no answer within"):
        embedder(name, provider, patience=IMPATIENT).embed_query("send mail")


def test_an_answer_cut_off_in_its_middle_is_a_failure_of_the_provider(name: str, provider: Provider) -> None:
    cut = Response('{"data": [{"index": 0, "embedding": [0.1, ', 200, media_type="application/json")
    provider.replies = [cut, cut]
    with pytest.raises(ProviderUnavailable, match="not JSON"):
        embedder(name, provider).embed_query("send mail")


@pytest.mark.parametrize(
    "answer", [{}, [], {"data": []}, {"data": [{"index": 0, "embedding": "AAAA"}]}, {"data": [{"index": 0}]}]
)
def test_an_answer_without_vectors_is_a_failure_of_the_provider(answer: Any) -> None:
    with serving(Provider(), EMBEDDERS["openai"]) as provider:
        provider.replies = [JSONResponse(answer)]
        with pytest.raises(ProviderUnavailable, match="openai"):
            embedder("openai", provider).embed_query("send mail")


def test_vectors_of_another_length_than_before_are_refused() -> None:
    with serving(Provider(), EMBEDDERS["openai"]) as provider:
        made = embedder("openai", provider)
        made.dimensions  # noqa: B018
        provider.replies = [JSONResponse({"data": [{"index": 0, "embedding": [1.0, 2.0]}]})]
        with pytest.raises(ProviderUnavailable, match="2 dimensions, not 32"):
            made.embed_query("send mail")


def test_nobody_listening_is_a_failure_of_the_provider() -> None:
    made = openai_embedder(base_url="http://127.0.0.1:9", pace=Pace(query=IMPATIENT, sleep=lambda _: None))
    with pytest.raises(ProviderUnavailable, match="openai does not answer"):
        made.embed_query("send mail")


def test_a_provider_without_a_key_is_refused_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    for wire in WIRES.values():
        for variable in wire.key_variables:
            monkeypatch.delenv(variable, raising=False)
    with pytest.raises(InvalidInput, match="set OPENAI_API_KEY"):
        openai_embedder()
    with pytest.raises(InvalidInput, match="set VOYAGE_API_KEY"):
        embedder_of("voyage")
    with pytest.raises(InvalidInput, match="needs an address"):
        azure_embedder("mine", endpoint="", api_key="k")


def test_a_key_in_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving(Provider(), EMBEDDERS["openai"]) as provider:
        assert openai_embedder(base_url=provider.url).embed_query("x").shape == (DIMENSIONS,)


def test_azure_is_asked_by_deployment_with_its_own_header() -> None:
    with serving(Provider(), EMBEDDERS["azure"]) as provider:
        made = azure_embedder("my-deployment", endpoint=provider.url, api_key=KEY)
        assert made.embed_query("x").shape == (DIMENSIONS,)
        seen = provider.seen[0]
    assert seen.path == "/openai/deployments/my-deployment/embeddings"
    assert seen.query["api-version"] == "2024-10-21"
    assert "authorization" not in seen.headers


def test_model_ids_differ_by_model_dimensions_and_address() -> None:
    here, there = (Account(base_url=f"http://127.0.0.1:{port}/v1", api_key="k") for port in (1, 2))
    ids = {
        embedder_of("openai", "BAAI/bge-m3", account=here).model_id,
        embedder_of("openai", "BAAI/bge-m3", account=there).model_id,
        embedder_of("openai", "BAAI/bge-m3", account=here, dimensions=64).model_id,
        embedder_of("openai", "other", account=here).model_id,
    }
    assert len(ids) == 4
    assert not any("/" in found for found in ids)


def test_documents_are_embedded_once_ever_with_a_persistent_cache(
    name: str, provider: Provider, tmp_path: Path
) -> None:
    tools = catalog(WORKPLACE)
    for _ in range(2):
        cache = StoredVectors(SqliteVectors(tmp_path / "vectors.sqlite"))
        ToolFilter(tools, embedding=embedder(name, provider), vector_cache=cache, save_index=False)
    assert len([text for text in provider.texts() if text != "ping"]) == len(tools)


def test_a_filter_with_a_wrong_key_does_not_start(name: str, provider: Provider) -> None:
    with pytest.raises(ProviderRefused):
        ToolFilter(catalog(WORKPLACE), embedding=embedder(name, provider, key="sk-wrong"), vector_cache=None)


def test_a_filter_whose_provider_is_down_at_the_start_searches_by_words_and_says_so(
    name: str, provider: Provider
) -> None:
    provider.replies = [PlainTextResponse("down", 503)] * 2
    made = ToolFilter(catalog(WORKPLACE), embedding=embedder(name, provider), vector_cache=None)
    found = made.filter("merge a pull request")
    assert found.tools[0].id == "github/merge_pull_request"
    assert any("lexical search only" in warning and name in warning for warning in found.warnings)
    assert not made.stats().initialised
    made.prepare()
    assert made.stats().initialised
    assert made.filter("merge a pull request").warnings == ()


def test_a_filter_whose_provider_was_down_at_the_start_recovers_by_itself() -> None:
    now = 0.0
    with serving(Provider(), EMBEDDERS["openai"]) as provider:
        provider.replies = [PlainTextResponse("down", 503)] * 2
        vectors = QueryVectors(embedder("openai", provider), clock=lambda: now)
        made = ToolFilter(catalog(WORKPLACE), embedding=vectors, vector_cache=None)
        asked = len(provider.seen)
        assert made.filter("merge a pull request").warnings
        assert len(provider.seen) == asked, "not at once"
        now += COOL_DOWN_SECONDS
        assert made.filter("merge a pull request").warnings
        made.wait()
        assert made.filter("merge a pull request").warnings == ()


def test_a_wrong_key_is_noticed_although_every_vector_is_cached(tmp_path: Path) -> None:
    cache = StoredVectors(SqliteVectors(tmp_path / "vectors.sqlite"))
    with serving(Provider(), EMBEDDERS["openai"]) as provider:
        for key, wait in (("sk-right", True), ("sk-wrong", True), ("sk-wrong", False)):
            model = embedder("openai", provider, key=key, dimensions=DIMENSIONS)
            if key == "sk-right":
                ToolFilter(catalog(WORKPLACE), embedding=model, vector_cache=cache)
                continue
            with pytest.raises(ProviderRefused):
                ToolFilter(catalog(WORKPLACE), embedding=model, vector_cache=cache, wait=wait)


def test_a_provider_that_goes_down_mid_turn_degrades_to_words_and_recovers(name: str, provider: Provider) -> None:
    made = ToolFilter(catalog(WORKPLACE), embedding=embedder(name, provider), vector_cache=None)
    provider.replies = [PlainTextResponse("down", 503)] * 2
    down = made.filter("merge a pull request")
    assert down.tools[0].id == "github/merge_pull_request"
    assert any("lexical search only" in warning for warning in down.warnings)
    asked = len(provider.seen)
    assert made.filter("send an email").warnings, "the cool-down still says so"
    assert len(provider.seen) == asked, "and asks nothing meanwhile"
    made.clear_cache()
    assert made.filter("merge a pull request").warnings == ()


def test_ten_identical_queries_in_flight_embed_once() -> None:
    with serving(Provider(), EMBEDDERS["openai"]) as provider:
        made = ToolFilter(catalog(WORKPLACE), embedding=embedder("openai", provider), vector_cache=None)
        before = len(provider.seen)
        provider.gate = threading.Event()
        found: list[Any] = []
        threads = [
            threading.Thread(target=lambda: found.append(made.filter("merge a pull request"))) for _ in range(10)
        ]
        for thread in threads:
            thread.start()
        provider.gate.set()
        for thread in threads:
            thread.join()
    assert len(provider.seen) == before + 1
    assert len(found) == 10
    assert sum(not result.metrics.cache_hit for result in found) == 1


def test_a_provider_can_be_named_in_one_string(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "")
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
    with pytest.raises(InvalidInput, match="set GEMINI_API_KEY"):
        ToolFilter([], embedding="gemini:gemini-embedding-001")
    with pytest.raises(InvalidInput, match="No provider 'nobody'"):
        ToolFilter([], embedding="nobody:model")
