"""Which sentences of a long message ask for something, by a small model fitted on pasted material and requests.

The model is a chain of two states, beside the request and in it, over the sentences and lines of a message. What is
known of a sentence (its words, its shape, where it stands, what is around it) are features, hashed into one array of
weights. `training.fit_asks` fits them.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from shortlist.text.languages.reading import glossed
from shortlist.text.pasted import kinds_of
from shortlist.text.phrasing import (
    FIRST_WORD,
    POINTS,
    asks_nothing,
    formulas_of,
    request_score,
    score_in_any_language,
    starts_like_a_request,
)

BUCKETS = 1 << 16
"""The weights: 10,600 of them are not zero, and words that were not fitted on have none."""
MOST_LINES, MOST_SENTENCES = 400, 300
"""The lines, and the sentences, that are read of each end."""
MOST_WORDS = 24
"""The words of a sentence that count."""
EDGE = 4
"""Sentences at each end of a paragraph that are read in other languages too: a request stands there."""
SENTENCE_CHARS = 250
"""A longer sentence is read by its beginning."""
OWN_SHAPES = 5
"""The first of a sentence's own features, which also count by its place and for its neighbours."""

_WEIGHTS = Path(__file__).parent / "data" / "asks.npz"
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?|\d+|[^\w\s]")
_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])\s*|(?<=:)\s+(?=[A-Z\"“])|(?<!\s)\s+(?=[→⇒]|->|=>|—>)")
_OWN = re.compile(r"\b(?:i|me|my|mine)\b", re.IGNORECASE)
_OURS = re.compile(r"\b(?:we|us|our)\b", re.IGNORECASE)
_YOURS = re.compile(r"\b(?:you|your|u)\b", re.IGNORECASE)


class Piece(NamedTuple):
    """A sentence of prose, or a line of something else, and where it stands."""

    text: str
    kind: str
    """What its line looks like: a log, code, a table; empty for prose."""
    in_letter: bool
    paragraph: int
    from_start: int
    """How many sentences of its paragraph come before it."""
    from_end: int
    continues_line: bool


def sentences_of(text: str) -> list[Piece]:
    """Cut a message into the sentences of its prose and the lines of all else."""
    lines = text.split("\n")
    if len(lines) > 2 * MOST_LINES:
        lines = [*lines[:MOST_LINES], *lines[-MOST_LINES:]]
    known = list(zip(lines, kinds_of(lines), strict=True))
    found = []
    paragraphs = [list(run) for is_blank, run in groupby(known, key=lambda each: not each[0].strip()) if not is_blank]
    for number, paragraph in enumerate(paragraphs):
        parts = [
            (part.strip(), kind, in_letter, at > 0)
            for line, (kind, in_letter) in paragraph
            for at, part in enumerate([line] if kind else _END.split(line))
            if part.strip()
        ]
        found += [
            Piece(part, kind, in_letter, number, at, len(parts) - 1 - at, continues)
            for at, (part, kind, in_letter, continues) in enumerate(parts)
        ]
    return found if len(found) <= 2 * MOST_SENTENCES else [*found[:MOST_SENTENCES], *found[-MOST_SENTENCES:]]


def asking(sentences: Sequence[Piece], guess: str) -> list[Piece]:
    """Return the sentences that ask; `guess` is what the rules take for the request."""
    weights, steps, words = _model()
    known = (
        [each for each in found if not is_word(each) or _hash(each) in words] for found in features_of(sentences, guess)
    )
    scores = np.array([weights[hashed(features)].sum() for features in known])
    found = [each for each, asks in zip(sentences, best_path(scores, steps), strict=True) if asks]
    return [each for each in found if not asks_nothing(each.text)]


def features_of(sentences: Sequence[Piece], guess: str) -> Iterator[list[str]]:
    """Yield what is known of each sentence."""
    own = [_own(each) for each in sentences]
    scores = [_score(each) for each in sentences]
    best = max(scores, default=0.0)
    last = sentences[-1].paragraph if sentences else 0
    shape = _shape(sentences)
    guessed = [each.text in guess for each in sentences]
    guesses = min(sum(guessed), 3)
    for at, each in enumerate(sentences):
        place = _place(each, at, len(sentences), last)
        score = f"{min(scores[at], 5.0):.1f}"
        paragraph = min(each.from_start + each.from_end, 6)
        alone = f"{paragraph}:{each.from_start == 0}:{each.from_end == 0}"
        before, after = own[at - 1] if at else (), own[at + 1] if at + 1 < len(own) else ()
        about = [
            "any",
            f"shape:{shape}",
            f"place:{place}",
            f"alone:{alone}",
            f"alone:{alone}:{place}",
            f"score:{score}",
            f"score:{score}:{place}",
            f"score:{score}:{each.kind}",
            f"score:{score}:{paragraph}",
            f"score:{score}:{shape}",
            f"best:{scores[at] >= best}:{score}",
            f"near:{scores[at] >= best - 0.5}:{place}",
            f"letter:{each.in_letter}:{place}",
            f"follows:{each.continues_line}",
            f"guess:{guesses}:{guessed[at]}",
            f"guess:{guesses}:{guessed[at]}:{place}",
            f"guess:{guesses}:{guessed[at]}:{score}",
            f"guess:{guesses}:{guessed[at]}:{alone}",
            f"guess:{guesses}:{guessed[at]}:{shape}",
            *(f"{feature}:{place}" for feature in own[at][:OWN_SHAPES]),
            *(f"{feature}:{shape}" for feature in own[at][:OWN_SHAPES]),
        ]
        around = [f"before:{feature}" for feature in before[:OWN_SHAPES]] or ["before:none"]
        beyond = [f"after:{feature}" for feature in after[:OWN_SHAPES]] or ["after:none"]
        yield [*about, *own[at], *around, *beyond, *_words(each)]


def _own(each: Piece) -> list[str]:
    """Return what a sentence looks like."""
    text = each.text
    begins = "a" if text[0].islower() else "A" if text[0].isupper() else "0" if text[0].isdigit() else text[0]
    ends = "a" if text[-1].isalpha() else "0" if text[-1].isdigit() else text[-1]
    length = min(len(text).bit_length(), 9)
    formulas = formulas_of(text)
    marks = sum(not (char.isalnum() or char.isspace()) for char in text[:400]) / len(text[:400])
    return [
        f"kind:{each.kind}",
        f"begins:{begins}:{ends}",
        f"formula:{formulas.index(True) if any(formulas) else None}",
        f"length:{length}",
        f"starts:{starts_like_a_request(text)}:{ends == '?'}",
        f"begins:{begins}",
        f"ends:{ends}",
        f"marks:{min(int(marks * 20), 8)}:{length}",
        f"own:{bool(_OWN.search(text))}",
        f"ours:{bool(_OURS.search(text))}",
        f"yours:{bool(_YOURS.search(text))}",
        f"points:{bool(POINTS.search(text))}",
        f"persons:{bool(_OWN.search(text))}:{bool(_YOURS.search(text))}:{bool(POINTS.search(text))}",
    ]


def _score(each: Piece) -> float:
    return (score_in_any_language if _is_near_an_end(each) else request_score)(each.text)


def _is_near_an_end(each: Piece) -> bool:
    return min(each.from_start, each.from_end) < EDGE and len(each.text) <= SENTENCE_CHARS


def _place(each: Piece, at: int, count: int, last: int) -> str:
    if at in (0, count - 1):
        return "first" if at == 0 else "last"
    return "opening" if each.paragraph == 0 else "closing" if each.paragraph == last else "inside"


def _shape(sentences: Sequence[Piece]) -> str:
    """Return how much of a message looks pasted by its lines, and how long it is."""
    total = sum(len(each.text) for each in sentences) or 1
    pasted = sum(len(each.text) for each in sentences if each.kind or each.in_letter) / total
    return f"{round(pasted * 3)}:{min(len(sentences).bit_length(), 6)}"


def _words(each: Piece) -> Iterator[str]:
    """Yield the words of a sentence, in English where it is of another language."""
    if each.kind and len(each.text) > SENTENCE_CHARS:
        return
    said = glossed(each.text) if _is_near_an_end(each) else ""
    if said:
        yield "foreign"
    words = [word.lower() if not word.isdigit() else "0" for word in _WORD.findall(said or each.text[:SENTENCE_CHARS])]
    yield from (f"word:{word}" for word in dict.fromkeys(words[:MOST_WORDS]))
    yield f"first:{' '.join(words[:1])}"
    yield f"two:{' '.join(words[:2])}"
    yield f"last:{' '.join(words[-1:])}"
    first = FIRST_WORD.match(said or each.text)
    yield f"verb:{first[1].lower() if first else ''}"


def is_word(feature: str) -> bool:
    """Return whether a feature is a word, and not a shape or a place."""
    return feature.startswith(("word:", "first:", "two:", "last:", "verb:"))


def hashed(features: Iterable[str]) -> NDArray[np.int64]:
    """Return where the weights of features are."""
    return np.array([_hash(feature) % BUCKETS for feature in features], np.int64)


def _hash(feature: str) -> int:
    return crc32(feature.encode("utf-8", "surrogatepass"))


@cache
def _model() -> tuple[NDArray[np.float32], NDArray[np.float32], frozenset[int]]:
    """Load the weights of features, those of each step between the states, and the hashes of words that count."""
    with np.load(_WEIGHTS) as held:
        weights = held["weights"].astype(np.float32) * held["scale"]
        return weights, held["steps"], frozenset(held["words"].tolist())


def best_path(scores: NDArray[np.float32], steps: NDArray[np.float32]) -> list[bool]:
    """Return the states of the most probable path; a sentence in the request adds its score."""
    best = np.zeros(2)
    came: list[NDArray[np.int64]] = []
    for at, score in enumerate(scores):
        paths = best[:, None] + (steps if at else np.zeros((2, 2)))
        came.append(paths.argmax(axis=0))
        best = paths.max(axis=0) + np.array([0.0, score])
    state, found = int(best.argmax()), []
    for before in reversed(came):
        found.append(bool(state))
        state = int(before[state])
    return found[::-1]
