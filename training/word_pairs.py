"""Make the list of English words that follow each other, from the texts that models may be trained on.

    python -m training.word_pairs

The speller reads it to tell which of several words was meant: "the wether in Berlin" is about weather. Held-out
requests are left out, so that spelling can be measured on them.
"""

import argparse
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from shortlist.text.languages.lexicon import english_words
from shortlist.text.pairs import START, STRONGEST
from training.bench import Folder, data_folder
from training.holdout import is_held_out

SHIPPED = Path("src/shortlist/text/data/pairs.txt")
SEEN = 3
"""How often two words must follow each other to be kept."""
DESCRIPTION_CHARS = 400
_BREAK = re.compile(r"[.!?;:,()\[\]\"\n]+|\s-\s")


def texts(data: Path) -> Iterator[str]:
    """Yield the parts of tool descriptions, each once in a folder, and the requests that are not held out."""
    for folder in map(Folder, sorted([*(data / "train").iterdir(), *(data / "catalogs").iterdir()])):
        if not (folder.path / "tools.jsonl.gz").exists():
            continue
        yield from {part for tool in folder.tools for part in _BREAK.split(tool.description[:DESCRIPTION_CHARS])}
        if folder.name in ("authored", "labelled"):
            asked = (case.query for case in folder.cases if not is_held_out(folder.name, case.gold))
            yield from (part for query in asked if query.isascii() for part in _BREAK.split(query))


def pairs_of(data: Path) -> Counter[tuple[str, str]]:
    """Count the ordinary words that follow each other; the first of a text follows its start."""
    known, found = english_words(), Counter[tuple[str, str]]()
    for text in texts(data):
        words = [START, *text.lower().split()]
        found.update(pair for pair in pairwise(words) if pair[1] in known and (pair[0] in known or pair[0] == START))
    return found


def lines(pairs: Counter[tuple[str, str]]) -> Iterator[str]:
    """Yield a line for each first word: the words behind it, each with how often it was seen, as a digit."""
    behind: defaultdict[str, list[str]] = defaultdict(list)
    for (first, second), count in sorted(pairs.items()):
        if count >= SEEN:
            behind[first].append(f"{second}{min(int(math.log2(count)), STRONGEST)}")
    yield from (" ".join((first, *seconds)) for first, seconds in behind.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=data_folder())
    parser.add_argument("--out", type=Path, default=SHIPPED)
    options = parser.parse_args()
    found = list(lines(pairs_of(options.data)))
    options.out.write_text("\n".join(found) + "\n", "utf-8")
    print(f"{sum(line.count(' ') for line in found)} pairs, {options.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
