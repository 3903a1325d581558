"""Fit the scanner's evidence in words on the corpus and on real tools of `catalogs/` and `train/`.

    python -m training.poison.fit                # fits and writes src/shortlist/trust/data/head.json
    python -m training.poison.fit --families     # also measures every family with words that were fitted without it

Thresholds come from real tools of `catalogs/` and `train/`, never from `eval/`. Run `training.poison.calibrate` after
it, which chooses the thresholds for words and classifier together. The definitions in `written/` have no part in it, so
that they measure the words on text by others.
"""

import argparse
import gzip
import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import shortlist.trust
from shortlist.trust.definitions import Neighbours, ToolDefinition
from shortlist.trust.features import FEATURES
from shortlist.trust.head import Head, evidence, shipped_head
from shortlist.trust.reading import DefinitionReading, read
from training.bench import data_folder, read_lines
from training.poison.corpus import Example, corpus

Matrix = NDArray[np.float32]
OUT = Path(shortlist.trust.__file__).parent / "data" / "head.json"
REAL = ("catalogs", "train/authored", "train/labelled")
STRUCTURAL = frozenset(("look_alike", "capability_mismatch"))
"""Families that have no text to learn from."""
DANGEROUS_RATE, SUSPICIOUS_RATE = 0.0003, 0.0018
"""Of real tools; lower than what is promised, since other catalogs have other oddities."""
WORDS_PENALTY = 3.0
STEPS, RATE = 300, 0.1
FOLDS = 4


@dataclass(frozen=True, slots=True)
class Passage:
    """A window of a definition: its features, and whether it holds a payload."""

    row: Matrix
    payload: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """One definition, real or of the corpus (then with its family)."""

    family: str
    passages: tuple[Passage, ...]


def real_tools(*folders: str) -> Iterator[ToolDefinition]:
    """Yield real tools of the benchmark data as they would come from a server, each text once."""
    seen: set[tuple[str, str]] = set()
    for folder in folders:
        for path in sorted((data_folder() / folder).glob("**/tools.jsonl.gz")):
            with gzip.open(path, "rt", encoding="utf-8") as lines:
                for line in lines:
                    definition = definition_of(json.loads(line))
                    key = (definition.tool["name"], definition.tool["description"])
                    if key not in seen:
                        seen.add(key)
                        yield definition


def collected_tools() -> Iterator[ToolDefinition]:
    """Yield the tools of servers that were installed from npm and PyPI to list them, or read as source."""
    for file in ("collected", "collected_sources", "collected_npm"):
        for number, raw in enumerate(read_lines(Path(__file__).parent / f"{file}.jsonl.gz")):
            yield ToolDefinition(f"{file}/{number}", raw["server"], raw["tool"], raw["server_instructions"])


def definition_of(raw: dict[str, Any]) -> ToolDefinition:
    """Read one line of the benchmark data."""
    tool = {
        "name": raw["name"],
        "description": raw.get("description") or "",
        "inputSchema": raw.get("input_schema") or {},
    }
    if raw.get("annotations"):
        tool["annotations"] = raw["annotations"]
    return ToolDefinition(raw.get("id") or raw["name"], raw.get("server") or "", tool)


def real_sample(definition: ToolDefinition) -> Sample:
    reading = read(definition, Neighbours())
    _, first = np.unique(reading.rows, axis=0, return_index=True)
    return Sample("real", tuple(Passage(reading.rows[i].astype(np.float16)) for i in first))


def corpus_sample(example: Example) -> Sample:
    reading = read(ToolDefinition(example.id, example.server, example.tool, example.server_instructions), Neighbours())
    marks = [example.malicious and _overlaps(reading, i, example.payload) for i in range(len(reading.windows))]
    if example.malicious and not any(marks):
        marks = [True] * len(marks)
    return Sample(example.family, tuple(Passage(row, mark) for row, mark in zip(reading.rows, marks, strict=True)))


def _overlaps(reading: DefinitionReading, number: int, payload: str) -> bool:
    text = reading.windows[number].text
    return bool(payload) and (payload[:24] in text or payload[-24:] in text or text in payload)


def fitted(rows: Matrix, labels: Matrix, weights: Matrix) -> Matrix:
    """Return the weights of a logistic regression, the last one its intercept; no weight is negative.

    What a definition says can then only raise its score by words: no sentence beside a payload lowers it.
    """
    data = np.hstack([rows, np.ones((len(rows), 1), np.float32)]).astype(np.float32)
    penalty = np.full(data.shape[1], WORDS_PENALTY / len(labels), np.float32)
    penalty[-1] = 0
    lowest = np.r_[np.zeros(rows.shape[1]), -np.inf]
    theta, first, second = np.zeros((3, data.shape[1]), np.float32)
    for step in range(1, STEPS + 1):  # Adam on the logistic loss
        predicted = 1 / (1 + np.exp(-np.clip(data @ theta, -30, 30)))
        gradient = data.T @ (weights * (predicted - labels)) / weights.sum() + penalty * theta
        first, second = 0.9 * first + 0.1 * gradient, 0.99 * second + 0.01 * gradient**2
        theta = theta - RATE * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.99**step)) + 1e-8)
        theta = np.maximum(theta, lowest).astype(np.float32)
    return theta


class Fit:
    """The real tools and the corpus, read once for every fold."""

    def __init__(self, real: Sequence[Sample], made: Sequence[Sample], tools: int) -> None:
        self.tools, self.made = tools, [sample for sample in made if sample.family not in STRUCTURAL]
        rows = np.vstack([p.row for s in real for p in s.passages]).astype(np.float32)
        self.owner = np.repeat(np.arange(len(real)), [len(s.passages) for s in real])
        present = np.zeros((len(real), rows.shape[1]), np.float32)
        np.maximum.at(present, self.owner, rows)
        self.rarity = (np.clip(-np.log10((present.sum(0) + 0.5) / (tools + 1)), 1.5, 5) - 1.5).astype(np.float32)
        self.rows, self.back, self.counts = np.unique(
            evidence(rows, self.rarity), axis=0, return_inverse=True, return_counts=True
        )
        self.back = self.back.ravel()
        self.made_rows = [
            evidence(np.array([p.row for p in s.passages], np.float32).reshape(-1, rows.shape[1]), self.rarity)
            for s in self.made
        ]

    def fit_words(self, left_out: Collection[str]) -> Matrix:
        """Fit the words on all families but some."""
        kept = [(s, r) for s, r in zip(self.made, self.made_rows, strict=True) if s.family not in left_out and len(r)]
        bad = np.vstack([r[[p.payload for p in s.passages]] for s, r in kept if s.family != "benign"])
        good = np.vstack([r for s, r in kept if s.family == "benign"])
        labels = np.r_[np.zeros(len(self.rows) + len(good)), np.ones(len(bad))].astype(np.float32)
        weights = np.r_[self.counts, np.full(len(good), 10), np.full(len(bad), 5)].astype(np.float32)
        return fitted(np.vstack([self.rows, good, bad]), labels, weights)

    def real_scores(self, words: Matrix) -> Matrix:
        scores: Matrix = (self.rows @ words[:-1] + words[-1])[self.back]
        return scores

    def best(self, scores: Matrix) -> Matrix:
        best = np.full(self.owner.max() + 1, -99.0)
        np.maximum.at(best, self.owner, scores)
        return best

    def head(self, left_out: Collection[str] = ()) -> Head:
        """Return a head that knows all families but some."""
        words = self.fit_words(left_out)
        ranked = np.sort(self.best(self.real_scores(words)))[::-1]
        suspicious, dangerous = (float(ranked[int(rate * self.tools)]) for rate in (SUSPICIOUS_RATE, DANGEROUS_RATE))
        return replace(
            shipped_head(),
            rarity=self.rarity,
            words=words[:-1],
            intercept=float(words[-1]),
            suspicious_words=suspicious,
            dangerous_words=dangerous,
        )


def families(fit: Fit) -> None:
    """Print how many examples of each family are caught by words alone, by a head that does not know the family."""
    names = sorted({s.family for s in fit.made} - {"benign"})
    rows: list[tuple[str, bool, bool]] = []
    for fold in range(FOLDS):
        left_out = names[fold::FOLDS]
        head = fit.head(left_out)
        for sample in fit.made:
            if sample.family in left_out:
                found = head.word_scores(np.array([p.row for p in sample.passages], np.float32))
                score = float(found.max()) if len(found) else -np.inf
                rows.append((sample.family, score > head.suspicious_words, score > head.dangerous_words))
    for name in (*names, "all"):
        flagged, dangerous = np.mean([row[1:] for row in rows if name in (row[0], "all")], axis=0)
        print(f"{name:20} flagged {flagged:.3f} dangerous {dangerous:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", action="store_true", help="measure each family with a head fitted without it")
    options = parser.parse_args()
    samples = [real_sample(definition) for definition in real_tools(*REAL)]
    fit = Fit([s for s in samples if s.passages], [corpus_sample(e) for e in corpus()], len(samples))
    head = fit.head()
    numbers = {key: getattr(head, key) for key in Head.__slots__}
    texts = {
        key: [round(float(x), 4) for x in value] if isinstance(value, np.ndarray) else value
        for key, value in numbers.items()
    }
    texts |= {key: asdict(numbers[key]) for key in ("english", "foreign")}
    OUT.write_text(json.dumps({"features": list(FEATURES), **texts}) + "\n", "utf-8")
    print(f"{len(samples)} real tools, {len(fit.made)} examples; wrote {OUT.name}, {OUT.stat().st_size:,} bytes")
    if options.families:
        families(fit)


if __name__ == "__main__":
    main()
