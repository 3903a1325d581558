"""A clause of another language, word by word in English."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from shortlist.text.languages import arabic, korean, turkish
from shortlist.text.languages.lexicon import UNSPACED, Lexicon, Sense, english_words, lexicon, unaccented
from shortlist.text.languages.spelling import ACCENTED, normal, stems

MIN_PART = {"de": 4, "ko": 2}
COMPOUNDING = frozenset(MIN_PART)
PREFIX_SHARE = 0.7
MIN_SAME = 5
"""Letters that a word and a form must begin with in common."""
ALSO_LIKELY = 0.4
ROOTS: Mapping[str, Callable[[str], Iterable[str]]] = {
    "ar": arabic.verb_roots,
    "ko": korean.verb_roots,
    "tr": turkish.roots,
}
"""What an inflected word may be listed under, by language."""


_VERBATIM = re.compile(
    r"[a-z][a-z0-9+.-]{0,63}://[!-~]+|[\w.+-]{1,64}@[\w-]+\.[\w.]+"  # links and addresses
    r"|(?:[A-Za-z]:)?[~.]?[\\/][!-~]+"  # paths
    r"|(?<![A-Za-z0-9])[A-Za-z0-9]++(?:[_./:=&#@\\][A-Za-z0-9]++)+|(?<!\w)\w*\d\w*(?!\w)",  # names and numbers
    re.ASCII,
)
"""What stands in a request as it is and is not a word of any language."""
_LATIN_LETTERS = "A-Za-z\u00c0-\u024f\u1e00-\u1eff"
_LATIN = re.compile(rf"[{_LATIN_LETTERS}]+")
_MARKED = "\u0300-\u036f\u064b-\u065f\u0670\u0900-\u0963\u0966-\u097f"
_NATIVE = re.compile(rf"[{_LATIN_LETTERS}]+|\d+|(?:[^\W\d_{_LATIN_LETTERS}]|[{_MARKED}])+")
"""A word of a script with spaces: letters and the marks on them, apart from Latin names that a particle is glued to."""
_HAN_OR_KANA = re.compile("[\u3005\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")
_LINKS = ("", "s", "n", "es", "en", "e")
"""What joins the parts of a German compound."""
PARTICLES = frozenset(
    {
        *("ab", "an", "auf", "aus", "bei", "durch", "ein", "fest", "fort", "frei", "her", "heraus", "herunter", "hin"),
        *(
            "hinzu",
            "hoch",
            "los",
            "mit",
            "nach",
            "neu",
            "um",
            "vor",
            "weg",
            "weiter",
            "wieder",
            "zu",
            "zurück",
            "zusammen",
            "runter",
        ),
        *("raus", "rein"),
    }
)
FARTHEST_PARTICLE = 12
NAMES_BY_CAPITALS = frozenset({"es", "fr", "it", "pl", "pt", "tr", "vi"})
LATIN = frozenset({"de", "es", "fr", "it", "pl", "pt", "tr", "vi"})


_UNREADABLE = re.compile("[\u0400-\u06ff\u0750-\u077f\u0900-\u097f\u1100-\u11ff\uac00-\ud7af]")
"""Cyrillic, Arabic, Hindi and Korean letters: the models have few pieces of such words, which mislead them."""


class Gloss(NamedTuple):
    """A stretch of the text and what it may mean; no senses where it is a name, a number or unknown."""

    text: str
    senses: tuple[Sense, ...] = ()
    function: bool = False
    """It asks, points or joins: its English word is for models, which were trained on whole sentences."""


def written_out(units: Sequence[Gloss], senses: int = 2, at_least: float = ALSO_LIKELY, joint: str = " ") -> str:
    """Write a gloss as one line for a model: each word with up to so many of its senses that are likely enough.

    An unknown word is written as it is, unless the model cannot read its letters.
    """
    said = (
        joint.join(s.english for s in unit.senses[:senses] if s.weight >= at_least) if unit.senses else unit.text
        for unit in units
        if unit.senses or not (unit.function or _UNREADABLE.search(unit.text))
    )
    return " ".join(said)


def gloss(text: str, language: str, words: Lexicon | None = None) -> tuple[Gloss, ...]:
    """Read a text of one language from left to right, longest match first."""
    words = words or lexicon(language)
    read = _unspaced if language in UNSPACED else _spaced
    units: list[Gloss] = []
    place = 0
    for found in _VERBATIM.finditer(text):
        units += [*read(text[place : found.start()], words), Gloss(found[0])]
        place = found.end()
    return (*units, *read(text[place:], words))


def gloss_within(text: str, words: Lexicon, is_foreign: Callable[[str], bool]) -> Iterator[Gloss]:
    """Read the words of an English text that only another language has; the others stand as they are."""
    for written in text.split():
        found = _LATIN.search(written)
        key = normal(found[0], words.language) if found and is_foreign(found[0].lower()) else ""
        said = words.function_words.get(key)
        yield Gloss(written, words.forms.get(key, ()) if said is None else said, function=said is not None)


def _unspaced(text: str, words: Lexicon) -> list[Gloss]:
    units: list[Gloss] = []
    place = 0
    for run in _HAN_OR_KANA.finditer(text):
        units += _names(text[place : run.start()])
        units += _segmented(run[0], words)
        place = run.end()
    return [*units, *_names(text[place:])]


def _names(text: str) -> list[Gloss]:
    return [Gloss(word) for word in _NATIVE.findall(text)]


def _spaced(text: str, words: Lexicon) -> list[Gloss]:
    tokens = (_LATIN if words.language in LATIN else _NATIVE).findall(text)
    exact = [normal(token, words.language) for token in tokens]
    if words.language == "vi" and text.isascii():
        exact = [unaccented(each) for each in exact]
    verbs = _separated(tokens, exact, words) if words.language == "de" else {}
    found: list[Gloss] = []
    at = 0
    while at < len(tokens):
        if at in verbs:
            found += verbs[at]
            at += 1
            continue
        units, used = _longest(tokens, exact, at, words)
        found += units
        at += used
    return found


def _separated(tokens: Sequence[str], exact: Sequence[str], words: Lexicon) -> dict[int, list[Gloss]]:
    """Find German verbs whose particle stands at the end of the clause: `benenne die Datei um`."""
    found: dict[int, list[Gloss]] = {}
    for last in range(1, len(tokens)):
        if tokens[last].lower() not in PARTICLES:
            continue
        for at in range(last - 1, max(-1, last - FARTHEST_PARTICLE), -1):
            stem = next(iter(stems(tokens[at], "de")), "")
            senses = words.forms.get(f"{exact[at]} {exact[last]}") or words.stems.get(f"{stem} {exact[last]}")
            senses = senses or words.stems.get(exact[last] + stem)
            if senses and at not in found:
                found[at] = [Gloss(f"{tokens[at]} … {tokens[last]}", senses)]
                found[last] = []
                break
    return found


def _longest(tokens: Sequence[str], exact: Sequence[str], at: int, words: Lexicon) -> tuple[list[Gloss], int]:
    language = words.language
    if at and language in NAMES_BY_CAPITALS and tokens[at][0].isupper() and tokens[at].lower() in english_words():
        return [Gloss(tokens[at])], 1  # a name: `el vault Personal`
    for size in range(min(words.longest, len(tokens) - at), 0, -1):
        text, key = " ".join(tokens[at : at + size]), " ".join(exact[at : at + size])
        if key in words.function_words:
            return [Gloss(text, words.function_words[key], function=True)], size
        # An English word is none of another language that only begins like it: `play` is no form of `playa`.
        is_english = size == 1 and language in ACCENTED and key in english_words()
        if senses := words.forms.get(key, ()) if is_english else words.of(key):
            return [Gloss(text, senses)], size
        if size > 1 and language != "vi":
            key = " ".join(next(iter(stems(token, language)), "") for token in tokens[at : at + size])
            if key in words.stems:
                return [Gloss(text, words.stems[key])], size
    may_be_name = at > 0 and language in NAMES_BY_CAPITALS and tokens[at].istitle()
    return _one(tokens[at], exact[at], words, may_be_name=may_be_name), 1


def _one(token: str, exact: str, words: Lexicon, *, may_be_name: bool = False) -> list[Gloss]:
    if token.isdigit() or (words.language in LATIN and token.lower() in english_words()):
        return [Gloss(token)]
    for stem in stems(token, words.language):
        if senses := words.stems.get(stem) or words.forms.get(stem):
            return [Gloss(token, senses)]
        if stem in words.function_words:
            return [Gloss(token, words.function_words[stem], function=True)]
    if words.language in COMPOUNDING and (parts := _parts(exact, words)):
        return parts
    by_beginning = () if may_be_name else _by_beginning(exact, words)  # `Contoso` is not a form of `conto`
    return [Gloss(token, _by_root(exact, words) or by_beginning)]


def _by_root(word: str, words: Lexicon) -> tuple[Sense, ...]:
    """Find the form that a word is an inflection of, where no stemmer knows it."""
    roots = ROOTS.get(words.language)
    return next(filter(None, map(words.of, roots(word))), ()) if roots else ()


def _parts(word: str, words: Lexicon) -> list[Gloss]:
    """Read a compound by its parts; all of them are meant."""
    shortest = MIN_PART[words.language]
    if len(word) < 2 * shortest:
        return []
    for cut in range(len(word) - shortest, shortest - 1, -1):
        if head := _known(word[:cut], words):
            tail = _known(word[cut:], words)
            rest = [Gloss(word[cut:], tail)] if tail else _parts(word[cut:], words)
            if rest:
                return [Gloss(word[:cut], head), *rest]
    return []


def _known(part: str, words: Lexicon) -> tuple[Sense, ...]:
    for link in _LINKS if words.language == "de" else ("",):
        bare = part.removesuffix(link) if link else part
        if len(bare) >= MIN_PART[words.language] and (found := words.of(bare)):
            return found
    return ()


def _by_beginning(word: str, words: Lexicon) -> tuple[Sense, ...]:
    """Find the form that shares most of its beginning with a word."""
    best, share = None, PREFIX_SHARE
    for key in words.prefixes.get(word[:4], ()):
        same = next((i for i, (a, b) in enumerate(zip(word, key, strict=False)) if a != b), min(len(word), len(key)))
        if same >= MIN_SAME and same / max(len(word), len(key)) > share:
            best, share = key, same / max(len(word), len(key))
    return () if best is None else words.of(best)


def _segmented(run: str, words: Lexicon) -> list[Gloss]:
    """Cut a run without spaces so that known words cover most of it, long ones first."""
    text = normal(run, words.language)
    if len(text) != len(run):
        run = text
    best: list[tuple[float, int]] = [(0.0, 0)] * (len(text) + 1)
    for end in range(1, len(text) + 1):
        best[end] = (best[end - 1][0], end - 1)
        for start in range(max(0, end - words.longest), end):
            if worth := _worth(text, start, end, words):
                best[end] = max(best[end], (best[start][0] + worth, start))
    cuts = [len(text)]
    while cuts[-1]:
        cuts.append(best[cuts[-1]][1])
    units: list[Gloss] = []
    for start, end in zip(cuts[::-1], cuts[-2::-1], strict=False):
        part = text[start:end]
        said = words.function_words.get(part)
        known = words.of(part) if said is None else said
        units.append(Gloss(run[start:end], known if _worth(text, start, end, words) else (), said is not None))
    return _unknown_joined(units)


def _worth(text: str, start: int, end: int, words: Lexicon) -> float:
    """Rate a match: by its length, and little for one character or a verb's stem, which needs an ending after it."""
    part = text[start:end]
    if part in words.function_words:
        return len(part) ** 1.4 if len(part) > 1 else 0.6
    if part in words.forms:
        return len(part) ** 1.5 if len(part) > 1 else 0.5
    if part in words.stems:
        followed = end < len(text) and "\u3041" <= text[end] <= "\u309f"
        return len(part) ** 1.45 if len(part) > 1 else 0.9 * followed
    return 0.0


def _unknown_joined(units: Sequence[Gloss]) -> list[Gloss]:
    joined: list[Gloss] = []
    for unit in units:
        plain = not unit.senses and not unit.function
        if plain and joined and not joined[-1].senses and not joined[-1].function:
            joined[-1] = Gloss(joined[-1].text + unit.text)
        else:
            joined.append(unit)
    return joined
