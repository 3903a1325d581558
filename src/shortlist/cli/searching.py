"""Arguments of `search`, `explain`, `demo` and `embed-info`; the work is imported when it is done in this process.

Where a gateway is running, it answers `search`, and this process imports next to nothing.
"""

import argparse
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from shortlist.cli.arguments import add_command, add_json, count, request
from shortlist.cli.relaying import ask_gateway

MODES = ("hybrid", "lexical", "dense", "fuzzy", "regex", "prefix", "exact")
"""As the models name them, which take a third of a light command's start to import."""
EMBEDDER, PIPELINE = "small", "default"


def register(subparsers: Any) -> None:
    """Add `search`, `explain`, `demo` and `embed-info`."""
    search = add_command(subparsers, "search")
    search.add_argument("query", type=request, help="what the tool should do, in quotes; - reads it from stdin")
    _add_catalog(search)
    _common(search)
    search.add_argument("--limit", type=count, default=5, help="how many tools to show (default: 5)")
    search.add_argument("--mode", default="hybrid", choices=MODES, help="search mode (default: hybrid)")
    search.add_argument("--server", action="append", dest="servers", help="only tools of this server (repeatable)")
    search.add_argument("--read-only", action="store_true", default=None, help="only tools annotated as read-only")
    search.set_defaults(run=_here("search"), relay=_ask, command="search")
    explain = add_command(subparsers, "explain")
    explain.add_argument(
        "query", nargs="?", type=request, help="what the tool should do, in quotes; - reads it from stdin"
    )
    explain.add_argument("tool", nargs="?", help="the tool's name or id (default: the first hit)")
    explain.add_argument(
        "--chat", metavar="FILE", help="explain for the messages of a chat, as JSON; - reads them from stdin"
    )
    _add_catalog(explain)
    _common(explain)
    explain.set_defaults(run=_here("explain", "explaining"))
    demo = add_command(subparsers, "demo")
    _common(demo)
    demo.set_defaults(run=_here("demo"))
    info = add_command(subparsers, "embed-info")
    add_json(info)
    info.set_defaults(run=_here("embed_info"))


def _add_catalog(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--catalog", type=Path, help="a file or folder with tools (default: those of your servers)")
    where.add_argument("--config", help="a configuration file (default: your own, else the bundled demo)")
    parser.add_argument(
        "--expansions",
        action="append",
        type=Path,
        default=[],
        metavar="FILE",
        help="your own abbreviations and synonyms (repeatable)",
    )


def _common(parser: argparse.ArgumentParser) -> None:
    known = "small, small:256 (the first of its dimensions), static, none, or a folder with a model.json"
    parser.add_argument("--embedder", default=EMBEDDER, help=f"{known} (default: {EMBEDDER})")
    parser.add_argument("--pipeline", default=PIPELINE, help="search pipeline: default, bm25 …")
    add_json(parser)


def _ask(options: argparse.Namespace) -> int | None:
    """Let the running gateway search, unless other tools or another way to search are asked for."""
    is_other = options.catalog or options.expansions
    if is_other or (options.embedder, options.pipeline) != (EMBEDDER, PIPELINE):
        return None
    return ask_gateway(options)


def _here(work: str, module: str = "finding") -> Callable[[argparse.Namespace], int]:
    def run(options: argparse.Namespace) -> int:
        status: int = getattr(import_module(f"shortlist.cli.{module}"), work)(options)
        return status

    return run
