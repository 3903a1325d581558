"""Log lines on stderr, as text or JSON; stdout belongs to the protocol.

Our own loggers use the configured level. Libraries log warnings and above only, since their lower levels contain
URLs and bodies. Secrets are masked in every line except the notices to whoever started the program.
"""

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TextIO

from shortlist.config.masking import redact, redact_json
from shortlist.config.settings import LogSettings

OURS = "shortlist"
NOTICES = "shortlist.notices"
"""Notices for the person at the terminal: addresses, configuration to paste, one-time links."""
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
    """Writes to the current sys.stderr."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr


class PlainLine(logging.Formatter):
    """`shortlist: warning: …`; a notice has no level."""

    def format(self, record: logging.LogRecord) -> str:
        if record.name == NOTICES:
            return f"{OURS}: {record.getMessage()}"
        whose = "" if record.name.partition(".")[0] == OURS else f"{record.name}: "
        trouble = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        return redact(f"{OURS}: {record.levelname.lower()}: {whose}{record.getMessage()}{trouble}")


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
        return json.dumps(line, ensure_ascii=False, default=str)


def _trace() -> dict[str, str]:
    """Return the ids of the current trace and span, so that logs and traces can be correlated."""
    from opentelemetry.trace import get_current_span  # noqa: PLC0415 - only where lines are for machines

    context = get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}
