"""Long-running calls: tasks of the protocol, relayed under handles of our own.

A legacy client asks for a task with `task` in its call, a modern one declares the extension and the server decides.
Where client and server are of one era, the client follows the task itself: every later request is relayed to the
server, for the principal that started it, as long as it may still reach the tool and until the task expires. Where
they differ, or where the client knows no tasks, the gateway follows the task and answers the call when it has ended.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import anyio

from shortlist.errors import RequestRefused, ShortlistError
from shortlist.gateway.callers import METHOD_NOT_FOUND, TaskWish
from shortlist.gateway.task_handles import seconds_of, with_related
from shortlist.gateway.tools import McpResult
from shortlist.models import Json, Tool
from shortlist.upstream.errors import UpstreamRefused
from shortlist.upstream.events import Era, Peer

STATUS = "notifications/tasks/status"
EXTENSION = "io.modelcontextprotocol/tasks"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
"""Where a modern call declares what its client can do."""
POLL_SECONDS, LEAST_POLL_SECONDS, MOST_POLL_SECONDS = 1.0, 0.05, 10.0
ENDED = ("completed", "failed", "cancelled")
METHODS: Mapping[str, tuple[Era, ...]] = {
    "tasks/get": ("legacy", "modern"),
    "tasks/cancel": ("legacy", "modern"),
    "tasks/result": ("legacy",),
    "tasks/list": ("legacy",),
    "tasks/update": ("modern",),
}
"""The requests about tasks, and the eras that have them."""

AskServer: TypeAlias = Callable[[str, Mapping[str, Json]], Awaitable[McpResult]]
"""Sends a request to the server of a task."""


@dataclass(frozen=True, slots=True)
class TaskCall:
    """How a call is sent to a server that knows tasks."""

    params: Mapping[str, Json] = field(default_factory=dict)
    """Added to the params of a legacy call."""
    extensions: Mapping[str, Json] = field(default_factory=dict)
    """Declared with a modern call."""
    is_followed: bool = False
    """The client follows the task; else the gateway does."""

    def meta(self, meta: Mapping[str, Json]) -> dict[str, Json]:
        """Return the metadata of a call with what it declares about tasks."""
        declared = _mapping(meta.get(CAPABILITIES))
        extensions = {**_mapping(declared.get("extensions")), **self.extensions}
        return {**meta, CAPABILITIES: {**declared, "extensions": extensions}} if self.extensions else dict(meta)


NO_TASK = TaskCall()


def task_call(tool: Tool, peer: Peer | None, era: Era, wish: TaskWish | None) -> TaskCall:
    """Decide whether a call becomes a task; raise RequestRefused where its client insists and the tool has none."""
    is_followed = wish is not None and peer is not None and peer.era == era
    if peer is not None and peer.era == "legacy":
        support = _support(tool, peer)
        if support == "required" or (support == "optional" and is_followed):
            ttl = {} if wish is None or wish.milliseconds is None else {"ttl": wish.milliseconds}
            return TaskCall({"task": ttl}, is_followed=is_followed)
    elif is_followed and peer is not None and EXTENSION in _mapping(peer.capabilities.get("extensions")):
        return TaskCall(extensions={EXTENSION: {}}, is_followed=True)
    if wish is not None and wish.is_required:
        raise RequestRefused(f"{tool.name} cannot run as a task", code=METHOD_NOT_FOUND)
    return NO_TASK


def _support(tool: Tool, peer: Peer) -> Json:
    """Return whether a legacy tool runs as a task: `required`, `optional`, or anything else for no."""
    requests = _mapping(_mapping(peer.capabilities.get("tasks")).get("requests"))
    if "call" not in _mapping(requests.get("tools")):
        return None
    return _mapping(tool.mcp().get("execution")).get("taskSupport") if '"execution"' in tool.definition else None


def task_of(result: Mapping[str, Json]) -> Mapping[str, Json] | None:
    """Return the task that a server started instead of answering a call; None for an answer."""
    found = result if result.get("resultType") == "task" else _mapping(result.get("task"))
    return found if isinstance(found.get("taskId"), str) else None


def renamed(result: Mapping[str, Json], handle: str) -> McpResult:
    """Return what a server says about a task under the handle that the client knows."""
    result = with_related(result, handle)
    if isinstance(result.get("task"), dict):
        return {**result, "task": {**result["task"], "taskId": handle}}
    return {**result, "taskId": handle} if "taskId" in result else result


async def follow(ask: AskServer, server: str, task: Mapping[str, Json], era: Era) -> McpResult:
    """Wait until a task has ended and return the result of its call; cancel it where the wait is cancelled.

    A legacy server asks its questions while somebody waits for the result, so that is what a task is asked for that
    needs input.
    """
    own = {"taskId": task["taskId"]}
    try:
        while task.get("status") not in ENDED:
            if task.get("status") == "input_required" and era == "legacy":
                return await ask("tasks/result", own)
            await anyio.sleep(_pause(task))
            task = await ask("tasks/get", own)
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True), anyio.move_on_after(POLL_SECONDS):
            await _quietly(ask, "tasks/cancel", own)
        raise
    if task.get("status") == "cancelled":
        raise RequestRefused("The server cancelled the task of this call")
    if era == "legacy":
        return await ask("tasks/result", own)
    error = _mapping(task.get("error"))
    if error:
        raise UpstreamRefused(server, int(error.get("code", -32603)), str(error.get("message")), error.get("data"))
    return dict(_mapping(task.get("result")))


async def _quietly(ask: AskServer, method: str, params: Mapping[str, Json]) -> None:
    try:
        await ask(method, params)
    except ShortlistError:
        return


def _pause(task: Mapping[str, Json]) -> float:
    seconds = seconds_of(task.get("pollInterval", task.get("pollIntervalMs")))
    return min(max(POLL_SECONDS if seconds is None else seconds, LEAST_POLL_SECONDS), MOST_POLL_SECONDS)


def _mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, dict) else {}
