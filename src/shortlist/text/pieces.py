"""Splits texts into word pieces, with a cache per word, because a tokenizer would process repeated words again."""

import re
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

MAX_REMEMBERED_WORDS = 50_000
MAX_REMEMBERED_CHARACTERS = 32
"""Longer words hardly come again, and a text may be one word of any length."""
WORD_BY_WORD = ("BertNormalizer", "BertPreTokenizer")
"""Tokenizers made of these give a text the pieces of its words, one word after the other."""
_ASCII_WORD = re.compile(r"[a-z0-9]+|[^a-z0-9 ]")


class Pieces:
    """Returns the ids of a text's word pieces, as the tokenizer does; what spells a special token is read as words."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        parts = (type(tokenizer.normalizer).__name__, type(tokenizer.pre_tokenizer).__name__)
        self._split: Callable[[str], list[str]] = _words if parts == WORD_BY_WORD else _whole
        self._known: dict[str, list[int]] = {}

    def __call__(self, texts: Sequence[str]) -> list[list[int]]:
        split = [self._split(text) for text in texts]
        known = self._learned({word for words in split for word in words})
        return [list(chain.from_iterable(map(known.__getitem__, words))) for words in split]

    def _learned(self, words: set[str]) -> Mapping[str, list[int]]:
        if len(self._known) + len(words) > MAX_REMEMBERED_WORDS:
            self._known = {}  # never cleared: another thread may be reading
        known = self._known
        new = [word for word in words if word not in known]
        if not new:
            return known
        encoded = self._tokenizer.encode_batch_fast(new, add_special_tokens=False)
        read = {word: each.ids for word, each in zip(new, encoded, strict=True)}
        long = {word: read.pop(word) for word in new if len(word) > MAX_REMEMBERED_CHARACTERS}
        known.update(read)
        return ChainMap(long, known) if long else known


def _words(text: str) -> list[str]:
    """Split as BERT's tokenizer does; non-ASCII text is split only at spaces, and the tokenizer does the rest."""
    return _ASCII_WORD.findall(text.lower()) if text.isascii() and text.isprintable() else text.split(" ")


def _whole(text: str) -> list[str]:
    return [text]
