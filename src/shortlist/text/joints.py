"""Where a request passes from one wish to the next: in other languages than English, and not inside of quotes."""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from shortlist.text.kinds import told_channel
from shortlist.text.languages.glossing import gloss, written_out
from shortlist.text.languages.reading import glossed, read_query
from shortlist.text.tokens import ACTIONS

_QUOTED_LINE = re.compile(r"(?:\"[^\"]*\"\s*)+")
_QUOTED = re.compile(
    r"\"[^\"\n]{1,200}\"|(?<!\w)'[^'\n]{1,200}'(?!\w)|`[^`\n]{1,200}`|“[^“”\n]{1,200}”|«[^«»\n]{1,200}»"
)
_QUOTES = "\"'`“«"
_HELD = re.compile("\ue000(\\d+)\ue001")
_WORD = re.compile(r"\w+")

_SPOKEN = {
    "ar": "ثم|وبعد ذلك|بعد ذلك",
    "de": "und dann|und danach|und anschließend|und|dann|danach|anschließend|sowie",
    "es": "y luego|y después|y también|y|e|luego|después|además",
    "fr": "et puis|et ensuite|et aussi|et|puis|ensuite",
    "hi": "और फिर|और|फिर|उसके बाद|aur phir|aur|phir",
    "it": "e poi|e anche|e|ed|poi|dopodiché",
    "ko": "그리고|그런 다음|그 다음|다음에",
    "pl": "a potem|i potem|a następnie|i|oraz|potem|następnie",
    "pt": "e depois|e também|e|depois",
    "ru": "и потом|и затем|а затем|а потом|и|потом|затем",
    "tr": "ve sonra|ve|sonra|daha sonra|ardından",
    "vi": "và sau đó|và|rồi|sau đó",
}
"""The words between two wishes, in languages that write spaces; the longer ones first."""
FOREIGN_JOINTS = frozenset(word for joints in _SPOKEN.values() for word in joints.split("|") if word.isascii()) - {"i"}
"""Those that a request may have which is written in plain Latin letters; most English ones have an "i"."""
_MORE = {"ar": r"|[،,]?\s+و(?=\w{3})", "ko": r"|(?<=고)\s+"}
"""What joins two wishes without a word of its own."""
_UNSPACED = {
    "ja": r"[、，,。；！？\n]+\s*(?:そして|それから|その後|次に)?|(?<=て)から(?=.)|それから|そして|その後"
    r"|(?<=[てで])(?=[^ぁ-ん\s、。][^、。て]{1,30}[をにへ][^、。]{0,12}[てで](?:ください|くれる?|ほしい|おいて)?\s*[。！]?$)",
    "zh": r"[，,。；！？\n]+\s*(?:然后|再|并且|并|接着|同时|最后)?|然后|接着|并且",
}
_OBJECT_FIRST = re.compile(r"\s*(?:请|麻烦|帮我|顺便)*(?:把|将|给)")
"""A Chinese clause that names what something is done with before it says what."""
_LAST = frozenset({"de", "hi", "ja", "ko", "tr"})
"""Languages in which the action may come last."""


class Part(NamedTuple):
    """One wish in its own words; `said` is its English gloss where its language cannot be told from it alone."""

    text: str
    said: str = ""


def without_quotes(text: str) -> tuple[str, str]:
    """Separate a request from lines that only quote: what earlier turns said, or what was pasted."""
    lines = text.split("\n")
    quotes = [line for line in lines if _QUOTED_LINE.fullmatch(line.strip())]
    asked = "\n".join(line for line in lines if line not in quotes)
    return (asked, " ".join(quotes).replace('"', "")) if asked.strip() else (text, "")


def split_outside_quotes(joint: re.Pattern[str], text: str) -> list[str]:
    """Split a text at its joints, which are the odd elements; a quote ("wash and go") has none."""
    if not any(map(text.__contains__, _QUOTES)):
        return joint.split(text)
    quotes: list[str] = []

    def hold(found: re.Match[str]) -> str:
        quotes.append(found[0])
        return f"\ue000{len(quotes) - 1}\ue001"

    held = _QUOTED.sub(hold, _HELD.sub(" ", text))
    return [_HELD.sub(lambda found: quotes[int(found[1])], piece) for piece in joint.split(held)]


def foreign_parts(text: str, is_wish: Callable[[str], bool]) -> list[Part]:
    """Return the wishes of a request in another language; `is_wish` judges what a part says in English."""
    reading = read_query(text)
    if reading is None or len(reading.languages) != 1:
        return []
    language = reading.languages[0]
    parts: list[tuple[str, bool]] = []
    for joint, piece in _pieces(text, language):
        is_one = _acts(piece, language, is_wish)
        if parts and not (is_one and parts[-1][1]):
            parts[-1] = (f"{parts[-1][0]}{joint}{piece}", is_one or parts[-1][1])
        else:
            parts.append((piece, is_one))
    return [_part(piece.strip(" ,;،，、"), language) for piece, _ in parts]


def _pieces(text: str, language: str) -> Iterator[tuple[str, str]]:
    """Yield what stands between the joints of a request, each with the joint before it."""
    found = split_outside_quotes(_joints(language), text)
    for joint, piece in zip(["", *found[1::2]], found[::2], strict=True):
        if piece.strip():
            yield joint, piece


def _part(text: str, language: str) -> Part:
    said = written_out(gloss(text, language))
    return Part(text, ("#" in text and told_channel(text, said)) or ("" if glossed(text) else said))


def _acts(piece: str, language: str, is_wish: Callable[[str], bool]) -> bool:
    said = written_out(gloss(piece, language), 1)
    words = _WORD.findall(said.lower())
    ends = language in _LAST and len(words) > 1 and not ACTIONS.isdisjoint(words[-2:])
    is_done = language == "zh" and _OBJECT_FIRST.match(piece) is not None and not ACTIONS.isdisjoint(words[1:])
    return is_wish(said) or ends or is_done or bool("#" in piece and told_channel(piece, said))


def _joints(language: str) -> re.Pattern[str]:
    if language in _UNSPACED:
        return re.compile(f"({_UNSPACED[language]})")
    signs = r"(?<=[.!?;؟।])\s+|\n+|[,،]\s+"
    return re.compile(rf"({signs}|,?\s+(?:{_SPOKEN[language]})\s+{_MORE.get(language, '')})", re.IGNORECASE)
