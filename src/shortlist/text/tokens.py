"""Text made safe to show, and cut into terms: identifiers split, words stemmed, other scripts in character pairs."""

import re
import sys
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from importlib import resources
from itertools import chain
from typing import Any, TypeAlias

import Stemmer

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_LINE_BREAK = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_UNSEEN_CHARACTERS = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 and C1 controls, less tab and line feed
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e"  # soft hyphen, fillers, Mongolian selectors
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb"
    "\ud800-\udfff"  # lone surrogates cannot be encoded
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"  # hieroglyph, shorthand and music formats
    "\U000e0000-\U000e0fff"  # tags and variation selectors: a known way to hide instructions
)
_UNSEEN = re.compile(f"[{_UNSEEN_CHARACTERS}]")
_UNCLEAN = re.compile(f"[{_UNSEEN_CHARACTERS}\u2028\u2029]")
SENTENCE_END = re.compile(r"\s(?:(?<=[.!?。！？]\s)\s*|(?<=\n)\n*)")
_ACCENTS = re.compile("[\u0300-\u036f]")
_WIDE = re.compile("[\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\uff66-\uff9f]+")
"""Full-width digits and letters of the Latin alphabet, and half-width katakana."""
MAX_REMEMBERED_WORDS = 50_000
MAX_REMEMBERED_CHARACTERS = 64
"""Longer words hardly come again, and a text may be one word of any length."""
MAX_REMEMBERED_TEXTS = 512
Spelling: TypeAlias = tuple[str, tuple[str, ...]]
"""A name in one word, and its parts."""
REMEMBERED_NAMES = 10_000
"""Many servers offer tools of the same few names, and the same tools are found again and again."""
MAX_TERM_LENGTH = 40
"""Longer runs are keys, hashes or pasted data; as terms they only fill the vocabulary."""

_MARKS = (
    "\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
)
"""Accents and vowel signs, which regular expressions do not count as parts of a word, with their scripts."""
_WORD = re.compile(rf"[\w{_MARKS}]+(?:['’-]+[\w{_MARKS}]+)*")
_ASCII_CUTS = "".join(chr(c) if chr(c).isalnum() or chr(c) in "'_-" else " " for c in range(128))
"""Puts a space for what is in no word of plain ASCII: cutting there takes half the time of finding the words."""
_PART = re.compile(
    r"(?<![A-Za-z0-9])[A-Za-z]\d+[a-z](?![A-Za-z0-9])"  # k8s, s3a: short codes are words
    r"|[A-Z]+(?![a-z])\d*|[A-Z]?[a-z]+\d*|\d+[a-z]+\d*|\d+"
    rf"|(?:[^\W\d_a-zA-Z]|[{_MARKS}])+\d*"
)
_TRAILING_DIGITS = re.compile(r"^([a-z]{3,})\d+$")
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\U00020000-\U0003ffff]+"
)

CONFUSABLE: dict[str, str] = {}
for _foreign, _latin in (
    ("аеорсухіјѕһԁԛԝвкмнтАВЕКМНОРСТУХІЈЅгпи", "aeopcyxijshdqwbkmhtABEKMHOPCTYXIJSrnu"),
    ("αοεινρτυχκΑΒΕΖΗΙΚΜΝΟΡΤΥΧγωσ", "aoeivptuxkABEZHIKMNOPTYXyws"),
    ("օսոցհԱՕ", "ounghUO"),
    ("ɑɡⅼℓ", "agll"),
):
    CONFUSABLE.update(zip(_foreign, _latin, strict=True))
PLAIN_LETTERS = str.maketrans(CONFUSABLE)
"""Letters of other alphabets that look like Latin ones."""
_LETTERS = re.compile(r"[^\W\d_]+")
_MIXED = re.compile(rf"[A-Za-z][{''.join(CONFUSABLE)}]|[{''.join(CONFUSABLE)}][A-Za-z]")

_ASCII_SPACED = "".join(chr(c) if chr(c).isalnum() else " " for c in range(128))

_stemmer = Stemmer.Stemmer("english", 0)  # its own cache takes longer than stemming does


def clean_text(text: str) -> str:
    """Drop ANSI sequences, control and invisible characters; every line break becomes a line feed."""
    if (text.isascii() and text.isprintable()) or not _UNCLEAN.search(text):
        return text
    return _UNSEEN.sub("", _LINE_BREAK.sub("\n", _ANSI.sub("", text)))


def typed_text(text: str) -> str:
    """Return what somebody typed, cleaned: a letter with its accent is one character, and wide letters are ordinary."""
    clean = clean_text(text)
    if clean.isascii():
        return clean
    return _WIDE.sub(lambda letters: unicodedata.normalize("NFKC", letters[0]), unicodedata.normalize("NFC", clean))


def cleaned(value: Any) -> Any:
    """Return JSON without invisible characters in any of its texts, names of members included."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(key): cleaned(inner) for key, inner in value.items()}
    return [cleaned(inner) for inner in value] if isinstance(value, list) else value


def one_line(text: str, length: int | None = None) -> str:
    """Return cleaned text on one line, shortened at a word boundary with an ellipsis."""
    line = " ".join(clean_text(text).split())
    if length is None or len(line) <= length:
        return line
    cut = line[: length - 1]
    head, space, _ = cut.rpartition(" ")
    return (head if space and len(head) > length // 2 else cut).rstrip(" ,.;:") + "…"


def fold(text: str) -> str:
    """Casefold, normalise compatibility forms and drop accents, so that spellings meet."""
    if text.isascii():
        return text.lower()
    plain = _ACCENTS.sub("", unicodedata.normalize("NFKD", text))
    return unicodedata.normalize("NFKC", plain).casefold()


def plain_letters(text: str) -> str:
    """Return a text as it looks: a word that mixes Latin letters with others that imitate them is all Latin."""
    if text.isascii() or not _MIXED.search(text):
        return text
    return _LETTERS.sub(lambda word: word[0].translate(PLAIN_LETTERS) if _MIXED.search(word[0]) else word[0], text)


def folded_line(text: str) -> str:
    """Return text folded and on one line, so that sentences that differ in nothing else are equal."""
    return " ".join(fold(text).split())


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, each as a folded line."""
    if not text.isascii():
        return [line for part in SENTENCE_END.split(text) if (line := folded_line(part))]
    parts = [" ".join(part.split()) for part in SENTENCE_END.split(text.lower())]
    return [part for part in parts if part]


def read_words(name: str) -> frozenset[str]:
    """Read a word list from the data folder; `#` starts a comment."""
    text = resources.files("shortlist.text").joinpath("data", name).read_text("utf-8")
    if "#" not in text:  # at once, which for a list of all English words is ten times as fast
        return frozenset(text.split())
    return frozenset(word for line in text.splitlines() for word in line.partition("#")[0].split())


STOPWORDS = read_words("stopwords.txt")
ACTIONS = read_words("actions.txt")
"""Verbs that requests begin with."""
THINGS = frozenset(
    {
        *("branch", "comment", "email", "file", "group", "invoice", "issue", "label", "mail", "message", "note"),
        *("order", "page", "record", "report", "request", "tag", "text", "test", "track", "transfer"),
    }
)
"""Those that are mostly what something is done with in names: `issue.close`."""


def split_identifier(identifier: str) -> list[str]:
    """Split snake, kebab, dotted, camel case and acronyms: `getHTTPResponseV2` gives get, http, response, v2."""
    return [part.casefold() for part in _PART.findall(identifier)]


@lru_cache(maxsize=MAX_REMEMBERED_WORDS)
def named_action(name: str) -> tuple[str, ...]:
    """Return the stems of a name that says what is done, the verb first: of `create_issue` and of `issue.create`.

    None of other names, nor of one word, which may as well be a product.
    """
    parts = split_identifier(name)
    places = (0, 1, len(parts) - 1) if len(parts) > 2 else (0, 1) if len(parts) == 2 else ()
    verbs = [at for at in places if parts[at] in ACTIONS]
    at = min(verbs, key=lambda at: parts[at] in THINGS, default=None)
    return () if at is None else tuple(map(stem, (parts[at], *parts[:at], *parts[at + 1 :])))


def words(identifier: str) -> str:
    """Write an identifier as plain words."""
    return " ".join(split_identifier(identifier))


def ascii_words(text: str) -> list[str]:
    """Split plain ASCII into lower-case runs of letters and digits."""
    return text.lower().translate(_ASCII_SPACED).split()


@lru_cache(maxsize=MAX_REMEMBERED_TEXTS)
def distinct_words(text: str) -> frozenset[str]:
    """Return the different words of plain ASCII; several steps of a search look for some of them in the same text."""
    return frozenset(ascii_words(text))


def compact(identifier: str) -> str:
    """Write an identifier without separators or case, so that all its spellings are equal."""
    return _without_separators(fold(identifier))


def _without_separators(folded: str) -> str:
    joined = folded.translate(_ASCII_SPACED).replace(" ", "")
    return joined if joined.isascii() else "".join(filter(str.isalnum, joined))


def terms(text: str) -> list[str]:
    """Return the terms of a text in order, without stop-words."""
    if not text:
        return []
    clean = clean_text(text)
    # Cut where no word goes on; what is left may still hold several words, or none.
    chunks = clean.translate(_ASCII_CUTS).split() if clean.isascii() else _WORD.findall(clean)
    return list(chain.from_iterable(map(_remembered.__getitem__, chunks)))


class _Remembered(dict[str, tuple[str, ...]]):
    """The terms of chunks seen before: a catalog has few different words, and stemming them is most of the work."""

    def __missing__(self, chunk: str) -> tuple[str, ...]:
        found = _ascii_terms(chunk.strip("'_-")) if chunk.isascii() else _terms_of_word(chunk)
        if len(chunk) <= MAX_REMEMBERED_CHARACTERS:
            if len(self) >= MAX_REMEMBERED_WORDS:
                self.clear()
            self[chunk] = found
        return found


_remembered = _Remembered()


def _ascii_terms(word: str) -> tuple[str, ...]:
    """Return the terms of one word or identifier: its stemmed parts, and the whole if it has several."""
    folded = word.lower()
    if not word or folded in STOPWORDS:
        return ()
    if word.isalpha() and (word == folded or word.istitle()):
        return () if len(word) > MAX_TERM_LENGTH else (stem(folded),)
    parts = _PART.findall(word)
    if len(parts) == 1:
        return _part_terms(parts[0])
    found = tuple(chain.from_iterable(map(_remembered.__getitem__, parts)))
    whole = "".join(parts).lower()
    return found if len(whole) > MAX_TERM_LENGTH else (*found, whole)


def gathered(texts: Iterable[str], chars: int) -> list[str]:
    """Join neighbouring texts for as long as they stay this short."""
    found: list[str] = []
    for text in texts:
        if found and len(found[-1]) + len(text) < chars:
            found[-1] = f"{found[-1]} {text}"
        else:
            found.append(text)
    return found


def _terms_of_word(word: str) -> tuple[str, ...]:
    """Return the terms of a word that contains non-ASCII characters."""
    folded = fold(word)
    if folded in STOPWORDS:
        return ()
    if runs := _UNSPACED.findall(folded):
        return _unspaced_terms(folded, runs)
    parts = _PART.findall(folded)
    found = tuple(chain.from_iterable(map(_part_terms, parts)))
    whole = _without_separators(folded)
    if len(parts) < 2 or len(whole) > MAX_TERM_LENGTH:
        return found
    return (*found, whole)


def _part_terms(part: str) -> tuple[str, ...]:
    folded = fold(part)
    if folded.isascii() and folded.isalpha():
        return _remembered[folded]
    if folded in STOPWORDS or len(folded) > MAX_TERM_LENGTH:
        return ()
    numbered = _TRAILING_DIGITS.match(folded)
    return (folded, stem(numbered[1])) if numbered else (stem(folded),)


def _unspaced_terms(folded: str, runs: list[str]) -> tuple[str, ...]:
    pairs = [run[i : i + 2] for run in runs for i in range(max(1, len(run) - 1))]
    rest = _UNSPACED.sub(" ", folded)
    return (*pairs, *(term for word in _WORD.findall(rest) for term in _remembered[word]))


def stem(word: str) -> str:
    """Stem an English word; words of other languages mostly pass unchanged."""
    return sys.intern(_stemmer.stemWord(word))  # equal terms are one object: found faster, kept once


@lru_cache(maxsize=REMEMBERED_NAMES)
def spelling(name: str) -> Spelling:
    return compact(name), tuple(split_identifier(name))


def same_name(one: Spelling, other: Spelling) -> bool:
    """Return whether two names are the same, one word before or a repetition aside."""
    if said_once(one[0]) == said_once(other[0]):
        return True
    left, right = one[1], other[1]
    return len(left) > 1 and len(right) > 1 and (left[1:] == right or right[1:] == left)


@lru_cache(maxsize=REMEMBERED_NAMES)
def said_once(spelled: str) -> str:
    """Return a name that repeats itself only once: `sendsend` is `send`."""
    period = (spelled + spelled).find(spelled, 1)
    return spelled[:period]
