"""Why a request to a server gave no result; all of them name the server."""

from collections.abc import Iterator

from mcp import MCPError

from shortlist.errors import UpstreamError
from shortlist.models import Json


class UpstreamUnavailable(UpstreamError):
    """Not connected, or the connection went away under the request; the request may have been received."""


class UpstreamTimeout(UpstreamError):
    """No answer in time; the request was cancelled upstream and is never repeated."""


class UpstreamRefused(UpstreamError):
    """The server answered with a JSON-RPC error, kept as it came in `code`, `reason` and `data`."""

    def __init__(self, server: str, code: int, reason: str, data: Json = None) -> None:
        self.code = code
        self.reason = reason
        self.data = data
        super().__init__(server, f"{reason} (code {code})")


class UpstreamNeedsAuth(UpstreamUnavailable):
    """The server wants credentials that the configuration does not give."""


class ClosedByProbe(Exception):
    """The server ended when it was asked something it does not know; it may live without being asked."""

    def __init__(self) -> None:
        super().__init__("it closed the connection before it was ready")


def cause_of(error: BaseException) -> Exception:
    """Find what a group of errors is about: the transport's own, before the closing it led to."""
    found = [leaf for leaf in _leaves(error) if isinstance(leaf, Exception)]
    named = [leaf for leaf in found if not isinstance(leaf, (MCPError, UpstreamUnavailable, ClosedByProbe))]
    return (named or found)[0]


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
