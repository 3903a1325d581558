"""Reasons why a request to a server returned no result; each of them names the server."""

from collections.abc import Iterator, Sequence

from mcp import MCPError

from shortlist.errors import UpstreamError
from shortlist.models import Json


class UpstreamUnavailable(UpstreamError):
    """The server is not connected, or the connection failed under the request, which may have been received."""


class UpstreamNotSent(UpstreamUnavailable):
    """The request certainly did not reach the server, so it is safe to repeat."""


class UpstreamBusy(UpstreamUnavailable):
    """The server runs as many calls as it may, and this one found no room; it was not sent."""


class UpstreamTimeout(UpstreamError):
    """The server did not answer in time; the request was cancelled upstream and is never repeated."""


class UpstreamRefused(UpstreamError):
    """The server answered with a JSON-RPC error, kept as it came in `code`, `reason` and `data`."""

    def __init__(self, server: str, code: int, reason: str, data: Json = None) -> None:
        self.code = code
        self.reason = reason
        self.data = data
        super().__init__(server, f"{reason} (code {code})")


class UpstreamNeedsAuth(UpstreamUnavailable):
    """The server requires credentials that the configuration does not contain."""


class ConnectionFailed(Exception):
    """The transport failed under one request; `sent` is false where the server certainly did not receive it."""

    def __init__(self, reason: str, *, sent: bool = True) -> None:
        self.sent = sent
        super().__init__(reason)


class ClosedByProbe(Exception):
    """The server exited when it received `server/discover`; it may work when started without that request."""

    def __init__(self) -> None:
        super().__init__("it closed the connection before it was ready")


def cause_of(error: BaseException) -> Exception:
    """Return the error that a group is about: the transport's own, before the closing that it led to."""
    found = [leaf for leaf in _leaves(error) if isinstance(leaf, Exception)]
    secondary = (MCPError, UpstreamUnavailable, ClosedByProbe, ConnectionFailed)
    named = [leaf for leaf in found if not isinstance(leaf, secondary)]
    return (named or found)[0]


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def reason_of(error: Exception, status: int | None, stderr: Sequence[str]) -> str:
    """Describe why a server did not get ready, with the HTTP status or the last lines it wrote."""
    said = str(error) or type(error).__name__
    if isinstance(error, MCPError):
        said = f"it did not get ready: {error.message}"
    elif isinstance(error, UpstreamRefused):
        said = f"it does not list its tools: {error.reason}"
    lines = [line for line in stderr if line.strip()]
    http = f" (HTTP {status})" if status is not None else ""
    return said + http + (f"; it last said: {' | '.join(lines)}" if lines else "")
