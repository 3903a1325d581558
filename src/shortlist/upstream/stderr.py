"""Keeps the last lines that a server wrote to stderr, in memory and in a bounded file for `shortlist logs`."""

from collections import deque
from collections.abc import Iterable
from pathlib import Path

from shortlist.config.masking import MASK, redact
from shortlist.fairness import Allowance
from shortlist.paths import private_folder, private_opener

RING_LINES = 200
LINES_PER_SECOND = 100.0
"""How much of a server's output is kept, beside bursts: masking takes time on the event loop."""
FLOOD_LINES = 5
"""How many lines of a piece are kept while a server writes more than that."""
LINE_CHARACTERS = 2_000
LONGEST_BYTES = 2 * LINE_CHARACTERS
"""How much of a line is read, so that no part of a secret is left at the place where the line is cut."""
FILE_BYTES = 1024 * 1024
"""A log above this is cut to its newer half; two gateways may append to one file."""


class StderrLog:
    """The stderr of one child process; a full disk never disturbs the child."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._lines: deque[str] = deque(maxlen=RING_LINES)
        self._partial = b""
        self._count = self._marked = 0
        self._hidden: tuple[str, ...] = ()
        self._allowance = Allowance(LINES_PER_SECOND)
        self._left_out = 0

    def mark(self) -> None:
        """Mark a new start of the server; `since_mark` returns only what came later."""
        self._marked = self._count

    def hide(self, values: Iterable[str]) -> None:
        """Mask these values, such as secrets that the server was given, in everything that it writes from now on."""
        self._hidden = tuple(sorted(set(values), key=len, reverse=True))

    def write(self, data: bytes) -> bool:
        """Add the next piece of output, wherever it was cut; return False where the next one should wait a moment.

        Of one piece the last lines are kept: they may say why the server has ended.
        """
        *whole, rest = (self._partial + data).split(b"\n")
        self._partial = rest[:LONGEST_BYTES]  # the start, not the end: a secret that is cut in front is not recognised
        latest = whole[-RING_LINES:]
        bearable = [self._allowance.spend() for _ in latest].count(True)
        kept = latest[-max(bearable, FLOOD_LINES) :]
        self._left_out += len(whole) - len(kept)
        self._keep([line.decode("utf-8", "replace") for line in kept])
        return bearable == len(latest) and len(rest) <= LONGEST_BYTES  # a line without an end floods as well

    def note(self, line: str) -> None:
        """Add a line of ours, or one on stdout that is not a message; too many of them are left out and counted."""
        if self._allowance.spend():
            self._keep([line])
        else:
            self._left_out += 1

    def _keep(self, lines: Iterable[str]) -> None:
        kept = [self._masked(line.rstrip("\r")[:LONGEST_BYTES])[:LINE_CHARACTERS] for line in lines]
        if kept and self._left_out:
            kept.insert(0, f"[{self._left_out} lines left out]")
            self._left_out = 0
        self._lines.extend(kept)
        self._count += len(kept)
        if self.path is not None and kept:
            _append(self.path, kept)

    def _masked(self, line: str) -> str:
        for value in self._hidden:
            line = line.replace(value, MASK)
        return redact(line)

    def end(self) -> None:
        """Keep what came after the last newline as a line of its own."""
        if self._partial:
            self.write(b"\n")

    def last(self, count: int = RING_LINES) -> tuple[str, ...]:
        return tuple(self._lines)[-count:]

    def since_mark(self, count: int) -> tuple[str, ...]:
        fresh = min(count, self._count - self._marked)
        return self.last(fresh) if fresh else ()


def log_path(directory: str | Path, server: str) -> Path:
    """Return the path of a server's log; names are made safe for every file system."""
    safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in server)
    return Path(directory) / f"{safe}.log"


def _append(path: Path, lines: Iterable[str]) -> None:
    try:
        private_folder(path.parent)
        with open(path, "ab", opener=private_opener) as file:
            file.write("".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))
            size = file.tell()
        if size > FILE_BYTES:
            data = path.read_bytes()[-FILE_BYTES // 2 :]
            with open(path, "wb", opener=private_opener) as file:
                file.write(data[data.find(b"\n") + 1 :])
    except OSError:
        return
