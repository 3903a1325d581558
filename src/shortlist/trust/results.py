"""What results of calls hold that should not reach a model unseen: secrets, and instructions to it."""

import base64
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from shortlist.text.tokens import clean_text
from shortlist.trust.definitions import MAX_CHARACTERS, ToolDefinition
from shortlist.trust.verdicts import OVERSIZED, DefinitionScanner

MAX_INSPECTED = 2_000_000
"""Longer results are read up to here; the rest counts as not inspected."""
TOO_MUCH = "more text than can be inspected"
MAX_DEPTH = 64
OVERLAP = 2_000
"""What each part shares with the one before it, so that no sentence is cut."""
_COMMON = frozenset(
    ("content", "structuredContent", "isError", "resultType", "_meta", "type", "text", "uri", "mimeType")
)
"""Members of any result; other names may say something."""
_SECRET = re.compile(
    r"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bgh[pousr]_[A-Za-z0-9]{36,}|"
    r"\bgithub_pat_[A-Za-z0-9_]{40,}|\bglpat-[A-Za-z0-9_-]{20,}|\bxox[abpr]-[A-Za-z0-9-]{20,}|"
    r"\bsk-(?:ant-|proj-)?[A-Za-z0-9_-]{32,}|\bsk_live_[A-Za-z0-9]{20,}|\bAIza[A-Za-z0-9_-]{35}\b|"
    r"\bnpm_[A-Za-z0-9]{36}\b|\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"
)


def inspect_result(scanner: DefinitionScanner, server: str, result: Any) -> str:
    """Return what the texts of a result hold that a policy is about; empty where nothing was found."""
    try:
        parts = [clean_text(part) for part in _texts(result, 0)]
    except _TooDeep:
        return TOO_MUCH
    text = "\n".join(parts)
    if _SECRET.search(text) or _SECRET.search(_joined(result)):
        return "a secret"
    for start in range(0, min(len(text), MAX_INSPECTED), MAX_CHARACTERS - OVERLAP):
        part = text[start : start + MAX_CHARACTERS]
        verdict = scanner.scan(ToolDefinition("result", server, {"description": part}))
        if verdict.level != "clean":
            unread = all(reason.family == OVERSIZED for reason in verdict.reasons)
            return TOO_MUCH if unread else "instructions to the model"
    return TOO_MUCH if len(text) > MAX_INSPECTED else ""


def _joined(result: Any) -> str:
    """Return the texts of all content items without anything between them: a secret may be split over several."""
    items = result.get("content") if isinstance(result, dict) else None
    texts = (item.get("text") for item in items if isinstance(item, dict)) if isinstance(items, list) else ()
    return clean_text("".join(text for text in texts if isinstance(text, str)))


class _TooDeep(Exception):
    """A result is nested deeper than any real one."""


def _texts(value: Any, depth: int) -> Iterator[str]:
    """Yield every text of a result, the names of its members included, and what a text blob says."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        if depth >= MAX_DEPTH:
            raise _TooDeep
        if isinstance(value, dict):
            yield from (key for key in value if key not in _COMMON)
            yield from _blob(value.get("blob"))
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner, depth + 1)


def _blob(encoded: Any) -> Iterator[str]:
    if isinstance(encoded, str) and len(encoded) <= MAX_INSPECTED:
        with suppress(ValueError):
            yield base64.b64decode(encoded).decode()
