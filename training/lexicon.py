"""Make the lexicons that the package ships, from the lists written for this project and the training requests.

    python -m training.lexicon

Three sources a language: the list of the benchmark folder, `training/words/` beside this file (function words, verbs
in the forms people ask with, more tool words), and what the training requests say together with their English
counterparts: which of several English words a form mostly stands for, and words that neither list has.
"""

import argparse
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from shortlist.text.languages.glossing import gloss
from shortlist.text.languages.lexicon import FUNCTION_WORD, LANGUAGES, UNSPACED, Lexicon, parse_lexicon
from shortlist.text.languages.spelling import normal, stems
from shortlist.text.tokens import STOPWORDS, terms
from training.bench import data_folder, read_lines
from training.texts import normalised

WORDS = Path(__file__).parent / "words"
SHIPPED = Path("src/shortlist/text/data/languages")
ROUNDS = 6
PRIOR = 4.0
"""How many requests the lists count as, beside the requests in which a form stands."""
SEEN_AT_LEAST = 3
LIKELY = 0.25
"""A new gloss must be at least so likely, and seen with its form so often."""
FUNCTION_LIKELY = 0.15
"""How many times a function word must yield its English one each time it stands in a request."""
LEFT_OVER = 0.3
"""How much of what no function word explains is expected without any, as `the` is beside Russian words."""
_WORD = re.compile("[a-z]+(?:'[a-z]+)?")
CLIPPED = {
    "sery": "series", "specy": "species", "movy": "movie", "alway": "always", "statu": "status",
    "analysi": "analysis", "acces": "access", "addres": "address", "proces": "process", "busines": "business",
}  # fmt: skip


class Entry(NamedTuple):
    """A form, the English it stands for, and how likely."""

    english: str
    form: str
    weight: float


class Pair(NamedTuple):
    """A request and what it is in English."""

    query: str
    english: str


def lists(language: str, data: Path) -> list[Entry]:
    """Return both written lists; an earlier form of an entry is the more usual one."""
    return [*_listed(WORDS / f"{language}.tsv", 1.5), *_listed(data / "languages" / "lexicon" / f"{language}.tsv", 1.0)]


def _listed(path: Path, weight: float) -> Iterator[Entry]:
    for place, line in enumerate(path.read_text("utf-8").splitlines()):
        english, _, forms = line.partition("\t")
        usual = weight / (1 + place / 400) ** 0.5
        for position, form in enumerate(filter(None, (form.strip() for form in forms.split("|")))):
            yield Entry(CLIPPED.get(english, english), form, usual * 0.85**position)


def written(entries: Iterable[Entry]) -> str:
    """Write entries as the package reads them."""
    forms: dict[str, dict[str, float]] = defaultdict(dict)
    for english, form, weight in entries:
        forms[english][form] = max(weight, forms[english].get(form, 0.0))
    lines = []
    for english, found in sorted(forms.items(), key=lambda each: not each[0].startswith(FUNCTION_WORD)):
        is_function = english.startswith(FUNCTION_WORD)
        weighed = (form if is_function else f"{form}={weight:.2g}" for form, weight in found.items())
        lines.append(f"{english}\t{'|'.join(weighed)}\n")
    return "".join(lines)


def learned(language: str, entries: Sequence[Entry], pairs: Sequence[Pair]) -> list[Entry]:
    """Weigh the entries by the requests, and add what these show: expectation maximisation over word pairs."""
    known = parse_lexicon(language, written(entries))
    spelled = Counter(word for pair in pairs for word in pair.english.lower().split())
    sentences = [(_sources(pair.query, language, known), _targets(pair.english)) for pair in pairs]
    prior = {form: _prior(form, known) for sources, _ in sentences for form in sources}
    chance: dict[str, dict[str, float]] = {form: dict(given) for form, given in prior.items()}
    for _ in range(ROUNDS):
        counts: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for sources, targets in sentences:
            for target in targets:
                rates = [(form, chance[form].get(target, 0.002)) for form in sources]
                total = sum(rate for _, rate in rates) + 0.02
                for form, rate in rates:
                    counts[form][target] += rate / total
        for form, found in counts.items():
            given = prior[form]
            mass = sum(found.values()) + PRIOR * sum(given.values())
            both = {target: found[target] + PRIOR * given.get(target, 0.0) for target in {*found, *given}}
            chance[form] = {target: value / mass for target, value in both.items()}
    seen = Counter(form for sources, _ in sentences for form in set(sources))
    together = Counter(
        (form, target) for sources, targets in sentences for form in set(sources) for target in set(targets)
    )
    surface = _surfaces(spelled)
    every = _weighed(entries, chance, known) + [
        Entry(surface.get(target, target), form, round(rate, 2))
        for form, rates in chance.items()
        if seen[form] >= SEEN_AT_LEAST and len(form) > 1
        for target, rate in sorted(rates.items(), key=lambda each: -each[1])[:2]
        if rate >= LIKELY
        and together[form, target] >= max(SEEN_AT_LEAST, 0.4 * seen[form])
        and target not in prior[form]
    ]
    said = function_words(parse_lexicon(language, written(every)), pairs)
    return [entry._replace(english=_said(entry, said, language)) for entry in every]


def _said(entry: Entry, said: Mapping[str, str], language: str) -> str:
    if entry.english != FUNCTION_WORD:
        return entry.english
    return FUNCTION_WORD + said.get(_exact(entry.form, language), "")


def function_words(known: Lexicon, pairs: Sequence[Pair]) -> dict[str, str]:
    """Return the English word that each function word mostly stands for: what no other word of the request explains."""
    sentences = [_function_sides(pair, known) for pair in pairs]
    seen = Counter(form for forms, _ in sentences for form in forms)
    chance: dict[str, dict[str, float]] = {form: {} for form in seen}
    alone: dict[str, float] = {}
    for turn in range(ROUNDS):
        guess = 0.02 if not turn else 0.0
        counts: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        unexplained: dict[str, float] = defaultdict(float)
        for forms, targets in sentences:
            for target in targets:
                rates = [(form, chance[form].get(target, guess)) for form in forms]
                rest = alone.get(target, 0.01)
                total = sum(rate for _, rate in rates) + rest
                for form, rate in rates:
                    counts[form][target] += rate / total
                unexplained[target] += rest / total
        chance = {form: {t: count / seen[form] for t, count in counts[form].items()} for form in seen}
        alone = {target: LEFT_OVER * count / len(sentences) for target, count in unexplained.items()}
    likeliest = {form: max(rates.items(), key=lambda each: each[1]) for form, rates in chance.items() if rates}
    return {
        form: target
        for form, (target, rate) in likeliest.items()
        if seen[form] >= SEEN_AT_LEAST and rate >= FUNCTION_LIKELY and form in known.function_words
    }


def _function_sides(pair: Pair, known: Lexicon) -> tuple[list[str], list[str]]:
    """Return the function and unknown words of a request, and the English function words that no other explains."""
    forms: list[str] = []
    explained: set[str] = set()
    for unit in gloss(pair.query, known.language, known):
        if unit.function or (not unit.senses and not unit.text.isascii()):
            forms.append(_exact(unit.text, known.language))
        for english in [sense.english for sense in unit.senses] or [unit.text.lower()]:
            explained |= {*english.split(), *terms(english)}
    return forms, [word for word in _WORD.findall(pair.english.lower()) if word in STOPWORDS and word not in explained]


def _weighed(entries: Sequence[Entry], chance: Mapping[str, Mapping[str, float]], known: Lexicon) -> list[Entry]:
    language = known.language
    found = []
    for english, form, weight in entries:
        rates = chance.get(_key(form, language, known))
        target = (terms(english) or [""])[0]
        found.append(Entry(english, form, weight * (0.3 + 2 * rates[target]) if rates and target in rates else weight))
    return found


def _key(form: str, language: str, known: Lexicon) -> str:
    """Return what a form is learned under: itself where it is listed, since a listed form hides its stem; else that."""
    exact = _exact(form, language)
    if " " in exact or exact in known.forms:
        return exact
    return next(iter(stems(form, language)), exact)


def _exact(form: str, language: str) -> str:
    if language in UNSPACED:
        return normal(form, language)
    return " ".join(normal(word, language) for word in form.split())


def _sources(query: str, language: str, known: Lexicon) -> list[str]:
    """Return the words of a request by the keys that they are learned under."""
    units = gloss(query, language, known)
    return [
        _key(unit.text, language, known)
        for unit in units
        if not unit.function
        and not unit.text.isdigit()
        and (unit.senses or not unit.text.isascii() or language in SPELLED_IN_ASCII)
    ]


SPELLED_IN_ASCII = frozenset({"de", "es", "fr", "it", "pl", "pt", "tr", "vi", "hi"})


def _targets(english: str) -> list[str]:
    return list(dict.fromkeys(terms(english)))


def _prior(form: str, known: Lexicon) -> dict[str, float]:
    senses = known.forms.get(form) or known.stems.get(form) or ()
    total = sum(sense.weight for sense in senses) or 1.0
    found: dict[str, float] = defaultdict(float)
    for sense in senses:
        for target in terms(sense.english)[:1]:
            found[target] += sense.weight / total
    return dict(found)


def _surfaces(spelled: Mapping[str, int]) -> dict[str, str]:
    """Return the commonest spelling of each stem."""
    best: dict[str, tuple[int, str]] = {}
    for word, count in spelled.items():
        bare = word.strip(".,!?;:'\"()")
        found = terms(bare)
        if len(found) == 1 and bare.isalpha():
            best[found[0]] = max(best.get(found[0], (0, "")), (count, bare))
    return {stem: word for stem, (_, word) in best.items()}


def training_pairs(data: Path) -> dict[str, list[Pair]]:
    """Return the training requests by language, less the few that happen to be development requests too."""
    measured = {normalised(record["query"]) for record in read_lines(data / "languages" / "dev.jsonl.gz")}
    found: dict[str, list[Pair]] = defaultdict(list)
    for record in read_lines(data / "languages" / "train.jsonl.gz"):
        if normalised(record["query"]) not in measured:
            found[record["language"]].append(Pair(record["query"], record["english"]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=data_folder())
    parser.add_argument("--out", type=Path, default=SHIPPED)
    options = parser.parse_args()
    pairs = training_pairs(options.data)
    options.out.mkdir(parents=True, exist_ok=True)
    for language in LANGUAGES:
        entries = learned(language, lists(language, options.data), pairs[language])
        (options.out / f"{language}.tsv").write_text(written(entries), "utf-8")
        print(language, len({entry.form for entry in entries}), "forms")


if __name__ == "__main__":
    main()
