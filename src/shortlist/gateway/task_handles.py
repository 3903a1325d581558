"""Tasks of servers under handles of our own, for the principals that started them."""

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shortlist.access.catalog import ScopedCatalog
from shortlist.access.principal import Principal
from shortlist.errors import RequestRefused
from shortlist.gateway.callers import Caller
from shortlist.models import Json, Tool, ToolId

MAX_TASKS = 1_000
MAX_OWN_TASKS = 100
"""Tasks of one principal: its own oldest ones go first, before those of anybody else."""
MAX_SECONDS = 86_400.0
"""How long a task is known whose server sets no limit."""
HANDLE_BYTES = 18
RELATED = "io.modelcontextprotocol/related-task"
"""Where a message of a server names the task that it belongs to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayedTask:
    """A task of a server, and who may follow it."""

    server: str
    own: str
    """The server's own id of it."""
    tool: ToolId
    caller: Caller
    expires: float


class RelayedTasks:
    """Tasks by handle, bounded in number, also for each principal; the oldest go first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, mark: str = "") -> None:
        self.clock = clock
        self._mark = mark
        self._known: OrderedDict[str, RelayedTask] = OrderedDict()

    def keep(self, caller: Caller, tool: Tool, task: Mapping[str, Json]) -> str:
        """Remember a task that a server started, until it expires, and return its handle."""
        handle = self._mark + secrets.token_urlsafe(HANDLE_BYTES)
        seconds = seconds_of(task.get("ttl", task.get("ttlMs")))
        expires = self.clock() + min(MAX_SECONDS if seconds is None else seconds, MAX_SECONDS)
        self._known[handle] = RelayedTask(
            server=tool.server, own=str(task["taskId"]), tool=tool.id, caller=caller, expires=expires
        )
        for displaced in self.known_to(caller.principal)[:-MAX_OWN_TASKS]:
            del self._known[displaced]
        while len(self._known) > MAX_TASKS:
            self._known.popitem(last=False)
        return handle

    def known_to(self, principal: Principal) -> list[str]:
        """Return the handles of the tasks that a principal started, the oldest first."""
        return [handle for handle, task in self._known.items() if task.caller.principal == principal]

    def find(self, caller: Caller, tools: ScopedCatalog, handle: Json) -> RelayedTask:
        """Return a task of this caller; one of somebody else, out of reach or expired is as unknown as any other."""
        found = self._known.get(handle) if isinstance(handle, str) else None
        if found is None or not self._is_open(found, caller, tools):
            raise RequestRefused(f"Unknown task: {handle}")
        return found

    def handle_of(self, server: str, own: Json) -> str | None:
        """Return the handle of a task by its server's own id; None for one that no client follows."""
        known = (h for h, task in self._known.items() if (task.server, task.own) == (server, own))
        return next((handle for handle in known if self.clock() < self._known[handle].expires), None)

    def caller_of(self, handle: str) -> Caller:
        return self._known[handle].caller

    def owner_of(self, server: str, params: Mapping[str, Json]) -> Caller | None:
        """Return who follows the task that a server's message belongs to."""
        handle = self.handle_of(server, related(params))
        return self.caller_of(handle) if handle is not None else None

    def of(self, caller: Caller, tools: ScopedCatalog) -> dict[str, RelayedTask]:
        """Return the tasks that a caller may follow, the latest first."""
        return {handle: task for handle, task in reversed(self._known.items()) if self._is_open(task, caller, tools)}

    def _is_open(self, task: RelayedTask, caller: Caller, tools: ScopedCatalog) -> bool:
        is_own = task.caller.principal == caller.principal
        return is_own and task.tool in tools and self.clock() < task.expires


def related(params: Mapping[str, Json]) -> Json:
    """Return the id of the task that a message belongs to; None where it names none."""
    meta = params.get("_meta")
    task = meta.get(RELATED) if isinstance(meta, dict) else None
    return task.get("taskId") if isinstance(task, dict) else None


def with_related(params: Mapping[str, Json], handle: str | None) -> dict[str, Json]:
    """Return a message that names its task by the handle that the client knows, or not at all."""
    if related(params) is None:
        return dict(params)
    meta = {key: value for key, value in params["_meta"].items() if key != RELATED}
    return {**params, "_meta": {**meta, RELATED: {"taskId": handle}} if handle else meta}


def seconds_of(milliseconds: Json) -> float | None:
    return max(milliseconds, 0) / 1000 if isinstance(milliseconds, (int, float)) else None
