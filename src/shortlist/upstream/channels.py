"""Opens the channel that a server's settings describe."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

import anyio
from anyio.abc import TaskGroup
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from shortlist.config.settings import HttpTransport, MemoryTransport, SseTransport, StdioTransport, Transport
from shortlist.upstream.errors import ConnectionFailed
from shortlist.upstream.events import OnPause
from shortlist.upstream.framing import Message
from shortlist.upstream.guardian import Guardian
from shortlist.upstream.http import HttpNotes, open_http, open_sse
from shortlist.upstream.stderr import StderrLog
from shortlist.upstream.stdio import open_stdio
from shortlist.upstream.wire import Channel, Deliver


def open_channel(
    transport: Transport, *, log: StderrLog, limit: int, notes: HttpNotes, guardian: Guardian
) -> AbstractAsyncContextManager[Channel]:
    """Open a channel; `limit` bounds the bytes of one message."""
    match transport:
        case StdioTransport():
            return open_stdio(transport, log=log, limit=limit, guardian=guardian)
        case HttpTransport():
            return open_http(transport, limit, notes)
        case SseTransport():
            return open_sse(transport, limit, notes)
        case MemoryTransport():
            return _open_memory(transport)


class _MemoryChannel:
    """A server of the SDK inside this process."""

    def __init__(
        self, read: ReadStream[SessionMessage | Exception], write: WriteStream[SessionMessage], tasks: TaskGroup
    ) -> None:
        self._read = read
        self._write = write
        self._tasks = tasks

    async def run(self, deliver: Deliver) -> None:
        async for item in self._read:
            if isinstance(item, SessionMessage):
                deliver(item.message.model_dump(mode="json", by_alias=True, exclude_unset=True))

    async def send(self, message: Message, headers: Mapping[str, str], on_pause: OnPause | None = None) -> None:  # noqa: ARG002
        try:
            await self._write.send(SessionMessage(jsonrpc_message_adapter.validate_python(message, by_name=False)))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise ConnectionFailed("the connection ended", sent=False) from None

    def post(self, message: Message, headers: Mapping[str, str]) -> None:
        self._tasks.start_soon(self._tell, message, headers)

    async def _tell(self, message: Message, headers: Mapping[str, str]) -> None:
        with suppress(ConnectionFailed):
            await self.send(message, headers)


@asynccontextmanager
async def _open_memory(transport: MemoryTransport) -> AsyncIterator[_MemoryChannel]:
    server = transport.build()
    async with (
        create_client_server_memory_streams() as (client, (read, write)),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(server.run, read, write, server.create_initialization_options())
        try:
            yield _MemoryChannel(*client, tasks)
        finally:
            tasks.cancel_scope.cancel()
