"""Saved programs as tools: approved ones are listed, found and called like the tools of a server.

A caller reaches one only where it reaches every tool that the program uses, and the calls of the program are the
caller's own. Only the tools that it was approved with are called.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module

import anyio.to_thread

from shortlist.catalog.catalog import Catalog
from shortlist.catalog.readers import tool_from_mcp
from shortlist.errors import ToolNotFound
from shortlist.gateway.tools import DEFAULT_RUN_TOKENS, McpResult, ToolArguments, ToolCall, text_result
from shortlist.models import PROGRAMS, Json, Server, Tool, ToolId
from shortlist.storage.programs import StoredProgram
from shortlist.validation import check_call

_TYPES: Mapping[type, str] = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array"}


def approved_programs(stored: Mapping[str, StoredProgram]) -> dict[ToolId, StoredProgram]:
    """Return the programs that are offered, by the id of their tool."""
    return {f"{PROGRAMS}/{name}": program for name, program in stored.items() if program.approved_by}


def with_programs(programs: Mapping[ToolId, StoredProgram], catalog: Catalog) -> Catalog:
    """Return a catalog that offers exactly these programs."""
    if not programs:
        return catalog.without_server(PROGRAMS) if PROGRAMS in catalog.servers else catalog
    server = Server(name=PROGRAMS, title="Saved programs", description="Programs that call several tools at once.")
    return catalog.with_server(server, map(tool_of, programs.values()))


def tool_of(program: StoredProgram) -> Tool:
    """Return a program as a tool; its parameters are optional, since each has a default value."""
    properties = {name: parameter_schema(value) for name, value in program.parameters.items()}
    definition = {
        "name": program.name,
        "description": program.description,
        "inputSchema": {"type": "object", "properties": properties, "additionalProperties": False},
    }
    tool = tool_from_mcp(definition, PROGRAMS)
    content = json.dumps([tool.content_hash, program.source, program.tools, program.allow])
    digest = hashlib.blake2b(content.encode(), digest_size=12).hexdigest()
    return replace(tool, uses=program.tools, content_hash=digest)


def parameter_schema(value: Json) -> dict[str, Json]:
    """Return the schema of a parameter with this default value."""
    kind = _TYPES.get(type(value))
    return {**({"type": kind} if kind else {}), "default": value}


async def load_programs() -> None:
    """Import what runs programs, which most gateways never do; in a thread, since it takes 30 ms."""
    await anyio.to_thread.run_sync(import_module, "shortlist.gateway.programs")


async def run_saved(call: ToolCall, tool: Tool, arguments: ToolArguments) -> McpResult:
    """Run an approved program with the caller's arguments, or its defaults."""
    await load_programs()
    from shortlist.gateway.programs import Program, run_program  # noqa: PLC0415

    program = call.state.programs.get(tool.id)
    if program is None:
        raise ToolNotFound(tool.id)  # it was removed after the caller's view was made
    wrong = (await check_call(tool, arguments, lambda: call.seen.caller.principal.key)).violations
    if wrong:
        said = "\n".join(f"- {violation}" for violation in wrong)
        return text_result(f"{call.seen.tools.name(tool.id)} was NOT invoked:\n{said}", is_error=True)
    return await run_program(
        call,
        Program(
            source=program.source,
            max_tokens=DEFAULT_RUN_TOKENS,
            name=program.name,
            inputs={**program.parameters, **arguments},
            tools=frozenset(program.tools),
            may_write=program.allow == "write",
        ),
    )
