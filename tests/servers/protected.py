"""An MCP server that needs a login, and the authorization server that grants it: both real, over HTTP, in a thread."""

import base64
import hashlib
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

TOOL = {"name": "whoami", "description": "Say who is signed in.", "inputSchema": {"type": "object"}}


@dataclass(slots=True)
class Protected:
    """What both servers know; tests read it and end tokens through it."""

    url: str = ""
    expires_in: int = 3600
    refreshes: int = 0
    discoveries: int = 0
    is_broken: bool = False
    """Its metadata names an issuer that it is not."""
    called_with: list[str] = field(default_factory=list)
    access: set[str] = field(default_factory=set)
    refresh: set[str] = field(default_factory=set)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    clients: dict[str, list[str]] = field(default_factory=dict)

    def expire(self) -> None:
        """End every access token; refresh tokens stay."""
        self.access.clear()

    def revoke(self) -> None:
        """End every token."""
        self.access.clear()
        self.refresh.clear()

    def resource(self, _: Request) -> Response:
        return JSONResponse(
            {"resource": f"{self.url}/mcp", "authorization_servers": [self.url], "scopes_supported": ["tools"]}
        )

    def metadata(self, _: Request) -> Response:
        self.discoveries += 1
        return JSONResponse(
            {
                "issuer": "https://elsewhere.example" if self.is_broken else self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "registration_endpoint": f"{self.url}/register",
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["none"],
                "authorization_response_iss_parameter_supported": True,
            }
        )

    async def register(self, request: Request) -> Response:
        client_id = secrets.token_hex(8)
        self.clients[client_id] = (await request.json())["redirect_uris"]
        return JSONResponse({"client_id": client_id, "token_endpoint_auth_method": "none"}, 201)

    def authorize(self, request: Request) -> Response:
        """Grant at once what a person would have granted after a sign-in."""
        asked = dict(request.query_params)
        if asked["redirect_uri"] not in self.clients[asked["client_id"]] or asked["code_challenge_method"] != "S256":
            return Response("refused", 400)
        code = secrets.token_hex(8)
        self.codes[code] = asked
        answer = urlencode({"code": code, "state": asked["state"], "iss": self.url})
        return RedirectResponse(f"{asked['redirect_uri']}?{answer}")

    async def token(self, request: Request) -> Response:
        form = {name: str(value) for name, value in (await request.form()).items()}
        if form["resource"] != f"{self.url}/mcp" or not self._is_granted(form):
            return JSONResponse({"error": "invalid_grant"}, 400)
        access, refresh = secrets.token_hex(16), secrets.token_hex(16)
        self.access.add(access)
        self.refresh.add(refresh)
        return JSONResponse(
            {
                "access_token": access,
                "refresh_token": refresh,
                "token_type": "Bearer",
                "expires_in": self.expires_in,
            }
        )

    def _is_granted(self, form: dict[str, str]) -> bool:
        if form["grant_type"] == "refresh_token":
            self.refreshes += 1
            known = form["refresh_token"] in self.refresh
            self.refresh.discard(form["refresh_token"])  # each is used once
            return known
        asked = self.codes.pop(form["code"], None)
        digest = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).decode().rstrip("=")
        return asked is not None and digest == asked["code_challenge"] and form["redirect_uri"] == asked["redirect_uri"]

    async def mcp(self, request: Request) -> Response:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in self.access:
            named = f'Bearer resource_metadata="{self.url}/metadata/resource"'
            return Response("sign in", 401, headers={"WWW-Authenticate": named})
        message: dict[str, Any] = await request.json()
        if "id" not in message:
            return Response(status_code=202)
        results: dict[str, dict[str, Any]] = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "protected", "version": "1"},
            },
            "tools/list": {"tools": [TOOL]},
            "tools/call": {"content": [{"type": "text", "text": "you are signed in"}]},
            "ping": {},
        }
        if message["method"] == "tools/call":
            self.called_with.append(token)
        if message["method"] not in results:
            error = {"code": -32601, "message": "no such method"}
            return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "error": error})
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]})


@contextmanager
def protected_server() -> Iterator[Protected]:
    """Run both servers on a free port until the block ends."""
    state = Protected()
    routes = [
        Route("/metadata/resource", state.resource),
        Route("/.well-known/oauth-authorization-server", state.metadata),
        Route("/register", state.register, methods=["POST"]),
        Route("/authorize", state.authorize),
        Route("/token", state.token, methods=["POST"]),
        Route("/mcp", state.mcp, methods=["POST"]),
    ]
    listening = socket.create_server(("127.0.0.1", 0))
    state.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    app = Starlette(routes=routes)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.should_exit = True
        thread.join()
        listening.close()
