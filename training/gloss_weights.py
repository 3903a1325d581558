"""Fit what the features of a candidate count more or less for a request that was read word by word.

    python -m training.gloss_weights

A gloss has other errors than an English request. The requests are those training requests whose tools are on servers
that no model has seen, each glossed with a lexicon learned from the other requests. What is fitted is added to the
weights of the fusion that do not depend on the query, at a price, so that little data changes little.
"""

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from shortlist.catalog.catalog import Catalog
from shortlist.index.cache import StoredVectors
from shortlist.index.embedders import Embedder, shipped
from shortlist.models import Query
from shortlist.paths import cache_folder
from shortlist.search.fitted import FOLDER, fitted_to
from shortlist.search.fusion import CANDIDATE_FEATURES
from shortlist.search.pipeline import Evidence
from shortlist.search.searcher import Searcher, SearchOptions
from shortlist.storage.sqlite_vectors import SqliteVectors
from shortlist.text.languages import glossing, reading
from shortlist.text.languages.lexicon import LANGUAGES, Lexicon, lexicon, parse_lexicon
from training.bench import Folder, data_folder, read_lines
from training.fit_glosses import FOLDS, fold_of
from training.holdout import is_held_out
from training.lexicon import learned, lists, training_pairs, written

PENALTY = 0.01
"""Of 0.001, 0.003, 0.01, 0.03 and 0.1: the best on requests of other intents (`--check`)."""


class Sample(NamedTuple):
    """A request's candidates, and which of them are right."""

    fold: int
    evidence: Evidence
    right: NDArray[np.bool_]


def samples(data: Path, embedder: Embedder) -> Iterator[Sample]:
    """Yield the held-out requests, as a search sees them with a lexicon that does not know them."""
    cache = StoredVectors(SqliteVectors(cache_folder() / "vectors.sqlite"))
    searcher = Searcher(
        Catalog.of(Folder(data / "train" / "authored").tools), embedder, options=SearchOptions(cache=cache)
    )
    searcher.prepare()
    pairs = training_pairs(data)
    asked = {pair.query for each in pairs.values() for pair in each}
    held = [
        record
        for record in read_lines(data / "languages" / "train.jsonl.gz")
        if record["query"] in asked and is_held_out("authored", record["gold"])
    ]
    for fold in range(FOLDS):
        words = {
            language: parse_lexicon(
                language,
                written(
                    learned(language, lists(language, data), [p for p in pairs[language] if fold_of(p.english) != fold])
                ),
            )
            for language in LANGUAGES
        }
        with_lexicons(words)
        for record in held:
            if fold_of(record["english"]) == fold and reading.read_query(record["query"]) is not None:
                evidence = searcher.evidence(Query(text=record["query"]))
                gold = [searcher.index.rows[tool_id] for tool_id in record["gold"]]
                yield Sample(fold, evidence, np.isin(evidence.rows, gold))
    with_lexicons(None)


def with_lexicons(words: Mapping[str, Lexicon] | None) -> None:
    """Let requests be read with other lexicons; None: those of the package."""
    vars(glossing)["lexicon"] = lexicon if words is None else words.__getitem__
    reading.read_query.cache_clear()


def fit(found: list[Sample], theta: NDArray[np.float32], penalty: float = PENALTY) -> NDArray[np.float32]:
    """Find what added to the weights makes the right tools likeliest, each against all that are wrong."""
    usable = [sample for sample in found if sample.right.any()]
    added = torch.zeros(len(CANDIDATE_FEATURES), requires_grad=True)
    optimiser = torch.optim.LBFGS([added], max_iter=60, line_search_fn="strong_wolfe")
    known = [
        (
            torch.from_numpy(sample.evidence.candidates),
            torch.from_numpy(sample.evidence.candidates @ (theta @ sample.evidence.query)),
            torch.from_numpy(sample.right),
        )
        for sample in usable
    ]

    def loss() -> torch.Tensor:
        optimiser.zero_grad()
        value = penalty * (added**2).sum()
        for candidates, scores, right in known:
            value = value + _unlikeliness(scores + candidates @ added, right) / len(known)
        value.backward()
        return value

    optimiser.step(loss)
    return added.detach().numpy()


def _unlikeliness(scores: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    wrong = torch.logsumexp(scores[~right], dim=0)
    return (torch.logaddexp(scores[right], wrong) - scores[right]).mean()


def quality(found: list[Sample], theta: NDArray[np.float32], added: NDArray[np.float32]) -> float:
    """Return the mean nDCG@10."""
    gains = 1 / np.log2(np.arange(10) + 2)
    values = []
    for sample in found:
        scores = sample.evidence.candidates @ (theta @ sample.evidence.query + added)
        order = np.argsort(-scores, kind="stable")[:10]
        values.append(float(gains[: len(order)] @ sample.right[order]))
    return 100 * float(np.mean(values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=data_folder())
    parser.add_argument("--embedder", default="small")
    parser.add_argument("--check", action="store_true", help="print the quality on intents left out, by penalty")
    options = parser.parse_args()
    embedder = shipped(options.embedder)
    if embedder is None:
        parser.error("the weights of a gloss are fitted for a model")
    theta = fitted_to(embedder).fusion.theta
    found = list(samples(options.data, embedder))
    nothing = np.zeros(len(CANDIDATE_FEATURES), np.float32)
    print(f"{len(found)} requests, nDCG@10 before {quality(found, theta, nothing):.2f}")
    for penalty in (0.001, 0.003, 0.01, 0.03, 0.1) if options.check else ():
        parts = [[s for s in found if s.fold == fold] for fold in range(FOLDS)]
        fits = [fit([s for s in found if s.fold != fold], theta, penalty) for fold in range(FOLDS)]
        left_out = sum(len(part) * quality(part, theta, added) for part, added in zip(parts, fits, strict=True))
        print(f"penalty {penalty}: {left_out / len(found):.2f} on intents left out")
    file = FOLDER / f"{embedder.model_id.partition('@')[0]}.json"
    fitted: dict[str, Any] = json.loads(file.read_text("utf-8"))
    fitted["fusion"]["glossed"] = fit(found, theta).round(5).tolist()
    file.write_text(json.dumps(fitted) + "\n", "utf-8")


if __name__ == "__main__":
    main()
