"""Text from strangers, made safe to show and to index."""

import re
import unicodedata

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_LINE_BREAK = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 and C1 controls, less tab and line feed
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e"  # soft hyphen, fillers, Mongolian selectors
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb"
    "\ud800-\udfff"  # lone surrogates cannot be encoded
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"  # hieroglyph, shorthand and music formats
    "\U000e0000-\U000e0fff]"  # tags and variation selectors: a known way to hide instructions
)
_PLAIN = re.compile(r"[\t\n -~]*")
_SPACE = re.compile(r"\s+")
_MARKS = re.compile("[\u0300-\u036f]")


def clean_text(text: str) -> str:
    """Drop ANSI sequences, control and invisible characters; every line break becomes a line feed."""
    if (text.isascii() and text.isprintable()) or _PLAIN.fullmatch(text):
        return text
    return _UNSEEN.sub("", _LINE_BREAK.sub("\n", _ANSI.sub("", text)))


def one_line(text: str, length: int | None = None) -> str:
    """Give cleaned text on one line, shortened at a word with an ellipsis."""
    line = _SPACE.sub(" ", clean_text(text)).strip()
    if length is None or len(line) <= length:
        return line
    cut = line[: length - 1]
    head, space, _ = cut.rpartition(" ")
    return (head if space and len(head) > length // 2 else cut).rstrip(" ,.;:") + "…"


def fold(text: str) -> str:
    """Casefold, normalise compatibility forms and drop accents, so that spellings meet."""
    if text.isascii():
        return text.lower()
    plain = _MARKS.sub("", unicodedata.normalize("NFKD", text))
    return unicodedata.normalize("NFKC", plain).casefold()
