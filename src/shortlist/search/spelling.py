"""Typing errors: words that neither English nor the catalog has, and the whole words they are likely to be."""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from itertools import chain, islice
from string import ascii_lowercase
from typing import Any, NamedTuple
from weakref import proxy

from rapidfuzz import process
from rapidfuzz.distance import DamerauLevenshtein

from shortlist.index.index import Index
from shortlist.search.joined import MIN_PART, is_here, is_with_particle, were_apart
from shortlist.search.own_words import OwnWords, Tools
from shortlist.text.heads import PRODUCTS, is_name
from shortlist.text.languages.lexicon import english_ranks, english_words, is_dictionary_word, strange_words
from shortlist.text.languages.reading import read_query
from shortlist.text.pairs import START, seen_together
from shortlist.text.queries import Expansions, shipped_expansions
from shortlist.text.slips import CONTRACTED, NEIGHBOURS, SPOKEN, is_form, one_slip_from, slip_cost
from shortlist.text.tokens import ACTIONS, MAX_REMEMBERED_TEXTS, STOPWORDS, distinct_words, stem, terms

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

MISTAKEN = 0.3
"""How much more a word may cost than the English one that was typed, to be tried in its place."""
FEW_WORDS, LESS_LIKELY = 3, 0.7
"""Words that are too few to tell a language by, and how likely they are English with typing errors all the same."""
MOST_IN_CATALOG = 20
"""How many times as many tools must have an ordinary word for a rare one like it to be an error of the catalog."""
NEVER_LAST, LAST = frozenset(("a", "an", "the", "of", "for", "from", "with", "and", "or", "to", "my", "our")), 0.4
"""Words that hardly end a request, and what it costs if one does."""
FIRST = 0.15
"""What it counts that a request begins with an action."""
CUT_SHORT = 1.0, range(2, 8)
"""What it costs to leave out the end of a word, as in `hist` for `history`; and how many letters that is."""
PASSES = 2
"""A word is first read beside its neighbours as typed, then beside what was meant by them."""
JOINED, NEVER_SEEN, UNSEEN_RARITY = 1.2, 0.2, 0.75
"""What it costs to leave out a space, as in `findbranch`, or one between words that were never seen together, with what
part of their rarity then."""
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
        self._own = OwnWords(index)
        weak: Any = proxy(self)  # in a cycle, an index would wait for the garbage collector
        self.candidates = lru_cache(maxsize=2_000)(partial(Speller._candidates, weak))
        self.mistakes = lru_cache(maxsize=2_000)(partial(Speller._mistakes, weak))
        self.meant_action = lru_cache(maxsize=2_000)(partial(Speller._meant_action, weak))
        self.knows = lru_cache(maxsize=2_000)(partial(Speller._is_known, weak))
        self.readings = lru_cache(maxsize=MAX_REMEMBERED_TEXTS)(partial(Speller._readings, weak))
        """Remembered: queries are made of the same few words, and the same text is asked again for its next page."""

    def __call__(self, text: str) -> Spelled:
        """Correct a text; words of the catalog and of ordinary English are never touched."""
        return self.readings(text)[0]

    def _readings(self, text: str) -> tuple[Spelled, ...]:
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
        if not strange or len(strange) > MAX_CORRECTIONS:
            first, others = Spelled(text, {}), list[Spelled]()
        elif read_query(text) is not None:
            first, others = Spelled(text, {}), self._as_english(text, strange)
        else:
            first, others = self._corrected(text, strange)
        acting, unmistaken = self._with_action(first), self._unmistaken(first)
        return tuple(islice((first, *filter(None, (acting, unmistaken)), *others), MAX_READINGS))

    def _as_english(self, text: str, strange: Sequence[str]) -> list[Spelled]:
        """Return what a few words say if they are not of the language that they seem to be: `compres pfd`."""
        if len(text.split()) > FEW_WORDS:
            return []
        first, others = self._corrected(text, strange)
        is_english = len(first.corrected) == len(strange) and read_query(first.text) is None
        return [each._replace(likelihood=LESS_LIKELY * each.likelihood) for each in (first, *others) if is_english]

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
            Respelling(cost - IN_CONTEXT * _seen_between(before, meant, after) + _by_place(meant, at, after), meant)
            for cost, meant in self.candidates(word)
        )
        most = min(TOO_UNLIKELY, ranked[0].cost + NEARLY) if ranked else 0.0
        return tuple(islice((each for each in ranked if each.cost <= most), 2))

    def _with_action(self, spelled: Spelled) -> Spelled | None:
        typed, space, rest = spelled.text.partition(" ")
        word = typed.lower()
        if not space or word in ACTIONS or word in STOPWORDS or not (word.isalpha() and word.isascii()):
            return None
        meant = None if self._own.tools(stem(word)) else self.meant_action(word)
        if meant is None:
            return None
        return Spelled(f"{_like(typed, meant)} {rest}", {word: meant, **spelled.corrected})

    def _meant_action(self, word: str) -> str | None:
        tools = self._own.tools
        near = [Respelling(slip_cost(word, each), each) for each in _actions_alike(word) if tools(stem(each))]
        best = min(near, default=None)
        return best.word if best and best.cost <= LIKE_A_SLIP else None

    def _unmistaken(self, spelled: Spelled) -> Spelled | None:
        """Replace words that hardly stand where they do by words that do, and that one slip makes of them.

        Only beside other errors, or where the word is rare: a request without any is taken as it was typed.
        """
        rare = {word for word in strange_words(spelled.text) if not self._own.tools(stem(word))}
        if not spelled.corrected and not rare:
            return None
        typed = [each.typed for each in _in_order(spelled.text, {})]
        around = zip([START, *typed], typed, [*typed[1:], ""], strict=False)
        meant = {
            word: found
            for before, word, after in around
            if (spelled.corrected or word in rare) and (found := self._usual(before, word, after))
        }
        changed = respelled(spelled.text, {word: found.word for word, found in meant.items()})
        if changed == spelled.text:
            return None
        unlikely = sum(max(found.cost, 0.0) for found in meant.values())
        corrected = {**spelled.corrected, **{word: found.word for word, found in meant.items()}}
        return Spelled(changed, corrected, math.exp(-SPELLING_COUNTS * unlikely))

    def _usual(self, before: str, word: str, after: str) -> Respelling | None:
        """Return the word that is likeliest to be meant by an English one, and what it costs more than that one."""
        if len(word) < MIN_PART or word in STOPWORDS or not (word.isascii() and word.isalpha()):
            return None
        as_typed = self._unlikelihood(word) - IN_CONTEXT * _seen_between(before, word, after)
        ways = [
            Respelling(cost - IN_CONTEXT * _seen_between(before, meant, after) - as_typed, meant)
            for cost, meant in self.mistakes(word)
        ]
        best = min(ways, default=None)
        return best if best and best.cost <= MISTAKEN else None

    def _mistakes(self, word: str) -> tuple[Respelling, ...]:
        """Return the ordinary words that one slip makes of another, whatever stands beside them."""
        if not is_dictionary_word(word):
            return ()
        ordinary = (one_slip_from(word) | {letter + word for letter in ascii_lowercase}) & english_words()
        others = [each for each in ordinary if stem(each) != stem(word)]
        if self._own.only_said(stem(word)):
            others = [each for each in others if self._own.tools(stem(each))]
        return tuple(Respelling(slip_cost(word, o) * _weight(word) + self._unlikelihood(o), o) for o in others)

    def _unlikelihood(self, word: str) -> float:
        return _rarity(word) - self._familiarity(self._own.tools(stem(word)))

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
            if match[0].islower() or (match.start() == 0 and not _begins_with_name(text))  # a capital makes a name
        )
        return [word for word in found if word in unknown]

    def _is_known(self, word: str) -> bool:
        shipped = shipped_expansions()
        given = self._expansions or shipped
        return (
            word in english_words()
            or not word.isalpha()
            or is_dictionary_word(word)
            or word in CONTRACTED
            or word in given.long_forms
            or word in PRODUCTS
            or (len(word) > SHORT and is_name(word))
            or is_with_particle(word)
            or (word in given.phrases and (len(word) <= SHORT or word not in shipped.phrases))  # or a synonym's stem
            or (self._has(word) and not self._is_error_here(word))
        )

    def _has(self, word: str) -> bool:
        """Return whether the catalog has a word or another form of it: `merg` is not a form of `merge`.

        What only servers say may be an error that one of them repeats: a tool that has a word like it decides.
        """
        found = terms(word)
        if len(found) != 1 or not self._lexical.frequency(found[0]):
            return not found
        if self._own.only_said(found[0]) and self._is_slip_here(word):
            return False
        whole = self._own.whole(found[0], word)
        if whole is not None:
            return is_form(word, whole)
        return len(word) < LONG or all(stem(each) != found[0] for each in one_slip_from(word) & english_words())

    def _is_error_here(self, word: str) -> bool:
        """Return whether a word that some tool has is an ordinary word misspelled: `databse`, which is not a name."""
        term, tools = stem(word), self._own.tools
        if len(word) < LONG or not tools(term) or self._own.is_name(term):
            return False
        return any(tools(stem(each)) >= MOST_IN_CATALOG * tools(term) for each in one_slip_from(word) & english_words())

    def _is_a_word_here(self, word: str) -> bool:
        """Return whether the catalog has a word, spelled right: `oncalll` only shares the stem of `on-call`."""
        if not self._lexical.frequency(stem(word)):
            return False
        whole = self._own.whole(stem(word), word) if self._own.tools(stem(word)) else None
        return is_dictionary_word(word) if whole is None else is_form(word, whole)

    def _candidates(self, word: str) -> tuple[Respelling, ...]:
        """Return the words that may have been meant, the likeliest first, whatever stands beside them.

        What only servers say makes a word likelier if no tool has a word like what was typed.
        """
        if spoken := SPOKEN.get(word):
            return (Respelling(0.0, spoken),)
        found = self._ways(word, self._own.tools)
        if not any(cost <= TOO_UNLIKELY and self._is_of_tools(meant) for meant, cost in found.items()):
            found = self._ways(word, self._lexical.frequency)
        if not found:
            found = {meant: slip_cost(word, meant) * _weight(word) + RARE for meant in _rare_words_alike(word)}
        return tuple(islice((Respelling(cost, meant) for meant, cost in found.items()), MOST_CANDIDATES))

    def _ways(self, word: str, tools: Tools) -> dict[str, float]:
        """Return what may have been meant by a word, with its cost, the likeliest first."""
        found: dict[str, float] = {}
        ways = chain(self._respelled(word, tools), self._cut_short(word, tools), self._split(word, tools))
        for cost, meant in sorted(ways):
            if meant != word:
                found.setdefault(meant, cost)
        return found

    def _is_slip_here(self, word: str) -> bool:
        """Return whether a word is likely a slip in one that tools have; a short one is an abbreviation more often."""
        return len(word) > SHORT and any(
            cost <= TOO_UNLIKELY
            and self._is_of_tools(meant)
            and slip_cost(word, meant) <= LIKE_A_SLIP
            and not word.startswith(meant)  # `postgresql` where tools say `postgres`
            and (len(word) >= LONG or _is_plain(word, meant, is_usual=True))
            for cost, meant in self._respelled(word, self._own.tools)
        )

    def _is_of_tools(self, meant: str) -> bool:
        return all(part in STOPWORDS or self._own.tools(stem(part)) for part in meant.split())

    def _respelled(self, word: str, tools_with: Tools) -> Iterator[Respelling]:
        for whole, tools in self._alike(word, tools_with):
            rarity, slips = _rarity(whole), slip_cost(word, whole)
            if slips <= MOST_SLIPS and (len(word) > SHORT or _is_plain(word, whole, tools > 0 or rarity <= COMMON)):
                yield Respelling(slips * _weight(word) + rarity - self._familiarity(tools), whole)

    def _cut_short(self, word: str, tools_with: Tools) -> Iterator[Respelling]:
        """Yield words of the catalog of which only the beginning was typed."""
        cost, left_out = CUT_SHORT
        longer = (term for n in left_out for term in self._lexical.vocabulary.alike(word[0], len(word) + n))
        for term in (term for term in longer if len(word) > SHORT and term.startswith(word)):
            if (tools := tools_with(term)) and (whole := self._own.whole(term, word)):
                yield Respelling(cost + _rarity(whole) - self._familiarity(tools), whole)

    def _split(self, word: str, tools_with: Tools) -> Iterator[Respelling]:
        """Yield two words where the space between them may have been left out."""
        for cut in range(2, len(word) - 1):
            parts = word[:cut], word[cut:]
            if were_apart(*parts, tools_with):
                seen = seen_together(*parts)
                rarity = max((_rarity(part) for part in parts if not is_here(part, tools_with)), default=0.0)
                apart = JOINED - IN_CONTEXT * seen if seen else JOINED + NEVER_SEEN + UNSEEN_RARITY * rarity
                yield Respelling(apart + abs(len(parts[0]) - len(parts[1])) / 100, " ".join(parts))

    def _familiarity(self, tools: int) -> float:
        """Return how much likelier a word is because so many tools of the catalog have it."""
        return IN_CATALOG + OFTEN * math.log(tools) / math.log(self._lexical.live + 1) if tools else 0.0

    def _alike(self, word: str, tools_with: Tools) -> Iterator[tuple[str, int]]:
        """Yield words of the catalog and of English that are spelled much like one, and how many tools have them."""
        reach = 1 if len(word) < LONG else 2
        typed = stem(word)
        alike = self._lexical.vocabulary.alike
        for first in dict.fromkeys((word[0], word[1], *sorted(NEIGHBOURS.get(word[0], ())))):
            known = [w for n in range(len(typed) - reach, len(typed) + reach + 1) for w in alike(first, n)]
            for term in _within(typed, known, reach):
                if (tools := tools_with(term)) and (whole := self._own.whole(term, word)):
                    yield whole, tools
            lengths = range(len(word) - reach, len(word) + reach + 1)
            english = [w for n in lengths for w in _english_alike().get((first, n), ())]
            for whole in _within(word, english, reach):
                yield whole, 1 if whole in STOPWORDS else tools_with(stem(whole))
        for whole in (letter + word for letter in ascii_lowercase):
            if whole in english_words():
                yield whole, tools_with(stem(whole))


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


def _by_place(word: str, at: int, after: str) -> float:
    """Return what it costs that a word is the first or last one of a request."""
    return (LAST if not after and word in NEVER_LAST else 0.0) - (FIRST if not at and word in ACTIONS else 0.0)


def _rare_words_alike(word: str) -> Iterator[str]:
    """Yield words that only the dictionary has and that one slip turns into a word; the first letter is right."""
    if len(word) >= LONG:
        alike = filter(is_dictionary_word, one_slip_from(word))
        yield from sorted(alike, key=lambda each: (slip_cost(word, each), each))


def _is_plain(typed: str, meant: str, is_usual: bool) -> bool:
    """Return whether three letters are certainly a slip in a usual word: two were swapped, or one is missing."""
    return is_usual and (sorted(typed) == sorted(meant) or len(meant) > len(typed))


def _weight(word: str) -> float:
    """Return how much slips count: in a short word, which is more often an abbreviation, more than in a long one."""
    return min(LONG / len(word), MOST_WEIGHT)


def _rarity(word: str) -> float:
    """Return how unlikely a word is before anything was typed: 0 for the commonest, 1 for one that is not ordinary."""
    ranks = english_ranks()
    return math.log(1 + ranks.get(word, len(ranks))) / math.log(1 + len(ranks))


def _within(word: str, known: Sequence[str], reach: int) -> list[str]:
    near = process.extract(word, known, scorer=DamerauLevenshtein.distance, score_cutoff=reach, limit=None)
    return [found for found, _, _ in near]


def _begins_with_name(text: str) -> bool:
    """Return whether a text begins with two words like names: "Bea Lindqvist", but not "Serch Web"."""
    second = text.split(None, 2)[1:2]
    return bool(second) and second[0][0].isupper() and not is_dictionary_word(second[0].strip(".,:;!?").lower())


def _actions_alike(word: str) -> list[str]:
    return [each for each in ACTIONS if each[0] == word[0] and abs(len(each) - len(word)) <= 1]


def respelled(text: str, corrected: Mapping[str, str]) -> str:
    """Write a text with some of its words corrected."""
    for torn in (each for each in corrected if " " in each):
        text = text.replace(torn, corrected[torn])
    return _PLAIN_WORD.sub(lambda found: _like(found[0], corrected.get(found[0].lower())), text)


def _like(typed: str, meant: str | None) -> str:
    return typed if meant is None else meant.capitalize() if typed[0].isupper() else meant


@cache
def _english_alike() -> Mapping[tuple[str, int], list[str]]:
    found: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
    for word in english_ranks():
        found[word[0], len(word)].append(word)
    return found
