"""What results of calls hold that should not reach a model unseen: secrets, and instructions to it."""

import base64
import codecs
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
_LABELS = frozenset(("type", "uri", "mimeType"))
"""Members beside a text that are not part of what it says."""
SAMPLE = 1_000
"""Bytes of a blob that tell its encoding."""
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8-sig"),
)
_BINARY = re.compile(rb"[\x00-\x08\x0e-\x1f]")
"""Bytes that no text has in an encoding of one byte a letter."""


def _spelled(text: str) -> str:
    """Return a pattern of a text that may be broken into lines anywhere."""
    return r"\n?".join(map(re.escape, text))


def _token(starts: str, letters: str, count: str) -> str:
    """Return a pattern of a token by how it starts, its letters and their number, broken into lines anywhere."""
    return rf"\b(?:{'|'.join(map(_spelled, starts.split()))})(?:\n?[{letters}]){{{count}}}"


_JWT_PART = r"(?:\n?[A-Za-z0-9_-]){10,}"
_SECRET = re.compile(
    "|".join(
        (
            rf"-{{4}}[-\s]{{0,3}}{_spelled('BEGIN')}[A-Z0-9\s]{{1,60}}?{_spelled('PRIVATE')}\s{{0,2}}"
            rf"{_spelled('KEY')}[A-Z\s]{{0,8}}-{{4}}",
            _token("AKIA ASIA", "A-Z0-9", "16") + r"\b",
            _token("ghp_ gho_ ghu_ ghs_ ghr_", "A-Za-z0-9", "36,"),
            _token("github_pat_", "A-Za-z0-9_", "40,"),
            _token("glpat-", "A-Za-z0-9_-", "20,"),
            _token("xoxa- xoxb- xoxp- xoxr-", "A-Za-z0-9-", "20,"),
            _token("sk-ant- sk-proj-", "A-Za-z0-9_-", "32,"),
            r"\bsk-[A-Za-z0-9_-]{32,}",  # in one line: a list of names may begin with `sk-`
            _token("sk-", "A-Za-z0-9", "48") + r"\b",
            _token("sk_live_", "A-Za-z0-9", "20,"),
            _token("AIza", "A-Za-z0-9_-", "35") + r"\b",
            _token("npm_", "A-Za-z0-9", "36") + r"\b",
            rf"\b{_spelled('eyJ')}{_JWT_PART}\n?\.\n?{_spelled('eyJ')}{_JWT_PART}\n?\.{_JWT_PART}",
        )
    )
)


def inspect_result(scanner: DefinitionScanner, server: str, result: Any) -> str:
    """Return what the texts of a result hold that a policy is about; empty where nothing was found."""
    try:
        parts = [clean_text(part) for part in _texts(result, 0)]
        said = [clean_text(part) for part in _said(result)]
    except _TooDeep:
        return TOO_MUCH
    text = "\n".join(parts)
    if _holds_secret(text) or _holds_secret("\n".join(said)):
        return "a secret"
    for start in range(0, min(len(text), MAX_INSPECTED), MAX_CHARACTERS - OVERLAP):
        part = text[start : start + MAX_CHARACTERS]
        verdict = scanner.scan(ToolDefinition("result", server, {"description": part}))
        if verdict.level != "clean":
            unread = all(reason.family == OVERSIZED for reason in verdict.reasons)
            return TOO_MUCH if unread else "instructions to the model"
    return TOO_MUCH if len(text) > MAX_INSPECTED else ""


def _holds_secret(text: str) -> bool:
    lines = (line.strip() for line in text.split("\n"))
    return _SECRET.search("\n".join(line for line in lines if line)) is not None


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


def _said(value: Any) -> Iterator[str]:
    """Yield what a result says, one text after the other, without what stands between: a secret may be split."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for inner in value:
            yield from _said(inner)
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key not in _LABELS:
                yield from _blob(inner) if key == "blob" else _said(inner)


def _blob(encoded: Any) -> Iterator[str]:
    """Yield what a blob says, where it is text."""
    if isinstance(encoded, str) and len(encoded) <= MAX_INSPECTED:
        with suppress(ValueError):
            data = base64.b64decode(encoded)
            yield data.decode(_encoding(data), "strict" if _BINARY.search(data) else "replace")


def _encoding(data: bytes) -> str:
    """Return how a text is encoded, by its mark, or by the zeros that every other byte of Latin text is in UTF-16."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return encoding
    zeros = data[:SAMPLE].count(0)
    if zeros * 3 < len(data[:SAMPLE]):
        return "utf-8"
    return "utf-16-le" if data[1:SAMPLE:2].count(0) * 2 > zeros else "utf-16-be"
