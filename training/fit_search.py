"""Fit fusion and calibration for an embedder, on the development part of `train/` alone.

    python -m training.fit_search --embedder small

The shipped models never trained on that part, so the dense arm looks as good here as it will on new queries.
"""

import argparse
import json
import random
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from shortlist.catalog.catalog import Catalog
from shortlist.index.cache import SqliteVectorCache
from shortlist.index.embedders import Embedder, shipped
from shortlist.index.index import embed_cached
from shortlist.models import Query
from shortlist.paths import cache_folder
from shortlist.search.background import Background
from shortlist.search.confidence import CONFIDENCE_FEATURES, FARTHEST, SURE, confidence_features
from shortlist.search.features import CANDIDATE_FEATURES, QUERY_FEATURES, Evidence
from shortlist.search.fitted import ANY_MODEL, FOLDER, WITHOUT_VECTORS, background_file
from shortlist.search.searcher import Options, Searcher
from shortlist.text.documents import embedding_text
from training.bench import Case, Folder, data_folder
from training.holdout import is_held_out

SEED = 20_26
SETS = ("authored", "toolalpaca", "apibank", "restbench_tmdb", "restbench_spotify", "labelled")
NARROW = ("restbench_tmdb", "restbench_spotify", "apibank")
SMALL_CATALOGS = 12
SMALL_SERVERS = (6, 60)
CASES_PER_SET = 700
LARGEST = 8_000
FALSE_ABSTENTION = 0.045
"""How many answerable queries may be answered `none` on the development sets."""
BACKGROUND_TOOLS = 1_000
ABOUT_THE_MATCH = (
    *("first_cosine", "cosine_best", "first_coverage", "coverage_best", "unknown"),
    *("first_name_recall", "first_lexical_share", "at_large"),
)
"""What says whether catalog and query meet at all; the rest says which tasks were made, or how hits compare."""
FIXED_SHARES = (0.0, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
FUSION_PENALTY = 0.05
FEATURE_PENALTY, PAIR_PENALTY = 0.003, 0.1
"""What a weight of the calibration costs; of some tried, those under which a source left out is judged best."""


@dataclass(frozen=True, slots=True)
class Task:
    """Queries over one catalog; `answerable` is False where the right tools were left out on purpose."""

    name: str
    catalog: Catalog
    cases: tuple[Case, ...]
    answerable: bool = True


@dataclass(frozen=True, slots=True)
class Sample:
    """One query's candidates, which of them are right, and where it came from."""

    task: str
    evidence: Evidence
    right: NDArray[np.bool_]
    answerable: bool
    parameters: NDArray[np.bool_]
    """Which of the candidates say what they take."""
    at_large: float


def tasks(data: Path) -> Iterator[Task]:
    """Give the development queries over catalogs of many sizes, and over catalogs that cannot answer them."""
    chance = random.Random(SEED)
    for name in SETS:
        folder = Folder(data / "train" / name)
        for source, group in _by_source(folder):
            yield Task(f"{name}/{source}", _catalog_of(folder, source), tuple(_some(group, chance)))
    yield from _unrelated(data, chance)
    authored = Folder(data / "train" / "authored")
    held = [case for case in authored.cases if is_held_out("authored", case.gold)]
    for number in range(SMALL_CATALOGS):
        yield from _small(authored, held, chance, number)
    yield _large(data, authored, held, chance)


def _by_source(folder: Folder) -> Iterator[tuple[str, list[Case]]]:
    groups: dict[str, list[Case]] = {}
    for case in folder.cases:
        if is_held_out(case.source, case.gold):
            groups.setdefault(case.source, []).append(case)
    return iter(groups.items())


def _some(cases: Sequence[Case], chance: random.Random) -> list[Case]:
    return chance.sample(list(cases), min(CASES_PER_SET, len(cases)))


def _catalog_of(folder: Folder, source: str) -> Catalog:
    prefixed = [tool for tool in folder.tools if tool.id.startswith(f"{source}|")] or list(folder.tools)
    wanted = {tool_id for case in folder.cases for tool_id in case.gold}
    return Catalog.of([tool for tool in prefixed if tool.id in wanted or len(prefixed) <= LARGEST or _kept(tool.id)])


def _kept(tool_id: str) -> bool:
    """Keep a third of the distractors of very large catalogs, by hash."""
    return zlib.crc32(tool_id.encode()) % 3 == 0


def _small(authored: Folder, held: list[Case], chance: random.Random, number: int) -> Iterator[Task]:
    """Take a few servers at a time, as most people have: with the queries they answer, and with those they do not."""
    servers = sorted({tool.server for tool in authored.tools})
    chosen = set(chance.sample(servers, chance.randint(*SMALL_SERVERS)))
    wanted = {case.gold[0] for case in held}
    chosen |= set(chance.sample(sorted({t.server for t in authored.tools if t.id in wanted}), 6))
    tools = [tool for tool in authored.tools if tool.server in chosen]
    there = {tool.id for tool in tools}
    answered = [case for case in held if case.gold[0] in there]
    absent = [case for case in held if case.gold[0] not in there]
    yield Task(f"small/{number}", Catalog.of(tools), tuple(_some(answered, chance)))
    yield Task(f"absent/{number}", Catalog.of(tools), tuple(chance.sample(absent, min(150, len(absent)))), False)


def _unrelated(data: Path, chance: random.Random) -> Iterator[Task]:
    """Put queries of broad sources over narrow catalogs: films, music, and a few everyday services."""
    asked = [group for _, group in _by_source(Folder(data / "train" / "labelled"))]
    for name in NARROW:
        cases = [case for group in asked for case in chance.sample(group, min(40, len(group)))]
        yield Task(f"absent/{name}", Catalog.of(Folder(data / "train" / name).tools), tuple(cases), False)


def _large(data: Path, authored: Folder, held: list[Case], chance: random.Random) -> Task:
    folders = [Folder(folder) for folder in sorted((data / "catalogs").iterdir())]
    known = {(tool.name, tool.description) for tool in authored.tools}
    more = [
        tool
        for folder in folders
        for tool in folder.tools
        if (tool.name, tool.description) not in known and _kept(tool.server)
    ]
    return Task("large", Catalog.of([*more, *authored.tools]), tuple(chance.sample(held, min(600, len(held)))))


def background_of(data: Path, embedder: Embedder, cache: SqliteVectorCache) -> Background:
    """Embed a sample of the unlabelled catalogs' tools."""
    every = {embedding_text(t) for folder in sorted((data / "catalogs").iterdir()) for t in Folder(folder).tools}
    chosen = random.Random(SEED).sample(sorted(every), BACKGROUND_TOOLS)
    return Background.of(embed_cached(embedder, chosen, cache, None))


def collect(
    every: Iterable[Task], embedder: Embedder | None, cache: SqliteVectorCache, background: Background | None
) -> list[Sample]:
    """Run every query and keep its evidence."""
    samples = []
    for task in every:
        if not task.cases:
            continue
        searcher = Searcher(task.catalog, embedder, options=Options(cache=cache))
        searcher.prepare()
        for case in task.cases:
            evidence = searcher.evidence(Query(text=case.query))
            gold = {searcher.index.rows[i] for i in case.gold if i in searcher.index.rows}
            right = np.isin(evidence.rows, list(gold))
            takes = np.array([searcher.index.lexical.fills(row, "parameters") for row in evidence.rows], np.bool_)
            others = background.nearness(embedder.embed_query(case.query)[None]) if background and embedder else 0.0
            samples.append(Sample(task.name, evidence, right, task.answerable, takes, others))
        print(f"{task.name}: {len(task.cases)} queries over {len(task.catalog)} tools", flush=True)
    return samples


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples padded to one size."""

    candidates: torch.Tensor
    query: torch.Tensor
    right: torch.Tensor
    there: torch.Tensor
    weight: torch.Tensor

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> "Batch":
        size = max(len(s.right) for s in samples)
        candidates = np.zeros((len(samples), size, len(CANDIDATE_FEATURES)), np.float32)
        right, there = np.zeros((2, len(samples), size), np.bool_)
        for row, sample in enumerate(samples):
            count = len(sample.right)
            candidates[row, :count], right[row, :count], there[row, :count] = (
                sample.evidence.candidates,
                sample.right,
                True,
            )
        groups = [_group(s.task) for s in samples]
        counts = Counter(groups)
        weight = np.array([counts[group] ** -0.5 for group in groups], np.float32)
        return cls(
            torch.from_numpy(candidates),
            torch.from_numpy(np.stack([s.evidence.query for s in samples])),
            torch.from_numpy(right),
            torch.from_numpy(there),
            torch.from_numpy(weight / weight.sum()),
        )


def _group(task: str) -> str:
    """Name the set; the small catalogs count as one."""
    return task.partition("/")[0] if task.startswith(("small", "absent")) else task


def best_fixed(samples: Sequence[Sample]) -> float:
    """Find the vectors' share in a fixed mix that ranks best by nDCG@10, all sets counting alike."""
    return max(FIXED_SHARES, key=lambda share: _mean_ndcg(samples, fixed_mix(share).numpy()))


def _mean_ndcg(samples: Sequence[Sample], theta: NDArray[np.float32]) -> float:
    found: dict[str, list[float]] = {}
    for sample in samples:
        if sample.answerable and sample.right.any():
            order = np.argsort(-logits(sample, theta), kind="stable")[:10]
            gains = 1 / np.log2(np.arange(10) + 2)
            ideal = gains[: int(sample.right.sum())].sum()
            found.setdefault(_group(sample.task), []).append(float(gains[: len(order)] @ sample.right[order] / ideal))
    return float(np.mean([np.mean(each) for each in found.values()]))


def fit_fusion(samples: Sequence[Sample], share: float, adaptive: bool = True) -> NDArray[np.float32]:
    """Find the weights under which the right tools are likeliest, each against all that are wrong.

    What is learned is a correction to the best fixed mix, and costs something: where the training sources do not
    agree on one, the mix stays.
    """
    batch = Batch.of([s for s in samples if s.answerable and s.right.any()])
    scale = torch.tensor(8.0, requires_grad=True)
    correction = torch.zeros(len(CANDIDATE_FEATURES), len(QUERY_FEATURES), requires_grad=True)
    optimiser = torch.optim.LBFGS([scale, correction], max_iter=150, line_search_fn="strong_wolfe")

    def theta() -> torch.Tensor:
        return scale * fixed_mix(share) + (correction if adaptive else 0 * correction)

    def loss() -> torch.Tensor:
        optimiser.zero_grad()
        value = _listwise(batch, theta()) + FUSION_PENALTY * (correction**2).mean()
        value.backward()
        return value

    optimiser.step(loss)
    return theta().detach().numpy()


def fixed_mix(share: float) -> torch.Tensor:
    """Write a fixed mix of the two arms as weights of features."""
    theta = torch.zeros(len(CANDIDATE_FEATURES), len(QUERY_FEATURES))
    theta[CANDIDATE_FEATURES.index("lexical"), 0] = 1 - share
    theta[CANDIDATE_FEATURES.index("cosine_place"), 0] = share
    return theta


def _listwise(batch: Batch, theta: torch.Tensor) -> torch.Tensor:
    scores = torch.einsum("bnj,jc,bc->bn", batch.candidates, theta, batch.query).masked_fill(~batch.there, -1e9)
    wrong = torch.logsumexp(scores.masked_fill(batch.right, -1e9), dim=1, keepdim=True)
    each = (torch.logaddexp(scores, wrong) - scores) * batch.right
    return (batch.weight * each.sum(1) / batch.right.sum(1)).sum()


def logits(sample: Sample, theta: NDArray[np.float32]) -> NDArray[np.float32]:
    return sample.evidence.candidates @ (theta @ sample.evidence.query)


def fit_calibration(samples: Sequence[Sample], theta: NDArray[np.float32]) -> dict[str, object]:
    """Fit the chance of the first hit being right (on answerable queries), and of there being a right one."""
    usable = [s for s in samples if len(s.right)]
    described = [_first_hit(sample, theta) for sample in usable]
    matrix, right = np.stack([features for features, _ in described]), np.array([right for _, right in described])
    answerable = np.array([s.answerable for s in usable])
    weight = _even([_group(s.task) for s in usable])
    centre, spread = matrix.mean(0), np.maximum(matrix.std(0), 1e-3)
    usual = ((matrix - centre) / spread).clip(-FARTHEST, FARTHEST)
    among_hits = np.array([name != "at_large" for name in CONFIDENCE_FEATURES])
    telling = np.array([name in ABOUT_THE_MATCH for name in CONFIDENCE_FEATURES])
    right_fit = fit_logistic(usual[answerable], right[answerable], weight[answerable], among_hits)
    present_fit = fit_logistic(usual, answerable, weight, telling)
    sure = right_fit.chances(usual[answerable]) >= SURE
    present = np.where(sure, 1.0, present_fit.chances(usual[answerable]))
    return {
        "features": list(CONFIDENCE_FEATURES),
        "centre": _short(centre),
        "spread": _short(spread),
        "weights": _short(np.stack([right_fit.weights, present_fit.weights])),
        "pairs": _short(np.stack([right_fit.pairs, present_fit.pairs])),
        "bias": _short(np.array([right_fit.bias, present_fit.bias])),
        "none_below": float(np.quantile(present, FALSE_ABSTENTION)),
    }


def _first_hit(sample: Sample, theta: NDArray[np.float32]) -> tuple[NDArray[np.float32], bool]:
    """Describe a sample's first hit and say whether it is right."""
    scores = logits(sample, theta)
    best = int(scores.argmax())
    row, takes = int(sample.evidence.rows[best]), bool(sample.parameters[best])
    features = confidence_features(sample.evidence, scores, row, parameters=takes, at_large=sample.at_large)
    return features, bool(sample.right[best])


def _short(numbers: NDArray[np.floating]) -> object:
    return numbers.astype(np.float64).round(5).tolist()


def _even(groups: list[str]) -> NDArray[np.float32]:
    counts = Counter(groups)
    weight = np.array([counts[group] ** -0.5 for group in groups], np.float32)
    return weight / weight.sum()


@dataclass(frozen=True, slots=True)
class Logistic:
    """A logistic regression over features and their products; `pairs` has what lies above the diagonal, and it."""

    weights: NDArray[np.float32]
    pairs: NDArray[np.float32]
    bias: float

    def chances(self, usual: NDArray[np.float32]) -> NDArray[np.float32]:
        scores = usual @ self.weights + np.einsum("bi,ij,bj->b", usual, self.pairs, usual) + self.bias
        return 1 / (1 + np.exp(-scores))


def fit_logistic(
    usual: NDArray[np.float32], labels: NDArray[np.bool_], weight: NDArray[np.float32], taking_part: NDArray[np.bool_]
) -> Logistic:
    """Fit a weighted logistic regression on some of the standardised features and their products."""
    count = usual.shape[1]
    part = torch.from_numpy(taking_part.astype(np.float32))
    inputs = torch.from_numpy(usual.astype(np.float32)) * part
    wanted, weights = torch.from_numpy(labels.astype(np.float32)), torch.from_numpy(weight / weight.sum())
    slope, bias = torch.zeros(count, requires_grad=True), torch.zeros(1, requires_grad=True)
    pairs = torch.zeros(count, count, requires_grad=True)
    optimiser = torch.optim.LBFGS([slope, pairs, bias], max_iter=300, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimiser.zero_grad()
        scores = inputs @ slope + ((inputs @ pairs.triu()) * inputs).sum(1) + bias
        each = torch.nn.functional.binary_cross_entropy_with_logits(scores, wanted, reduction="none")
        value = (each * weights).sum() + FEATURE_PENALTY * (slope**2).sum() + PAIR_PENALTY * (pairs**2).sum()
        value.backward()
        return value

    optimiser.step(loss)
    found = (slope * part).detach().numpy(), (pairs.triu() * part * part[:, None]).detach().numpy()
    return Logistic(*found, float(bias.detach()[0]))


def report(samples: Sequence[Sample], theta: NDArray[np.float32]) -> dict[str, float]:
    """Top-1 for each task."""
    hits: dict[str, list[bool]] = {}
    for sample in samples:
        if sample.answerable:
            first = bool(len(sample.right) and sample.right[int(logits(sample, theta).argmax())])
            hits.setdefault(_group(sample.task), []).append(first)
    return {task: float(np.mean(found)) for task, found in hits.items()}


def leave_one_out(samples: Sequence[Sample], adaptive: bool) -> dict[str, float]:
    """Top-1 on each source by weights fitted on the others: what an unseen set would get."""
    found = {}
    for group in sorted({_group(s.task) for s in samples if s.answerable}):
        inside = [s for s in samples if _group(s.task) == group]
        outside = [s for s in samples if _group(s.task) != group]
        found |= report(inside, fit_fusion(outside, best_fixed(outside), adaptive))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=data_folder())
    parser.add_argument("--embedder", default="small")
    parser.add_argument("--name", help="the file to write, if not the embedder's")
    parser.add_argument("--check", action="store_true", help="leave each source out in turn and report")
    options = parser.parse_args()
    embedder = shipped(options.embedder)
    cache = SqliteVectorCache(cache_folder() / "vectors.sqlite")
    name = options.name or (embedder.model_id.partition("@")[0] if embedder else WITHOUT_VECTORS)
    file = FOLDER / f"{name}.json"
    background = background_of(options.data, embedder, cache) if embedder and name != ANY_MODEL else None
    if background:
        background.write(background_file(file))
    samples = collect(tasks(options.data), embedder, cache, background)
    if options.check:
        for adaptive in (False, True):
            print("adaptive" if adaptive else "fixed", leave_one_out(samples, adaptive))
    share = best_fixed(samples)
    theta = fit_fusion(samples, share)
    print("fitted", report(samples, theta))
    fitted = {
        "fusion": {
            "candidate_features": list(CANDIDATE_FEATURES),
            "query_features": list(QUERY_FEATURES),
            "theta": theta.round(5).tolist(),
        },
        "calibration": fit_calibration(samples, theta),
        "fitted_on": [f"train/{name}" for name in SETS],
        "fixed_dense": share,
    }
    file.write_text(json.dumps(fitted) + "\n")


if __name__ == "__main__":
    main()
