"""What changed between two definitions, word by word."""

import json
import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any, Literal, NamedTuple

from shortlist.text.tokens import clean_text
from shortlist.trust.pins import PinnedEntry

MAX_WORDS = 4_000
"""Between two texts that differ by more words, all of them count as changed; comparing takes time by their square."""
MAX_CHARACTERS = 200_000
"""What is shown of a definition, which is also what the scanner reads of one; the rest is named, not left out."""
_WORD = re.compile(r"\s+|[^\s\w]|\w+")


class WordChange(NamedTuple):
    """A run of words that stayed, came or went."""

    kind: Literal["same", "added", "removed"]
    text: str


def words_changed(before: PinnedEntry | None, after: PinnedEntry) -> list[WordChange]:
    """Return the difference between a definition and what it was before, as it may be shown to a person."""
    old, new = (_WORD.findall(_readable(entry)) for entry in (before, after))
    start = _alike(old, new)
    end = _alike(old[start:][::-1], new[start:][::-1])
    head, tail = new[:start], new[len(new) - end :]
    changes = [WordChange("same", "".join(head)), *_middle(old[start : len(old) - end], new[start : len(new) - end])]
    return [change for change in (*changes, WordChange("same", "".join(tail))) if change.text]


def _alike(old: Sequence[str], new: Sequence[str]) -> int:
    """Return with how many equal words two texts begin."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(old), len(new)))


def _middle(old: Sequence[str], new: Sequence[str]) -> Iterator[WordChange]:
    if max(len(old), len(new)) > MAX_WORDS:
        yield from (WordChange("removed", "".join(old)), WordChange("added", "".join(new)))
        return
    for kind, old_from, old_to, new_from, new_to in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            yield WordChange("same", "".join(new[new_from:new_to]))
        else:
            yield WordChange("removed", "".join(old[old_from:old_to]))
            yield WordChange("added", "".join(new[new_from:new_to]))


def _readable(entry: PinnedEntry | None) -> str:
    if entry is None:
        return ""
    value = entry.value
    if entry.kind == "instructions" and isinstance(value, str):
        value = json.loads(value) if value.startswith("{") else value
    text = clean_text("\n".join(_lines(value, "")))
    more = len(text) - MAX_CHARACTERS
    return text if more <= 0 else f"{text[:MAX_CHARACTERS]}\n[{more:,} more characters are not shown]"


def _lines(value: Any, path: str) -> Iterator[str]:
    """Yield one line per text or number, with its place."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _lines(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        yield f"{path}: {json.dumps(value, ensure_ascii=False)}"
    else:
        yield f"{path}: {value}" if path else str(value)
