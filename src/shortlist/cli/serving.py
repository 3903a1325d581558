"""Serve the gateway, and look at what it would serve."""

import argparse
import json
import os
import signal
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import anyio

from shortlist.access.principal import OWNER
from shortlist.access.tokens import OwnTokens
from shortlist.cli.arguments import add_command, add_json, count
from shortlist.cli.entrance import dashboard_route, entrance
from shortlist.cli.listening import GRACE_SECONDS, address, exit_soon, listen
from shortlist.cli.stack import (
    SETTLE_SECONDS,
    Stack,
    Starting,
    connected,
    log_folder,
    open_stack,
    read_settings,
    run_plainly,
    say,
)
from shortlist.cli.tokens import OwnToken, own_token
from shortlist.config.settings import LogLevel, Mode, SearchSettings, Settings
from shortlist.demo import FIRST_SEARCHES
from shortlist.disclosure.render import describe_text, signature_of
from shortlist.errors import InvalidInput, ToolNotFound
from shortlist.front.audience import Admission
from shortlist.front.http import Border, build_app
from shortlist.front.probes import probe_routes
from shortlist.front.stdio import check_front, open_front
from shortlist.gateway.callers import Caller, Round
from shortlist.gateway.calling import CALL
from shortlist.gateway.view import ServeOptions, definition_tokens
from shortlist.models import Json
from shortlist.observability.metrics import KEPT_BYTES, GatewayMetrics
from shortlist.observability.otlp import exporting
from shortlist.storage.local import open_local
from shortlist.text.tokens import clean_text, one_line
from shortlist.upstream.errors import UpstreamRefused
from shortlist.upstream.events import UpstreamStatus
from shortlist.upstream.stderr import log_path
from shortlist.upstream.wire import client_info
from shortlist.web.access import Access

OK, FAILED = 0, 1
SWITCH_SECONDS = 0.001
"""How long a thread that searches or indexes may keep the event loop waiting for the interpreter."""
LOCAL_CALLER = Caller(era="modern", process="cli")


def register(subparsers: Any) -> None:
    """Add `serve`, `status`, `tools`, `call`, `toolsets` and `logs`."""
    _register_serve(subparsers)
    status = add_command(subparsers, "status")
    _common(status, _status)
    tools = add_command(subparsers, "tools")
    tools.add_argument("action", nargs="?", choices=("list", "show"), default="list", help="list is the default")
    tools.add_argument("name", nargs="?", help="with show: a tool's name")
    tools.add_argument("--server", action="append", dest="servers", help="only tools of this server (repeatable)")
    _add_refresh(tools)
    _common(tools, _tools, check=_check_tools)
    call = add_command(subparsers, "call")
    call.add_argument("name", help="the tool's name, as `shortlist tools` lists it")
    call.add_argument("arguments", nargs="?", type=_object, default={}, help="a JSON object, @FILE, or - for stdin")
    _common(call, _call)
    call.set_defaults(start="none")
    toolsets = add_command(subparsers, "toolsets")
    _add_refresh(toolsets)
    _common(toolsets, _toolsets)
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
        "--open", action="store_true", help="with --http: serve without tokens, to every user of this machine"
    )
    serve.add_argument("--mode", choices=get_args(Mode), help="what clients see (default: from the configuration)")
    serve.add_argument("--dynamic", action="store_true", help="the same as --mode dynamic")
    serve.add_argument(
        "--menu",
        choices=("search", "minimal"),
        default="search",
        help="which gateway tools are listed (default: search)",
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
    serve.add_argument("--log-level", choices=get_args(LogLevel), help="log level on stderr (default: info)")
    serve.add_argument("--log-json", action="store_true", help="log JSON, one object per line")
    serve.set_defaults(run=_serve)


def _add_refresh(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--refresh", action="store_true", help="connect to every server instead of using saved lists")


def _common(
    parser: argparse.ArgumentParser,
    command: Callable[["Task"], Awaitable[int]],
    check: Callable[[argparse.Namespace, Settings], None] | None = None,
) -> None:
    """Add what all of these commands take; `check` refuses bad arguments before any server is started."""
    parser.add_argument("--config", help="a configuration file (default: your own, else the demo servers)")
    add_json(parser)
    parser.set_defaults(run=partial(_with_stack, command, check))


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


@dataclass(frozen=True, slots=True)
class Task:
    """A command's arguments and the stack it works on."""

    arguments: argparse.Namespace
    stack: Stack

    def show(self, data: Json, text: str) -> None:
        """Print for a program or for a person."""
        print(json.dumps(data, ensure_ascii=False, indent=2) if self.arguments.json else text)


def _with_stack(
    command: Callable[[Task], Awaitable[int]],
    check: Callable[[argparse.Namespace, Settings], None] | None,
    arguments: argparse.Namespace,
) -> int:
    settings = read_settings(arguments.config)
    if check is not None:
        check(arguments, settings)

    async def run() -> int:
        async with connected(settings, _starting(arguments)) as stack:
            return await command(Task(arguments, stack))

    return run_plainly(run)


def _starting(arguments: argparse.Namespace) -> Starting:
    return getattr(arguments, "start", None) or ("all" if getattr(arguments, "refresh", True) else "unknown")


# serve


def _serve(arguments: argparse.Namespace) -> int:
    where = address(arguments.http) if arguments.http else None
    if where is None:
        check_front()
    options = ServeOptions(
        mode=arguments.mode,
        menu=arguments.menu,
        preset=arguments.preset,
        toolsets=arguments.toolsets,
        exclude=arguments.exclude,
        dynamic=arguments.dynamic,
        toon=arguments.toon,
    )
    logs = {"level": arguments.log_level, "json": arguments.log_json}
    settings = read_settings(arguments.config, {key: value for key, value in logs.items() if value})
    search = {name: getattr(arguments, name) for name in ("embedder", "pipeline", "reranker")}
    settings = replace(settings, search=replace(settings.search, **{key: v for key, v in search.items() if v}))
    if settings.search != SearchSettings():
        from shortlist.cli.engine import check_search  # noqa: PLC0415 - takes half of a start

        check_search(settings.search)
    pages = settings.dashboard and not arguments.no_dashboard
    _check_open(arguments, settings)
    own = None
    with closing(open_local()) as storage:
        if where is not None and not arguments.open:
            own = own_token(storage.tokens) if not settings.tokens else None
            tokens: OwnTokens | None = OwnTokens(storage.tokens)
        else:
            tokens = None
    metrics = GatewayMetrics()
    sys.setswitchinterval(SWITCH_SECONDS)

    async def run() -> None:
        async with open_stack(settings, options, metrics=metrics, tokens=tokens) as stack:
            await (
                _serve_http(stack, *where, pages=pages, entry=LettingIn(tokens, own)) if where else _serve_stdio(stack)
            )
            export.end()

    with exporting(os.environ, metrics.instruments, client_info()["version"]) as export:
        if export.signals:
            say(f"sending {' and '.join(export.signals)} by OTLP")
        run_plainly(run)
    return OK


async def _serve_stdio(stack: Stack) -> None:
    """Serve one client until it closes stdin or a signal comes."""
    server = stack.front.server
    if sys.stdin.isatty():
        say(
            "waiting for MCP messages on stdin: a client starts this by itself. `--http 127.0.0.1:8765` serves them all"
        )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_stop_on_signal, tasks.cancel_scope, stack.admission)
        async with open_front(stack.settings.limits.message_bytes) as (read, write):
            await server.run(read, write, server.create_initialization_options())
        tasks.cancel_scope.cancel()


async def _stop_on_signal(scope: anyio.CancelScope, admission: Admission) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            exit_soon()
            await admission.close(GRACE_SECONDS)
            scope.cancel()
            return


def _check_open(arguments: argparse.Namespace, settings: Settings) -> None:
    if arguments.open and not arguments.http:
        raise InvalidInput("--open goes with --http: over stdio a client needs no token.")
    if arguments.open and settings.tokens:
        raise InvalidInput(
            f"--open serves without tokens, and {settings.source} defines some. Remove one or the other."
        )


@dataclass(frozen=True, slots=True)
class LettingIn:
    """How clients authenticate over HTTP: with tokens, one of which may be this user's own, or not at all."""

    tokens: OwnTokens | None
    own: OwnToken | None

    def border(self, stack: Stack) -> Border:
        if self.tokens is None:
            return Border(stack.gateway.state, token_required=False)
        return Border(stack.gateway.state, token_required=True, on_use=self.tokens.used)

    def pasted(self, url: str) -> str:
        """Return what a client's configuration needs; the token itself is shown to a person, or when it is new."""
        server: dict[str, Json] = {"type": "http", "url": url}
        if self.own is not None:
            shown = self.own.secret if self.own.is_new or sys.stderr.isatty() else f"<the token in {self.own.path}>"
            server["headers"] = {"Authorization": f"Bearer {shown}"}
        elif self.tokens is not None:
            server["headers"] = {"Authorization": "Bearer <a token from `shortlist token create NAME`>"}
        return json.dumps({"mcpServers": {"shortlist": server}}, ensure_ascii=False)


async def _serve_http(stack: Stack, host: str, port: int, *, pages: bool, entry: LettingIn) -> None:
    access, border = Access(), entry.border(stack)
    probes = probe_routes(stack.gateway.state, stack.metrics.instruments, border)
    app = build_app(stack.front, host, [*probes, *([dashboard_route(stack, access)] if pages else [])], border)
    kept, sent = stack.storage.results, app.state.sessions.log
    stack.metrics.instruments.read(KEPT_BYTES, lambda: {("results",): kept.bytes, ("resumption",): sent.bytes})

    def announce(base: str) -> None:
        url = f"{base}/mcp"
        say(f"serving {url}")
        if entry.tokens is None:
            say("warning: --open lets every program and every user of this machine call every tool")
        say(f"paste into a client: {entry.pasted(url)}")
        if not stack.settings.source:
            say(f"a first search to try: search_tools {json.dumps({'query': FIRST_SEARCHES[0]})}")
        if pages:
            own = entry.own.settings if entry.own is not None else None
            say(f"dashboard: {entrance(access, base, stack.settings.tokens, own)}")

    await listen(app, host, port, announce, admission=stack.admission)


# status, tools, call, toolsets, logs


async def _status(task: Task) -> int:
    statuses = task.stack.pool.status()
    lines = [_status_line(status) for status in statuses.values()]
    task.show({name: _status_data(status) for name, status in statuses.items()}, "\n".join(lines))
    return OK if all(status.state == "ready" for status in statuses.values()) else FAILED


def _status_line(status: UpstreamStatus) -> str:
    peer = f", protocol {status.peer.protocol_version}" if status.peer else ""
    lines = [f"{status.server:<24} {status.state:<11} {status.tools} tools{peer}"]
    if status.error:
        lines.append(f"  {clean_text(status.error)}")
        lines.extend(f"  | {clean_text(line)}" for line in status.stderr[-5:])
    return "\n".join(lines)


def _status_data(status: UpstreamStatus) -> dict[str, Json]:
    return {
        "state": status.state,
        "tools": status.tools,
        "error": status.error,
        "stderr": list(status.stderr),
        "attempts": status.attempts,
        "protocol": status.peer.protocol_version if status.peer else None,
        "info": dict(status.peer.info) if status.peer else None,
    }


def _check_tools(arguments: argparse.Namespace, settings: Settings) -> None:
    if arguments.action == "show" and not arguments.name:
        raise InvalidInput("`shortlist tools show` needs the name of a tool.")
    if arguments.action == "list" and arguments.name:
        raise InvalidInput(f"`shortlist tools list` lists them all: `shortlist tools show {arguments.name}`?")
    for name in arguments.servers or ():
        if name not in settings.servers:
            raise InvalidInput(f"No server {name!r}. There are {', '.join(settings.servers)}.")


async def _tools(task: Task) -> int:
    if task.arguments.action == "show":
        return await _show_tool(task)
    reach = task.stack.gateway.state.reach(OWNER)
    tools = [reach[tool_id] for name in task.arguments.servers or reach.servers for tool_id in reach.members(name)]
    lines = [f"{signature_of(tool, reach.name(tool.id))}\n  {one_line(tool.description, 100)}" for tool in tools]
    data = [{"id": tool.id, "name": reach.name(tool.id), **_definition(tool.mcp())} for tool in tools]
    task.show(data, "\n".join(lines))
    return OK


def _definition(raw: Mapping[str, Json]) -> dict[str, Json]:
    return {key: value for key, value in raw.items() if key != "name"}


async def _show_tool(task: Task) -> int:
    state = task.stack.gateway.state
    seen = await state.admit(LOCAL_CALLER)
    tool = await state.find(seen, task.arguments.name)
    task.show({"id": tool.id, **tool.mcp()}, describe_text(tool, seen.tools.name(tool.id)))
    return OK


async def _call(task: Task) -> int:
    """Call a tool, and start no server but the one that has it."""
    stack = task.stack
    seen = await stack.gateway.state.admit(LOCAL_CALLER)
    try:
        wanted = [(await stack.gateway.state.find(seen, task.arguments.name)).server]
    except ToolNotFound:
        wanted = list(stack.settings.servers)  # it may be newer than what was saved
    await stack.pool.reload({name: each for name, each in stack.settings.servers.items() if name in wanted})
    await stack.pool.settled(SETTLE_SECONDS)
    await stack.gateway.settled()
    try:
        arguments = {"name": task.arguments.name, "arguments": task.arguments.arguments}
        result = await task.stack.gateway.call(_Terminal(), CALL.name, arguments, Round())
    except UpstreamRefused as error:
        result = {"content": [{"type": "text", "text": str(error)}], "isError": True}
    task.show(result, "\n".join(_block(block) for block in result.get("content") or ()))
    return FAILED if result.get("isError") else OK


def _object(text: str) -> dict[str, Json]:
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


def _block(block: Mapping[str, Json]) -> str:
    return clean_text(str(block["text"])) if block.get("type") == "text" else f"[{block.get('type')}]"


class _Terminal:
    """The command line as the client of a call: it cannot be asked anything."""

    caller = LOCAL_CALLER

    def can(self, method: str) -> bool:  # noqa: ARG002 - whatever the method
        return False

    async def ask(self, method: str, params: Mapping[str, Json]) -> dict[str, Json]:
        raise InvalidInput(f"The server asks for {method} ({params!r}), which the command line cannot answer.")

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        if sys.stderr.isatty():
            of = f"/{total:g}" if total else ""
            print(f"\r{progress:g}{of} {one_line(message or '', 60)}", end="", file=sys.stderr, flush=True)

    async def pause(self) -> None:
        """Do nothing: a command waits for its answer."""

    async def log(self, params: Mapping[str, Json]) -> None:
        say(f"{params.get('level')}: {one_line(str(params.get('data')), 200)}")


async def _toolsets(task: Task) -> int:
    reach = task.stack.gateway.state.reach(OWNER)
    rows: list[dict[str, Json]] = [
        {
            "name": toolset.name,
            "tools": len(toolset.tools),
            "tokens": sum(definition_tokens(reach[i]) for i in toolset.tools),
            "description": one_line(toolset.description),
        }
        for toolset in reach.toolsets.values()
    ]
    lines = [
        f"{r['name']:<24} {r['tools']:>4} tools {r['tokens']:>7,} tokens  {one_line(r['description'], 60)}"
        for r in rows
    ]
    task.show(rows, "\n".join(lines))
    return OK


def _logs(arguments: argparse.Namespace) -> int:
    path = log_path(log_folder(), arguments.server)
    try:
        lines = deque(path.read_text("utf-8", "replace").splitlines(), maxlen=arguments.lines)
    except OSError:
        raise InvalidInput(
            f"No log of a server {arguments.server!r}: it never wrote to stderr, or has another name."
        ) from None
    shown = [clean_text(line) for line in lines]
    print(json.dumps({"server": arguments.server, "lines": shown}) if arguments.json else "\n".join(shown))
    return OK
