"""Korean words without their particles and verb endings."""

import re
import unicodedata
from collections.abc import Iterator

from shortlist.text.tokens import read_words

_LONGEST_FIRST = sorted(read_words("korean_endings.txt"), key=lambda ending: (-len(ending), ending))
MOST_STRIPPED = 3


def bare_forms(word: str) -> tuple[str, ...]:
    """Return a word with more and more of its endings taken off, the longest form first."""
    found: dict[str, None] = {}
    queue = [word]
    for _ in range(MOST_STRIPPED):
        queue = [
            shorter
            for form in queue
            for ending in _LONGEST_FIRST
            if (shorter := form.removesuffix(ending)) != form and shorter
        ]
        found |= dict.fromkeys(queue)
    return tuple(sorted(found, key=lambda form: -len(form)))


_SPLIT_VOWELS = {"ᅪ": "ᅩᅡ", "ᅯ": "ᅮᅥ", "ᅫ": "ᅩᅢ", "ᅬ": "ᅩᅵ", "ᅱ": "ᅮᅵ"}
_AS_INITIAL = dict(zip("ᆨᆩᆫᆮᆯᆷᆸᆺᆻᆼᆽᆾᆿᇀᇁᇂ", "ᄀᄁᄂᄃᄅᄆᄇᄉᄊᄋᄌᄎᄏᄐᄑᄒ", strict=True))
_VERB_ENDING = re.compile(
    "[ᄂᄅᄆᄇ]?$|ᅥ|ᅡ|ᄊ|ᄋ[ᅥᅡᅳᅧ]|ᄀ[ᅩᅵᅦ]|ᄌ[ᅵᅮᅡ]|ᄂ(?:ᅳᄂ|ᅵ|ᅣ|ᄃ|ᄀ)|ᄅ(?:ᅧ|ᅡ|ᄁ|ᄀ|ᄌ|ᄉ)|ᄆ(?:ᅧ|ᄋ)|ᄃ[ᅥᅡᅩᅬ]|ᄉ[ᅥᅵᅳ]|ᄇᄂ"
)


def letters(word: str) -> str:
    """Write syllables as letters, so that an ending inside of a syllable can be taken off: `쓴` is `쓰` and `ㄴ`."""
    spelled = unicodedata.normalize("NFD", word)
    return "".join(_AS_INITIAL.get(letter) or _SPLIT_VOWELS.get(letter, letter) for letter in spelled)


def verb_key(form: str) -> str:
    """Return the letters of a verb without its ending; "" for what is no verb of the dictionary."""
    return letters(form[:-1]) if len(form) > 1 and form.endswith("다") else ""


def verb_roots(word: str) -> Iterator[str]:
    """Yield the letters that a word may have of a verb's root, the longest first."""
    spelled = letters(word)
    for cut in range(len(spelled), 1, -1):
        if _VERB_ENDING.match(spelled, cut):
            yield spelled[:cut]
