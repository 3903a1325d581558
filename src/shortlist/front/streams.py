"""Event streams of legacy HTTP responses.

The SDK writes them with a general library that runs five tasks for every response. This one runs three, and does not
end streams at a signal before their answers have been sent.
"""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import anyio
import mcp.server.streamable_http
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp_types import JSONRPCMessage, JSONRPCResponse
from pydantic import PrivateAttr
from starlette.types import Receive, Scope, Send

from shortlist.large import beside, is_large, write_json

PING_SECONDS = 15.0
PING = b": ping\r\n\r\n"
STREAM_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]


class EventStream:
    """A response of server-sent events, as the SDK constructs it."""

    def __init__(
        self,
        content: MemoryObjectReceiveStream[dict[str, Any]],
        data_sender_callable: Callable[[], Coroutine[Any, Any, None]],
        headers: Mapping[str, str],
    ) -> None:
        self._events = content
        self._produce = data_sender_callable
        self._headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - an ASGI app
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._produce)
            tasks.start_soon(cancel_on_disconnect, receive, tasks.cancel_scope)
            await self._write(send)
            tasks.cancel_scope.cancel()

    async def _write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self._headers})
        is_open = True
        while is_open:
            data = PING
            with anyio.move_on_after(PING_SECONDS):
                try:
                    data = encode_event(await self._events.receive())
                except (anyio.EndOfStream, anyio.ClosedResourceError):
                    data, is_open = b"", False
            await send({"type": "http.response.body", "body": data, "more_body": is_open})


async def cancel_on_disconnect(receive: Receive, scope: anyio.CancelScope) -> None:
    """Cancel a scope when the client of a request is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


def encode_event(event: Mapping[str, Any]) -> bytes:
    """Return the bytes of one event; its data may be a string, or bytes without line breaks."""
    head = "".join(f"{name}: {event[name]}\r\n" for name in ("id", "event", "retry") if event.get(name) is not None)
    data = event.get("data", "")
    if isinstance(data, bytes):
        return b"%bdata: %b\r\n\r\n" % (head.encode(), data)
    lines = "\r\n".join(f"data: {line}" for line in str(data).split("\n"))
    return f"{head}{lines}\r\n\r\n".encode()


class WrittenResponse(JSONRPCResponse):
    """A large response that was written beside the event loop; whoever asks for its JSON gets that."""

    _json: str = PrivateAttr("")

    def model_dump_json(self, **_: Any) -> str:
        return self._json


async def with_json(message: JSONRPCMessage) -> JSONRPCMessage:
    """Return a message whose JSON is made in a moment: a large response with its JSON, any other as it is."""
    if not isinstance(message, JSONRPCResponse) or isinstance(message, WrittenResponse) or not is_large(message.result):
        return message
    response = WrittenResponse.model_construct(jsonrpc="2.0", id=message.id, result=message.result)
    fields = {"jsonrpc": "2.0", "id": message.id, "result": message.result}
    response._json = (await beside(write_json, fields)).decode()
    return response


def use_lean_streams() -> None:
    """Let the SDK's transport construct these responses: it names the class in its module and nowhere else."""
    vars(mcp.server.streamable_http)["EventSourceResponse"] = EventStream
