"""Search from the terminal: over the user's servers, a catalog file, or the bundled demo."""

import argparse
import json
import sys
from typing import Any

from shortlist.catalog.catalog import Catalog
from shortlist.catalog.naming import names_of
from shortlist.cli.catalogs import find_catalog, read_tools
from shortlist.cli.found import result_data, result_text
from shortlist.cli.progress import progress_bar
from shortlist.cli.shown import shown_json
from shortlist.demo import CATALOG, FIRST_SEARCHES
from shortlist.disclosure.render import NameOf
from shortlist.errors import InvalidInput
from shortlist.index.choosing import choose_embedder
from shortlist.index.embedders import WEIGHTS, ModelCard, OnnxEmbedder, StaticEmbedder
from shortlist.index.shipped import open_vectors
from shortlist.models import Filters, Query
from shortlist.search.searcher import Searcher, SearchOptions
from shortlist.storage.local import local_vectors
from shortlist.text.queries import Expansions


def searcher_of(options: argparse.Namespace, catalog: Catalog, expansions: Expansions | None = None) -> Searcher:
    """Build a searcher from the command line, and wait until its vectors are there."""
    engine = SearchOptions(pipeline=options.pipeline, cache=open_vectors(local_vectors()), expansions=expansions)
    searcher = Searcher(catalog, choose_embedder(options.embedder)[0], options=engine)
    with progress_bar("embedding tools") as progress:
        searcher.prepare(progress)
    return searcher


def _names(searcher: Searcher) -> NameOf:
    """Return the function that names tools as clients see them."""
    return names_of(searcher.catalog.members).by_id.__getitem__


def search(options: argparse.Namespace) -> int:
    """Search once, and exit with 1 where nothing fits."""
    filters = Filters(servers=frozenset(options.servers) if options.servers else None, read_only=options.read_only)
    query = Query(text=options.query, limit=options.limit, mode=options.mode, filters=filters)
    searcher = searcher_of(options, *find_catalog(options))
    unknown = (filters.servers or frozenset()) - searcher.catalog.servers.keys()
    if unknown:
        raise InvalidInput(f"No server {min(unknown)!r}. There are {', '.join(searcher.catalog.servers)}.")
    result = searcher.search(query)
    name_of = _names(searcher)
    data = result_data(result, name_of)
    print(shown_json(data, indent=2) if options.json else result_text(result, name_of))
    return 0 if result.confidence.level != "none" else 1


def demo(options: argparse.Namespace) -> int:
    """Search the bundled catalog: a few queries, or those that are typed."""
    catalog = read_tools(CATALOG)
    searcher = searcher_of(options, catalog)
    name_of = _names(searcher)
    print(f"{len(catalog)} tools of {len(catalog.servers)} servers. Say what you want to do; an empty line ends it.\n")
    if not sys.stdin.isatty():
        for text in FIRST_SEARCHES:
            print(f"> {text}\n{result_text(searcher.search(Query(text=text)), name_of)}\n")
        return 0
    while text := input("> ").strip():
        print(result_text(searcher.search(Query(text=text)), name_of) + "\n")
    return 0


def embed_info(options: argparse.Namespace) -> int:
    """Describe the shipped models."""
    rows = [_described(tier) for tier in ("small", "static") if (WEIGHTS / tier / "model.json").exists()]
    if options.json:
        print(json.dumps(rows, indent=2))
        return 0
    for row in rows:
        print(f"{row['tier']:<8} {row['model']:<40} {row['dimensions']} dimensions, {row['megabytes']:.1f} MB")
    return 0


def _described(tier: str) -> dict[str, Any]:
    folder = WEIGHTS / tier
    card = ModelCard.read(folder)
    model = (StaticEmbedder if card.kind == "static" else OnnxEmbedder)(folder)
    size = sum(file.stat().st_size for file in folder.iterdir() if file.is_file()) / 1e6
    return {"tier": tier, "model": model.model_id, "kind": card.kind, "dimensions": card.dimensions, "megabytes": size}
