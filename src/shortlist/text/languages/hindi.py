"""Hindi in Latin letters: Devanagari and the many Latin spellings of a word meet in one key of sounds."""

import re

_LATIN = "k kh g gh n c ch j jh n t th d dh n t th d dh n p f b bh m y r l v sh sh s h"
_CONSONANTS = dict(
    zip(
        "कखगघङचछजझञटठडढणतथदधनपफबभमयरलवशषसह",
        tuple(_LATIN.split()),
        strict=True,
    )
)
_VOWELS = dict(zip("अआइईउऊऋएऐओऔऑऍ", ["a", "a", "i", "i", "u", "u", "ri", "e", "e", "o", "o", "o", "e"], strict=True))
_SIGNS = dict(zip("ािीुूृेैोौॉॅ", ["a", "i", "i", "u", "u", "ri", "e", "e", "o", "o", "o", "e"], strict=True))
_SOUNDS = {**_CONSONANTS, **_VOWELS, **_SIGNS, "ं": "n", "ँ": "n", "ः": "h", "्": "", "़": ""}
_SAME_SOUND = (
    (re.compile("chh|ch"), "c"),
    (re.compile("ph"), "f"),
    (re.compile("ee|ii|y(?=$)"), "i"),
    (re.compile("oo|uu"), "u"),
    (re.compile("ai|ei|ae"), "e"),
    (re.compile("au|ou"), "o"),
    (re.compile("w"), "v"),
    (re.compile("z|zh"), "j"),
    (re.compile("q|ck"), "k"),
    (re.compile("x"), "ks"),
    (re.compile("m(?=[bp])"), "n"),
    (re.compile(r"(.)\1+"), r"\1"),
    (re.compile("(?<=.)a"), ""),
    (re.compile("n(?=$)(?<=[eiou]n)"), ""),
)


def latin_key(word: str) -> str:
    """Return the sounds of a word, in either script, less what spellings of it differ in."""
    sounds = word if word.isascii() else "".join(_SOUNDS.get(letter, letter) for letter in word)
    for pattern, same in _SAME_SOUND:
        sounds = pattern.sub(same, sounds)
    return sounds
