"""The last lines a server wrote to stderr: a bounded ring, and a bounded file for `shortlist logs`."""

from collections import deque
from pathlib import Path

RING_LINES = 200
LINE_CHARACTERS = 2_000
FILE_BYTES = 1024 * 1024
"""A log above this is cut to its newer half; two gateways may append to one file."""


class StderrLog:
    """Keeps what a child process says beside the protocol; a full disk never disturbs the child."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._lines: deque[str] = deque(maxlen=RING_LINES)
        self._partial = b""
        self._count = self._marked = 0

    def mark(self) -> None:
        """Begin a new life of the server; `since_mark` forgets what earlier ones said."""
        self._marked = self._count

    def write(self, data: bytes) -> None:
        """Take the next piece of output, wherever it was cut."""
        *whole, rest = (self._partial + data).split(b"\n")
        self._partial = rest[-LINE_CHARACTERS:]
        for line in whole:
            self.note(line.decode("utf-8", "replace"))

    def note(self, line: str) -> None:
        line = line.rstrip("\r")[:LINE_CHARACTERS]
        self._lines.append(line)
        self._count += 1
        if self.path is not None:
            _append(self.path, line)

    def end(self) -> None:
        """Take what came after the last newline as a line of its own."""
        if self._partial:
            self.write(b"\n")

    def last(self, count: int = RING_LINES) -> tuple[str, ...]:
        return tuple(self._lines)[-count:]

    def since_mark(self, count: int) -> tuple[str, ...]:
        fresh = min(count, self._count - self._marked)
        return self.last(fresh) if fresh else ()


def log_path(directory: str | Path, server: str) -> Path:
    """Say where a server's log lies; names are made safe for every file system."""
    safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in server)
    return Path(directory) / f"{safe}.log"


def _append(path: Path, line: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(line.encode("utf-8", "replace") + b"\n")
            size = file.tell()
        if size > FILE_BYTES:
            data = path.read_bytes()[-FILE_BYTES // 2 :]
            path.write_bytes(data[data.find(b"\n") + 1 :])
    except OSError:
        return
