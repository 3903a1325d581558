"""Why a request to a server gave no result; all of them name the server."""

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
