"""Make the lists of English words that the package ships, from the texts that models may be trained on.

    python -m training.english_words --dictionary /usr/share/dict/american-english --larger …/american-english-large

A word is ordinary if a request or a tool text has it and the dictionary (Debian's wamerican) does too, or if so many
texts have it that it cannot be a typing error: names of products, words of the trade. The rest of the dictionary is a
list of its own, with words of a larger one (wamerican-large) that no slip makes of a common word, words that several
servers use, and those of `words/modern.txt`: such a word is never taken for a typing error, and says nothing about the
language of a request. The names among the words of the dictionary, and those of `words/names.txt`, are a list of their
own: a name becomes an argument of a call, so it says nothing about which tool is asked for.
"""

import argparse
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from shortlist.text.languages.glossing import LATIN
from shortlist.text.languages.lexicon import FUNCTION_WORD
from shortlist.text.slips import one_slip_from
from shortlist.text.tokens import STOPWORDS
from training.bench import Folder, data_folder, folders
from training.lexicon import WORDS

SHIPPED = Path("src/shortlist/text/data/english.txt")
RARER = Path("src/shortlist/text/data/dictionary.txt")
MODERN = WORDS / "modern.txt"
NAMES, MORE_NAMES = Path("src/shortlist/text/data/names.txt"), WORDS / "names.txt"
BRANDS = WORDS / "brands.txt"
"""Names that say which tool is asked for."""
SEEN_BY = 25
"""Servers and requests that must have a word which no dictionary has."""
USED_BY = 4
"""Servers whose texts must have a word for it not to be a typing error, whatever the dictionary says."""
MIN_NAME = 4
"""Letters of a name that is kept in small letters too, as people type it (`lyon`), and of a rare word."""
COMMON = 3_000
"""Words that a rare one is more often an error for: `wether` for `weather`."""
SHORT_WORD = 5
"""Dictionary words up to this length are all kept: they are near so many others that they would be corrected first."""
FOREIGN_BELOW = 250
"""A function word of another language counts as English only if it is seen more often, or is listed below."""
ENGLISH_TOO = frozenset({"as", "come", "die", "fin", "fort", "hat", "man", "me", "men", "note", "on", "pan", "per"}) | {
    *("pour", "sent", "sin", "son", "tan", "ten", "van", "war")
}
_WORD = re.compile(r"(?<![\w./:=@#<{&-])[A-Za-z][a-z]{1,17}(?![\w/:=@>}-]|\.\w)")


def words_by_server(data: Path) -> Mapping[str, set[str]]:
    """Return the words in the tool texts of each server."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for folder in _folders(data):
        for tool in folder.tools:
            found[f"{folder.name}/{tool.server}"] |= {word.lower() for word in _WORD.findall(tool.description)}
    return found


def words_of(data: Path) -> Counter[str]:
    """Count the servers and requests in which each word stands."""
    found: Counter[str] = Counter()
    for folder in (each for each in _folders(data) if each.name in ("authored", "labelled")):
        for case in folder.cases:
            if case.query.isascii():
                found.update({word.lower() for word in _WORD.findall(case.query)})
    for words in words_by_server(data).values():
        found.update(words)
    return found


def _folders(data: Path) -> list[Folder]:
    return [*folders(data, "train"), *folders(data, "catalogs")]


def ordinary(counts: Counter[str], dictionary: Path) -> list[str]:
    """Keep the words that the dictionary has, and those that are too common to be errors; the commonest come first."""
    listed = set(dictionary.read_text("utf-8").split())
    foreign = {word for word in _function_words() if counts[word] < FOREIGN_BELOW} - ENGLISH_TOO
    kept = {word for word, count in counts.items() if len(word) > 2 and (word in listed or count >= SEEN_BY)}
    kept |= {
        word for word in listed if 2 < len(word) <= SHORT_WORD and word.isascii() and word.isalpha() and word.islower()
    }
    every = kept - foreign | {word for word in STOPWORDS if word.isalpha()}
    return sorted(every, key=lambda word: (-counts[word], word))


def rarer(words: Collection[str], listed: Collection[str], data: Path) -> list[str]:
    """Return the plain words and longer names of the dictionary, of servers and of today that are not ordinary."""
    used = Counter(word for server in words_by_server(data).values() for word in server)
    names = {word.lower() for word in listed if word.istitle() and len(word) >= MIN_NAME}
    modern = MODERN.read_text("utf-8").split()
    every = {*listed, *names, *modern, *(word for word, count in used.items() if count >= USED_BY)}
    plain = {word for word in every if word.isascii() and word.isalpha() and word.islower() and len(word) > 2}
    return sorted(plain.difference(words))


def names(listed: Collection[str]) -> list[str]:
    """Return first names, places, languages and the like; with a capital where the word in small letters is another."""
    named = {word.lower() for word in listed if word.istitle() and word.isascii() and word.isalpha()}
    kept = {word for word in named.union(_listed(MORE_NAMES)) if len(word) > 2} - STOPWORDS - {*_listed(BRANDS)}
    plain = {word for word in listed if word.islower()}
    return sorted(word.capitalize() if word in plain else word for word in kept)


def _listed(path: Path) -> list[str]:
    return [word for line in path.read_text("utf-8").splitlines() for word in line.partition("#")[0].split()]


def _words(dictionary: Path) -> list[str]:
    return dictionary.read_text("utf-8").split()


def _function_words() -> Iterator[str]:
    for language in LATIN:
        for line in (WORDS / f"{language}.tsv").read_text("utf-8").splitlines():
            english, _, forms = line.partition("\t")
            yield from (form.strip() for form in forms.split("|") if english == FUNCTION_WORD)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=data_folder())
    parser.add_argument("--dictionary", type=Path, default=Path("/usr/share/dict/american-english"))
    parser.add_argument("--larger", type=Path, default=Path("/usr/share/dict/american-english-large"))
    parser.add_argument("--out", type=Path, default=SHIPPED)
    options = parser.parse_args()
    words = ordinary(words_of(options.data), options.dictionary)
    options.out.write_text("\n".join(words) + "\n", "utf-8")
    print(f"{len(words)} words, {options.out.stat().st_size} bytes")
    every_name = names(_words(options.dictionary))
    NAMES.write_text("\n".join(every_name) + "\n", "utf-8")
    print(f"{len(every_name)} names, {NAMES.stat().st_size} bytes")
    larger = [word for word in _words(options.larger) if word.islower() and len(word) >= MIN_NAME]
    common = frozenset(words[:COMMON])
    unlike = [word for word in larger if common.isdisjoint(one_slip_from(word))]
    others = rarer(words, [*_words(options.dictionary), *unlike], options.data)
    RARER.write_text("\n" + "\n".join(others) + "\n", "utf-8")
    print(f"{len(others)} rarer words, {RARER.stat().st_size} bytes")


if __name__ == "__main__":
    main()
