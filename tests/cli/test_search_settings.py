"""The `search` section in a gateway that serves: every model, pipeline and reranker that the library has."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from shortlist.cli import main
from shortlist.cli.stack import Stack, open_stack
from shortlist.config.load import load_settings, settings_of
from shortlist.config.settings import Settings
from shortlist.demo.server import demo_settings
from shortlist.errors import InvalidConfig, InvalidInput
from shortlist.gateway.view import ServeOptions
from shortlist.index.choosing import choose_embedder
from shortlist.models import Query
from shortlist.search.rerank import choose_reranker
from shortlist.search.searcher import Searcher
from tests.gateway.support import words
from tests.index.models import write_onnx
from tests.providers.wires import EMBEDDERS, KEY, RERANKERS, Provider, serving

pytestmark = pytest.mark.anyio
SECONDS = 180


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for kind in ("CONFIG", "DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))


def configured(search: dict[str, Any]) -> Settings:
    ours = {"search": search, "telemetry": {"enabled": False}}
    settings = settings_of({"mcpServers": {}, "shortlist": ours}, source="servers.json")
    return replace(settings, servers={"weather": demo_settings()["weather"]}, source="")


@asynccontextmanager
async def served(search: dict[str, Any]) -> AsyncIterator[tuple[Stack, Client]]:
    """Serve a demo server with a `search` section, and wait for its vectors."""
    settings = configured(search)
    async with open_stack(settings, ServeOptions(mode="search")) as stack, Client(stack.front.server) as client:
        with anyio.fail_after(SECONDS):
            while not (len(stack.search.catalog) and (await stack.search.search(Query(text="rain"))).notes == ()):
                await anyio.sleep(0.02)
        yield stack, client


def searcher(stack: Stack) -> Searcher:
    made = stack.search.searcher
    assert isinstance(made, Searcher)
    return made


async def first_hit(client: Client, text: str) -> str:
    return words(await client.call_tool("search_tools", {"query": text}))


@pytest.mark.parametrize(
    ("embedder", "model"),
    [("static", "static"), ("none", None), ("small:256", "small"), ({"path": "mine"}, "tiny")],
    ids=["static", "none", "small:256", "own folder"],
)
async def test_a_gateway_searches_with_the_model_of_its_settings(
    embedder: Any, model: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_onnx(tmp_path / "mine")
    async with served({"embedder": embedder}) as (stack, client):
        model_id = searcher(stack).model_id
        assert model_id is None if model is None else (model_id or "").partition("@")[0].endswith(model)
        assert "air_quality" in await first_hit(client, "air quality in Paris")


async def test_fewer_dimensions_are_kept_where_the_settings_say_so() -> None:
    async with served({"embedder": "small", "dimensions": 128}) as (stack, _):
        dense = searcher(stack).index.dense
        assert dense is not None
        assert dense.dimensions == 128


async def test_a_provider_embeds_tools_and_queries() -> None:
    with serving(Provider(), EMBEDDERS["openai"]) as provider:
        search = {"provider": "openai", "model": "text-embedding-3-small", "base_url": provider.url, "api_key": KEY}
        async with served({"embedder": search}) as (stack, client):
            assert (searcher(stack).model_id or "").startswith("openai")
            assert "air_quality" in await first_hit(client, "air quality in Paris")
            assert "air quality in Paris" in provider.texts()


async def test_a_reranker_scores_what_a_client_searches() -> None:
    with serving(Provider(), RERANKERS["cohere"]) as provider:
        reranker = {"provider": "cohere", "base_url": provider.url, "api_key": KEY}
        async with served({"embedder": "none", "reranker": reranker}) as (_, client):
            provider.seen.clear()
            await first_hit(client, "air quality in Paris")
            assert [seen.body["query"] for seen in provider.seen] == ["air quality in Paris"]


async def test_a_reranker_that_fails_leaves_the_answer_with_a_note() -> None:
    reranker = {"provider": "cohere", "base_url": "http://127.0.0.1:9", "api_key": KEY}
    async with (
        open_stack(configured({"embedder": "none", "reranker": reranker}), ServeOptions(mode="search")) as stack,
        Client(stack.front.server) as client,
    ):
        await stack.pool.settled(SECONDS)
        with anyio.fail_after(SECONDS):
            while "air_quality" not in (found := await first_hit(client, "air quality in Paris")):
                await anyio.sleep(0.05)
        assert "Not reranked" in found


async def test_the_pipeline_of_the_settings_answers() -> None:
    async with served({"embedder": "none", "pipeline": "bm25"}) as (stack, client):
        assert searcher(stack).pipeline.name == "bm25"
        assert "air_quality" in await first_hit(client, "air quality in Paris")


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ({"embeder": "small"}, "embedder"),
        ({"dimensions": 0}, "dimensions"),
        ({"embedder": {"provider": "openai", "api_key": "${NOT_SET_ANYWHERE}"}}, "NOT_SET_ANYWHERE"),
    ],
)
def test_a_mistake_in_the_section_is_an_error_that_names_the_key(
    section: dict[str, Any], told: str, tmp_path: Path
) -> None:
    path = tmp_path / "servers.json"
    path.write_text(json.dumps({"mcpServers": {}, "shortlist": {"search": section}}), "utf-8")
    with pytest.raises(InvalidConfig, match=told):
        load_settings(path)


def test_a_choice_that_means_nothing_is_refused_with_what_there_is() -> None:
    with pytest.raises(InvalidInput, match="No embedder 'tiny'"):
        choose_embedder("tiny")
    with pytest.raises(InvalidInput, match="unknown key 'pth'"):
        choose_embedder({"pth": "x"})
    with pytest.raises(InvalidInput, match="either a path or a provider"):
        choose_embedder({"model": "x"})
    with pytest.raises(InvalidInput, match="No provider 'nobody'"):
        choose_embedder("nobody:model")
    with pytest.raises(InvalidInput, match="needs a provider"):
        choose_reranker({"model": "x"})
    with pytest.raises(InvalidInput, match="No reranker 'nobody'"):
        choose_reranker("nobody")


def test_serve_refuses_a_model_that_is_not_there_before_it_serves(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--http", "127.0.0.1:0", "--embedder", "tiny"]) != 0
    assert "No embedder 'tiny'" in capsys.readouterr().err
