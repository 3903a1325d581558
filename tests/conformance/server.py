"""What the official conformance suite expects of a server: `python -m tests.conformance.server [--port N] [--legacy]`.

The names and answers are the suite's (npm `@modelcontextprotocol/conformance`). It takes a free port, prints it, and
serves /mcp: in both eras, or without the modern one with `--legacy`.
"""

import argparse
import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.server.subscriptions import ListenHandler

from tests.conformance.answers import Context
from tests.conformance.prompts import complete, get_prompt, list_prompts
from tests.conformance.resources import list_resources, list_templates, read_resource, subscribe, unsubscribe
from tests.conformance.tools import NAME, bus, call_tool, list_tools, schema_of

RETRY_MILLISECONDS = 100


async def set_level(_: Context, __: types.SetLevelRequestParams) -> types.EmptyResult:
    return types.EmptyResult()


class FixtureServer(Server[Any]):
    """Says over HTTP, too, that its lists change."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        options = notification_options or NotificationOptions(True, True, True)
        return super().create_initialization_options(options, experimental_capabilities, extensions)


class Events(EventStore):
    """Every event of every stream, in order; there is one client at a time."""

    def __init__(self) -> None:
        self._events: list[tuple[str, Any]] = []

    async def store_event(self, stream_id: str, message: Any) -> str:
        self._events.append((stream_id, message))
        return str(len(self._events))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        last = int(last_event_id)
        stream = self._events[last - 1][0]
        for number, (of, message) in enumerate(self._events[last:], last + 1):
            if of == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


def build() -> FixtureServer:
    server = FixtureServer(
        NAME,
        version="1.0.0",
        get_tool_input_schema=schema_of,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_subscribe_resource=subscribe,
        on_unsubscribe_resource=unsubscribe,
        on_completion=complete,
        on_set_logging_level=set_level,
        on_subscriptions_listen=ListenHandler(bus),
    )
    server.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=NAME))
    return server


class LegacyOnly:
    """Answers the modern era's first request like a server that has never heard of it."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
        if dict(scope.get("headers", ())).get(b"mcp-method") != b"server/discover":
            await self._app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 404, "headers": []})
        await send({"type": "http.response.body", "body": b"no such method"})


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--legacy", action="store_true")
    options = parser.parse_args()
    app: Any = build().streamable_http_app(event_store=Events(), retry_interval=RETRY_MILLISECONDS)
    listener = socket.create_server(("127.0.0.1", options.port))
    print("port", listener.getsockname()[1], flush=True)
    config = uvicorn.Config(LegacyOnly(app) if options.legacy else app, log_level="warning", http="h11")
    await uvicorn.Server(config).serve(sockets=[listener])


if __name__ == "__main__":
    asyncio.run(main())
