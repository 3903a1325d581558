"""What the dashboard can do besides showing: ports of one to three methods, each absent where it is not possible."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from shortlist.access.principal import Principal
from shortlist.models import Json, ToolId


@dataclass(frozen=True, slots=True, kw_only=True)
class NewServer:
    """What somebody typed to add a server."""

    what: str
    """A command line, a URL, or @NAME in a registry."""
    name: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of a command, headers of a URL, or what the registry entry asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What adding a server would write."""

    name: str
    shown: str
    """The exact command or URL, secrets masked."""
    file: str
    digest: str
    """Of the whole entry: what is confirmed is what was shown."""


class ServerEditor(Protocol):
    """Adds servers to the configuration, and removes them."""

    def propose(self, server: NewServer) -> Proposal:
        """Return what adding a server would write; raise InvalidInput where it cannot be added."""
        ...

    def add(self, server: NewServer, digest: str) -> str:
        """Add a server as it was proposed, and return its name."""
        ...

    def remove(self, name: str) -> None: ...


class ServerSwitch(Protocol):
    """Turns servers and single tools on and off in the configuration."""

    def turn(self, name: str, *, on: bool) -> None:
        """Enable or disable SERVER or SERVER/TOOL; the gateway applies the change within a second."""
        ...

    def disabled(self) -> Sequence[str]:
        """Return what the configuration disables, as SERVER and SERVER/TOOL."""
        ...


class ServerLogins(Protocol):
    """Signs in to servers that need a login."""

    def begin(self, server: str, callback: str) -> str:
        """Begin a login and return the address at which a person signs in; the answer comes to `callback`."""
        ...

    def finish(self, answer: Mapping[str, str]) -> str:
        """Finish a login with the answer that a browser brought, and return the name of the server."""
        ...


class SearchWords(Protocol):
    """Teaches search a word: of one tool, or of all."""

    def add_keyword(self, tool: ToolId, keyword: str) -> None: ...

    def add_synonym(self, word: str, meaning: str) -> None: ...


class Dismissals(Protocol):
    """Remembers which misses need no more attention."""

    def dismiss(self, miss: str) -> None: ...

    def dismissed(self) -> frozenset[str]: ...


ToolCaller: TypeAlias = Callable[[Principal, ToolId, Mapping[str, Json]], Mapping[str, Json]]
"""Calls a tool as a principal, from a worker thread, and returns the result that a client gets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Controls:
    """What this dashboard can do; None for what it cannot, as where the servers run in another process."""

    reconnect: Callable[[str], None] | None = None
    """Lists a server's tools again, or connects to it; for the event loop."""
    restart: Callable[[str], None] | None = None
    logins: ServerLogins | None = None
    call: ToolCaller | None = None
    switch: ServerSwitch | None = None
    editor: ServerEditor | None = None
    words: SearchWords | None = None
    dismissals: Dismissals | None = None
