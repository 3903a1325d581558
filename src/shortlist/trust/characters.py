"""Characters that hide or imitate: invisible text, reversed direction, letters of another alphabet."""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from shortlist.text.languages.lexicon import english_words
from shortlist.text.tokens import CONFUSABLE, PLAIN_LETTERS

_TAGS = re.compile("[\U000e0020-\U000e007f]+")
_SELECTORS = re.compile("[\U000e0100-\U000e01ef]{2,}|(?:[\ufe00-\ufe0f]){3,}")
_DIRECTION = re.compile("[\u202a-\u202e\u2066-\u2069]+")
_ZERO_WIDTH = re.compile(
    "[\u200b\u2060-\u2065\u206a-\u206f\ufeff\u00ad\u034f\u180e\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\u200c\u200d"
    "\ufff9-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a]+"
)
_PRIVATE = re.compile("[\ue000-\uf8ff\ufdd0-\ufdef\U000f0000-\U0010ffff]+")
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufefc]")
_CONTROL = re.compile("\x1b|[\x00-\x08\x0e-\x1f\x7f]|\x9b")
_BLANK = re.compile(r"(?<!\s)\s{31,}+(?=\S)")
_WORD = re.compile(r"[^\W\d_]+")
FAR_COLUMNS = 120
FAR_LINES = 30
_LATIN_WORDS = frozenset("aAI")
"""The words of one letter that are worth imitating; a Russian "и" or "в" between two names in Latin imitates none."""
MANY_HIDDEN = 8
"""A run of this many invisible characters counts as hidden text."""
MANY_PRIVATE = 4
"""A run of this many characters without a meaning may hold a text; single ones are the icons of some fonts."""

_DRAWN = {
    ord(drawn): plain for drawn, plain in zip("ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘǫʀꜱᴛᴜᴠᴡʏᴢ", "abcdefghijklmnopqrstuvwyz", strict=True)
}
for _first in (0x1F150, 0x1F170, 0x1F1E6):  # letters in circles and squares, and those of flags
    _DRAWN |= {_first + number: chr(ord("a") + number) for number in range(26)}
_DRAWN_RUN = re.compile(f"[{''.join(map(chr, _DRAWN))}]{{3,}}")
"""Letters that are drawn as symbols, in a row: a word. Two of them are a flag."""


@dataclass(frozen=True, slots=True)
class Oddity:
    """A place where characters hide or imitate; `hidden` is the text that was brought to light."""

    family: str
    start: int
    end: int
    why: str
    severe: bool
    hidden: str = ""


def _is_far(blank: str) -> bool:
    """Return whether white space pushes what follows out of sight: to the right, or down."""
    return len(blank) - len(blank.rstrip(" \t")) >= FAR_COLUMNS or blank.count("\n") > FAR_LINES


def oddities(text: str, *, name: bool = False) -> Iterator[Oddity]:
    """Yield what is odd about the characters of a text; names are held to a stricter rule."""
    for match in _BLANK.finditer(text):
        if not _is_far(match.group()):
            continue
        yield Oddity(
            "hidden_text",
            match.end(),
            min(len(text), match.end() + 400),
            "text is pushed out of sight by white space",
            False,
        )
    if text.isascii():
        yield from _controls(text)
        return
    for match in _TAGS.finditer(text):
        hidden = "".join(chr(ord(c) - 0xE0000) for c in match.group())
        if not _flag(text, match.start()):
            yield Oddity("hidden_text", *match.span(), "tag characters hide a text", True, hidden)
    for match in _SELECTORS.finditer(text):
        yield Oddity("hidden_text", *match.span(), "variation selectors hide bytes", True, _selected(match.group()))
    for match in _DIRECTION.finditer(text):
        severe = any(c in "\u202d\u202e" for c in match.group()) or not _RIGHT_TO_LEFT.search(text)
        yield Oddity(
            "hidden_text",
            *match.span(),
            "characters change the direction of the text",
            severe,
            text[match.end() : match.end() + 400][::-1] if severe else "",
        )
    for match in _PRIVATE.finditer(text):
        severe = name or len(match.group()) >= MANY_PRIVATE
        yield Oddity("hidden_text", *match.span(), "private-use characters, which have no agreed meaning", severe)
    yield from _zero_widths(text)
    yield from _controls(text)
    yield from _imitations(text, name)


def unmasked(text: str) -> str:
    """Return the text as a reader sees it: without invisible characters, and with imitated letters in Latin."""
    if text.isascii():
        return text
    seen = _ZERO_WIDTH.sub("", _DIRECTION.sub("", _SELECTORS.sub("", _TAGS.sub("", text))))
    seen = _DRAWN_RUN.sub(lambda match: match.group().translate(_DRAWN), seen)
    return _WORD.sub(lambda match: _in_latin(match.group()), unicodedata.normalize("NFKC", seen))


def _in_latin(word: str) -> str:
    return word.translate(PLAIN_LETTERS) if len(_scripts(word)) > 1 else word


def _flag(text: str, start: int) -> bool:
    """Return whether tag characters form the flag of a region (a black flag followed by tags), not hidden text."""
    return start > 0 and text[start - 1] == "\U0001f3f4"


def _selected(run: str) -> str:
    codes = (ord(c) - 0xE0100 + 16 if ord(c) >= 0xE0100 else ord(c) - 0xFE00 for c in run)
    return bytes(code for code in codes if code < 256).decode("utf-8", "replace")


def _zero_widths(text: str) -> Iterator[Oddity]:
    among_latin: list[int] = []
    for match in _ZERO_WIDTH.finditer(text):
        start, end = match.span()
        run = match.group()
        if end - start >= MANY_HIDDEN:
            yield Oddity("hidden_text", start, end, f"{end - start} invisible characters in a row", True, _bits(run))
        elif start and text[start - 1].isascii() and text[end : end + 1].isascii() and run[0] != "\u00ad":
            among_latin.append(start)
    if among_latin:
        first, count = among_latin[0], len(among_latin)
        yield Oddity("hidden_text", first, first + 1, f"invisible characters among Latin letters ({count})", True)


def _bits(run: str) -> str:
    """Read a run of two invisible characters as bits."""
    kinds = sorted(set(run))
    if len(kinds) != 2:
        return ""
    bits = "".join(str(kinds.index(c)) for c in run)
    return "".join(chr(int(bits[i : i + 8], 2)) for i in range(0, len(bits) - 7, 8))


def _controls(text: str) -> Iterator[Oddity]:
    match = _CONTROL.search(text)
    if match:
        what = "terminal escape sequences" if match.group() in ("\x1b", "\x9b") else "control characters"
        yield Oddity("hidden_text", *match.span(), f"{what} in the text", match.group() in ("\x1b", "\x9b", "\x08"))


def _scripts(word: str) -> set[str]:
    found = set()
    for letter in word:
        if letter.isascii():
            found.add("LATIN")
        elif letter in CONFUSABLE or "\u0370" <= letter <= "\u058f":
            found.add("GREEK" if "\u0370" <= letter <= "\u03ff" else "OTHER")
    return found


def _imitations(text: str, name: bool) -> Iterator[Oddity]:
    for match in _WORD.finditer(text):
        word = match.group()
        if word.isascii():
            continue
        mixed = "LATIN" in _scripts(word) and any(c in CONFUSABLE for c in word)
        imitates = word in CONFUSABLE and word.translate(PLAIN_LETTERS) in _LATIN_WORDS
        alone = imitates and _latin_around(text, *match.span())
        greek_only = all(c.isascii() or "\u0370" <= c <= "\u03ff" for c in word)
        if mixed and not (greek_only and sum(not c.isascii() for c in word) == 1 and not name):
            plain = word.translate(PLAIN_LETTERS)
            yield Oddity(
                "look_alike", *match.span(), f"{word!r} mixes alphabets to look like {plain!r}", plain.isascii()
            )
        elif alone:
            yield Oddity(
                "look_alike",
                *match.span(),
                f"{word!r} looks like {word.translate(PLAIN_LETTERS)!r} among Latin words",
                True,
            )
        elif name and unicodedata.normalize("NFKC", word) != word and unicodedata.normalize("NFKC", word).isascii():
            yield Oddity(
                "look_alike", *match.span(), f"{word!r} imitates {unicodedata.normalize('NFKC', word)!r}", True
            )
        elif name and all(c in CONFUSABLE for c in word) and len(word) > 2:
            plain = word.translate(PLAIN_LETTERS)
            if plain.lower() in english_words():  # or else it is a word of its own language
                yield Oddity("look_alike", *match.span(), f"{word!r} looks like {plain!r}", False)


def _latin_around(text: str, start: int, end: int) -> bool:
    """Return whether a single foreign letter is between Latin words, as in a homoglyph; Greek symbols are ignored."""
    before, after = text[:start].rstrip()[-1:], text[end:].lstrip()[:1]
    return (
        not "\u0370" <= text[start] <= "\u03ff"
        and before.isascii()
        and before.isalpha()
        and after.isascii()
        and after.isalpha()
    )
