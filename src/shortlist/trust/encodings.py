"""Encoded payloads, decoded so that they can be read again: Base64, hex, escapes, ROT13, reversed or spaced letters."""

import base64
import binascii
import codecs
import html
import quopri
import re
import urllib.parse
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from shortlist.trust.definitions import Sentence, sentences_of

MAX_DECODED = 8_000
MAX_RUNS = 40
MAX_LAYERS = 2
"""How often a payload may be encoded over itself and still be read."""
_BASE64 = re.compile(
    r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{10,}(?:\\?\r?\n[ \t]*[A-Za-z0-9+/_-]{10,})*={0,2}(?![A-Za-z0-9+/=])"
)
_BASE32 = re.compile(r"(?<![A-Z2-7=])[A-Z2-7]{32,}={0,6}")
_HEX = re.compile(r"(?<![0-9A-Fa-f])(?:0x)?(?:[0-9A-Fa-f]{2}[ :,]?){8,}(?![0-9A-Fa-f])")
_ESCAPES = re.compile(r"(?:\\u[0-9A-Fa-f]{4}|\\x[0-9A-Fa-f]{2}|\\[0-7]{3}){6,}")
_QUOTED = re.compile(r"(?:=[0-9A-F]{2}[A-Za-z .,]{0,3}){8,}")
_ESCAPES_ALONE = re.compile(r"\\u[0-9A-Fa-f]{4}|\\x[0-9A-Fa-f]{2}")
_CODE_POINTS = re.compile(r"(?:(?:U\+|\\u\{)[0-9A-Fa-f]{2,6}\}?[ ,;]?){6,}")
_PERCENT = re.compile(r"(?:%[0-9A-Fa-f]{2}[A-Za-z0-9.~_+-]{0,2}){8,}")
_ENTITIES = re.compile(r"(?:&#x?[0-9A-Fa-f]{1,6};\s?){6,}")
_NUMBERS = re.compile(r"(?<!\d)(?:\d{2,3}[ ,]+){15,}\d{2,3}(?!\d)")
_BINARY = re.compile(r"(?<!\d)(?:[01]{8}[ ,]?){8,}")
_SPACED = re.compile(r"(?<!\S)(?:\S {1,3}){10,}\S(?!\S)")
_DOTTED = re.compile(r"(?<![A-Za-z.\-])(?:[A-Za-z][.\-_*|]){8,}[A-Za-z]")
_GROUPED = re.compile(r"(?<!\S)[A-Za-z0-9+/]{4,16}(?: [A-Za-z0-9+/]{4,16}){5,}={0,2}(?!\S)")
_MORSE = re.compile(r"(?:[.-]{1,5}[ /]+){15,}[.-]{1,5}")
_GLUED = re.compile(r"(?<!\S)[A-Za-z0-9~/@'`,.!?:;_+%-]{32,}(?!\S)")
_GLUE = re.compile(r"[._+-]+|%20|(?<=[a-z,.])(?=[A-Z])")
MIN_GLUED = 6
"""So many words without a space between them are a sentence; identifiers have fewer."""
_ESCAPED = re.compile(r"&#x?[0-9A-Fa-f]{1,6};|&[a-z]{2,8};|%[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\x[0-9A-Fa-f]{2}")
MIN_ESCAPED = 8
_BROKEN = re.compile(r"(?<=\w)(?:</?[A-Za-z]{1,10}/?>){1,2}(?=\w)|(?<=\w)(?:\*{1,3}|__|~~|`)(?=\w)")
MIN_BROKEN = 4
_MARKS = re.compile(r"</?[A-Za-z]{1,10}/?>|\*{1,3}|__|~~|`")
_LETTERWISE = re.compile(r"(?:(?<![\w-])[A-Za-z~/.](?:-[A-Za-z0-9~/_.]){1,30}[,.;]?\s?){4,}")
MIN_LINES, MAX_LINE_WORDS = 6, 3
"""So many lines of so few words may be a sentence that was broken into lines."""
_SPACE = re.compile(r"\s+")
_LETTERS = re.compile(r"[A-Za-z]{2,}")
_LEET = str.maketrans("4310578@$", "aeiostbas")
_ADDRESS = re.compile(r"https?://[a-z]|/etc/|\.ssh/|\b[a-z.]{1,64}@[a-z-]+\.[a-z]{2,}")
_LEET_WORD = re.compile(r"\b(?=[A-Za-z0-9@$]*[A-Za-z])(?=[A-Za-z0-9@$]*[0-9@$])[A-Za-z0-9@$]{3,}\b")
_SMALL = (
    "the and you your with this that not for all any file read send user from into before after tool call use must "
    "are is to of in it its be do as at by on or if tell pass then them they have has "
    "el la los las una para esta que con por le les une des pour cette avec dans der die das und den mit fur "
    "os uma seu toda todos il gli per questo non che senza depois antes cada usuario"
)
_COMMON = frozenset(_SMALL.split())
_COMMON_CHANGED = {
    "ROT13": frozenset(codecs.encode(word, "rot13") for word in _COMMON),
    "reversed text": frozenset(word[::-1] for word in _COMMON if len(word) > 2),
}
"""What the common words look like before a change makes them readable. Two letters backwards are often a word of
another language: "si no se le" reads "is on es el"."""
_DIGITS = re.compile(r"[0-9@$]")
COMMAND = re.compile(
    r"curl |wget |https?://|\b(?:ba)?sh\b|rm -|/etc/|\.ssh|\.env\b|eval|exec|import os|powershell|<script|\bnc |chmod"
)
"""Commands and paths that make decoded text suspicious even if it is not a sentence."""
MIN_COMMON = 3
"""The number of common words that make decoded letters a text."""
PROSE_WORDS, PROSE_COMMON = 4, 2
"""So many words, and so many common ones among them, make a decoded text a sentence."""


IN_LINES = "words in lines of their own"


@dataclass(frozen=True, slots=True)
class Decoded:
    """A decoded text, and its position."""

    text: str
    start: int
    end: int
    how: str


def is_prose(text: str) -> bool:
    """Return whether a decoded text is a sentence: nobody encodes one so that it can be read."""
    if not text.isascii():
        return sum(c.isalpha() for c in text) >= 3 * PROSE_WORDS
    return len(_LETTERS.findall(text)) >= PROSE_WORDS and _common(text) >= PROSE_COMMON


def decoded(text: str, layers: int = MAX_LAYERS) -> Iterator[Decoded]:
    """Yield texts that are encoded inside a text, once or several times over, as far as they can be read."""
    for how, sign, shortest, pattern, decode in _FORMS:
        if len(text) < shortest or sign not in text:
            continue
        for number, match in enumerate(pattern.finditer(text)):
            if number >= MAX_RUNS:
                break
            plain = decode(match.group()[: 2 * MAX_DECODED])[:MAX_DECODED]
            inner = list(decoded(plain, layers - 1)) if plain.isprintable() and layers > 1 else []
            yield from (Decoded(each.text, *match.span(), f"{how} and {each.how}") for each in inner)
            if plain and _readable(plain):
                yield Decoded(plain, *match.span(), how)
    yield from _transformed(text[:MAX_DECODED])


def _transformed(text: str) -> Iterator[Decoded]:
    """Yield sentences in ROT13, backwards or without digits for letters, where that is what makes them readable."""
    for sentence in sentences_of(text):
        runs = _LETTERS.findall(sentence.text)
        words = frozenset(map(str.lower, runs))
        plain = len(words & _COMMON)
        for how, change in (("ROT13", _rot13), ("reversed text", _reversed)) if len(runs) >= MIN_COMMON else ():
            if len(words & _COMMON_CHANGED[how]) <= plain:
                continue  # most sentences: the change makes nothing more readable
            changed = change(sentence.text)
            address = _ADDRESS.search(changed) and not _ADDRESS.search(sentence.text)
            spoken = sum(map(str.islower, changed)) * 2 > len(changed)  # not a list of codes
            if spoken and (_common(changed) >= max(3, 3 * plain) or (address and _common(changed) > plain)):
                yield Decoded(changed, sentence.start, sentence.end, how)
        yield from _with_letters(sentence, plain)


def _with_letters(sentence: Sentence, plain: int) -> Iterator[Decoded]:
    """Yield a sentence with letters in place of digits that imitate them."""
    if not _DIGITS.search(sentence.text):
        return
    mixed = [word for word in _LEET_WORD.findall(sentence.text) if sum(map(str.isdigit, word)) < 0.61 * len(word)]
    if len(mixed) >= MIN_COMMON:
        changed = _LEET_WORD.sub(lambda match: match.group().translate(_LEET), sentence.text)
        if _common(changed) >= plain + 2:
            yield Decoded(sentence.text.translate(_LEET), sentence.start, sentence.end, "digits for letters")


def _rot13(text: str) -> str:
    return codecs.encode(text, "rot13")


def _reversed(text: str) -> str:
    return text[::-1]


def _common(text: str) -> int:
    return len({word.lower() for word in _LETTERS.findall(text)} & _COMMON)


def _readable(text: str) -> bool:
    """Return whether decoded characters are words rather than noise."""
    if len(text) < 8 or any(not (c.isprintable() or c in "\n\t") for c in text):
        return False
    if COMMAND.search(text):
        return True
    letters = sum(c.isalpha() or c == " " for c in text)
    words = _LETTERS.findall(text)
    spoken = " " in text.strip() or not text.isascii()
    return spoken and letters >= 0.7 * len(text) and (len(words) >= 3 or not text.isascii())


def _base64(run: str) -> str:
    plain = _SPACE.sub("", run).replace("-", "+").replace("_", "/").rstrip("=\\")
    try:
        content = base64.b64decode(plain + "=" * (-len(plain) % 4))
    except (ValueError, binascii.Error):
        return ""
    if content[1::2].count(0) * 2 >= len(content) - 1 > 0:  # as PowerShell's -EncodedCommand takes it
        return content.decode("utf-16-le", "ignore")
    return _inflated(content)


def _inflated(content: bytes) -> str:
    """Read bytes as text, after decompressing a bounded part of them where they are compressed."""
    if content[:2] == b"\x1f\x8b" or content[:1] == b"\x78":
        try:
            content = zlib.decompressobj(wbits=47).decompress(content, MAX_DECODED)
        except zlib.error:
            return ""
    return _bytes(lambda: content)


def _base32(run: str) -> str:
    plain = run.rstrip("=")
    return _bytes(lambda: base64.b32decode(plain + "=" * (-len(plain) % 8)))


def _hex(run: str) -> str:
    return _bytes(lambda: bytes.fromhex(re.sub(r"0x|[ :,]", "", run)))


def _bytes(decode: Callable[[], bytes]) -> str:
    try:
        return decode().decode("utf-8")
    except (ValueError, binascii.Error):
        return ""


def _escapes(run: str) -> str:
    found = re.findall(r"\\u([0-9A-Fa-f]{4})|\\x([0-9A-Fa-f]{2})|\\([0-7]{3})", run)
    return "".join(chr(int(u or x, 16) if u or x else int(octal, 8)) for u, x, octal in found)


def _code_points(run: str) -> str:
    found = (int(code, 16) for code in re.findall(r"(?:U\+|\\u\{)([0-9A-Fa-f]{2,6})", run))
    return "".join(chr(code) for code in found if code <= 0x10FFFF)


def _numbers(run: str) -> str:
    return "".join(chr(int(number)) for number in re.findall(r"\d+", run) if 9 <= int(number) < 256)


def _binary(run: str) -> str:
    return "".join(chr(int(byte, 2)) for byte in re.findall(r"[01]{8}", run))


def _spaced(run: str) -> str:
    return re.sub(r"(\S) ", r"\1", run.replace("   ", " \0 ")).replace("\0", " ")


def _dotted(run: str) -> str:
    return re.sub(r"[.\-_*|]", "", run)


def _grouped(run: str) -> str:
    """Join characters in groups of one size, as encoded text is often printed."""
    groups = run.split(" ")
    return _base64("".join(groups)) if len({len(group) for group in groups[:-1]}) == 1 else ""


def _morse(run: str) -> str:
    words = (word.split() for word in re.split(r"/| {2,}", run))
    return " ".join("".join(_MORSE_LETTERS.get(sign, "") for sign in word) for word in words if word)


_MORSE_SIGNS = (
    ".- -... -.-. -.. . ..-. --. .... .. .--- -.- .-.. -- -. --- .--. --.- .-. ... - ..- ...- .-- -..- -.-- --.."
)
_MORSE_LETTERS = dict(zip(_MORSE_SIGNS.split(), "abcdefghijklmnopqrstuvwxyz", strict=True))
_FORMS: tuple[tuple[str, str, int, re.Pattern[str], Callable[[str], str]], ...] = (
    ("Base64", "", 10, _BASE64, _base64),
    ("Base64", " ", 32, _GROUPED, _grouped),
    ("Base32", "", 32, _BASE32, _base32),
    ("hexadecimal", "", 16, _HEX, _hex),
    ("escape sequences", "\\", 24, _ESCAPES, _escapes),
    ("code points", "", 24, _CODE_POINTS, _code_points),
    ("quoted-printable", "=", 24, _QUOTED, lambda run: _bytes(lambda: quopri.decodestring(run.encode("utf-8")))),
    ("percent-encoding", "%", 24, _PERCENT, urllib.parse.unquote_plus),
    ("character entities", "&#", 24, _ENTITIES, html.unescape),
    ("character codes", "", 47, _NUMBERS, _numbers),
    ("binary digits", "", 64, _BINARY, _binary),
    ("Morse code", "-", 60, _MORSE, _morse),
)
"""Each with a sign and a length without which a text has none of it: most texts of a schema are single words.

Spaced letters are joined without a test for words: they read as one long word."""


def rewritten(text: str) -> Iterator[Decoded]:
    """Yield texts as they read without what parts or joins their words: separators, markup, escapes, line breaks.

    None of it is odd by itself. It only keeps a sentence from being read as one.
    """
    for match in _GLUED.finditer(text):
        words = _GLUE.sub(" ", match.group())
        if len(words.split()) >= MIN_GLUED and "://" not in match.group():
            yield Decoded(words, *match.span(), "words without spaces")
    whole = (0, len(text))
    bounded = text[:MAX_DECODED]
    if len(_ESCAPED.findall(bounded)) >= MIN_ESCAPED:
        plain = urllib.parse.unquote(html.unescape(_ESCAPES_ALONE.sub(lambda found: _escapes(found[0]), bounded)))
        yield Decoded(plain, *whole, "escaped characters")
    if len(_BROKEN.findall(bounded)) >= MIN_BROKEN:
        yield Decoded(_MARKS.sub("", bounded), *whole, "words broken by markup")
    for match in _LETTERWISE.finditer(text):
        yield Decoded(match.group().replace("-", ""), *match.span(), "letters joined by hyphens")
    lines = bounded.split("\n")
    short = sum(0 < len(line.split()) <= MAX_LINE_WORDS for line in lines)
    if short >= MIN_LINES and 2 * short >= len(lines):
        yield Decoded(" ".join(bounded.split()), *whole, IN_LINES)


def joined_letters(text: str) -> Iterator[Decoded]:
    """Yield words whose letters are parted by spaces or dots, joined again."""
    for pattern, join in ((_SPACED, _spaced), (_DOTTED, _dotted)):
        for match in pattern.finditer(text):
            run = match.group()
            if sum(c.isalpha() for c in run) >= 0.6 * sum(not c.isspace() for c in run):
                yield Decoded(join(run), *match.span(), "spaced letters")
