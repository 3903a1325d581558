"""How many o200k tokens a text costs, estimated without the tokenizer's four megabytes.

The text is cut as the tokenizer cuts it; a piece then costs what its kind costs on average, and the
pieces that JSON and tool descriptions repeat most cost what they really do. `benchmarks/tokens.py`
fits the table and prints the error against exact counts.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import TypeVar

Item = TypeVar("Item")

PIECE = re.compile(
    r"""(?P<word>(?:[^\r\n\w]|_)?(?:[A-Z]*[a-z]+|[A-Z]+)(?:'(?:s|t|re|ve|m|ll|d))?)
    |(?P<digits>[0-9]{1,3})
    |(?P<script>(?:[^\r\n\w]|_)?[^\W\d_a-zA-Z]+)
    |(?P<punctuation>\ ?(?:[^\s\w]|_)+[\r\n/]*)
    |(?P<line>\s*[\r\n]+)
    |(?P<space>\s+(?!\S)|\s+)
    |(?P<other>.)""",
    re.VERBOSE,
)
_PIECES = re.compile(re.sub(r"\?P<\w+>", "?:", PIECE.pattern), re.VERBOSE)
"""The same without groups, which finds all pieces at once."""
REMEMBERED_PIECES = 20_000
LONGEST_KEPT = 64
LONGEST_WORD = 16
LONGEST_PUNCTUATION = 10
_SCRIPTS = ((0x250, "latin"), (0x530, "cyrillic"), (0x3040, "script"), (0xA000, "cjk"), (0xAC00, "script"))
_HANGUL_END = 0xD7B0


@dataclass(frozen=True, slots=True)
class Costs:
    """Tokens per piece of a kind (per character for scripts other than ASCII), and exact counts of common pieces."""

    kinds: Mapping[str, float]
    pieces: Mapping[str, int]


@cache
def costs() -> Costs:
    """Read the fitted table that ships with the package."""
    table = json.loads(resources.files("shortlist.disclosure").joinpath("costs.json").read_text("utf-8"))
    return Costs(table["kinds"], table["pieces"])


def estimate_tokens(text: str) -> int:
    """Estimate how many o200k tokens a text costs; the mean error is printed by `benchmarks/tokens.py`."""
    if "   " in text:
        return round(_summed(text))
    first, *words = text.split(" ")
    return round(_summed(first) + sum([_word_cost(w) if len(w) <= LONGEST_KEPT else _summed(f" {w}") for w in words]))


def _summed(text: str) -> float:
    return sum(map(_cost, _PIECES.findall(text)))


@lru_cache(maxsize=REMEMBERED_PIECES)
def _word_cost(word: str) -> float:
    """Return the tokens of a word with the space before it, which begins a piece unless it is one of three or more."""
    return _summed(f" {word}")


@lru_cache(maxsize=REMEMBERED_PIECES)
def _cost(piece: str) -> float:
    """Return the tokens of a piece: texts are made of the same few, and naming the kind of one takes its time."""
    table = costs()
    exact = table.pieces.get(piece)
    if exact is not None:
        return exact
    match = PIECE.fullmatch(piece)
    kind, units = kind_of(match) if match else ("other", 1)
    return table.kinds.get(kind, 1.0) * units


def kind_of(match: re.Match[str]) -> tuple[str, int]:
    """Name a piece's kind, and how many units of it the piece holds."""
    group, piece = match.lastgroup or "other", match.group()
    if group == "word":
        return _word_kind(piece), 1
    if group == "script":
        return _script(ord(piece[-1])), len(piece)
    if group == "punctuation":
        return f"{'' if piece.isascii() else 'wide-'}marks{min(len(piece), LONGEST_PUNCTUATION)}", 1
    return group, 1


def fit(items: Iterable[Item], tokens: int, cost: Callable[[Item], int]) -> tuple[tuple[Item, ...], int]:
    """Take items in order while they fit in a token budget; also return how many did not."""
    queue: Sequence[Item] = tuple(items)
    spent = 0
    for taken, item in enumerate(queue):
        spent += cost(item)
        if spent > tokens:
            return tuple(queue[:taken]), len(queue) - taken
    return tuple(queue), 0


def _word_kind(piece: str) -> str:
    bare = piece[0].isalpha()
    word = piece if bare else piece[1:]
    lead = "" if bare else "space-" if piece[0] == " " else "mark-"
    case = "upper" if len(word) > 1 and word.isupper() else "title" if word[0].isupper() else "lower"
    return f"{lead}{case}{min(len(word), LONGEST_WORD)}"


def _script(point: int) -> str:
    for end, name in _SCRIPTS:
        if point < end:
            return name
    return "hangul" if point < _HANGUL_END else "script"
