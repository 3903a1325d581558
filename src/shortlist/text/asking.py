"""Which sentences of a long message ask for something, by a small model fitted on messages with pasted text.

What is known of a sentence (its words, its shape, where it stands, how it differs from the rest of the message) are
features, hashed into one table; vectors of its words say what it means. Both say how much a sentence looks like a
request by itself; a layer above them also knows its neighbours and the message as a whole, so that the best sentence
wins against others that would do elsewhere. `training.fit_asks` fits all of it, twice; the scores are averaged.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby, takewhile
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from shortlist.models import OtherAsk
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
from shortlist.text.word_vectors import shipped_word_vectors

BUCKETS = 1 << 15
"""The rows of the table; words that were not fitted on have none."""
MOST_LINES, MOST_SENTENCES = 400, 300
"""The lines, and the sentences, that are read of each end."""
MOST_WORDS = 24
"""The words of a sentence that count."""
EDGE = 4
"""Sentences at each end of a paragraph that are read in other languages too: a request stands there."""
SENTENCE_CHARS = 250
"""A longer sentence is read by its beginning."""
NEAR_BEST, MAY_ASK = 4.0, -2.5
"""How close to the best score another sentence must come where the rules do not agree, and the least that the best
must have."""
ALL_REQUEST = 0.85
"""A message of which so much is more likely asked than not, by its length, is a request from end to end."""
OTHER_OFFSET, OTHER_SLOPE = -0.44, 0.435
"""How likely the request is another sentence than the one that was taken for it, by how far its score is behind: fitted
on messages of other writers (`python -m training.fit_asks --without ijkmvwxy`)."""
LEAST_LIKELY = 0.05
"""The least likelihood of another request that is searched, too."""
NEAR_OTHER = 3.0
"""How close to the score of the other request its neighbours must come to be part of it."""
MAX_OTHER_CHARS = 1_000
SHARPNESS = 3.0
"""How far the numbers that only the layer above reads are spread before they are squeezed between -1 and 1."""
OWN_SHAPES = 5
"""How many of a sentence's own features, the first ones, also count by its place and for its neighbours."""

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


def asking(sentences: Sequence[Piece], scores: NDArray[np.float32], guess: str) -> list[Piece]:
    """Return the sentences that ask, and those that come close to the one that does most; none where none may.

    All of them where most do: the one that does most, often the last, is then only the clearest of many.

    `guess` is what the rules take for the request.
    """
    if not sentences:
        return []
    best = float(scores.max())
    if best < MAY_ASK:
        return []
    if _likely_asked(sentences, scores) >= ALL_REQUEST:
        return list(sentences)
    guessed = [each.text in guess for each in sentences]
    near = min(best - NEAR_BEST, 0.0)
    is_sure = any(score >= min(best, 0.0) for score, by_rules in zip(scores, guessed, strict=True) if by_rules)
    least = max(best - NEAR_BEST, min(best, 0.0)) if is_sure else near
    steps = [by_rules and starts_like_a_request(each.text) for each, by_rules in zip(sentences, guessed, strict=True)]
    steps[1:-1] = [False] * len(steps[1:-1])  # "Translate this:", above, and "then mail it to Bob", below
    bounds = (near if by_rules else least for by_rules in guessed)
    asks = (step or score >= bound for step, score, bound in zip(steps, scores, bounds, strict=True))
    found = [each for each, is_asked in zip(sentences, asks, strict=True) if is_asked]
    return [each for each in found if not asks_nothing(each.text)]


def other_ask(asked: str, sentences: Sequence[Piece], scores: NDArray[np.float32]) -> OtherAsk | None:
    """Return what else a message may ask than what was taken for its request; None where that is unlikely."""
    found = best_left(asked, sentences, scores)
    if found is None:
        return None
    text, behind = found
    likelihood = 1 / (1 + math.exp(OTHER_OFFSET + OTHER_SLOPE * max(behind, 0.0)))
    return OtherAsk(text[:MAX_OTHER_CHARS], likelihood) if likelihood >= LEAST_LIKELY else None


def best_left(asked: str, sentences: Sequence[Piece], scores: NDArray[np.float32]) -> tuple[str, float] | None:
    """Return the best sentence that was not taken for the request, and by how much its score is below the request's.

    Neighbours that are nearly as good belong to it.
    """
    said = " ".join(asked.split())
    is_taken = [" ".join(each.text.split()) in said for each in sentences]
    is_left = [not taken and not asks_nothing(each.text) for taken, each in zip(is_taken, sentences, strict=True)]
    left = [at for at, is_one in enumerate(is_left) if is_one]
    if not left:
        return None
    taken = scores[is_taken]
    best = max(left, key=scores.__getitem__)

    def is_beside(at: int) -> bool:
        is_near = is_left[at] and sentences[at].paragraph == sentences[best].paragraph
        return is_near and bool(scores[at] >= scores[best] - NEAR_OTHER)

    before = list(takewhile(is_beside, range(best - 1, -1, -1)))
    after = list(takewhile(is_beside, range(best + 1, len(sentences))))
    text = "\n".join(sentences[at].text for at in (*reversed(before), best, *after))
    return text, float((taken if len(taken) else scores).max() - scores[best])


def _likely_asked(sentences: Sequence[Piece], scores: NDArray[np.float32]) -> float:
    """Return the share of a message that is more likely asked than not."""
    lengths = np.array([len(each.text) for each in sentences])
    return float(lengths[scores >= 0].sum() / lengths.sum())


def scores_of(sentences: Sequence[Piece], guess: str, model: "Model | None" = None) -> NDArray[np.float32]:
    """Return how much each sentence looks like a request: the logarithm of its odds."""
    model = model or shipped_model()
    if not sentences:
        return np.zeros(0, np.float32)
    known = [
        hashed(each for each in found if not is_word(each) or _hash(each) in model.words)
        for found in features_of(sentences, guess)
    ]
    meant = meanings([each.text for each in sentences])
    found: NDArray[np.float32] = np.mean([network.scores(known, meant) for network in model.networks], axis=0)
    return found


def meanings(texts: Sequence[str]) -> NDArray[np.float32]:
    """Return what each sentence means, as the average of its words' vectors."""
    return shipped_word_vectors().of([text[:SENTENCE_CHARS] for text in texts], SENTENCE_CHARS)


def around(alone: NDArray[np.float32], shapes: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return what the layer above sees of each sentence: itself, its neighbours and the whole message."""
    count = len(alone)
    nothing, unlikely = np.zeros((1, shapes.shape[1]), np.float32), np.full(1, -1.0, np.float32)
    likely = np.tanh(alone / 3)
    return np.column_stack(
        [
            shapes,
            np.concatenate([nothing, shapes[:-1]]),
            np.concatenate([shapes[1:], nothing]),
            np.repeat(shapes.mean(axis=0, keepdims=True), count, axis=0),
            likely,
            np.concatenate([unlikely, likely[:-1]]),
            np.concatenate([likely[1:], unlikely]),
            np.tanh((alone - alone.max()) / 3),
            np.full(count, (1 / (1 + np.exp(-alone))).mean()),
            np.exp(-np.arange(count) / 3),
            np.full(count, 1 / count),
        ]
    ).astype(np.float32)


def features_of(sentences: Sequence[Piece], guess: str) -> Iterator[list[str]]:
    """Yield what is known of each sentence."""
    guessed = [each.text in guess for each in sentences]
    guesses = min(sum(guessed), 3)
    against = _against(sentences)
    own = [_own(each) for each in sentences]
    scores = [_score(each) for each in sentences]
    best = max(scores, default=0.0)
    last = sentences[-1].paragraph if sentences else 0
    shape = _shape(sentences)
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
        yield [*about, *own[at], *around, *beyond, *against[at], *_words(each)]


def _against(sentences: Sequence[Piece]) -> list[list[str]]:
    """Return how each sentence differs from the rest: typed in lower case beside prose, or in another language."""
    lengths = [len(each.text) for each in sentences]
    total = sum(lengths) or 1
    foreign = [bool(glossed(each.text)) if _is_near_an_end(each) else None for each in sentences]
    plain = [sum(char < "\x80" for char in each.text) / len(each.text) for each in sentences]

    def quarter(shares: Iterable[float]) -> int:
        """Return in which quarter the part of the message lies that has something."""
        share = sum(share * length for share, length in zip(shares, lengths, strict=True)) / total
        return int(4 * min(share, 0.999))

    lower, upper = (quarter(test(each.text[0]) for each in sentences) for test in (str.islower, str.isupper))
    ended = quarter(each.text[-1] in ".!?" for each in sentences)
    pasted, abroad = quarter(bool(each.kind) for each in sentences), quarter(bool(each) for each in foreign)
    ascii_ = quarter(plain)
    sizes = Counter(each.paragraph for each in sentences)
    marked = Counter(each.paragraph for each in sentences if each.kind)
    found = []
    for at, each in enumerate(sentences):
        begins = "a" if each.text[0].islower() else "A" if each.text[0].isupper() else "0"
        ends = each.text[-1] if each.text[-1] in ".!?:" else "a"
        inside = int(4 * min(marked[each.paragraph] / sizes[each.paragraph], 0.999))
        below = len(sizes) - 1 - each.paragraph
        found.append(
            [
                f"against:begins:{begins}:{lower}:{upper}",
                f"against:ends:{ends}:{ended}",
                f"against:both:{begins}:{ends}:{lower}:{ended}",
                f"against:kind:{each.kind}:{pasted}",
                f"against:foreign:{foreign[at]}:{abroad}",
                f"against:letters:{int(4 * min(plain[at], 0.999))}:{ascii_}",
                f"against:first:{min(at, 3)}",
                f"against:last:{min(len(sentences) - 1 - at, 3)}",
                f"against:inside:{inside}:{min(sizes[each.paragraph], 5)}:{bool(each.kind)}",
                f"against:place:{min(len(sizes), 5)}:{min(each.paragraph, 2)}:{min(below, 2)}",
                f"against:share:{int(4 * min(lengths[at] / total, 0.999))}",
            ]
        )
    return found


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


class Network(NamedTuple):
    """The table of features, and the layer above it."""

    weights: NDArray[np.float32]
    """How much each feature speaks for a request."""
    shapes: NDArray[np.float32]
    """What else each feature says, in a few numbers that only the layer above reads."""
    meaning: NDArray[np.float32]
    """How much each dimension of the meaning speaks for a request, and what else it says; the last row is added."""
    hidden: tuple[NDArray[np.float32], NDArray[np.float32]]
    last: NDArray[np.float32]

    def scores(self, known: Sequence[NDArray[np.int64]], meant: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the score of each sentence by its features and what it means."""
        said = meant @ self.meaning[:-1] + self.meaning[-1]
        alone = np.array([self.weights[ids].sum() for ids in known], np.float32) + said[:, 0]
        shapes = np.tanh(SHARPNESS * np.array([self.shapes[ids].mean(axis=0) for ids in known], np.float32))
        factors, offsets = self.hidden
        seen = around(alone, np.column_stack([shapes, np.tanh(said[:, 1:])]))
        inner: NDArray[np.float32] = np.maximum(seen @ factors + offsets, 0)
        found: NDArray[np.float32] = alone + inner @ self.last[:-1] + self.last[-1]
        return found


class Model(NamedTuple):
    """Networks that were fitted on the same messages from different beginnings: their scores are averaged."""

    networks: tuple[Network, ...]
    words: frozenset[int]
    """The hashes of words that count."""

    @classmethod
    def read(cls, file: Path) -> "Model":
        with np.load(file) as held:
            rows, scales = held["rows"], held["scales"]
            networks = []
            for number, stored in enumerate(held["tables"]):
                table = np.zeros((BUCKETS, stored.shape[1]), np.float32)
                table[rows] = stored * scales[number]
                layer = (held["factors"][number], held["offsets"][number])
                meaning = held["meaning"][number].astype(np.float32)
                networks.append(Network(table[:, 0], table[:, 1:], meaning, layer, held["last"][number]))
            return cls(tuple(networks), frozenset(held["words"].tolist()))


@cache
def shipped_model() -> Model:
    return Model.read(_WEIGHTS)
