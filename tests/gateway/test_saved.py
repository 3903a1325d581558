import json
from pathlib import Path

import anyio
import pytest
from mcp import Client

from shortlist.catalog.readers import tool_from_mcp
from shortlist.catalog.saved import SavedCatalog
from shortlist.config.settings import ServerSettings, Settings, StdioTransport
from shortlist.front.server import Front
from shortlist.gateway.gateway import Gateway
from shortlist.gateway.state import Seams
from shortlist.models import Server, Tool
from shortlist.search.engine import Engine
from shortlist.search.searcher import Searcher
from shortlist.storage.files import CatalogFiles
from shortlist.upstream.events import UpstreamEvent
from shortlist.upstream.pool import UpstreamPool
from tests.gateway.support import words

HANGING = ServerSettings(
    name="slow",
    transport=StdioTransport(
        command="python3", args=("-c", "import time; time.sleep(600)"), environment={"TOKEN": "s3cret-value"}
    ),
)


def tools() -> tuple[Tool, ...]:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    raw = {
        "name": "forecast",
        "description": "The weather of a city.",
        "inputSchema": schema,
        "annotations": {"readOnlyHint": True},
        "_meta": {"tags": ["sky"]},
    }
    return (tool_from_mcp(raw, "slow"),)


def saved(folder: Path) -> SavedCatalog:
    return SavedCatalog(CatalogFiles(folder), {"slow": HANGING})


def test_what_was_saved_is_loaded_whole(tmp_path: Path) -> None:
    server = Server(name="slow", description="Weather.", tags=("sky",), categories=("nature",))
    saved(tmp_path).save(server, tools())
    catalog = saved(tmp_path).load()
    assert tuple(catalog.tools.values()) == tools()
    assert catalog.servers["slow"] == server


def test_no_secret_is_written(tmp_path: Path) -> None:
    saved(tmp_path).save(Server(name="slow"), tools())
    for path in tmp_path.iterdir():
        assert "s3cret-value" not in path.name + path.read_text()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 99, "server": {}, "tools": []}', '{"format": 1}'])
def test_a_file_that_cannot_be_read_is_left_out(tmp_path: Path, content: str) -> None:
    saved(tmp_path).save(Server(name="slow"), tools())
    for path in tmp_path.iterdir():
        path.write_text(content)
    assert len(saved(tmp_path).load()) == 0


def test_a_file_in_which_one_byte_differs_is_left_out(tmp_path: Path) -> None:
    saved(tmp_path).save(Server(name="slow"), tools())
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert len(saved(tmp_path).load()) == 0, place


def test_a_server_without_tools_is_known(tmp_path: Path) -> None:
    saved(tmp_path).save(Server(name="slow", title="Slow"), ())
    assert saved(tmp_path).load().servers["slow"].title == "Slow"


def test_a_server_reached_otherwise_is_another_server(tmp_path: Path) -> None:
    saved(tmp_path).save(Server(name="slow"), tools())
    moved = ServerSettings(name="slow", transport=StdioTransport(command="other"))
    assert len(SavedCatalog(CatalogFiles(tmp_path), {"slow": moved}).load()) == 0


def test_many_writers_leave_one_whole_file(tmp_path: Path) -> None:
    for _ in range(20):
        saved(tmp_path).save(Server(name="slow"), tools())
    (path,) = tmp_path.iterdir()
    json.loads(path.read_text())


@pytest.mark.anyio
async def test_a_search_is_answered_from_the_saved_catalog_while_the_server_hangs(tmp_path: Path) -> None:
    store = saved(tmp_path)
    store.save(Server(name="slow"), tools())
    catalog = store.load()
    servers = {"slow": HANGING}
    events: list[UpstreamEvent] = []
    pool = UpstreamPool(servers, on_event=events.append)
    seams = Seams(save=store.save, stale=frozenset(catalog.servers))
    gateway = Gateway(Settings(servers=servers), Engine.over(Searcher(catalog)), pool, seams=seams)
    async with gateway, pool, Client(Front(gateway).server) as client:
        with anyio.fail_after(10):
            found = words(await client.call_tool("search_tools", {"query": "weather of a city"}))
    assert "slow__forecast(city: string)" in found
    assert "(stale: from the saved catalog)" in found
