"""A server is reported as ready when its tools can be used, not when it has listed them."""

import logging
import threading
from collections.abc import Mapping, Sequence

import anyio
import anyio.to_thread
import httpx2
import pytest
from starlette.applications import Starlette

from shortlist.catalog.catalog import Catalog
from shortlist.config.settings import Settings
from shortlist.front.border import Border
from shortlist.front.probes import is_searchable, probe_routes
from shortlist.gateway.gateway import Gateway
from shortlist.gateway.state import Seams
from shortlist.models import Tool
from shortlist.observability.metrics import GatewayMetrics
from shortlist.search.engine import Engine
from shortlist.search.searcher import Searcher
from shortlist.upstream.events import State, StateChanged, ToolsChanged, UpstreamStatus
from shortlist.upstream.pool import UpstreamPool

DEADLINE_SECONDS = 60.0
TOOLS = tuple(Tool(id=f"slow/{n}", server="slow", name=str(n), description="A tool.") for n in range(3))


class Thorough:
    """A gate that holds one tool back, and takes its time."""

    def __init__(self) -> None:
        self.asked, self.may_answer = threading.Event(), threading.Event()

    def admit(self, server: str, tools: Sequence[Tool], said: Mapping[str, str]) -> Sequence[Tool]:  # noqa: ARG002
        self.asked.set()
        assert self.may_answer.wait(DEADLINE_SECONDS)
        return tools[1:]

    def words(self, server: str, said: Mapping[str, str]) -> Mapping[str, str]:  # noqa: ARG002
        return said

    def doubts(self, server: str) -> Mapping[str, str]:  # noqa: ARG002
        return {}


def became(state: State) -> StateChanged:
    return StateChanged(server="slow", status=UpstreamStatus(server="slow", state=state, since=0.0))


@pytest.mark.anyio
async def test_a_server_is_ready_once_its_tools_are_admitted_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="shortlist.gateway")
    gate = Thorough()
    pool = UpstreamPool({}, on_event=lambda _: None)
    engine = Engine.over(Searcher(Catalog.of(())))
    async with Gateway(Settings(), engine, pool, seams=Seams(gate=gate)) as gateway:
        gateway.on_upstream(ToolsChanged(server="slow", tools=TOOLS, problems=()))
        gateway.on_upstream(became("ready"))
        assert await anyio.to_thread.run_sync(gate.asked.wait, DEADLINE_SECONDS)
        assert "is ready" not in caplog.text
        assert not is_searchable(gateway.state)  # nothing is known yet, and something will be
        gate.may_answer.set()
        with anyio.fail_after(DEADLINE_SECONDS):
            await gateway.settled()
        assert is_searchable(gateway.state)
        gateway.on_upstream(became("ready"))  # of its circuit, perhaps
        assert [record.getMessage() for record in caplog.records] == ["server 'slow' is ready: 2 tools"]
        gateway.on_upstream(became("down"))
        gateway.on_upstream(became("ready"))
    assert [record.getMessage() for record in caplog.records] == 2 * ["server 'slow' is ready: 2 tools"]


@pytest.mark.anyio
async def test_a_gateway_that_was_told_to_stop_is_not_ready_for_new_requests() -> None:
    pool = UpstreamPool({}, on_event=lambda _: None)
    stopping = threading.Event()
    async with Gateway(Settings(), Engine.over(Searcher(Catalog.of(()))), pool) as gateway:
        border = Border(gateway.state, token_required=False)
        routes = probe_routes(gateway.state, GatewayMetrics().instruments, border, stopping.is_set)
        transport = httpx2.ASGITransport(Starlette(routes=routes))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
            assert (await http.get("/readyz")).status_code == 200
            stopping.set()
            assert (await http.get("/readyz")).text == "stopping\n"
            assert (await http.get("/healthz")).status_code == 200
