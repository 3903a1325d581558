"""Typing errors: words that neither English nor the catalog has, and the whole words they are likely to be."""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import chain, islice
from string import ascii_lowercase
from typing import NamedTuple

from rapidfuzz import process
from rapidfuzz.distance import DamerauLevenshtein

from shortlist.index.index import Index
from shortlist.text.languages.lexicon import english_ranks, english_words, is_dictionary_word, strange_words
from shortlist.text.languages.reading import read_query
from shortlist.text.pairs import START, seen_together
from shortlist.text.queries import PRODUCTS, Expansions, shipped_expansions
from shortlist.text.tokens import STOPWORDS, ascii_words, distinct_words, read_words, stem, terms

SHORT, LONG = 3, 6
"""Words of three letters are corrected to common words alone; two errors are looked for from six letters on."""
COMMON = 0.7
"""The greatest rarity of a word that three letters are corrected to."""
MAX_CORRECTIONS = 8
"""A text with more unknown words than this is in another language, or made of names."""
SPELLING_COUNTS = 1.5
"""How much the cost of a spelling counts beside the chance that the answer to it is right."""
NEARLY = 0.5
"""How much more another correction of a word may cost to be tried as well."""
MAX_READINGS = 4
"""Readings of a text that are searched for, at most."""
ROWS_FOR_SPELLING = 12
"""Tools whose text is looked at for a stem's whole words."""

SWAPPED, DOUBLED, MISSING, NEIGHBOUR, EXTRA, OTHER_LETTER, FIRST_LETTER = 1.0, 1.0, 1.0, 1.1, 1.45, 1.7, 0.2
"""What a slip costs: letters swapped, a letter doubled or a double written once, a letter missing, one typed for its
neighbour on the keyboard or a vowel for a vowel, one too many, any other; and the first letter of a word more."""
USUAL_PLACE = 3
"""How often another word must have been seen between two others for one that was not to be a mistake."""
USUAL_PAIR = 2
"""How often two words must follow each other to be taken apart wherever they were joined."""
PASSES = 2
"""A word is first read beside its neighbours as typed, then beside what was meant by them."""
JOINED, NEVER_SEEN, MIN_PART = 1.2, 0.2, 3
"""What it costs to leave out a space, as in `findbranch`, and between words that were never seen beside each other; and
the letters of the shortest word with a meaning."""
ACTIONS = read_words("actions.txt")
ENDINGS = frozenset({"", "s", "es", "ed", "er", "ers", "ing", "ings", "ly", "al", "able", "ment", "ments"})
"""What a word of the catalog may have behind it to be another form of it: `merges`, but not `mergee`."""
PARTICLES, MOST_LETTERS = ("up", "in", "on", "off", "out", "down", "over", "back"), 5
"""What is often written onto a short word: `standup`, but not `messageon`; and the letters that such a word has."""
LIKE_A_SLIP = 1.3
"""The most that a slip costs by which an English word may stand for an action: `crate` for `create`."""
TOO_UNLIKELY = 2.2
"""A word that costs more stays as it was typed: it is a name more often."""
MOST_WEIGHT = 1.1
MOST_SLIPS = 2.9
"""What the slips in one word cost together at most: two of the usual ones."""
IN_CATALOG, OFTEN = 0.3, 0.5
"""What it counts that the catalog has a word, and how much more one that all of its tools have."""
IN_CONTEXT = 0.07
"""What it counts that a word was seen beside its neighbour, for each doubling of how often."""
MOST_CANDIDATES = 12
"""Words that are compared by their neighbours."""
RARE = 1.1
"""The rarity of a word that only the dictionary has."""

_PLAIN_WORD = re.compile(r"(?<![\w./:=@#<{'\"`&+-])[A-Za-z][a-z]{2,24}(?![\w/:=@>}'\"`+-]|\.\w)")
"""A word that stands alone and is not spelled like a name: no part of a path, an address or a quotation."""

_TOKEN = re.compile(r"[A-Za-z]+(?:'[a-z]+)?|\S")
_BREAKS = frozenset('.!?;:,()[]"')

_TORN = re.compile(r"(?<![\w./:=@#<{'\"`&+-])(?=([A-Za-z][a-z]*) ([a-z]+)(?![\w/:=@>}'\"`+-]|\.\w))")
"""Two such words side by side; the next pair begins with the second of them."""


class Spelled(NamedTuple):
    """A text with its typing errors corrected, and what was corrected."""

    text: str
    corrected: Mapping[str, str]
    likelihood: float = 1.0
    """How likely it is beside the likeliest spelling, before it is searched for."""


class Respelling(NamedTuple):
    """A word that may have been meant; the one of least cost is the likeliest."""

    cost: float
    word: str


class Speller:
    """Corrects words of a query by the words of one catalog and of ordinary English."""

    def __init__(self, index: Index, expansions: Expansions | None = None) -> None:
        self._index = index
        self._expansions = expansions
        """Words that a team has given a meaning, and the shipped ones; None: the shipped ones."""
        self._lexical = index.lexical
        self.candidates = lru_cache(maxsize=2_000)(self._candidates)
        self.meant_action = lru_cache(maxsize=2_000)(self._meant_action)
        self.knows = lru_cache(maxsize=2_000)(self._is_known)
        """Remembered by word: queries are made of the same few words."""

    def __call__(self, text: str) -> Spelled:
        """Correct a text; words of the catalog and of ordinary English are never touched."""
        return self.readings(text)[0]

    def readings(self, text: str) -> tuple[Spelled, ...]:
        """Return what a text may say, the likeliest spelling first; of several, the answers to them tell which it is.

        Another reading has the second choice for one of the words; or an action for a first word that is English but
        neither an action nor in the catalog: requests begin with what is to be done, so "crate a ticket" may say
        "create"; or words of the catalog that usually stand there for English ones that do not: "the son that is
        playing".
        """
        if not text.isascii():
            return (Spelled(text, {}),)
        new = strange_words(text)
        strange = self._strange(text, {word for word in new if not self.knows(word)}) if new else []
        if not strange or len(strange) > MAX_CORRECTIONS or read_query(text) is not None:
            first, others = Spelled(text, {}), list[Spelled]()
        else:
            first, others = self._corrected(text, strange)
        acting, unmistaken = self._with_action(first), self._unmistaken(first)
        return tuple(islice((first, *filter(None, (acting, unmistaken)), *others), MAX_READINGS))

    def _corrected(self, text: str, strange: Sequence[str]) -> tuple[Spelled, list[Spelled]]:
        joined = dict(self._torn(text, strange))
        for torn, word in joined.items():
            text = text.replace(torn, word)
        left = [word for word in strange if word in text.lower()]
        choices: dict[str, tuple[Respelling, ...]] = {}
        for _ in range(PASSES):
            words = _in_order(text, {word: found[0].word for word, found in choices.items()})
            choices = {word: found for word in left if (found := self._in_context(word, words))}
        if len(choices) < len(left) and english_words().isdisjoint(distinct_words(text)):
            choices = {}  # neither English nor nearly so
        best = {word: found[0].word for word, found in choices.items()}
        others = [
            Spelled(respelled(text, each), joined | each, math.exp(SPELLING_COUNTS * (found[0].cost - found[1].cost)))
            for word, found in choices.items()
            if len(found) > 1
            for each in [best | {word: found[1].word}]
        ]
        return Spelled(respelled(text, best), joined | best), others

    def _in_context(self, word: str, words: Sequence["_Word"]) -> tuple[Respelling, ...]:
        """Return what was likely meant by a word between its neighbours, and another that is nearly as likely."""
        at = next((n for n, each in enumerate(words) if each.typed == word), None)
        if at is None:
            return ()
        before = words[at - 1].meant.rpartition(" ")[2] if at else START
        after = words[at + 1].meant.partition(" ")[0] if at + 1 < len(words) else ""
        ranked = sorted(
            Respelling(each.cost - IN_CONTEXT * _seen_between(before, each.word, after), each.word)
            for each in self.candidates(word)
        )
        most = min(TOO_UNLIKELY, ranked[0].cost + NEARLY) if ranked else 0.0
        return tuple(islice((each for each in ranked if each.cost <= most), 2))

    def _with_action(self, spelled: Spelled) -> Spelled | None:
        typed, space, rest = spelled.text.partition(" ")
        word = typed.lower()
        if not space or word in ACTIONS or word in STOPWORDS or not (word.isalpha() and word.isascii()):
            return None
        meant = None if self._lexical.frequency(stem(word)) else self.meant_action(word)
        if meant is None:
            return None
        return Spelled(f"{_like(typed, meant)} {rest}", {word: meant, **spelled.corrected})

    def _meant_action(self, word: str) -> str | None:
        frequency = self._lexical.frequency
        near = [Respelling(slip_cost(word, each), each) for each in _actions_alike(word) if frequency(stem(each))]
        best = min(near, default=None)
        return best.word if best and best.cost <= LIKE_A_SLIP else None

    def _unmistaken(self, spelled: Spelled) -> Spelled | None:
        """Replace words that were never seen beside their neighbours by words of the catalog that were.

        Only beside other errors: a request without any is taken as it was typed.
        """
        if not spelled.corrected:
            return None
        words = [each.typed for each in _in_order(spelled.text, {})]
        around = zip([START, *words], words, [*words[1:], ""], strict=False)
        meant = {word: found for before, word, after in around if (found := self._usual(before, word, after))}
        changed = respelled(spelled.text, meant)
        return Spelled(changed, {**spelled.corrected, **meant}) if changed != spelled.text else None

    def _usual(self, before: str, word: str, after: str) -> str | None:
        has = self._lexical.frequency
        if len(word) < MIN_PART or word in STOPWORDS or not is_dictionary_word(word) or has(stem(word)):
            return None
        if _seen_between(before, word, after):
            return None
        near = [(_seen_between(before, each, after), each) for each in one_slip_from(word) if has(stem(each))]
        seen, meant = max(near, default=(0, ""))
        return meant if seen >= USUAL_PLACE and meant in english_words() else None

    def _torn(self, text: str, strange: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yield words that a space was typed into: `acknowle dge`."""
        for found in _TORN.finditer(text):
            head, tail = found[1], found[2]
            whole, parts = head.lower() + tail, {head.lower(), tail}
            is_here = self._is_a_word_here(whole)
            if not parts.isdisjoint(strange) and (is_here or (whole in english_words() and parts <= set(strange))):
                yield f"{head} {tail}", head + tail

    def _strange(self, text: str, unknown: set[str]) -> list[str]:
        """Return those of some words that stand alone in a text and are not spelled like names."""
        if not unknown:
            return []
        found = dict.fromkeys(
            match[0].lower()
            for match in _PLAIN_WORD.finditer(text)
            if match[0].islower() or match.start() == 0  # a capital letter elsewhere makes a name
        )
        return [word for word in found if word in unknown]

    def _is_known(self, word: str) -> bool:
        shipped = shipped_expansions()
        given = self._expansions or shipped
        return (
            word in english_words()
            or not word.isalpha()
            or is_dictionary_word(word)
            or word in given.long_forms
            or word in PRODUCTS
            or _is_with_particle(word)
            or (word in given.phrases and (len(word) <= SHORT or word not in shipped.phrases))  # or a synonym's stem
            or self._has(word)
        )

    def _has(self, word: str) -> bool:
        """Return whether the catalog has a word or another form of it: `merg` is not a form of `merge`."""
        found = terms(word)
        if len(found) != 1 or not self._lexical.frequency(found[0]):
            return not found
        whole = self._whole_word(found[0], word)
        return whole is None or _is_form(word, whole)

    def _is_a_word_here(self, word: str) -> bool:
        """Return whether the catalog has a word, spelled right: `oncalll` only shares the stem of `on-call`."""
        if not self._lexical.frequency(stem(word)):
            return False
        whole = self._whole_word(stem(word), word)
        return is_dictionary_word(word) if whole is None else _is_form(word, whole)

    def _candidates(self, word: str) -> tuple[Respelling, ...]:
        """Return the words that may have been meant, the likeliest first, whatever stands beside them."""
        found: dict[str, float] = {}
        for cost, meant in sorted(chain(self._respelled(word), self._split(word))):
            found.setdefault(meant, cost)
        if not found:
            found = {meant: slip_cost(word, meant) * _weight(word) + RARE for meant in _rare_words_alike(word)}
        return tuple(islice((Respelling(cost, meant) for meant, cost in found.items()), MOST_CANDIDATES))

    def _respelled(self, word: str) -> Iterator[Respelling]:
        for whole, tools in self._alike(word):
            rarity, slips = _rarity(whole), slip_cost(word, whole)
            if slips <= MOST_SLIPS and (len(word) > SHORT or _is_plain(word, whole, tools > 0 or rarity <= COMMON)):
                yield Respelling(slips * _weight(word) + rarity - self._familiarity(tools), whole)

    def _split(self, word: str) -> Iterator[Respelling]:
        """Yield two words where the space between them may have been left out."""
        for cut in range(2, len(word) - 1):
            parts = word[:cut], word[cut:]
            if self._were_apart(*parts):
                seen = seen_together(*parts)
                rarity = max((_rarity(part) for part in parts if not self._is_here(part)), default=0.0)
                apart = JOINED - IN_CONTEXT * seen if seen else JOINED + NEVER_SEEN + rarity
                yield Respelling(apart + abs(len(parts[0]) - len(parts[1])) / 100, " ".join(parts))

    def _were_apart(self, first: str, second: str) -> bool:
        """Return whether a space was left out: behind an action or beside a small word; `lifecycle` is one word."""
        if min(len(first), len(second)) >= MIN_PART and (
            seen_together(first, second) >= USUAL_PAIR or _is_small_beside(first, second)
        ):
            return True
        if not any(self._lexical.frequency(stem(part)) for part in (first, second)):
            return False
        if second in STOPWORDS:
            return self._is_here(first) or first in ACTIONS
        return (first in ACTIONS or first in STOPWORDS) and self._is_here(second)

    def _is_here(self, word: str) -> bool:
        return len(word) >= MIN_PART and word in english_words() and bool(self._lexical.frequency(stem(word)))

    def _familiarity(self, tools: int) -> float:
        """Return how much likelier a word is because so many tools of the catalog have it."""
        return IN_CATALOG + OFTEN * math.log(tools) / math.log(self._lexical.live + 1) if tools else 0.0

    def _alike(self, word: str) -> Iterator[tuple[str, int]]:
        """Yield words of the catalog and of English that are spelled much like one, and how many tools have them."""
        reach = 1 if len(word) < LONG else 2
        typed = stem(word)
        alike, frequency = self._lexical.vocabulary.alike, self._lexical.frequency
        for first in dict.fromkeys((word[0], word[1], *sorted(_NEIGHBOURS.get(word[0], ())))):
            known = [w for n in range(len(typed) - reach, len(typed) + reach + 1) for w in alike(first, n)]
            for term in _within(typed, known, reach):
                if (tools := frequency(term)) and (whole := self._whole_word(term, word)):
                    yield whole, tools
            lengths = range(len(word) - reach, len(word) + reach + 1)
            english = [w for n in lengths for w in _english_alike().get((first, n), ())]
            for whole in _within(word, english, reach):
                yield whole, 1 if whole in STOPWORDS else frequency(stem(whole))
        for whole in (letter + word for letter in ascii_lowercase):
            if whole in english_words():
                yield whole, frequency(stem(whole))

    def _whole_word(self, term: str, typed: str) -> str | None:
        """Return the catalog's word for a stem that is nearest to what was typed."""
        found = {
            word
            for row in self._lexical.postings(term).rows[:ROWS_FOR_SPELLING].tolist()
            for word in ascii_words(self._text(row))
            if word.isalpha() and stem(word) == term
        }
        return min(found, key=lambda word: (DamerauLevenshtein.distance(typed, word), word), default=None)

    def _text(self, row: int) -> str:
        tool = self._index.catalog.tools[self._index.ids[row]]
        return f"{tool.server} {re.sub('(?<=[a-z])(?=[A-Z])', ' ', tool.name)} {tool.title} {tool.description}"


class _Word(NamedTuple):
    """A word of a text, and what is taken to be meant by it."""

    typed: str
    meant: str


def _in_order(text: str, meant: Mapping[str, str]) -> list[_Word]:
    """Return the words of a text; each punctuation mark stands for a start."""
    tokens = (START if token in _BREAKS else token.lower() for token in _TOKEN.findall(text))
    return [_Word(token, meant.get(token, token)) for token in tokens]


def _seen_between(before: str, word: str, after: str) -> int:
    first, _, rest = word.partition(" ")
    return seen_together(before, first) + (seen_together(rest.rpartition(" ")[2] or first, after) if after else 0)


def _rare_words_alike(word: str) -> Iterator[str]:
    """Yield words that only the dictionary has and that one slip turns into a word; the first letter is right."""
    if len(word) >= LONG:
        alike = filter(is_dictionary_word, one_slip_from(word))
        yield from sorted(alike, key=lambda each: (slip_cost(word, each), each))


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


def _is_plain(typed: str, meant: str, is_usual: bool) -> bool:
    """Return whether three letters are certainly a slip in a usual word: two were swapped, or one is missing."""
    return is_usual and (sorted(typed) == sorted(meant) or len(meant) > len(typed))


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


def _weight(word: str) -> float:
    """Return how much slips count: in a short word, which is more often an abbreviation, more than in a long one."""
    return min(LONG / len(word), MOST_WEIGHT)


def _other_letter(typed: str, meant: str) -> float:
    return NEIGHBOUR if typed in _NEIGHBOURS.get(meant, ()) else OTHER_LETTER


def _rarity(word: str) -> float:
    """Return how unlikely a word is before anything was typed: 0 for the commonest, 1 for one that is not ordinary."""
    ranks = english_ranks()
    return math.log(1 + ranks.get(word, len(ranks))) / math.log(1 + len(ranks))


def _within(word: str, known: Sequence[str], reach: int) -> list[str]:
    near = process.extract(word, known, scorer=DamerauLevenshtein.distance, score_cutoff=reach, limit=None)
    return [found for found, _, _ in near]


def _is_form(word: str, other: str) -> bool:
    """Return whether a word is another one with an ending, or without its plural."""
    if other in (f"{word}s", f"{word}es"):
        return True
    ending = word.removeprefix(other) if word.startswith(other) else "?"
    return ending in (("", "s", "d", "r", "rs", "ly") if other.endswith("e") else ENDINGS)


def _is_small_beside(first: str, second: str) -> bool:
    """Return whether one of two words is small and the other ordinary."""
    small, other = (first, second) if first in STOPWORDS else (second, first)
    return small in STOPWORDS and other in english_words()


def _is_with_particle(word: str) -> bool:
    """Return whether a word is a short one with a particle written onto it, and no slip makes an ordinary one of it."""
    parts = [word.removesuffix(end) for end in PARTICLES if word.endswith(end)]
    is_one = any(MIN_PART <= len(part) <= MOST_LETTERS and part in english_words() for part in parts)
    return is_one and english_words().isdisjoint(one_slip_from(word))


def _actions_alike(word: str) -> list[str]:
    return [each for each in ACTIONS if each[0] == word[0] and abs(len(each) - len(word)) <= 1]


def respelled(text: str, corrected: Mapping[str, str]) -> str:
    """Write a text with some of its words corrected."""
    for torn in (each for each in corrected if " " in each):
        text = text.replace(torn, corrected[torn])
    return _PLAIN_WORD.sub(lambda found: _like(found[0], corrected.get(found[0].lower())), text)


def _like(typed: str, meant: str | None) -> str:
    return typed if meant is None else meant.capitalize() if typed[0].isupper() else meant


_SOUNDS = ("aeiou", "ck", "cs", "sz", "fv", "gj", "iy")
"""Letters that sound alike."""
_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_NEIGHBOURS = {
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


@cache
def _english_alike() -> Mapping[tuple[str, int], list[str]]:
    found: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
    for word in english_ranks():
        found[word[0], len(word)].append(word)
    return found
