"""`serve`, and the commands about what it serves: arguments are parsed here, and the work is imported when needed.

Where a shared gateway is running, it answers; this process then imports neither `mcp` nor the rest of a gateway.
"""

import argparse
import json
import os
import sys
from collections import deque
from pathlib import Path
from typing import Any

from shortlist.cli.arguments import WORKER_VARIABLE, add_command, add_json, count
from shortlist.cli.relaying import ask_gateway, relay_stdio
from shortlist.errors import InvalidInput

MODES = ("search", "dynamic", "static", "passthrough", "auto")
LOG_LEVELS = ("debug", "info", "warning", "error")
"""As the settings name them, which take a quarter of a light command's start to import."""


def register(subparsers: Any) -> None:
    """Add `serve`, `status`, `tools`, `call`, `toolsets` and `logs`."""
    _register_serve(subparsers)
    status = add_command(subparsers, "status")
    _common(status)
    tools = add_command(subparsers, "tools")
    tools.add_argument("action", nargs="?", choices=("list", "show"), default="list", help="list is the default")
    tools.add_argument("name", nargs="?", help="with show: a tool's name")
    tools.add_argument("--server", action="append", dest="servers", help="only tools of this server (repeatable)")
    _add_refresh(tools)
    _common(tools)
    tools.set_defaults(command="tools", relay=ask_gateway)
    call = add_command(subparsers, "call")
    call.add_argument("name", help="the tool's name, as `shortlist tools` lists it")
    call.add_argument("arguments", nargs="?", type=_object, default={}, help="a JSON object, @FILE, or - for stdin")
    _common(call)
    call.set_defaults(command="call", relay=ask_gateway)
    toolsets = add_command(subparsers, "toolsets")
    _add_refresh(toolsets)
    _common(toolsets)
    toolsets.set_defaults(command="toolsets", relay=ask_gateway)
    logs = add_command(subparsers, "logs")
    logs.add_argument("server", help="its name in your configuration")
    logs.add_argument("--lines", type=count, default=50, help="how many of the last lines (default: 50)")
    add_json(logs)
    logs.set_defaults(run=_logs)


def _register_serve(subparsers: Any) -> None:
    serve = add_command(subparsers, "serve")
    serve.add_argument("--config", help="a configuration file (default: your own, else the demo servers)")
    serve.add_argument("--http", metavar="HOST:PORT", help="serve Streamable HTTP instead of stdio")
    serve.add_argument(
        "--workers",
        type=count,
        default=1,
        metavar="N",
        help="with --http and PostgreSQL: processes to serve with",
    )
    serve.add_argument("--own", action="store_true", help="use a gateway of its own instead of the shared one")
    serve.add_argument(
        "--open", action="store_true", help="with --http: serve without tokens, to every user of this machine"
    )
    serve.add_argument("--mode", choices=MODES, help="what clients see (default: from the configuration)")
    serve.add_argument("--dynamic", action="store_true", help="the same as --mode dynamic")
    serve.add_argument(
        "--menu",
        choices=("search", "minimal"),
        default="search",
        help="which gateway tools are listed (default: search)",
    )
    serve.add_argument(
        "--code", dest="menu", action="store_const", const="code", help="offer run_code: programs that call tools"
    )
    serve.add_argument("--preset", help="tools to list from the start: default, full, or your own preset")
    serve.add_argument(
        "--toolsets", type=_names, default=(), help="toolsets to list from the start, separated by commas"
    )
    serve.add_argument("--exclude", type=_names, default=(), help="toolsets to hide completely, separated by commas")
    serve.add_argument("--embedder", metavar="MODEL", help="small, small:256, static, none, a folder, PROVIDER:MODEL")
    serve.add_argument("--pipeline", help="how candidates are ranked (default: from the configuration)")
    serve.add_argument("--reranker", metavar="PROVIDER", help="rerank the best hits: cohere, voyage or jina")
    serve.add_argument("--no-dashboard", action="store_true", help="with --http: do not serve the dashboard")
    serve.add_argument("--toon", action="store_true", help="render results as TOON if that is smaller")
    serve.add_argument("--log-level", choices=LOG_LEVELS, help="log level on stderr (default: info)")
    serve.add_argument("--log-json", action="store_true", help="log JSON, one object per line")
    serve.set_defaults(run=_serve, relay=relay_stdio)


def _add_refresh(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--refresh", action="store_true", help="connect to every server instead of using saved lists")


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", help="a configuration file (default: your own, else the demo servers)")
    add_json(parser)
    parser.set_defaults(run=_answer, command="status")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _object(text: str) -> dict[str, Any]:
    """Parse a tool's arguments: a JSON object, the name of a file after `@`, or `-` for stdin."""
    if text == "-":
        text = sys.stdin.read()
    elif text.startswith("@"):
        try:
            text = Path(text[1:]).read_text("utf-8")
        except OSError as error:
            raise argparse.ArgumentTypeError(f"{text[1:]!r} cannot be read: {error.strerror}") from None
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not valid JSON ({error}); pass an object, as in '{{\"id\": 1}}'") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"a tool takes a JSON object, as in '{{\"id\": 1}}', not {text!r}")
    return value


def _serve(arguments: argparse.Namespace) -> int:
    if arguments.workers > 1 and not os.environ.get(WORKER_VARIABLE):
        from shortlist.cli.workers import serve_workers  # noqa: PLC0415 - only this process needs it

        return serve_workers(arguments)
    from shortlist.cli.pauses import no_collection  # noqa: PLC0415

    with no_collection():
        from shortlist.cli.hosting import serve  # noqa: PLC0415 - a gateway takes a second to import

    return serve(arguments)


def _answer(arguments: argparse.Namespace) -> int:
    from shortlist.cli.answers import answer_alone  # noqa: PLC0415 - a gateway takes a second to import

    return answer_alone(arguments)


def _logs(arguments: argparse.Namespace) -> int:
    from shortlist.cli.reading import log_folder  # noqa: PLC0415
    from shortlist.text.tokens import clean_text  # noqa: PLC0415
    from shortlist.upstream.stderr import log_path  # noqa: PLC0415

    path = log_path(log_folder(), arguments.server)
    try:
        lines = deque(path.read_text("utf-8", "replace").splitlines(), maxlen=arguments.lines)
    except OSError:
        raise InvalidInput(
            f"No log of server {arguments.server!r}: it has not written to stderr, or the name is wrong. "
            "`shortlist status` lists your servers."
        ) from None
    shown = [clean_text(line) for line in lines]
    print(json.dumps({"server": arguments.server, "lines": shown}) if arguments.json else "\n".join(shown))
    return 0
