"""URIs of all servers, kept apart: `shortlist://server/<its own URI>`."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from urllib.parse import quote, unquote

from shortlist.models import Json

SCHEME = "shortlist://"
REMEMBERED_URIS = 4_096


def to_uri(server: str, uri: str) -> str:
    """Put a server's name before its URI, or URI template."""
    return f"{SCHEME}{quote(server, safe='')}/{uri}"


def from_uri(uri: str) -> tuple[str, str] | None:
    """Take the server and its own URI apart again; None where the URI is not one of ours."""
    if not uri.startswith(SCHEME):
        return None
    server, _, own = uri.removeprefix(SCHEME).partition("/")
    return unquote(server), own


class SeenUris:
    """Which server showed a URI in a tool's result: results are relayed untouched, and their links must be readable."""

    def __init__(self) -> None:
        self._servers: OrderedDict[str, str] = OrderedDict()

    def note(self, server: str, result: Mapping[str, Json]) -> None:
        """Remember the URIs of a result, the latest few thousand."""
        for uri in _uris(result.get("content")):
            self._servers[uri] = server
            self._servers.move_to_end(uri)
        while len(self._servers) > REMEMBERED_URIS:
            self._servers.popitem(last=False)

    def server(self, uri: str) -> str | None:
        return self._servers.get(uri)


def _uris(content: Json) -> Iterator[str]:
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") in ("resource_link", "resource"):
            holder = block if block["type"] == "resource_link" else block.get("resource")
            uri = holder.get("uri") if isinstance(holder, dict) else None
            if isinstance(uri, str):
                yield uri
