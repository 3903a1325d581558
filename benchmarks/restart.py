"""How long a restart takes until its first search: python -m benchmarks.restart.

A gateway that knows every tool of the benchmark is started again in a process of its own: its saved tool lists, pins
and saved index with vectors are read, the view is made, the bundled `small` model is loaded, and one search is
answered through `search_tools`. The time is taken after `import mcp`, which every MCP program pays. Servers are not
started, since searches do not wait for them. Vectors are random: no time depends on what they say. The servers of the
benchmark are many and small, so the same tools are also spread over fewer and larger ones.
"""

import argparse
import json
import os
import sys
import tempfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.measuring import RandomEmbedder, bench_file, in_a_process, publish, rows, spread
from benchmarks.restarting import settings_of

from shortlist.catalog.catalog import Catalog
from shortlist.evals.tables import Table
from shortlist.models import Tool

TARGET_SECONDS = 1.0
TOOLS = 25_759
FEWER_SERVERS = 300
RESTARTING = "from benchmarks.restarting import restarted; restarted()"


def save(count: int, servers: int | None) -> None:
    """Save tool lists, pins and an index, as a gateway does that was served before."""
    import numpy as np

    from shortlist.catalog.readers import read_catalog
    from shortlist.catalog.saved import SavedCatalog
    from shortlist.index.embedders import shipped
    from shortlist.index.index import Index
    from shortlist.index.saved import SavedIndexes
    from shortlist.paths import cache_folder
    from shortlist.storage.local import open_local
    from shortlist.storage.port import PinnedDefinition, StoredPins
    from shortlist.trust.pins import listing

    catalog = configurable(
        read_catalog(spread(rows(bench_file("eval", "mcp_union", "tools.jsonl.gz")), count)).catalog, servers
    )
    model = shipped("small")
    assert model is not None
    index = Index.build(catalog)
    texts = index.texts_without_vector(model)
    vectors = RandomEmbedder(model.dimensions).embed_documents(list(texts.values()))
    SavedIndexes(cache_folder() / "indexes", model.model_id).keep(
        index.with_vectors(model, np.array(list(texts)), vectors)
    )
    storage = open_local()
    saved = SavedCatalog(storage.catalogs, settings_of(catalog.servers).servers)
    for name, server in catalog.servers.items():
        tools = catalog.of_server(name)
        saved.save(server, tools)
        listed = listing(name, [tool.mcp() for tool in tools])
        accepted = tuple(PinnedDefinition(e.kind, e.name, e.text) for e in listed.entries)
        storage.pins.write(name, StoredPins(listed.hash, accepted))
    (cache_folder() / "servers.json").write_text(json.dumps(list(catalog.servers)))


def configurable(catalog: Catalog, servers: int | None = None) -> Catalog:
    """Return the same tools on their own or so many servers, with the names and ids that a gateway gives them."""
    tools: dict[str, Tool] = {}
    for tool in catalog.tools.values():
        server, name = tool.server.replace("/", "-")[:64], tool.name
        if servers is not None:
            server = f"server-{zlib.crc32(server.encode()) % servers}"
        while f"{server}/{name}" in tools:
            name += "_2"
        tools[f"{server}/{name}"] = replace(tool, id=f"{server}/{name}", name=name, server=server)
    return Catalog.of(tools.values())


def measure(tools: int, servers: int | None, times: int) -> list[dict[str, Any]]:
    """Save what a restart reads, and start again some times."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {f"XDG_{kind}_HOME": str(Path(folder) / kind.lower()) for kind in ("DATA", "CACHE", "CONFIG")}
        print("saving what a restart reads …", file=sys.stderr)
        in_a_process(f"from benchmarks.restart import save; save({tools}, {servers}); print('{{}}')")
        in_a_process(
            RESTARTING
        )  # compares the tools once and saves which are copies, as a gateway that served them has
        return [in_a_process(RESTARTING) for _ in range(times)]


def table_of(runs: list[dict[str, Any]]) -> Table:
    best = min(runs, key=above)
    reached, seconds = best["reached"], above(best)
    lines = [(step, f"{at['seconds']:.2f}", f"{at['cpu_seconds']:.2f}") for step, at in reached.items()]
    lines.append(("first search, above `import mcp`", f"{seconds:.2f}", f"{above(best, 'cpu_seconds'):.2f}"))
    verdict = "holds" if seconds <= TARGET_SECONDS else "DOES NOT HOLD"
    return Table(
        f"A restart with {best['tools']:,} known tools of {best['servers']:,} servers",
        ("until", "seconds", "CPU seconds"),
        tuple(lines),
        (f"The fastest of {len(runs)}. Target: at most {TARGET_SECONDS} s above `import mcp`: {verdict}.",),
    )


def above(run: dict[str, Any], kind: str = "seconds") -> float:
    """Return the time from `import mcp` to the first answer."""
    return float(run["reached"]["first search answered"][kind] - run["reached"]["import mcp"][kind])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", type=int, default=TOOLS)
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    measured = [measure(options.tools, servers, options.times) for servers in (None, FEWER_SERVERS)]
    publish("restart", [table_of(runs) for runs in measured], {"runs": measured})


if __name__ == "__main__":
    main()
