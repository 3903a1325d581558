"""How well prompts, resources, templates and servers to install are found: python -m benchmarks.kinds.

The documents and their requests were written for this benchmark; no constant is fitted on them. A request has one right
document. Each kind is searched as `search_tools(kinds=[…])` does: with the chosen model, or with the static one where
there are very many documents, and for comparison by words alone.
"""

import math
from collections import Counter, defaultdict
from pathlib import Path

import anyio
from benchmarks.measuring import publish

from shortlist.catalog.catalog import Catalog
from shortlist.cli.engine import search_others
from shortlist.evals.tables import Table
from shortlist.gateway.kinds import LISTED, document_of, installable_server, search_over
from shortlist.gateway.ports import ToolSearch
from shortlist.index.choosing import choose_embedder
from shortlist.models import Filters, Query, Tool

DATA = Path(__file__).parent / "kinds_data.txt"
DEPTH = 10


def read() -> tuple[dict[str, Tool], list[tuple[str, str, str]]]:
    """Return the documents by id, and each request with its kind and its right document."""
    documents, requests = {}, []
    for line in DATA.read_text("utf-8").splitlines():
        if line.startswith("#") or not line.strip():
            continue
        kind, name, description, *asked = (part.strip() for part in line.split(" | "))
        document = _document(kind, name, description)
        documents[document.id] = document
        requests += [(kind, request, document.id) for request in asked]
    return documents, requests


def _document(kind: str, name: str, description: str) -> Tool:
    if kind == "servers":
        return installable_server(f"io.example/{name}", name.title(), description)
    own = name if kind == "prompts" else f"doc://{name}" + ("/{id}" if kind == "templates" else "")
    item = {"name": name, "description": description, LISTED[kind].renamed: own}  # type: ignore[index]
    return document_of("office", kind, item)  # type: ignore[arg-type]


async def gains(search: ToolSearch, requests: list[tuple[str, str, str]]) -> dict[str, list[float]]:
    """Return nDCG@10 of every request, by kind."""
    found: dict[str, list[float]] = defaultdict(list)
    for kind, request, gold in requests:
        filters = Filters(categories=frozenset({kind}))
        hits = (await search.search(Query(text=request, limit=DEPTH, filters=filters))).hits
        rank = next((n for n, hit in enumerate(hits, 1) if hit.tool.id == gold), None)
        found[kind].append(1 / math.log2(rank + 1) if rank else 0.0)
    return found


async def measure() -> None:
    documents, requests = read()
    catalog = Catalog.of(documents.values())
    searches = {
        "words": search_others(None, catalog),
        "static": search_over(catalog),
        "small": search_others(choose_embedder("small")[0], catalog),
    }
    found = {name: await gains(search, requests) for name, search in searches.items()}
    counts = Counter(document.category for document in documents.values())
    rows = [
        (kind, str(counts[kind]), str(len(found["words"][kind])), *(_percent(each[kind]) for each in found.values()))
        for kind in counts
    ]
    means = (_percent([gain for values in each.values() for gain in values]) for each in found.values())
    rows.append(("all", str(len(documents)), str(len(requests)), *means))
    table = Table("nDCG@10 by kind and model", ("kind", "documents", "requests", *searches), tuple(rows))
    publish("kinds", [table], {"ndcg": {row[0]: dict(zip(searches, row[3:], strict=True)) for row in rows}})


def _percent(values: list[float]) -> str:
    return f"{100 * sum(values) / len(values):.1f}"


if __name__ == "__main__":
    anyio.run(measure)
