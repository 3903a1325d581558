"""Log lines on stderr, as text or JSON; stdout belongs to the protocol.

Our own loggers use the configured level. Libraries log warnings and above only, since their lower levels contain
URLs and bodies. Secrets are masked in every line except the notices to whoever started the program. Messages quote
servers and clients, so no line contains terminal escapes or invisible characters, and further lines of a message are
indented: no message can forge an entry.

A storm of bad requests must not become a storm of lines: each place in the code may write a hundred lines at once, and
then one a second. A reader that no longer reads stderr must not stop the process: where stderr is a full pipe, lines
are left out. What is left out is counted.
"""

import io
import json
import logging
import os
import select
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TextIO

from shortlist.config.masking import redact, redact_json
from shortlist.config.settings import LogSettings
from shortlist.fairness import Allowance
from shortlist.text.tokens import clean_text

OURS = "shortlist"
NOTICES = "shortlist.notices"
"""Notices for the person at the terminal: addresses, configuration to paste, one-time links."""
LINES_PER_SECOND = 1.0
BURST_SECONDS = 100.0
PIECE_BYTES = 4_096
"""What can be written to a pipe that says it has room, without waiting for its reader."""
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure_logs(settings: LogSettings) -> None:
    """Configure logging to stderr; a second call replaces the first configuration."""
    handler = StderrHandler()
    handler.setFormatter(JsonLine() if settings.json else PlainLine())
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    root = logging.getLogger()
    root.handlers = [*(other for other in root.handlers if not isinstance(other, StderrHandler)), handler]
    root.setLevel(max(level, logging.WARNING))
    logging.getLogger(OURS).setLevel(level)
    logging.captureWarnings(True)


@contextmanager
def quieter(level: int, *names: str) -> Iterator[None]:
    """Raise the level of loggers for a while: what they say is noise around one answer."""
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(level)
    try:
        yield
    finally:
        for logger, was in zip(loggers, before, strict=True):
            logger.setLevel(was)


class StderrHandler(logging.StreamHandler[TextIO]):
    """Writes to the current sys.stderr: never without end, and never waiting for whoever reads it."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)
        self.left_out = 0
        """How many lines were not written."""
        self._allowances: dict[tuple[str, int], Allowance] = {}
        """By the place in the code that logs, of which there are few."""

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, unless its place in the code has written too many."""
        if record.levelno <= logging.DEBUG or record.name == NOTICES:
            self._write(record)
            return
        place = (record.pathname, record.lineno)
        if place not in self._allowances:
            self._allowances[place] = Allowance(LINES_PER_SECOND, burst_seconds=BURST_SECONDS)
        allowance = self._allowances[place]
        if not allowance.spend():
            self.left_out += 1
            return
        self._write(record)
        if allowance.dropped:
            words = "%d more lines like this one were left out"
            more = (record.name, record.levelno, record.pathname, record.lineno, words, (allowance.dropped,), None)
            self._write(logging.LogRecord(*more))
            allowance.dropped = 0

    def _write(self, record: logging.LogRecord) -> None:
        pipe = _pipe(self.stream)
        if pipe is None:
            super().emit(record)
        elif not _write_without_waiting(pipe, f"{self.format(record)}{self.terminator}".encode(errors="replace")):
            self.left_out += 1


def lines_left_out() -> int:
    """Return how many lines this process did not write to stderr."""
    return sum(handler.left_out for handler in logging.getLogger().handlers if isinstance(handler, StderrHandler))


def _pipe(stream: TextIO) -> int | None:
    """Return the descriptor of a stream whose reader may keep the writer waiting; None for files and terminals."""
    try:
        descriptor = stream.fileno()
        kind = os.fstat(descriptor).st_mode
    except (OSError, ValueError, AttributeError, io.UnsupportedOperation):
        return None
    return descriptor if hasattr(select, "poll") and (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)) else None


def _write_without_waiting(descriptor: int, line: bytes) -> bool:
    """Write a line in pieces that fit; return False where the reader is behind or gone, and the rest is dropped."""
    room = select.poll()
    room.register(descriptor, select.POLLOUT)
    for start in range(0, len(line), PIECE_BYTES):
        found = room.poll(0)
        if not found or not found[0][1] & select.POLLOUT:
            return False
        try:
            os.write(descriptor, line[start : start + PIECE_BYTES])
        except OSError:
            return False
    return True


class PlainLine(logging.Formatter):
    """`shortlist: warning: …`; a notice has no level."""

    def format(self, record: logging.LogRecord) -> str:
        message = clean_text(record.getMessage())
        if record.name == NOTICES:
            return f"{OURS}: {message}"
        whose = "" if record.name.partition(".")[0] == OURS else f"{record.name}: "
        trouble = f"\n{clean_text(self.formatException(record.exc_info))}" if record.exc_info else ""
        indented = f"{message}{trouble}".replace("\n", "\n  ")
        return redact(f"{OURS}: {record.levelname.lower()}: {whose}{indented}")


class JsonLine(logging.Formatter):
    """One JSON object per line: time, level, logger, message, and extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redact(record.getMessage()),
            **_trace(),
            **{key: redact_json(value, key) for key, value in vars(record).items() if key not in _STANDARD},
        }
        if record.exc_info:
            line["exception"] = redact(self.formatException(record.exc_info))
        return clean_text(json.dumps(line, ensure_ascii=False, default=str))


def _trace() -> dict[str, str]:
    """Return the ids of the current trace and span, so that logs and traces can be correlated."""
    from opentelemetry.trace import get_current_span  # noqa: PLC0415 - only where lines are for machines

    context = get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}
