"""A registry of API v0.1 over the checked-in excerpt, for commands that search it and add servers from it."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

EXCERPT = json.loads((Path(__file__).parent.parent / "config" / "registry" / "servers.json").read_text("utf-8"))


class Registry(ThreadingHTTPServer):
    """The registry, two servers a page; `answers` replaces the answer of a path."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Answers(BaseHTTPRequestHandler):
    server: Registry

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        status, body = self.server.answers.get(self.path.partition("?")[0]) or (200, json.dumps(self._page()).encode())
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def _page(self) -> dict[str, Any]:
        if "/versions/latest" in self.path:
            name = self.path.split("/servers/")[1].partition("/versions")[0].replace("%2F", "/")
            found: dict[str, Any] = next(each for each in EXCERPT["servers"] if each["server"]["name"] == name)
            return found
        start = int(self.path.partition("cursor=")[2].partition("&")[0] or 0)
        more = {"nextCursor": str(start + 2)} if start + 2 < len(EXCERPT["servers"]) else {}
        return {"servers": EXCERPT["servers"][start : start + 2], "metadata": more}

    def log_message(self, *_: Any) -> None:
        """Stay quiet."""


@contextmanager
def serve_registry() -> Iterator[Registry]:
    """Serve the registry on a free port until the block ends."""
    with Registry() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()
