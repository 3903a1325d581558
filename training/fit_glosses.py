"""Fit the map that moves the vector of a gloss to that of the English request it stands for.

    python -m training.fit_glosses

The pairs are the training requests of all languages. Each is glossed with a lexicon that was learned from the other
requests, since a lexicon that knows a request makes a better gloss of it than of a new one. The map is a ridge
regression towards the identity: what the pairs do not show stays as it is.
"""

import argparse
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shortlist.index.embedders import Embedder, Vectors, shipped
from shortlist.search.fitted import FOLDER, gloss_file, save_glosses
from shortlist.text.languages.glossing import gloss, written_out
from shortlist.text.languages.lexicon import LANGUAGES, parse_lexicon
from shortlist.text.queries import READING_WEIGHTS
from training.bench import data_folder
from training.lexicon import Pair, learned, lists, training_pairs, written

FOLDS = 5
PENALTY = 100.0
"""Of 10, 30, 60, 100, 300 and more: the best on the development requests."""


def examples(language: str, pairs: list[Pair], data: Path) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the texts that stand for a request in the search, and the request in English."""
    for fold in range(FOLDS):
        others = [pair for pair in pairs if fold_of(pair.english) != fold]
        words = parse_lexicon(language, written(learned(language, lists(language, data), others)))
        for query, english in (pair for pair in pairs if fold_of(pair.english) == fold):
            units = gloss(query, language, words)
            yield (written_out(units), written_out(units, 1)), english


def fit(glosses: Vectors, english: Vectors, penalty: float = PENALTY) -> NDArray[np.float32]:
    """Find the map that moves the glosses nearest to the English requests, at a price for leaving the identity."""
    identity = penalty * np.eye(glosses.shape[1])
    found: NDArray[np.float32] = np.linalg.solve(glosses.T @ glosses + identity, glosses.T @ english + identity)
    return found.astype(np.float32)


def fold_of(english: str) -> int:
    """Return the part of the intents that a request in English belongs to."""
    return zlib.crc32(english.encode()) % FOLDS


def _embedded(embedder: Embedder, texts: tuple[str, ...]) -> Vectors:
    found: Vectors = np.array(READING_WEIGHTS, np.float32) @ np.array([embedder.embed_query(text) for text in texts])
    return found / np.linalg.norm(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=data_folder())
    parser.add_argument("--embedder", default="small")
    options = parser.parse_args()
    embedder = shipped(options.embedder)
    if embedder is None:
        parser.error("a map of vectors needs a model")
    pairs = training_pairs(options.data)
    both = [each for language in LANGUAGES for each in examples(language, pairs[language], options.data)]
    glosses = np.array([_embedded(embedder, texts) for texts, _ in both])
    english = np.array([embedder.embed_query(request) for _, request in both])
    file = gloss_file(FOLDER / f"{embedder.model_id.partition('@')[0]}.json")
    save_glosses(file, fit(glosses, english))
    print(f"{len(both)} pairs, {file.name}")


if __name__ == "__main__":
    main()
