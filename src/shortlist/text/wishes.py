"""Several wishes in one request, taken apart: "merge it and tell #dev" asks for two tools."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from shortlist.text.asks import quoted
from shortlist.text.tokens import read_words, terms

MAX_WISHES = 6
MIN_WORDS = 2
"""Words that an action needs to be a wish of its own, unless it says "it": "search and replace" is one wish."""

_ACTIONS = read_words("actions.txt")
_FILLER = (
    r"(?:(?:please|pls|can you|could you|would you|i need to|i want to|i'd like to|i have to|just|also|maybe|finally"
    r"|then|afterwards)\s+)*"
)
_JOINT = re.compile(
    r"((?<=[.!?;])\s+|\n+"
    r"|,?\s+(?:and then|then|and also|and afterwards|afterwards|after that|and finally|as well as|plus|and"
    r"|und dann|und|y luego|et ensuite)\s+|,\s+)"
)
_JOINT_SIGNS = (
    *(", ", ". ", "! ", "? ", "; "),
    *(" and ", " then ", " after", " as well as ", " plus ", " und ", " y luego ", " et ensuite "),
)
_LIST_SIGNS = (". ", ") ", "- ", "* ", "• ")
"""Text on one line has no joint, or is no list, without one of these. Most requests are recognised by that alone."""
_NUMBER = re.compile(r"(?:^|\s)(?:\(?\d{1,2}[.)]|[-*•])\s+")
"""Numbers and bullets of a list; each begins a line of its own."""
_FIRST = re.compile(rf"^\W*{_FILLER}([^\W\d_]+)", re.IGNORECASE)
_ASKS = re.compile(
    rf"^\W*{_FILLER}(?:who|what|what's|which|where|when|how|is there|are there|i need|i want|let me know|tell me)\b",
    re.IGNORECASE,
)
_POINTS = re.compile(r"\b(?:it|its|them|they|that|this|those|these|him|her|there|one|result|both)\b", re.IGNORECASE)


class Wish(NamedTuple):
    """One thing that is asked for; `about` is an earlier wish that it refers to."""

    text: str
    about: str = ""

    @property
    def query(self) -> str:
        """Return the text to search by."""
        return f"{self.text}\n{quoted(self.about)}" if self.about else self.text


def wishes(text: str) -> tuple[Wish, ...]:
    """Take a request apart; nothing where it asks for one thing."""
    may_be_list = not text.isprintable() or _has_any(text, _LIST_SIGNS)
    if not may_be_list and not _has_any(text, _JOINT_SIGNS):
        return ()
    listed = _NUMBER.sub("\n", text) if may_be_list and len(_NUMBER.findall(text)) > 1 else text
    pieces = _JOINT.split(listed)
    parts = _joined(pieces[::2], pieces[1::2])
    if not 1 < len(parts) <= MAX_WISHES:
        return ()
    found: list[Wish] = []
    for part in parts:
        about = found[-1].text if found and _POINTS.search(part) else ""
        found.append(Wish(part, about))
    return tuple(found)


def _joined(pieces: Sequence[str], joints: Sequence[str]) -> list[str]:
    """Put the pieces together again that are no wishes by themselves."""
    parts: list[str] = []
    for number, piece in enumerate(pieces):
        text = piece.strip()
        if not text:
            continue
        if parts and not _is_wish(text):
            parts[-1] = f"{parts[-1]}{joints[number - 1]}{text}"
        elif len(parts) == 1 and not _is_wish(parts[0]):
            parts[0] = f"{parts[0]}{joints[number - 1]}{text}"
        else:
            parts.append(text)
    return [part.strip(" ,;") for part in parts]


def _is_wish(text: str) -> bool:
    first = _FIRST.match(text)
    if first and first[1].lower() in _ACTIONS and (_POINTS.search(text) or len(terms(text)) >= MIN_WORDS):
        return True
    return bool(_ASKS.match(text) and terms(text))


def _has_any(text: str, signs: Sequence[str]) -> bool:
    return any(map(text.__contains__, signs))
