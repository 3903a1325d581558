"""Every error raised on purpose.

ShortlistError
├── InvalidInput           the caller can fix what they passed
│   ├── InvalidQuery
│   ├── InvalidCatalog
│   └── InvalidConfig
├── RequestRefused         a request that the protocol answers with a JSON-RPC error
├── ToolNotFound           a name that is not in the catalog (or not visible here)
├── IndexFormatError       a saved index that this version cannot read
├── ModelError             weights or a model runtime that cannot be used
├── StoreError             stored records that cannot be read or written
│   ├── NothingRecorded    nothing has been stored yet
│   ├── NotStorable        a value that the store refuses however often it is tried
│   ├── StoreConflict      somebody else has written what was read before
│   └── SecretsUnreadable  the file of all secrets is damaged or may not be read
├── DatasetMissing         benchmark or eval data that is not on this machine
├── TunedOnReportedSplit   an eval that would report on what it was fitted on
└── UpstreamError          an MCP server failed; names the server

Two of them branch further where they are raised: `UpstreamError` in `upstream/errors.py` (refused, timed out,
unavailable, needs authorisation), `ModelError` in `remote.py` (a provider refused or is unavailable).
"""

from collections.abc import Sequence

NAME_CHARACTERS = 200


class ShortlistError(Exception):
    """Root of the tree; its message says what happened and what to do next."""


class InvalidInput(ShortlistError):
    """The caller can fix what they passed."""


class InvalidQuery(InvalidInput):
    """A query that cannot be run as written."""


class InvalidCatalog(InvalidInput):
    """A catalog that cannot be read; the message names the place and the remedy."""


class InvalidConfig(InvalidInput):
    """A configuration that cannot be used; the message names file, place and remedy."""


class RequestRefused(ShortlistError):
    """A request that the protocol itself refuses; `code` and `data` are those of the JSON-RPC error."""

    def __init__(self, message: str, *, code: int = -32602, data: object = None) -> None:
        self.code = code
        self.data = data
        super().__init__(message)


class ToolNotFound(ShortlistError):
    """A tool id or name that is not in the catalog, or not visible to this caller.

    `finder` is what whoever reads this can search with.
    """

    def __init__(self, tool_id: str, *, suggestions: Sequence[str] = (), finder: str = "search_tools") -> None:
        self.tool_id = tool_id
        self.suggestions = tuple(suggestions)
        hint = f"Did you mean {', '.join(map(repr, suggestions))}?" if suggestions else f"Use {finder} to find one."
        super().__init__(f"No tool {shortened(tool_id)!r}. {hint}")


def shortened(name: str, characters: int = NAME_CHARACTERS) -> str:
    """Return a name that a caller made up, as far as an error repeats it."""
    return name if len(name) <= characters else f"{name[:characters]}… ({len(name):,} characters)"


class IndexFormatError(ShortlistError):
    """A saved index that this version cannot read; rebuilding it is always possible."""


class ModelError(ShortlistError):
    """Weights or a model runtime that cannot be used."""


class StoreError(ShortlistError):
    """Stored records that cannot be read or written; the message says why, and what to do."""


class NothingRecorded(StoreError):
    """Nothing has been stored yet."""


class NotStorable(StoreError):
    """What a store refuses however often it is tried, such as a name that is too long."""


class StoreConflict(StoreError):
    """Somebody else has written what was read before; it has to be read and decided again."""


class SecretsUnreadable(StoreError):
    """The file of all secrets cannot be read, so that nobody knows which ones there are."""


class DatasetMissing(ShortlistError):
    """Evaluation data that is not on this machine."""


class TunedOnReportedSplit(ShortlistError):
    """An evaluation that would report on the split its pipeline was fitted on."""


class UpstreamError(ShortlistError):
    """An MCP server that failed; `server` names it."""

    def __init__(self, server: str, message: str) -> None:
        self.server = server
        self.said = message
        super().__init__(f"Server {server!r}: {message}")
