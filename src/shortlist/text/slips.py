"""Typing errors in one word: how unlikely each is, and what one of them makes of a word."""

from string import ascii_lowercase

from shortlist.text.languages.lexicon import english_words

SWAPPED, DOUBLED, MISSING, NEIGHBOUR, EXTRA, OTHER_LETTER, FIRST_LETTER = 1.0, 1.0, 1.0, 1.1, 1.45, 1.7, 0.2
"""What a slip costs: letters swapped, a letter doubled or a double written once, a letter missing, one typed for its
neighbour on the keyboard or a vowel for a vowel, one too many, any other; and the first letter of a word more."""

CONTRACTED = frozenset(("arent", "cant", "couldnt", "didnt", "doesnt", "dont", "hasnt", "isnt", "ive", "thats", "wont"))
"""What people write without its apostrophe."""
SPOKEN = {"wat": "what", "wats": "whats", "wut": "what", "wich": "which", "plz": "please"}
"""What people write as they say it, which is no slip of the hand."""
ENDINGS = frozenset({"", "s", "es", "d", "ed", "ing", "ings"})
DERIVED = frozenset({"er", "ers", "r", "rs", "ly", "al", "able", "ment", "ments"})
"""What a word of the catalog may have behind it to be another form of it: `merges`, but not `mergee`; and to be another
word, if no slip makes an ordinary one of it: `enginer` is `engineer`."""

_SOUNDS = ("aeiou", "ck", "cs", "sz", "fv", "gj", "iy")
"""Letters that sound alike."""
_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
NEIGHBOURS = {
    letter: {
        other
        for near, others in enumerate(_ROWS)
        for place, other in enumerate(others)
        if abs(row - near) + abs(at - place) == 1 or (near - row, place - at) in ((-1, 1), (1, -1))
    }
    | {other for alike in _SOUNDS if letter in alike for other in alike if other != letter}
    for row, letters in enumerate(_ROWS)
    for at, letter in enumerate(letters)
}


def one_slip_from(word: str) -> set[str]:
    """Return all that one slip behind the first letter makes of a word."""
    return {
        head + middle + tail
        for at in range(1, len(word) + 1)
        for head, rest in [(word[:at], word[at:])]
        for middle, tail in [
            *((letter, rest) for letter in ascii_lowercase),
            *((letter, rest[1:]) for letter in ascii_lowercase if rest),
            *([("", rest[1:])] if rest else []),
            *([(rest[1] + rest[0], rest[2:])] if len(rest) > 1 else []),
        ]
    } - {word}


def slip_cost(typed: str, meant: str) -> float:
    """Return how unlikely it is to type one word for another: the least sum of slips that explain it."""
    rows = [[0.0] * (len(meant) + 1) for _ in range(len(typed) + 1)]
    for i in range(len(typed) + 1):
        for j in range(len(meant) + 1):
            ways = []
            first = FIRST_LETTER if max(i, j) == 1 else 0.0
            if i and j:
                same = typed[i - 1] == meant[j - 1]
                ways.append(rows[i - 1][j - 1] + (0.0 if same else first + _other_letter(typed[i - 1], meant[j - 1])))
            if j:
                doubled = j > 1 and meant[j - 1] == meant[j - 2]
                ways.append(rows[i][j - 1] + (DOUBLED if doubled else first + MISSING))
            if i:
                doubled = i > 1 and typed[i - 1] == typed[i - 2]
                ways.append(rows[i - 1][j] + (DOUBLED if doubled else first + EXTRA))
            if i > 1 and j > 1 and typed[i - 2 : i] == meant[j - 1] + meant[j - 2]:
                ways.append(rows[i - 2][j - 2] + SWAPPED)
            rows[i][j] = min(ways, default=0.0)
    return rows[-1][-1]


def _other_letter(typed: str, meant: str) -> float:
    return NEIGHBOUR if typed in NEIGHBOURS.get(meant, ()) else OTHER_LETTER


def is_form(word: str, other: str) -> bool:
    """Return whether a word is another one with an ending, or without its plural."""
    if other in (f"{word}s", f"{word}es") or (word.endswith("e") and other == f"{word}d"):
        return True
    if not word.startswith(other):
        return False
    ending = word.removeprefix(other)
    if ending in ("d", "r", "rs") and not other.endswith("e"):
        return False
    inflected = {other + each for each in ENDINGS}
    return ending in ENDINGS or (ending in DERIVED and one_slip_from(word) & english_words() <= inflected)
