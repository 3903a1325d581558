"""Which files run code in the three main flows: python -m benchmarks.flows.

A search and a call go through a whole gateway in this process, from an MCP client to the bundled demo servers and back.
An event goes from the gateway's recorder to the figures that are computed from it. A profile hook notes the file of
every function that runs, in every thread. Each flow runs once before it is traced, so lazy imports and first-time setup
do not count. Then it is traced ten times, and the files that run each time are counted. Neither do the demo servers
count, nor, in a search or a call, the threads that write events, index new tools or make vectors.
"""

import argparse
import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import anyio
from benchmarks.measuring import publish
from mcp import Client

import shortlist
from shortlist.cli.recording import open_telemetry
from shortlist.cli.stack import open_stack
from shortlist.config.settings import Settings, TelemetrySettings
from shortlist.demo.server import demo_settings
from shortlist.evals.tables import Table, to_markdown
from shortlist.gateway.view import ServeOptions
from shortlist.storage.local import open_local
from shortlist.storage.port import Storage
from shortlist.telemetry.events import Called, Event, Later, Searched
from shortlist.telemetry.measures import FoundTool

SOURCE = Path(shortlist.__file__).parent
LIMITS = {"search": 25, "call": 18, "event to figure": 15}
READY_SECONDS = 60.0
REPEATED = 10
"""A flow is what runs each time: the gateway's own background tasks run now and then."""
BESIDE = ("shortlist-events", "shortlist-vectors", "shortlist-index")
"""Threads that work beside the requests."""


class Trace:
    """Notes the files of the package whose functions run while it is armed."""

    def __init__(self) -> None:
        self._files: set[str] | None = None
        self._excluded: tuple[str, ...] = ()

    def install(self) -> None:
        """Start profiling this thread and every one started later; call it before any worker thread exists."""
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    @contextmanager
    def armed(self, *, excluded: tuple[str, ...] = ()) -> Iterator[set[str]]:
        found: set[str] = set()
        self._files, self._excluded = found, excluded
        try:
            yield found
        finally:
            self._files = None

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        files = self._files
        if files is None or event != "call":
            return
        code = frame.f_code
        if code.co_name == "<module>" or not code.co_filename.startswith(str(SOURCE)):
            return
        path = Path(code.co_filename).relative_to(SOURCE)
        if path.parts[0] != "demo" and threading.current_thread().name not in self._excluded:
            files.add(path.as_posix())


async def through_the_gateway(trace: Trace) -> dict[str, set[str]]:
    """Trace one search and one call by a client that has made both before."""
    settings = Settings(servers=demo_settings())
    found: dict[str, set[str]] = {}
    async with open_stack(settings, ServeOptions(mode="search")) as stack, Client(stack.front.server) as client:
        await _ready(client)
        await stack.gateway.settled()
        for arguments in (_SEARCH, _CALL):
            await _called(client, *arguments)
        for _ in range(REPEATED):
            for name, arguments in (("search", _SEARCH), ("call", _CALL)):
                with trace.armed(excluded=BESIDE) as files:
                    await _called(client, *arguments)
                found[name] = found.get(name, files) & files
    return found


_SEARCH = ("search_tools", {"query": "open an issue about the login bug"})
_CALL = ("call_tool", {"name": "calendar__list-calendars", "arguments": {}})


async def _ready(client: Client) -> None:
    """Wait until servers are connected and vectors are made; different queries, or they would count as a loop."""
    with anyio.fail_after(READY_SECONDS):
        turn = 0
        while "not ready" in (found := await _called(client, "search_tools", {"query": f"send a message {turn}"})) or (
            "connecting" in found or "vectors" in found
        ):
            turn += 1
            await anyio.sleep(0.5)
            await _called(client, *_CALL)


async def _called(client: Client, name: str, arguments: dict[str, Any]) -> str:
    result = await client.call_tool(name, arguments)
    return "\n".join(block.text for block in result.content if block.type == "text")


def from_event_to_figure(trace: Trace) -> set[str]:
    """Trace a recorded search and the call it led to until the figures that include them are computed."""
    hits = (FoundTool(tool="demo/echo", rank=1, score=1.0),)
    search = Searched(
        caller="local",
        workspace="w",
        query="say a text back",
        hits=hits,
        confidence="high",
        probability=0.9,
        tokens=Later(lambda: 80),
    )
    call = Called(caller="local", workspace="w", tool="demo/echo", outcome="ok", milliseconds=1.0, native=False)
    storage = open_local()
    _recorded(trace, storage, search, call)
    return _recorded(trace, storage, search, call)


def _recorded(trace: Trace, storage: Storage, *events: Event) -> set[str]:
    """Trace events from the recorder, which a gateway opens once, to the figures."""
    with ExitStack() as opened:
        telemetry = opened.enter_context(open_telemetry(TelemetrySettings(), storage))
        with trace.armed() as found:
            for event in events:
                telemetry.record(event)
            opened.close()  # the recorder writes what it holds
            telemetry.reports["get_stats"]({}, None)
    return found


def table_of(flows: Mapping[str, set[str]]) -> Table:
    rows = [
        (name, str(len(files)), f"≤ {LIMITS[name]}", "yes" if len(files) <= LIMITS[name] else "no")
        for name, files in flows.items()
    ]
    return Table("Files in src/shortlist whose functions run", ("flow", "files", "limit", "holds"), tuple(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write no results; fail where a flow exceeds its limit")
    check = parser.parse_args().check
    trace = Trace()
    trace.install()
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(
            {f"XDG_{kind}_HOME": str(Path(folder) / kind.lower()) for kind in ("DATA", "CACHE", "CONFIG")}
        )
        flows = anyio.run(through_the_gateway, trace)
        flows["event to figure"] = from_event_to_figure(trace)
    for name, files in flows.items():
        print(f"{name} ({len(files)} files)\n" + "\n".join(f"  {file}" for file in sorted(files)))
    if check:
        print(to_markdown([table_of(flows)]))
        raise SystemExit(any(len(files) > LIMITS[name] for name, files in flows.items()))
    publish("flows", [table_of(flows)], {"flows": {name: sorted(files) for name, files in flows.items()}})


if __name__ == "__main__":
    main()
