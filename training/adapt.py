"""Does fitting the vectors to the catalog at hand, at index time, earn its keep? Measured on the development part.

    python -m training.adapt

Ways that take seconds on a CPU: centring, whitening, taking off what a tool has in common with its neighbours, and a
linear map of the queries fitted on what the catalog says of itself (a tool's name and first sentence should find it).
"""

import argparse
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch

from shortlist.index.embedders import Embedder, shipped
from training.metrics import Score, Vectors, judged, rank, score_of
from training.mining import NEAR_DUPLICATE
from training.prepared import RankingSet, read_sets

Way: TypeAlias = Callable[[Vectors, Vectors], tuple[Vectors, Vectors]]
"""Changes queries and documents."""

LARGEST, MOST_QUERIES = 2_500, 1_500
STEPS, BATCH, RATE, TEMPERATURE, SEED = 150, 256, 2e-3, 0.05, 0
PENALTIES = (0.01, 0.1, 1.0)
RIDGES = (1.0, 4.0)
NEIGHBOURS, SHARES = 10, (0.15, 0.3)


def unit(vectors: Vectors) -> Vectors:
    made: Vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    return made


def own_words(passage: str) -> Iterator[str]:
    """Return what a tool says of itself: its name, and its first sentence."""
    name, _, about = passage.partition(":")
    yield name.strip()
    sentence = re.split(r"(?<=[.!?])\s", about.strip())[0]
    if sentence:
        yield sentence[:160]


def centred(documents: Vectors) -> Way:
    mean = documents.mean(0)
    return lambda asked, told: (asked, unit(told - mean))


def whitened(documents: Vectors, ridge: float) -> Way:
    mean = documents.mean(0)
    values, axes = np.linalg.eigh(np.cov((documents - mean).T))
    turn = (axes / np.sqrt(values + ridge * values.mean())) @ axes.T
    return lambda asked, told: (unit((asked - mean) @ turn), unit((told - mean) @ turn))


def uncrowded(documents: Vectors, share: float) -> Way:
    """Take off a share of each tool's mean cosine with its neighbours, by a dimension that every query has."""
    alike = np.sort(documents @ documents.T, axis=1)[:, -NEIGHBOURS - 1 : -1]
    crowd = (share * alike.mean(axis=1, keepdims=True)).astype(np.float32)
    return lambda asked, told: (np.hstack([asked, -np.ones((len(asked), 1), np.float32)]), np.hstack([told, crowd]))


def mapped(documents: Vectors, words: Vectors, owners: Sequence[int], penalty: float) -> Way:
    """Fit a map of queries, near to none at all, under which each tool's own words find it among all tools."""
    torch.manual_seed(SEED)
    asked, told, owner = torch.from_numpy(words), torch.from_numpy(documents), torch.tensor(owners)
    alike = told @ told.T > NEAR_DUPLICATE
    change = torch.zeros(told.shape[1], told.shape[1], requires_grad=True)
    optimiser = torch.optim.Adam([change], lr=RATE)
    for _ in range(STEPS):
        rows = torch.randint(len(asked), (BATCH,))
        moved = torch.nn.functional.normalize(asked[rows] + asked[rows] @ change, dim=1)
        unfair = alike[owner[rows]].scatter(1, owner[rows, None], value=False)
        scores = (moved @ told.T / TEMPERATURE).masked_fill(unfair, -torch.inf)
        loss = torch.nn.functional.cross_entropy(scores, owner[rows]) + penalty * (change**2).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    found = change.detach().numpy()
    return lambda queries, documents: (unit(queries + queries @ found), documents)


def ways(embedder: Embedder, passages: Sequence[str], documents: Vectors) -> Iterator[tuple[str, Way]]:
    yield "as it is", lambda queries, documents: (queries, documents)
    yield "centred", centred(documents)
    for ridge in RIDGES:
        yield f"whitened, ridge {ridge}", whitened(documents, ridge)
    for share in SHARES:
        yield f"less {share} of the crowd", uncrowded(documents, share)
    said = [(text, number) for number, passage in enumerate(passages) for text in own_words(passage)]
    words = embedder.embed_documents([text for text, _ in said])
    for penalty in PENALTIES:
        yield f"queries mapped, penalty {penalty}", mapped(documents, words, [n for _, n in said], penalty)


def compare(embedder: Embedder, each: RankingSet) -> Mapping[str, Score]:
    """Rank one set's queries by each way."""
    documents = embedder.embed_documents(each.texts)
    asked = each.queries[:MOST_QUERIES]
    queries = np.stack([embedder.embed_query(text) for text in asked])
    return {
        name: score_of(judged(rank(*way(queries, documents)), each.golds[: len(asked)]))
        for name, way in ways(embedder, each.texts, documents)
    }


def main() -> None:
    """Print nDCG@10 of every way on every development set, and the mean over the sets."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--sets", type=Path, default=Path("training/.work/dev.jsonl.gz"))
    parser.add_argument("--embedder", default="small")
    arguments = parser.parse_args()
    embedder = shipped(arguments.embedder)
    if embedder is None:
        raise SystemExit("There is nothing to adapt without a model.")
    found: dict[str, list[float]] = {}
    for each in read_sets(arguments.sets):
        if len(each.texts) > LARGEST:
            continue
        scores = compare(embedder, each)
        print(each.name, {name: round(score.ndcg10, 1) for name, score in scores.items()}, flush=True)
        for name, score in scores.items():
            found.setdefault(name, []).append(score.ndcg10)
    print("mean", {name: round(float(np.mean(values)), 2) for name, values in found.items()})


if __name__ == "__main__":
    main()
