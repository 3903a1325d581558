"""What `status`, `tools`, `call`, `toolsets` and `search` answer, from the shared gateway or from this process."""

import sys
from argparse import Namespace
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from shortlist.access.principal import OWNER
from shortlist.catalog.naming import wire_name
from shortlist.cli.found import result_data, result_text
from shortlist.cli.reading import read_settings, say
from shortlist.cli.shown import shown_json
from shortlist.cli.stack import SETTLE_SECONDS, Stack, Starting, connected, run_plainly
from shortlist.config.settings import Settings
from shortlist.disclosure.render import describe_text, signature_of
from shortlist.errors import InvalidInput, ToolNotFound
from shortlist.gateway.callers import Caller, Round
from shortlist.gateway.calling import CALL
from shortlist.gateway.view import definition_tokens
from shortlist.models import Filters, Json, Query
from shortlist.text.tokens import clean_text, one_line
from shortlist.upstream.errors import UpstreamRefused
from shortlist.upstream.events import UpstreamStatus

OK, FAILED = 0, 1
LOCAL_CALLER = Caller(era="modern", process="cli")


@dataclass(frozen=True, slots=True)
class Answer:
    """A command's answer for a program and for a person, and its exit status."""

    data: Json
    text: str
    status: int = OK
    notes: tuple[str, ...] = ()
    """What a person is told beside the answer, on stderr."""

    def shown(self, arguments: Namespace) -> str:
        return shown_json(self.data, indent=2) if arguments.json else self.text


StackCommand: TypeAlias = Callable[[Namespace, Stack], Awaitable[Answer]]


def answer_alone(arguments: Namespace) -> int:
    """Answer a command from servers that are started for it, where there is no gateway to ask."""
    settings = read_settings(arguments.config)
    check_arguments(arguments, settings)

    async def run() -> int:
        async with connected(settings, _starting(arguments)) as stack:
            if arguments.command == "call" or _servers_of(arguments):
                await _start_needed(arguments, stack)
            answer = await COMMANDS[arguments.command](arguments, stack)
            print(answer.shown(arguments))
            for note in answer.notes:
                say(note)
            return answer.status

    return run_plainly(run)


def check_arguments(arguments: Namespace, settings: Settings) -> None:
    """Refuse bad arguments before any server is started."""
    for name in getattr(arguments, "servers", None) or ():
        if name not in settings.servers:
            raise InvalidInput(f"No server {name!r}. There are {', '.join(settings.servers)}.")
    if arguments.command != "tools":
        return
    if arguments.action == "show" and not arguments.name:
        raise InvalidInput("`shortlist tools show` needs the name of a tool.")
    if arguments.action == "list" and arguments.name:
        raise InvalidInput(
            f"`shortlist tools list` takes no name. To show one tool: `shortlist tools show {arguments.name}`."
        )


def _starting(arguments: Namespace) -> Starting:
    if arguments.command == "call" or _servers_of(arguments):
        return "none"
    return "all" if getattr(arguments, "refresh", True) else "unknown"


def _servers_of(arguments: Namespace) -> tuple[str, ...]:
    """Return the servers that a list of tools is limited to."""
    return tuple(arguments.servers or ()) if arguments.command == "tools" else ()


async def _start_needed(arguments: Namespace, stack: Stack) -> None:
    """Start the server that has a tool, or those whose tools are asked for and not known yet, and no other."""
    settings, state = stack.settings.servers, stack.gateway.state
    if arguments.command == "call":
        try:
            wanted = [(await state.find(await state.admit(LOCAL_CALLER), arguments.name)).server]
        except ToolNotFound:  # it may be newer than what was saved
            wanted = _named_by(arguments.name, settings) or list(settings)
    else:
        reach = state.reach(OWNER)
        wanted = [name for name in _servers_of(arguments) if arguments.refresh or not reach.members(name)]
    chosen = {name: settings[name] for name in settings if name in wanted}
    await stack.pool.reload(chosen)
    few = max((each.start_seconds for each in chosen.values()), default=0.0)  # its own time, where it is the only one
    await stack.pool.settled(few if len(chosen) == 1 else SETTLE_SECONDS)
    await stack.gateway.settled()


def _named_by(tool: str, servers: Iterable[str]) -> list[str]:
    """Return the servers with which the name of a tool begins."""
    return [name for name in servers if tool.startswith((wire_name(name, "x").removesuffix("x"), f"{name}/"))]


async def _status(_: Namespace, stack: Stack) -> Answer:
    statuses = stack.pool.status()
    lines = [_status_line(status) for status in statuses.values()]
    is_well = all(status.state == "ready" for status in statuses.values())
    data = {name: _status_data(status) for name, status in statuses.items()}
    return Answer(data, "\n".join(lines), OK if is_well else FAILED, stack.unsaved())


def _status_line(status: UpstreamStatus) -> str:
    peer = f", protocol {status.peer.protocol_version}" if status.peer else ""
    lines = [f"{status.server:<24} {status.state:<11} {status.tools} tools{peer}"]
    if status.error:
        lines.append(f"  {clean_text(status.error)}")
        lines.extend(f"  | {clean_text(line)}" for line in status.stderr[-5:])
    lines.extend(f"  ! {clean_text(problem)}" for problem in status.problems)
    return "\n".join(lines)


def _status_data(status: UpstreamStatus) -> dict[str, Json]:
    return {
        "state": status.state,
        "tools": status.tools,
        "error": status.error,
        "problems": list(status.problems),
        "stderr": list(status.stderr),
        "attempts": status.attempts,
        "protocol": status.peer.protocol_version if status.peer else None,
        "info": dict(status.peer.info) if status.peer else None,
    }


async def _tools(arguments: Namespace, stack: Stack) -> Answer:
    if arguments.action == "show":
        return await _show_tool(arguments, stack)
    reach = stack.gateway.state.reach(OWNER)
    tools = [reach[tool_id] for name in arguments.servers or reach.servers for tool_id in reach.members(name)]
    lines = [f"{signature_of(tool, reach.name(tool.id))}\n  {one_line(tool.description, 100)}" for tool in tools]
    data = [{"id": tool.id, "name": reach.name(tool.id), **_definition(tool.mcp())} for tool in tools]
    return Answer(data, "\n".join(lines))


def _definition(raw: Mapping[str, Json]) -> dict[str, Json]:
    return {key: value for key, value in raw.items() if key != "name"}


async def _show_tool(arguments: Namespace, stack: Stack) -> Answer:
    state = stack.gateway.state
    seen = await state.admit(LOCAL_CALLER)
    tool = await state.find(seen, arguments.name)
    return Answer({"id": tool.id, **tool.mcp()}, describe_text(tool, seen.tools.name(tool.id)))


async def _call(arguments: Namespace, stack: Stack) -> Answer:
    try:
        asked = {"name": arguments.name, "arguments": arguments.arguments}
        result = await stack.gateway.call(_Terminal(), CALL.name, asked, Round())
    except UpstreamRefused as error:
        result = {"content": [{"type": "text", "text": str(error)}], "isError": True}
    text = "\n".join(_block(block) for block in result.get("content") or ())
    return Answer(result, text, FAILED if result.get("isError") else OK)


def _block(block: Mapping[str, Json]) -> str:
    return clean_text(str(block["text"])) if block.get("type") == "text" else f"[{block.get('type')}]"


class _Terminal:
    """The command line as the client of a call: it cannot be asked anything."""

    caller = LOCAL_CALLER
    answers_in_place = False

    def can(self, method: str) -> bool:  # noqa: ARG002 - whatever the method
        return False

    async def ask(self, method: str, params: Mapping[str, Json]) -> dict[str, Json]:
        raise InvalidInput(
            f"The server asks for {method} ({params!r}), which the command line cannot answer. Use an MCP client."
        )

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        if sys.stderr.isatty():
            of = f"/{total:g}" if total else ""
            print(f"\r{progress:g}{of} {one_line(message or '', 60)}", end="", file=sys.stderr, flush=True)

    async def pause(self) -> None:
        """Do nothing: a command waits for its answer."""

    async def log(self, params: Mapping[str, Json]) -> None:
        say(f"{params.get('level')}: {one_line(str(params.get('data')), 200)}")


async def _toolsets(_: Namespace, stack: Stack) -> Answer:
    reach = stack.gateway.state.reach(OWNER)
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
    return Answer(rows, "\n".join(lines))


async def _search(arguments: Namespace, stack: Stack) -> Answer:
    """Search as a client does, over everything, without recording it."""
    reach = stack.gateway.state.reach(OWNER)
    servers = frozenset(arguments.servers) if arguments.servers else None
    filters = reach.within(Filters(servers=servers, read_only=arguments.read_only))
    query = Query(text=arguments.query, limit=arguments.limit, mode=arguments.mode, filters=filters)
    result = await stack.search.search(query)
    fits = result.confidence.level != "none"
    return Answer(result_data(result, reach.name), result_text(result, reach.name), OK if fits else FAILED)


COMMANDS: Mapping[str, StackCommand] = {
    "status": _status,
    "tools": _tools,
    "call": _call,
    "toolsets": _toolsets,
    "search": _search,
}
