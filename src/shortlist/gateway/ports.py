"""What the gateway needs of the search and of the servers behind it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import anyio

from shortlist.catalog.catalog import Catalog
from shortlist.models import Json, Query, SearchResult, Tool, ToolId
from shortlist.trust.pins import ItemKind
from shortlist.upstream.events import CallOptions, Peer, UpstreamStatus
from shortlist.upstream.events import State as UpstreamState

Explain: TypeAlias = Callable[[Query, ToolId, Mapping[str, str] | None], Awaitable[str]]
"""Explains the rank of a tool for a query, to a caller who may know of these corrections of its words; None: of all."""


class ToolSearch(Protocol):
    """What the gateway needs of search. An update may take effect a little later."""

    @property
    def catalog(self) -> Catalog: ...

    async def search(self, query: Query) -> SearchResult: ...

    def update(self, catalog: Catalog) -> object: ...


class Upstreams(Protocol):
    """What the gateway needs of the servers behind it."""

    def status(self) -> Mapping[str, UpstreamStatus]: ...

    @property
    def states(self) -> Mapping[str, UpstreamState]:
        """Return the state of every server, in configuration order."""
        ...

    def peer(self, server: str) -> Peer | None:
        """Return what a server said about itself when it connected; None until it has."""
        ...

    async def request(
        self, server: str, method: str, params: Mapping[str, Json] = ..., *, options: CallOptions = ...
    ) -> dict[str, Json]: ...

    async def notify(self, server: str, method: str, params: Mapping[str, Json] = ...) -> None: ...

    async def watch(self, server: str, uris: Sequence[str]) -> None: ...


@dataclass(frozen=True, slots=True)
class StartedLogin:
    """A login to a server that waits for its user."""

    id: str
    url: str
    """Where the user signs in."""
    done: anyio.Event
    """Set when the user has signed in and the server is being connected again."""


class StartLogin(Protocol):
    """Starts a login to a server in the name of a principal; raises a ShortlistError where it has none."""

    async def __call__(self, server: str, principal: str) -> StartedLogin: ...


class DefinitionGate(Protocol):
    """Decides which definitions of a server may be served; called in worker threads."""

    def admit(self, server: str, tools: Sequence[Tool], said: Mapping[str, str]) -> Sequence[Tool]:
        """Return the tools that may be served; `said` is what the server says of itself."""
        ...

    def words(self, server: str, said: Mapping[str, str]) -> Mapping[str, str]:
        """Return what a server says of itself, as far as it was accepted."""
        ...

    def doubts(self, server: str) -> Mapping[str, str]:
        """Return the families of attack that served tools of a server are suspected of, by the names of the tools."""
        ...


class ItemGate(Protocol):
    """Decides which prompts, resources and templates of a server may be served."""

    def admit_items(
        self, server: str, kind: ItemKind, items: Sequence[Mapping[str, Any]]
    ) -> Sequence[Mapping[str, Any]]:
        """Return the items that may be served; called in worker threads."""
        ...

    def holds(self, server: str, kind: ItemKind, name: str) -> bool:
        """Return whether an item is held, by its own name, URI or URI template."""
        ...


class EffectReviews(Protocol):
    """What people found that tools do; called in worker threads."""

    def read_only(self, server: str) -> frozenset[str]:
        """Return the names of a server's tools that a review found to be read-only, as they are defined now."""
        ...
