"""Arabic verbs by their consonants, in which the forms of a verb agree: `يكتب`, `تكتبها` and `اكتب`."""

import re

MIN_CONSONANTS = 3
ROOT = "*"
"""What a key begins with that is made of the consonants of a verb."""
_BEFORE = re.compile("^[وف]?[سل]?(?=[ايتن]...)")
_PERSON = re.compile("^[ايتن](?=...)")
_AFTER = re.compile("(?<=...)(?:هما|تها|ها|هم|كم|نا|ني|وا|ون|ين|ان|ته|تك|ك|ه|ي|ت)$")
_LONG_VOWELS = str.maketrans("", "", "اويءى")


def verb_key(word: str) -> str:
    """Return the key of a normalised form that may be a verb; "" for one that is not spelled like one."""
    consonants = _PERSON.sub("", word).translate(_LONG_VOWELS)
    return ROOT + consonants if _PERSON.match(word) and len(consonants) >= MIN_CONSONANTS else ""


def verb_roots(word: str) -> tuple[str, ...]:
    """Return what a normalised word may be listed under if it is a verb in another person or with a pronoun."""
    bare = _BEFORE.sub("", word, count=1)
    if not _PERSON.match(bare) or bare.startswith("ال"):
        return ()
    short = _AFTER.sub("", bare)
    found = (verb_key(short), verb_key(bare), short[1:], bare[1:])
    return tuple(dict.fromkeys(each for each in found if len(each) >= MIN_CONSONANTS))
