"""How long a restart takes until its first search: python -m benchmarks.restart.

A gateway that knows every tool of the benchmark is started again: its saved tool lists and its saved index with vectors
are read, the view is made, and one query is embedded by the bundled `small` model and answered. Each step is timed in a
process of its own, after `import mcp`, which every MCP program pays. Vectors are random, since no time depends on what
they say. The servers are many and small here; few large ones are read faster.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.measuring import RandomEmbedder, bench_file, in_a_process, publish, rows, spread

from shortlist.evals.tables import Table

T = TypeVar("T")

TARGET_SECONDS = 1.0
RESTARTING = "from benchmarks.restart import restarted; restarted()"


def save(count: int) -> None:
    """Save tool lists and an index, as a gateway does that was served before."""
    from shortlist.catalog.readers import read_catalog
    from shortlist.catalog.saved import SavedCatalog
    from shortlist.index.embedders import shipped
    from shortlist.index.index import Index
    from shortlist.index.saved import SavedIndexes
    from shortlist.paths import cache_folder
    from shortlist.storage.local import open_local

    catalog = read_catalog(spread(rows(bench_file("eval", "mcp_union", "tools.jsonl.gz")), count)).catalog
    model = shipped("small")
    assert model is not None
    index = Index.build(catalog)
    texts = index.texts_without_vector(model)
    vectors = RandomEmbedder(model.dimensions).embed_documents(list(texts.values()))
    import numpy as np

    index = index.with_vectors(model, np.array(list(texts)), vectors)
    SavedIndexes(cache_folder() / "indexes", model.model_id).keep(index)
    saved = SavedCatalog(open_local().catalogs, _servers(catalog.servers))
    for name, server in catalog.servers.items():
        saved.save(server, catalog.of_server(name))
    (cache_folder() / "servers.json").write_text(json.dumps(list(catalog.servers)))


def restarted() -> None:
    """Start again, in a process of its own, and print the seconds of each step."""
    found: dict[str, Any] = {}

    def timed(step: str, work: Callable[[], T]) -> T:
        wall, cpu = time.perf_counter(), time.process_time()
        made = work()
        found[step] = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}
        return made

    timed("import mcp", lambda: __import__("mcp"))
    timed("import shortlist", lambda: (__import__("shortlist.cli.stack"), __import__("shortlist.cli.engine")))
    from shortlist.catalog.saved import SavedCatalog
    from shortlist.cli.engine import make_searcher
    from shortlist.config.settings import SearchSettings, Settings
    from shortlist.gateway.view import ServeOptions, make_view
    from shortlist.models import Query
    from shortlist.paths import cache_folder
    from shortlist.storage.local import open_local

    servers = _servers(json.loads((cache_folder() / "servers.json").read_text()))
    catalog = timed("read the saved tools", SavedCatalog(open_local().catalogs, servers).load)
    timed("make the view", lambda: make_view(Settings(), ServeOptions(), catalog))
    searcher = timed("read the saved index", lambda: make_searcher(catalog, SearchSettings(embedder="small")))
    result = timed("first search, with the model", lambda: searcher.search(Query(text="send a message to the team")))
    assert not result.notes, result.notes
    print(json.dumps({"steps": found, "tools": len(catalog)}))


def _servers(names: Any) -> dict[str, Any]:
    from shortlist.config.settings import ServerSettings, StdioTransport

    return {name: ServerSettings(name=name, transport=StdioTransport(command="true")) for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", type=int, default=25_759)
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {f"XDG_{kind}_HOME": str(Path(folder) / kind.lower()) for kind in ("DATA", "CACHE", "CONFIG")}
        print("saving what a restart reads …", file=sys.stderr)
        save(options.tools)
        runs = [in_a_process(RESTARTING) for _ in range(options.times)]
    best = min(runs, key=lambda run: _above(run["steps"]))
    steps = best["steps"]
    table = Table(
        f"A restart with {best['tools']:,} known tools, the fastest of {options.times}: seconds",
        ("step", "wall", "CPU"),
        (
            *((name, f"{each['seconds']:.2f}", f"{each['cpu_seconds']:.2f}") for name, each in steps.items()),
            ("all above `import mcp`", f"{_above(steps):.2f}", f"{_above(steps, 'cpu_seconds'):.2f}"),
        ),
        (f"Target: at most {TARGET_SECONDS} s above `import mcp`: {_verdict(_above(steps))}.",),
    )
    publish("restart", [table], {"runs": runs})


def _above(steps: dict[str, Any], kind: str = "seconds") -> float:
    return sum(float(each[kind]) for name, each in steps.items() if name != "import mcp")


def _verdict(seconds: float) -> str:
    return "holds" if seconds <= TARGET_SECONDS else "DOES NOT HOLD"


if __name__ == "__main__":
    main()
