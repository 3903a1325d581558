"""`serve --workers N`: several gateways on one machine that share a port, and everything else through PostgreSQL.

Each worker is a process of its own, started anew where it ends unexpectedly. The kernel distributes connections among
them. A worker ends with the process that started it.
"""

import argparse
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic

from shortlist.cli.arguments import WORKER_VARIABLE
from shortlist.cli.listening import address, listening_socket
from shortlist.cli.reading import read_settings, say
from shortlist.cli.signals import ending_signals
from shortlist.errors import InvalidInput

RESTART_SECONDS, RETRY_SECONDS = 1.0, 5.0
"""How long after its end a worker is started again: one that served, and one that could not start."""
END_SECONDS = 10.0
"""How long workers may take to end before they are killed."""


@dataclass(frozen=True, slots=True)
class Worker:
    """This process as one of several workers."""

    number: int
    port: int
    parent: socket.socket

    @property
    def is_first(self) -> bool:
        return self.number == 1

    def ready(self) -> None:
        """Tell the parent that clients are served, and end when the parent is gone."""
        self.parent.send(b"1")
        threading.Thread(target=self._end_with_parent, daemon=True).start()

    def _end_with_parent(self) -> None:
        with suppress(OSError):
            self.parent.recv(1)
        os.kill(os.getpid(), signal.SIGTERM)


def this_worker() -> Worker | None:
    """Return which worker this process is; None where it is none."""
    told = os.environ.get(WORKER_VARIABLE)
    if not told:
        return None
    number, port, descriptor = map(int, told.split(":"))
    return Worker(number, port, socket.socket(fileno=descriptor))


def serve_workers(arguments: argparse.Namespace) -> int:
    """Run workers until a signal comes; return the exit status."""
    host, port = _place(arguments)
    with listening_socket(host, port, shared=True, listens=False) as reserved:
        port = reserved.getsockname()[1]
        crew = _Crew(port, [_Slot(number) for number in range(1, arguments.workers + 1)])
        with _signalled(crew.stop):
            return crew.run()


def _place(arguments: argparse.Namespace) -> tuple[str, int]:
    """Return where to serve; raise where several workers cannot."""
    if not arguments.http:
        raise InvalidInput("--workers needs --http HOST:PORT; over stdio, one gateway serves one client.")
    if sys.platform != "linux":
        raise InvalidInput("--workers needs Linux. Run one gateway, or several behind a load balancer.")
    if not read_settings(arguments.config).storage:
        raise InvalidInput(
            f"--workers {arguments.workers} needs a PostgreSQL database, by which workers share sessions and servers. "
            'Set "storage": "postgresql://…" in the configuration, or leave out --workers: SQLite serves one gateway.'
        )
    return address(arguments.http)


@dataclass(slots=True)
class _Slot:
    """The place of one worker, and the process that has it now."""

    number: int
    process: "subprocess.Popen[bytes] | None" = None
    is_ready: bool = False
    has_served: bool = False
    """Whether a worker has ever served clients here: another one can, once what keeps it from starting is over."""
    start_at: float = field(default=float("-inf"))


class _Crew:
    """The workers of one gateway."""

    def __init__(self, port: int, slots: list[_Slot]) -> None:
        self._port = port
        self._slots = slots
        self._selector = selectors.DefaultSelector()
        self._status = 0
        self._stopping: float | None = None

    def run(self) -> int:
        """Keep all workers running until they are stopped, or one of them cannot start."""
        while self._stopping is None or any(slot.process for slot in self._slots):
            if self._stopping is None:
                for slot in self._slots:
                    if slot.process is None and monotonic() >= slot.start_at:
                        self._start(slot)
            elif monotonic() - self._stopping > END_SECONDS:
                self._signal(signal.SIGKILL)
            for key, _ in self._selector.select(timeout=0.2):
                self._hear(key.data, key.fileobj)  # type: ignore[arg-type]
        return self._status

    def stop(self) -> None:
        """End all workers in an orderly way."""
        self._stopping = self._stopping or monotonic()
        self._signal(signal.SIGTERM)

    def _start(self, slot: _Slot) -> None:
        ours, theirs = socket.socketpair()
        told = {WORKER_VARIABLE: f"{slot.number}:{self._port}:{theirs.fileno()}"}
        command = [sys.executable, "-m", "shortlist.cli", *sys.argv[1:]]
        # In a session of its own, a worker gets no signal of the terminal beside the one from here.
        slot.process = subprocess.Popen(  # noqa: S603 - this program, as it was started
            command, env={**os.environ, **told}, pass_fds=[theirs.fileno()], start_new_session=True
        )
        theirs.close()
        slot.is_ready = False
        self._selector.register(ours, selectors.EVENT_READ, slot)

    def _hear(self, slot: _Slot, parent: socket.socket) -> None:
        with suppress(ConnectionError):
            if parent.recv(1):
                slot.is_ready = slot.has_served = True
                return
        self._selector.unregister(parent)
        parent.close()
        status = slot.process.wait() if slot.process is not None else 0
        slot.process = None
        slot.start_at = monotonic() + (RESTART_SECONDS if slot.is_ready else RETRY_SECONDS)
        if self._stopping is not None:
            return
        if not slot.has_served:  # its error is on stderr, and would be the same the next time
            self._status = status or 1
            self.stop()
        elif slot.is_ready:
            say(f"worker {slot.number} ended with status {status}; it is started again")
        else:
            say(f"worker {slot.number} could not start; it is tried again in {RETRY_SECONDS:g} s, the others go on")

    def _signal(self, number: int) -> None:
        for slot in self._slots:
            if slot.process is not None:
                with suppress(ProcessLookupError):
                    slot.process.send_signal(number)


@contextmanager
def _signalled(act: Callable[[], None]) -> Iterator[None]:
    """Act on every signal that asks this process to end."""
    numbers = ending_signals()
    before = [signal.signal(number, lambda *_: act()) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
