"""A real gateway for a run: a `shortlist serve` process, and an MCP client on its stdin and stdout."""

import json
import math
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import anyio
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client

from shortlist.disclosure.budget import estimate_tokens
from shortlist.disclosure.render import compact_json
from shortlist.errors import ShortlistError
from shortlist.gateway.discovery import SEARCH
from shortlist.models import Json
from shortlist.storage.local import open_local
from shortlist.storage.port import Storage

COMMAND = (sys.executable, "-m", "shortlist.cli")
START_SECONDS = 60.0
READY_SECONDS = 60.0
READY_PAUSE_SECONDS = 0.3
SHOWN_LINES = 5
LOG = "gateway.log"


class GatewayFailed(ShortlistError):
    """A gateway that did not start, with its last log lines."""


@dataclass(frozen=True, slots=True)
class GatewayFolder:
    """The data folder of a run's gateways, and their configuration."""

    folder: Path
    config: Path | None = None
    """None: the user's own, else the demo servers."""

    def command(self, name: str, *arguments: str) -> list[str]:
        config = ("--config", str(self.config)) if self.config else ()
        return [*COMMAND, name, *config, *arguments]

    def storage(self) -> Storage:
        """Return what the gateways record."""
        return open_local(self.folder / "shortlist")

    def environment(self) -> dict[str, str]:
        """Return an environment that keeps the run out of the user's data; vectors are shared, since they are slow."""
        return {**os.environ, "XDG_DATA_HOME": str(self.folder), "PYTHONPATH": os.pathsep.join(sys.path)}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallAnswer:
    """The result of a call."""

    text: str
    is_error: bool
    milliseconds: float
    structured: Mapping[str, Json] | None = None

    @property
    def tokens(self) -> int:
        return estimate_tokens(self.text)


@dataclass(frozen=True, slots=True)
class Connected:
    """One client's session with one gateway."""

    client: Client
    instructions: str

    async def tools(self) -> list[dict[str, Any]]:
        """List the tools that the client may call now, as sent over the wire."""
        listed = await self.client.list_tools(cache_mode="bypass")
        return [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in listed.tools]

    async def call(self, name: str, arguments: Mapping[str, Json]) -> CallAnswer:
        """Call a tool; a protocol error becomes an error answer."""
        started = perf_counter()
        try:
            result = await self.client.call_tool(name, dict(arguments))
        except MCPError as error:
            return CallAnswer(text=str(error), is_error=True, milliseconds=(perf_counter() - started) * 1000)
        return CallAnswer(
            text="\n".join(block.text for block in result.content if block.type == "text"),
            is_error=bool(result.is_error),
            milliseconds=(perf_counter() - started) * 1000,
            structured=result.structured_content,
        )

    async def ready(self) -> None:
        """Wait until all servers are connected and the model's vectors are ready."""
        if SEARCH.name not in {tool["name"] for tool in await self.tools()}:
            return
        with anyio.move_on_after(READY_SECONDS):
            for number in range(1_000):
                # A different query each time, or the gateway would report a search loop.
                answer = await self.call(SEARCH.name, {"query": f"ready {number}", "format": "json"})
                if not (answer.structured or {}).get("notes"):
                    return
                await anyio.sleep(READY_PAUSE_SECONDS)


def list_tokens(tools: Sequence[Mapping[str, Any]]) -> int:
    """Estimate the tokens of a list of tools."""
    return sum(estimate_tokens(compact_json(tool)) for tool in tools)


@asynccontextmanager
async def connected(place: GatewayFolder, *arguments: str) -> AsyncIterator[Connected]:
    """Start a gateway and connect a legacy client; the process ends with the context."""
    command = place.command("serve", "--own", *arguments)
    server = StdioServerParameters(command=command[0], args=command[1:], env=place.environment())
    log = place.folder / LOG
    started = False
    try:
        with log.open("a", encoding="utf-8") as said, anyio.fail_after(START_SECONDS) as scope:
            async with Client(stdio_client(server, errlog=said), mode="legacy") as client:
                started, scope.deadline = True, math.inf
                yield Connected(client, client.instructions or "")
    except Exception as error:
        if started:
            raise
        raise GatewayFailed(f"The gateway did not start ({type(error).__name__}). {_last(log)}") from error


async def warm_up(place: GatewayFolder) -> Mapping[str, str]:
    """Connect every server once, so that gateways start from a saved catalog; return those that are not ready."""
    with (place.folder / LOG).open("a", encoding="utf-8") as said:
        done = await anyio.run_process(
            place.command("status", "--json"), env=place.environment(), check=False, stderr=said
        )
    try:
        statuses: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise GatewayFailed(f"The servers could not be connected. {_last(place.folder / LOG)}") from None
    return {name: status["state"] for name, status in statuses.items() if status["state"] != "ready"}


def _last(log: Path) -> str:
    lines = log.read_text("utf-8", "replace").splitlines()[-SHOWN_LINES:]
    return "Last log lines: " + " / ".join(lines) if lines else "It logged nothing."
