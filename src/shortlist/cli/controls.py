"""What the dashboard of a gateway in this process can do: change the configuration, call tools, dismiss misses."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio.from_thread

from shortlist.access.principal import Principal
from shortlist.cli.adding import ConfigEditor
from shortlist.cli.editing import ConfigSwitch, add_keyword, expansions_of
from shortlist.cli.grants import open_logins
from shortlist.cli.restarts import request_restart
from shortlist.cli.signing import target_of
from shortlist.cli.stack import Stack
from shortlist.config.clients.texts import decoded, read_bytes, replace_file
from shortlist.errors import InvalidInput
from shortlist.gateway.callers import Caller
from shortlist.models import Json, ToolId
from shortlist.paths import data_folder
from shortlist.upstream.grants import SHARED
from shortlist.web.controls import Controls

MARKS = frozenset("=<>,#")
"""Characters with a meaning in an expansion file."""
MOST_DISMISSED = 5_000


def controls_of(stack: Stack) -> Controls:
    """Return everything that can be done to a gateway in this process."""
    path = Path(stack.settings.source) if stack.settings.source else None
    return Controls(
        reconnect=stack.pool.refresh,
        call=partial(_call, stack),
        dismissals=DismissedMisses(data_folder() / "dismissed.json"),
        logins=PageLogins(stack),
        restart=request_restart if path is not None else None,
        switch=ConfigSwitch(path) if path is not None else None,
        editor=ConfigEditor(path) if path is not None else None,
        words=ConfigWords(path) if path is not None else None,
    )


@dataclass(frozen=True, slots=True)
class ConfigWords:
    """Keywords of tools in a configuration file, and synonyms in the first expansion file that it names."""

    path: Path

    def add_keyword(self, tool: ToolId, keyword: str) -> None:
        add_keyword(self.path, tool, keyword)

    def add_synonym(self, word: str, meaning: str) -> None:
        """Append a line to the expansion file; a running gateway reads it within a second."""
        marks = sorted(MARKS & {*word, *meaning})
        if marks:
            raise InvalidInput(f"A synonym cannot contain {' '.join(marks)}. Write plain words.")
        file = expansions_of(self.path)
        before = read_bytes(file)
        lines = [*decoded(before, file).splitlines(), f"{word} => {meaning}", ""]
        replace_file(file, "\n".join(lines).encode(), expected=before)


@dataclass(frozen=True, slots=True)
class DismissedMisses:
    """The misses that were dismissed, in a file of the data folder."""

    path: Path

    def dismiss(self, miss: str) -> None:
        before = read_bytes(self.path)
        kept = [*(each for each in self._read() if each != miss), miss][-MOST_DISMISSED:]
        replace_file(self.path, json.dumps(kept).encode(), expected=before)

    def dismissed(self) -> frozenset[str]:
        return frozenset(self._read())

    def _read(self) -> list[str]:
        try:
            kept = json.loads(read_bytes(self.path) or b"[]")
        except ValueError:
            return []
        return [each for each in kept if isinstance(each, str)] if isinstance(kept, list) else []


class PageLogins:
    """Signs in to servers through a browser that comes back to the dashboard."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        # A browser that comes back from another site brings no cookie, so the state tells whose login it is.
        self._logins = open_logins(stack.storage, f"{stack.peers.page_mark}-" if stack.peers is not None else "")

    def begin(self, server: str, callback: str) -> str:
        target = target_of(server, self._stack.gateway.state.settings.servers)
        return anyio.from_thread.run(self._logins.begin, target, SHARED, callback)

    def finish(self, answer: Mapping[str, str]) -> str:
        state = answer.get("state", "")
        if not self._logins.expects(state):
            raise InvalidInput("No login is waiting for this answer. Begin it again on the page of the server.")
        given = (answer.get("code"), answer.get("iss"), answer.get("error"))
        server = anyio.from_thread.run(self._logins.finish, state, *given).server
        anyio.from_thread.run_sync(self._stack.pool.refresh, server)
        return server


def _call(stack: Stack, principal: Principal, tool: ToolId, arguments: Mapping[str, Json]) -> Mapping[str, Json]:
    """Call a tool from a worker thread, as a client of the principal would."""
    exchange = _PageExchange(Caller(principal=principal, process="dashboard"))
    return anyio.from_thread.run(stack.gateway.call_chosen, exchange, tool, arguments)


class _PageExchange:
    """A page of the dashboard as the client of a call: it cannot be asked anything."""

    answers_in_place = False

    def __init__(self, caller: Caller) -> None:
        self.caller = caller

    def can(self, method: str) -> bool:  # noqa: ARG002 - whatever the method
        return False

    async def ask(self, method: str, params: Mapping[str, Json]) -> dict[str, Json]:  # noqa: ARG002 - none is answered
        raise InvalidInput(f"The server asks for {method}, which a page cannot answer. Use an MCP client.")

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Do nothing: a page shows the result alone."""

    async def pause(self) -> None:
        """Do nothing: a page waits for its answer."""

    async def log(self, params: Mapping[str, Json]) -> None:
        """Do nothing: the gateway logs it."""
