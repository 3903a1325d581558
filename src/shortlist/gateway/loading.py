"""list_toolsets, load_toolset, load_tools and unload_toolset."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import perf_counter

from shortlist.gateway.answers import text_result
from shortlist.gateway.metatools import names_argument, text_argument
from shortlist.gateway.state import ListChanged, State
from shortlist.gateway.workspaces import Caller, Workspace, workspace_key
from shortlist.models import Json, ToolId
from shortlist.text.clean import one_line

MAX_LOADED_AT_ONCE = 50
DESCRIPTION = 100


class Loading:
    """Binds tools in a caller's workspace; what is bound for everybody stays as it is."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def list_toolsets(self, caller: Caller, _: Mapping[str, Json]) -> dict[str, Json]:
        """Answer list_toolsets: name, size, how many are loaded, and what they are for."""
        visible, bound = self._state.visible(caller), self._state.bound(caller)
        lines = []
        for toolset in self._state.snapshot.toolsets.values():
            tools = [i for i in toolset.tools if visible is None or i in visible]
            if tools:
                loaded = sum(1 for tool_id in tools if tool_id in bound)
                state = f", {loaded} loaded" if loaded else ""
                description = one_line(toolset.description, DESCRIPTION)
                lines.append(
                    f"{toolset.name} ({len(tools)} tools{state})" + (f": {description}" if description else "")
                )
        answer = text_result("\n".join(lines) or "No toolsets: no server is connected.")
        self._state.recording.toolsets_listed(caller, answer)
        return answer

    async def load_toolset(self, caller: Caller, arguments: Mapping[str, Json]) -> dict[str, Json]:
        """Answer load_toolset."""
        name = text_argument(arguments, "toolset")
        tools = [tool_id for tool_id in self._state.toolset(name) if self._state.may_see(caller, tool_id)]
        return self._load(caller, arguments, tools, name)

    async def load_tools(self, caller: Caller, arguments: Mapping[str, Json]) -> dict[str, Json]:
        """Answer load_tools."""
        names = names_argument(arguments, most=MAX_LOADED_AT_ONCE)
        return self._load(caller, arguments, [self._state.find(caller, name).id for name in names], "")

    async def unload_toolset(self, caller: Caller, arguments: Mapping[str, Json]) -> dict[str, Json]:
        """Answer unload_toolset; what a preset bound is refused with the reason."""
        name = text_argument(arguments, "toolset")
        tools = self._state.toolset(name)
        owner = _named(caller, arguments)
        workspace = self._state.workspaces.of(owner)
        gone = workspace.unload(tools) if workspace else ()
        if not gone:
            return text_result(self._not_unloaded(caller, name, tools), is_error=True)
        key = workspace_key(owner)
        self._state.recording.unloaded(caller, name, gone)
        self._state.announce(ListChanged(key))
        return text_result(f"unloaded: toolset {name!r}: {self._names(gone)}")

    def _load(
        self, caller: Caller, arguments: Mapping[str, Json], tools: Sequence[ToolId], toolset: str
    ) -> dict[str, Json]:
        started = perf_counter()
        owner, workspace, handle = self._workspace(_named(caller, arguments))
        bound = self._state.view(caller).bound_ids
        new = workspace.load((tool_id for tool_id in tools if tool_id not in bound), toolset)
        key = workspace_key(owner)
        if new:
            self._state.announce(ListChanged(key))
        milliseconds = (perf_counter() - started) * 1000
        answer = text_result(self._loaded(tools, new, toolset, handle))
        self._state.recording.loaded(caller, toolset, new, milliseconds, answer)
        return answer

    def _workspace(self, caller: Caller) -> tuple[Caller, Workspace, str | None]:
        """Find the workspace to load into; a modern client that names none is given a new handle."""
        found = self._state.workspaces.of(caller)
        if found is not None:
            return caller, found, None
        handle, made = self._state.workspaces.mint(caller)
        return replace(caller, handle=handle), made, handle

    def _loaded(self, tools: Sequence[ToolId], new: Sequence[ToolId], toolset: str, handle: str | None) -> str:
        status = "loaded" if new else "already_loaded"
        what = f"toolset {toolset!r}" if toolset else "tools"
        lines = [
            f"{status}: {what}: {self._names(new or tools)}",
            "Call them by name, or through call_tool where the client does not list them yet.",
        ]
        if handle is not None:
            lines.append(
                f"workspace: {handle} (pass it as `workspace` to load more, or connect to /mcp/w/{handle}, "
                "whose list has these tools)"
            )
        return "\n".join(lines)

    def _names(self, tools: Sequence[ToolId]) -> str:
        return ", ".join(self._state.snapshot.name(tool_id) for tool_id in tools)

    def _not_unloaded(self, caller: Caller, toolset: str, tools: Sequence[ToolId]) -> str:
        if not self._state.view(caller).bound_ids.isdisjoint(tools):
            return (
                f"refused: toolset {toolset!r} is bound for every client by the preset or always_load. "
                "Only the configuration changes that."
            )
        return f"not_loaded: toolset {toolset!r} has no loaded tools here. list_toolsets shows what is loaded."


def _named(caller: Caller, arguments: Mapping[str, Json]) -> Caller:
    """Take the workspace that the arguments name, where they do."""
    handle = arguments.get("workspace")
    return replace(caller, handle=handle.strip()) if isinstance(handle, str) and handle.strip() else caller
