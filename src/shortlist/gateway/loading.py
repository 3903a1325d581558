"""list_toolsets, load_toolset, load_tools and unload_toolset: binding tools in a caller's workspace."""

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter

from shortlist.gateway.callers import Caller, Workspace, workspace_key
from shortlist.gateway.changes import ListChanged
from shortlist.gateway.tools import (
    STRING,
    STRINGS,
    LoadRequest,
    McpResult,
    MetaTool,
    ToolArguments,
    ToolCall,
    load_tools_request,
    raw_request,
    same_arguments,
    text_result,
    toolset_request,
)
from shortlist.models import ToolId
from shortlist.text.tokens import one_line

DESCRIPTION = 100
_WORKSPACE = {"workspace": {**STRING, "description": "Handle from an earlier load"}}


async def _list_toolsets(call: ToolCall, _: ToolArguments) -> McpResult:
    """List the toolsets in reach: name, size, how many tools are loaded, and what they are for."""
    bound, lines = call.state.bound(call.seen), []
    for toolset in call.seen.tools.toolsets.values():
        if toolset.tools:
            loaded = sum(1 for tool_id in toolset.tools if tool_id in bound)
            state = f", {loaded} loaded" if loaded else ""
            description = one_line(toolset.description, DESCRIPTION)
            shown = f"{toolset.name} ({len(toolset.tools)} tools{state})"
            lines.append(shown + (f": {description}" if description else ""))
    answer = text_result("\n".join(lines) or "No toolsets: no server is connected.")
    call.state.recording.toolsets_listed(call.seen.caller, answer)
    return answer


async def _load_toolset(call: ToolCall, request: LoadRequest) -> McpResult:
    return await _load(call, request, call.state.toolset(call.seen, request.toolset).tools)


async def _load_tools(call: ToolCall, request: LoadRequest) -> McpResult:
    return await _load(call, request, [(await call.state.find(call.seen, name)).id for name in request.names])


async def _unload_toolset(call: ToolCall, request: LoadRequest) -> McpResult:
    """Remove the loaded tools of a toolset; refuse for tools that a preset binds."""
    name, owner = request.toolset, _named(call.seen.caller, request)
    tools = call.state.toolset(call.seen, name).tools
    await call.state.workspaces.fetch(owner, up_to_date=True)
    workspace = call.state.workspaces.of(owner)
    gone = workspace.unload(tools) if workspace else ()
    if not gone:
        return text_result(_not_unloaded(call, name, tools), is_error=True)
    await call.state.workspaces.save(owner)
    call.state.recording.unloaded(call.seen.caller, name, gone)
    call.state.announce(ListChanged(workspace_key(owner)))
    return text_result(f"unloaded: toolset {name!r}: {_names(call, gone)}")


async def _load(call: ToolCall, request: LoadRequest, tools: Sequence[ToolId]) -> McpResult:
    started, caller = perf_counter(), call.seen.caller
    owner, workspace, handle = await _workspace(call, _named(caller, request))
    new = workspace.load((i for i in tools if not call.seen.is_bound(i)), request.toolset)
    if new:
        await call.state.workspaces.save(owner)
        call.state.announce(ListChanged(workspace_key(owner)))
    milliseconds = (perf_counter() - started) * 1000
    answer = text_result(_loaded(call, tools, new, request.toolset, handle))
    call.state.recording.loaded(caller, request.toolset, new, milliseconds, answer)
    return answer


async def _workspace(call: ToolCall, caller: Caller) -> tuple[Caller, Workspace, str | None]:
    """Return the workspace to load into; a modern client that names none gets a new handle."""
    await call.state.workspaces.fetch(caller, up_to_date=True)
    found = call.state.workspaces.of(caller)
    if found is not None:
        return caller, found, None
    handle, made = call.state.workspaces.mint(caller)
    return replace(caller, handle=handle), made, handle


def _loaded(call: ToolCall, tools: Sequence[ToolId], new: Sequence[ToolId], toolset: str, handle: str | None) -> str:
    status = "loaded" if new else "already_loaded"
    what = f"toolset {toolset!r}" if toolset else "tools"
    lines = [
        f"{status}: {what}: {_names(call, new or tools)}",
        "Call them by name, or through call_tool where the client does not list them yet.",
    ]
    if handle is not None:
        lines.append(
            f"workspace: {handle} (pass it as `workspace` to load more, or connect to /mcp/w/{handle}, "
            "whose list has these tools)"
        )
    return "\n".join(lines)


def _names(call: ToolCall, tools: Sequence[ToolId]) -> str:
    return ", ".join(call.seen.tools.name(tool_id) for tool_id in tools)


def _not_unloaded(call: ToolCall, toolset: str, tools: Sequence[ToolId]) -> str:
    if any(map(call.seen.is_bound, tools)):
        return (
            f"refused: toolset {toolset!r} is bound for every client by the preset or always_load. "
            "Only the configuration changes that."
        )
    return f"not_loaded: toolset {toolset!r} has no loaded tools here. list_toolsets shows what is loaded."


def _named(caller: Caller, request: LoadRequest) -> Caller:
    """Return the caller with the workspace that the arguments name, where they name one."""
    return replace(caller, handle=request.workspace) if request.workspace else caller


LIST_TOOLSETS = MetaTool(
    name="list_toolsets",
    description="List groups of tools that can be loaded.",
    reads=True,
    parse=raw_request,
    handle=_list_toolsets,
    aliases={"list_available_toolsets": same_arguments},
    menus=("dynamic",),
)
LOAD_TOOLSET = MetaTool(
    name="load_toolset",
    description="Bind all tools of a toolset. Prefer load_tools.",
    properties={"toolset": STRING, **_WORKSPACE},
    required=("toolset",),
    parse=toolset_request,
    handle=_load_toolset,
    menus=("dynamic",),
)
LOAD_TOOLS = MetaTool(
    name="load_tools",
    description="Bind single tools, so that they can be called directly.",
    properties={"names": STRINGS, **_WORKSPACE},
    required=("names",),
    parse=load_tools_request,
    handle=_load_tools,
    menus=("dynamic",),
)
UNLOAD_TOOLSET = MetaTool(
    name="unload_toolset",
    description="Remove a loaded toolset.",
    properties={"toolset": STRING, **_WORKSPACE},
    required=("toolset",),
    parse=toolset_request,
    handle=_unload_toolset,
    menus=("dynamic",),
)
