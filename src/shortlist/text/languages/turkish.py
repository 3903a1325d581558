"""Turkish words without the chain of suffixes that is written onto them."""

import re
from collections.abc import Iterator

MIN_ROOT = 3
LONGEST_WORD, LONGEST_SUFFIX = 40, 6
_SUFFIX = re.compile(
    r"m[aei]|y?[ae]bil|[iu]?l|[iu]?n|[dt][iu]r|t|[iu]s"  # negation, ability, voice
    r"|[iu]yor|y?aca[gk]|y?ece[gk]|m[iu]s|[dt][iu]|[aeiu]r|s[ae]|m[ae]l[iu]"  # tense and mood
    r"|[dt][iu][gk]|y?[ae]n|y?[iu]p|y?[ae]r[ae]k|m[ae]k|y?[iu]nc[ae]|ken"  # participles
    r"|y?[iu]m|s[iu]n|y?[iu]z|l[ae]r|k|m"  # person and number
    r"|s?[iu]|[yn][iu]|[yn]?[ae]|n?[dt][ae]n?|n?[iu]n|y?l[ae]|ki|c[ae]|l[iu]|s[iu]z|l[iu]k"  # owner and case
)
"""The suffixes of verbs and nouns, spelled without accents and with `i` for `ı`."""
_SOFTENED = {"b": "p", "d": "t", "g": "k"}


def roots(word: str) -> Iterator[str]:
    """Yield what a word may be built on, the longest first: `ara` for `ariyorum`, `kitap` for `kitabimi`."""
    cuts = _cuts(word) if len(word) <= LONGEST_WORD else []
    for cut in cuts:
        root = word[:cut]
        if cut >= MIN_ROOT:
            yield from _verb_and_noun(root)
            if root[-1] in _SOFTENED:
                yield root[:-1] + _SOFTENED[root[-1]]
        if word.startswith(("iyor", "uyor"), cut):
            for vowel in "aeiu":
                yield from _verb_and_noun(root + vowel)


def _verb_and_noun(root: str) -> tuple[str, ...]:
    return root, f"{root}mak", f"{root}mek"


def _cuts(word: str) -> list[int]:
    """Return the places after which a word is nothing but suffixes, the last first."""
    found = [len(word)]
    for start in range(len(word) - 1, MIN_ROOT - 2, -1):
        if any(end - start <= LONGEST_SUFFIX and _SUFFIX.fullmatch(word, start, end) for end in found):
            found.append(start)
    return found[1:]
