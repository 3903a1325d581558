"""What people write and what tools are called: abbreviations and synonyms, from files that users extend."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TypeAlias

from shortlist.errors import InvalidInput
from shortlist.text.tokens import ascii_words, split_identifier, stem, terms

Phrases: TypeAlias = tuple[tuple[str, ...], ...]

_PLAIN_WORD = re.compile(r"(?<![\w./:=@#<{-])[A-Za-z]\w*(?![\w/:=@>}-]|\.\w)")
"""A word that stands alone: no part of a path, an address, a tag or a name that is spelled out."""
_RUN = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Expansions:
    """Terms that may stand for others, and the abbreviations that are short for one thing alone."""

    phrases: Mapping[str, Phrases]
    long_forms: Mapping[str, str]

    def spelled_out(self, text: str) -> str:
        """Write abbreviations out, as a model knows them; `Mr` and `Li` are names, `MR` and `mr` are not."""
        if self.long_forms.keys().isdisjoint(ascii_words(text) if text.isascii() else _RUN.findall(text.lower())):
            return text  # as most are, and looking at every word takes its time
        return _PLAIN_WORD.sub(self._long_form, text)

    def _long_form(self, found: re.Match[str]) -> str:
        word = found[0]
        return word if word.istitle() else self.long_forms.get(word.lower(), word)

    def added_to(self, others: "Expansions") -> "Expansions":
        """Put these before others: what they say an abbreviation is short for holds."""
        phrases = dict(others.phrases)
        for word, mine in self.phrases.items():
            phrases[word] = tuple(dict.fromkeys((*mine, *phrases.get(word, ()))))
        kept = {word: meant for word, meant in others.long_forms.items() if word not in self.phrases}
        return Expansions(phrases, {**kept, **self.long_forms})


@cache
def shipped_expansions() -> Expansions:
    text = resources.files("shortlist.text").joinpath("data", "expansions.txt").read_text("utf-8")
    return parse_expansions(text, "expansions.txt")


def read_expansions(*files: Path) -> Expansions:
    """Add the user's own entries to those that are shipped."""
    table = shipped_expansions()
    for file in files:
        table = parse_expansions(_read(file), file.name).added_to(table)
    return table


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except OSError as error:
        raise InvalidInput(f"The expansions in {file} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise InvalidInput(f"The expansions in {file} cannot be read: {error}.") from None


def parse_expansions(text: str, name: str) -> Expansions:
    """Read lines of `word => phrase, phrase`; `<=>` goes both ways."""
    phrases: dict[str, list[tuple[str, ...]]] = {}
    said: dict[str, set[str]] = {}
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.partition("#")[0].strip()
        for source, target in _entries(line, f"{name} line {number}"):
            phrases.setdefault(source, []).append(target)
        left, _, right = (part.strip(" <=>").lower() for part in line.partition("=>"))
        said.setdefault(left, set()).add(right)
    alone = {word: each.pop() for word, each in said.items() if len(each) == 1}
    return Expansions(
        {word: tuple(dict.fromkeys(each)) for word, each in phrases.items()},
        {word: phrase for word, phrase in alone.items() if _is_short_for(word, phrase)},
    )


def _entries(line: str, place: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    if not line:
        return
    left, arrow, right = line.partition("<=>") if "<=>" in line else line.partition("=>")
    word = [stem(part) for part in split_identifier(left)]
    phrases = [tuple(terms(part)) for part in right.split(",")]
    if not arrow or not word or not all(phrases):
        raise InvalidInput(f"{place}: expected `word => phrase, phrase`, found {line!r}.")
    if len(word) == 1:
        yield from ((word[0], phrase) for phrase in phrases)
    if arrow == "<=>":
        yield from ((phrase[0], tuple(word)) for phrase in phrases if len(phrase) == 1)


def _is_short_for(word: str, phrase: str) -> bool:
    """Say whether a word is short for a phrase: its letters stand there in this order, `k8s` in `kubernetes`."""
    letters, rest = [c for c in word if c.isalpha()], iter(phrase)
    short = word.isalnum() and 3 * len(word) <= 2 * len(phrase) and "," not in phrase
    return short and phrase.startswith(word[0]) and all(letter in rest for letter in letters)
