"""Words that were written together: where a space was left out, and where a word has a particle at its end."""

from shortlist.search.own_words import Tools
from shortlist.text.languages.lexicon import english_words, is_dictionary_word
from shortlist.text.pairs import seen_together
from shortlist.text.slips import one_slip_from
from shortlist.text.tokens import ACTIONS, STOPWORDS, stem

MIN_PART = 3
"""The letters of the shortest word with a meaning."""
USUAL_PAIR = 2
"""How often two words must follow each other to be taken apart wherever they were joined."""
PARTICLES, MOST_LETTERS = ("up", "in", "on", "off", "out", "down", "over", "back"), 5
"""What is often written onto a short word: `standup`, but not `messageon`; and the letters that such a word has."""


def were_apart(first: str, second: str, tools_with: Tools) -> bool:
    """Return whether a space was left out: behind an action or beside a small word; `lifecycle` is one word."""
    if min(len(first), len(second)) >= MIN_PART and (
        seen_together(first, second) >= USUAL_PAIR or _is_small_beside(first, second)
    ):
        return True
    if not any(tools_with(stem(part)) for part in (first, second)):
        return False
    if second in STOPWORDS:
        return is_here(first, tools_with) or first in ACTIONS
    return (first in ACTIONS or first in STOPWORDS) and is_here(second, tools_with)


def is_here(word: str, tools_with: Tools) -> bool:
    return len(word) >= MIN_PART and word in english_words() and bool(tools_with(stem(word)))


def _is_small_beside(first: str, second: str) -> bool:
    """Return whether one of two words is small and the other ordinary."""
    small, other = (first, second) if first in STOPWORDS else (second, first)
    return small in STOPWORDS and (other in english_words() or (len(other) > MOST_LETTERS and _is_standing(other)))


def _is_standing(word: str) -> bool:
    return is_dictionary_word(word) or is_with_particle(word)


def is_with_particle(word: str) -> bool:
    """Return whether a word is a short one with a particle written onto it, and no slip makes an ordinary one of it."""
    parts = [word.removesuffix(end) for end in PARTICLES if word.endswith(end)]
    is_one = any(MIN_PART <= len(part) <= MOST_LETTERS and part in english_words() for part in parts)
    return is_one and english_words().isdisjoint(one_slip_from(word))
