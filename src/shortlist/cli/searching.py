"""Search from the terminal: over the user's servers, a catalog file, or the bundled demo."""

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any, get_args

from shortlist.catalog.catalog import Catalog
from shortlist.cli.arguments import add_command, add_json, count
from shortlist.cli.catalogs import add_catalog_arguments, find_catalog, read_tools
from shortlist.cli.progress import progress_bar
from shortlist.demo import CATALOG, FIRST_SEARCHES
from shortlist.errors import InvalidInput
from shortlist.index.choosing import choose_embedder
from shortlist.index.embedders import EMBEDDERS, WEIGHTS, ModelCard, OnnxEmbedder, StaticEmbedder
from shortlist.index.shipped import open_vectors
from shortlist.models import Filters, Query, SearchMode, SearchResult
from shortlist.search.searcher import Searcher, SearchOptions
from shortlist.storage.local import local_vectors
from shortlist.text.queries import Expansions
from shortlist.text.tokens import one_line


def register(subparsers: Any) -> None:
    """Add `search`, `explain`, `demo` and `embed-info`."""
    search = add_command(subparsers, "search")
    search.add_argument("query", help="what the tool should do, in quotes")
    add_catalog_arguments(search)
    _common(search)
    search.add_argument("--limit", type=count, default=5, help="how many tools to show (default: 5)")
    search.add_argument("--mode", default="hybrid", choices=get_args(SearchMode), help="search mode (default: hybrid)")
    search.add_argument("--server", action="append", dest="servers", help="only tools of this server (repeatable)")
    search.add_argument("--read-only", action="store_true", default=None, help="only tools annotated as read-only")
    search.set_defaults(run=_search)
    explain = add_command(subparsers, "explain")
    explain.add_argument("query", help="what the tool should do, in quotes")
    explain.add_argument("tool", nargs="?", help="the tool's id; the first hit if left out")
    add_catalog_arguments(explain)
    _common(explain)
    explain.set_defaults(run=_explain)
    demo = add_command(subparsers, "demo")
    _common(demo)
    demo.set_defaults(run=_demo)
    info = add_command(subparsers, "embed-info")
    add_json(info)
    info.set_defaults(run=_embed_info)


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--embedder", default="small", help=EMBEDDERS)
    parser.add_argument("--pipeline", default="default", help="search pipeline: default, bm25 …")
    add_json(parser)


def _searcher_of(options: argparse.Namespace, catalog: Catalog, expansions: Expansions | None = None) -> Searcher:
    """Build a searcher from the command line, and wait until its vectors are there."""
    engine = SearchOptions(pipeline=options.pipeline, cache=open_vectors(local_vectors()), expansions=expansions)
    searcher = Searcher(catalog, choose_embedder(options.embedder)[0], options=engine)
    with progress_bar("embedding tools") as progress:
        searcher.prepare(progress)
    return searcher


def _search(options: argparse.Namespace) -> int:
    filters = Filters(servers=frozenset(options.servers) if options.servers else None, read_only=options.read_only)
    query = Query(text=options.query, limit=options.limit, mode=options.mode, filters=filters)
    searcher = _searcher_of(options, *find_catalog(options))
    unknown = (filters.servers or frozenset()) - searcher.catalog.servers.keys()
    if unknown:
        raise InvalidInput(f"No server {min(unknown)!r}. There are {', '.join(searcher.catalog.servers)}.")
    result = searcher.search(query)
    print(json.dumps(_data(result), ensure_ascii=False, indent=2) if options.json else _text(result))
    return 0 if result.confidence.level != "none" else 1


def _explain(options: argparse.Namespace) -> int:
    searcher = _searcher_of(options, *find_catalog(options))
    query = Query(text=options.query, limit=20)
    found = options.tool or next((hit.tool.id for hit in searcher.search(query).hits), None)
    if found is None:
        print("null" if options.json else "Nothing was found, so there is nothing to explain.")
        return 1
    explanation = searcher.explain(query, found)
    print(json.dumps(asdict(explanation), ensure_ascii=False, indent=2) if options.json else explanation.text())
    return 0


def _demo(options: argparse.Namespace) -> int:
    catalog = read_tools(CATALOG)
    searcher = _searcher_of(options, catalog)
    print(f"{len(catalog)} tools of {len(catalog.servers)} servers. Say what you want to do; an empty line ends it.\n")
    if not sys.stdin.isatty():
        for text in FIRST_SEARCHES:
            print(f"> {text}\n{_text(searcher.search(Query(text=text)))}\n")
        return 0
    while text := input("> ").strip():
        print(_text(searcher.search(Query(text=text))) + "\n")
    return 0


def _embed_info(options: argparse.Namespace) -> int:
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


def _text(result: SearchResult) -> str:
    sure = result.confidence
    lines = [f"confidence: {sure.level} ({sure.probability:.0%}), {result.milliseconds:.1f} ms"]
    if sure.level == "none":
        closest = " The closest:" if result.hits else " Nothing comes close."
        lines = [f"No good match here ({sure.match_probability:.0%} likely that there is one).{closest}"]
    lines += [f"{hit.rank}. {hit.tool.id}  {one_line(hit.tool.description, 80)}" for hit in result.hits]
    lines += [f"searched for {meant!r} instead of {typed!r}" for typed, meant in result.did_you_mean.items()]
    return "\n".join([*lines, *result.notes])


def _data(result: SearchResult) -> dict[str, Any]:
    return {
        "query": result.query.text,
        "confidence": asdict(result.confidence),
        "hits": [{"id": h.tool.id, "score": h.score, "description": h.tool.description} for h in result.hits],
        "did_you_mean": dict(result.did_you_mean),
        "notes": list(result.notes),
        "milliseconds": result.milliseconds,
    }
