"""What changed between two definitions, word by word."""

import json
import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Any, Literal, NamedTuple

from shortlist.text.tokens import clean_text
from shortlist.trust.pins import PinnedEntry

MAX_WORDS = 4_000
"""Longer texts are compared up to here; comparing words takes time by the square of their number."""
_WORD = re.compile(r"\s+|[^\s\w]|\w+")


class WordChange(NamedTuple):
    """A run of words that stayed, came or went."""

    kind: Literal["same", "added", "removed"]
    text: str


def words_changed(before: PinnedEntry | None, after: PinnedEntry) -> list[WordChange]:
    """Return the difference between a definition and what it was before, as it may be shown to a person."""
    old, new = (_words(_readable(entry)) for entry in (before, after))
    changes: list[WordChange] = []
    for kind, old_from, old_to, new_from, new_to in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            changes.append(WordChange("same", "".join(new[new_from:new_to])))
            continue
        if old_to > old_from:
            changes.append(WordChange("removed", "".join(old[old_from:old_to])))
        if new_to > new_from:
            changes.append(WordChange("added", "".join(new[new_from:new_to])))
    return changes


def _words(text: str) -> list[str]:
    return _WORD.findall(text)[:MAX_WORDS]


def _readable(entry: PinnedEntry | None) -> str:
    if entry is None:
        return ""
    value = entry.value
    if entry.kind == "instructions" and isinstance(value, str):
        value = json.loads(value) if value.startswith("{") else value
    return clean_text("\n".join(_lines(value, "")))


def _lines(value: Any, path: str) -> Iterator[str]:
    """Yield one line per text or number, with its place."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _lines(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        yield f"{path}: {json.dumps(value, ensure_ascii=False)}"
    else:
        yield f"{path}: {value}" if path else str(value)
