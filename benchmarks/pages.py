"""How long each page of the dashboard takes over a store of a million events, with an experiment on every workspace.

python -m benchmarks.pages                  # a million events
python -m benchmarks.pages --events 50000   # fewer, for a look
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

import anyio
import httpx2
from benchmarks.measuring import publish
from benchmarks.telemetry import SECONDS, TOOLS, fill, held, tool
from starlette.types import ASGIApp

from shortlist.catalog.catalog import Catalog
from shortlist.config.settings import MemoryTransport, ServerSettings, Settings
from shortlist.evals.tables import Table
from shortlist.front.border import Border
from shortlist.gateway.state import GatewayState
from shortlist.models import Tool
from shortlist.search.engine import Engine
from shortlist.search.searcher import Searcher
from shortlist.storage.local import open_local
from shortlist.storage.sqlite import Database
from shortlist.storage.sqlite_events import SqliteEvents
from shortlist.storage.sqlite_learning import SqliteExperiments
from shortlist.telemetry.experiments.plan import Experiment, Variant, start_experiment
from shortlist.web.access import Access
from shortlist.web.app import dashboard
from shortlist.web.page import Sources
from shortlist.web.recorded import RecordedUpstreams

ROUNDS = 3
EXPERIMENT = Experiment(name="limits", variants=(Variant(limit=5), Variant(limit=10)), metric="misses")
PAGES = {
    "overview, 24 hours": "/?range=24h",
    "overview, 7 days": "/?range=7d",
    "overview, 30 days": "/?range=30d",
    "playground": "/search?q=do+something&a=default&b=bm25",
    "servers": "/servers",
    "server": "/servers/server3",
    "tools": "/tools",
    "tools, never found": "/tools?view=unseen",
    "tool": f"/tools/{quote(tool(3), safe='')}",
    "misses": "/misses",
    "misses of one kind": "/misses?kind=unknown",
    "experiments": "/experiments",
    "experiment": f"/experiments/{EXPERIMENT.name}",
    "activity": "/activity",
    "activity of a rare kind": "/activity?kind=loaded",
    "activity, what is new": "/activity/feed?after=1000000000",
}


def expose_all(store: SqliteEvents) -> int:
    """Put every workspace into an experiment."""
    start_experiment(SqliteExperiments(store.database), EXPERIMENT)
    one, other = (variant.name for variant in EXPERIMENT.variants)
    with store.database.transaction() as connection:
        done = connection.execute(
            "INSERT INTO exposures (experiment, workspace, variant, at) "
            "SELECT ?, workspace, CASE WHEN random() % 2 THEN ? ELSE ? END, opened FROM sessions",
            (EXPERIMENT.name, one, other),
        )
    return done.rowcount


def pages_over(path: Path, access: Access) -> ASGIApp:
    """Make the dashboard of a gateway whose tools are those of the events."""
    tools = [made(place) for place in range(TOOLS)]
    names = sorted({each.server for each in tools})
    settings = Settings(
        servers={name: ServerSettings(name=name, transport=MemoryTransport(build=lambda: None)) for name in names}
    )
    searcher = Searcher(Catalog.of(tools))
    storage = open_local(path.parent)
    upstreams = RecordedUpstreams(names, storage.events)
    state = GatewayState(settings, Engine.over(searcher), upstreams)
    sources = Sources(state=state, explained=searcher.explained, storage=storage)
    return dashboard(sources, access, Border(state, token_required=False))


def made(place: int) -> Tool:
    server, _, name = tool(place).partition("/")
    description = f"Do something of kind {place}, and tell how it went."
    definition = {"name": name, "description": description, "inputSchema": {"type": "object"}}
    return Tool(id=tool(place), name=name, server=server, description=description, definition=json.dumps(definition))


async def timed(path: Path) -> dict[str, float]:
    """Ask for every page a few times and keep the fastest: whatever else runs here only ever adds."""
    access, best = Access(), dict.fromkeys(PAGES, float("inf"))
    transport = httpx2.ASGITransport(pages_over(path, access))
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        (await http.get(f"/open?key={access.link()}")).raise_for_status()
        for _ in range(ROUNDS):
            for name, address in PAGES.items():
                started = time.perf_counter()
                (await http.get(address)).raise_for_status()
                best[name] = min(best[name], time.perf_counter() - started)
    return best


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--events", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="shortlist-bench-") as folder:
        path = Path(folder) / "events.sqlite"
        store = SqliteEvents(Database(path))
        fill(store, options.events)
        exposed = expose_all(store)
        store.database.close()
        times = anyio.run(timed, path)
    slowest = max(times, key=lambda name: times[name])
    table = Table(
        f"Pages over {options.events:,} events, {TOOLS:,} tools and an experiment of {exposed:,} workspaces",
        ("page", "seconds"),
        tuple((name, f"{took:.3f}") for name, took in times.items()),
        (f"Slowest: {slowest}. All under {SECONDS:.0f} s: {held(times[slowest] < SECONDS)}.",),
    )
    publish("pages", [table], {"events": options.events, "workspaces": exposed, "seconds": times})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
