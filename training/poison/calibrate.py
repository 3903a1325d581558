"""Choose the scanner's thresholds on real tools that were held out, and measure families and writers held out.

    python -m training.poison.calibrate --tables TABLES --scores FOLDER/scores.npz

`FOLDER` is the output of `training.poison.train`. Every real tool of `catalogs/` and `train/` is scored by the fold
that was not trained on its server; `eval/` has no part in it. Writes the thresholds to `head.json`, and how many
definitions of each held-out family and writer are flagged to `held_out.json`, which `benchmarks.scanner` prints.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shortlist.index.passages import PassageClassifier, is_foreign
from shortlist.trust.concepts import concepts, readable
from shortlist.trust.definitions import NO_SURROUNDINGS, TextField
from shortlist.trust.head import LEAST_WORDS, MOST_WORDS, shipped_head
from shortlist.trust.reading import read_text
from training.poison.export import FLOOR, GATE, MOST, PAIRS_WEIGHT
from training.poison.fit import OUT
from training.poison.folds import Fold, folds

Floats = NDArray[np.float32]
RATES = {"english": (0.0023, 0.0003), "foreign": (0.0007, 0.0001)}
"""Suspicious and dangerous, as shares of all held-out real tools. Many tools of `eval/` are in the catalogs too, and
the final classifier was trained on those, so that fewer of them are flagged."""
WORDS = {"english": 0.9, "foreign": 2.4}
"""How much the evidence in words counts: the classifier knows English best."""
CLEAN = -99.0
HELD_OUT = Path(__file__).parent / "held_out.json"


class Scores:
    """The scores of all texts, and which of them are in other languages."""

    def __init__(self, folder: Path, scores: Path) -> None:
        self.raw = dict(np.load(folder / "tables.npz"))
        self.names = json.loads((folder / "names.json").read_text())
        self.texts = json.loads((folder / "texts.json").read_text())
        self.scored = np.load(scores)
        judged = np.unique(np.concatenate([self.raw[f"{group}_passages"] for group in ("real", "written", "example")]))
        self.foreign, self.spared = np.zeros((2, len(self.texts)), np.bool_)
        for text in judged:
            self.foreign[text] = concepts().is_foreign(readable(self.texts[text]))
            self.spared[text] = is_foreign(self.texts[text])
        self._words: dict[int, float] = {}

    def words(self, text: int) -> float:
        """Return the evidence in the words of a text."""
        if text not in self._words:
            rows = [row for _, row in read_text(TextField("description", self.texts[text]), NO_SURROUNDINGS)]
            found = shipped_head().word_scores(np.array(rows, np.float32)) if rows else np.array([LEAST_WORDS])
            self._words[text] = min(max(float(found.max()), LEAST_WORDS), MOST_WORDS)
        return self._words[text]

    def highest(self, fold: Fold, group: str) -> dict[str, Floats]:
        """Return the highest score among the passages of each definition, English and foreign."""
        passages, counts = self.raw[f"{group}_passages"], self.raw[f"{group}_counts"]
        owner = np.repeat(np.arange(len(counts)), counts)
        if group == "real":
            kept = np.isin(self.raw["real_fold"], sorted(fold.servers))[owner]
            owner, passages = owner[kept], passages[kept]
        network, pairs = (self.scored[f"{fold.name}.{part}"].astype(np.float32) for part in ("network", "pairs"))
        read = self.spared | ((network > FLOOR) & (pairs > GATE))
        score = np.clip(network, -MOST, MOST) + PAIRS_WEIGHT * pairs
        found = {kind: np.full(len(counts), CLEAN, np.float32) for kind in WORDS}
        for definition, text in zip(owner, passages, strict=True):
            if read[text]:
                kind = "foreign" if self.foreign[text] else "english"
                value = score[text] + WORDS[kind] * self.words(int(text))
                found[kind][definition] = max(found[kind][definition], value)
        return found


def thresholds(real: dict[str, Floats]) -> dict[str, tuple[float, float]]:
    """Return what only the given shares of the real tools exceed."""
    ranked = {kind: np.sort(best)[::-1] for kind, best in real.items()}
    return {
        kind: tuple(float(ranked[kind][int(rate * len(ranked[kind]))]) for rate in rates)  # type: ignore[misc]
        for kind, rates in RATES.items()
    }


def levels(best: dict[str, Floats], limits: dict[str, tuple[float, float]], number: int) -> tuple[bool, bool]:
    """Return whether a definition is flagged, and whether it is dangerous."""
    above = [[best[kind][number] > limit for limit in limits[kind]] for kind in limits]
    return any(each[0] for each in above), any(each[1] for each in above)


def held_out(
    scores: Scores, every: Sequence[Fold], limits: dict[str, tuple[float, float]]
) -> dict[str, list[tuple[bool, bool]]]:
    """Return the levels of definitions by the folds that left out their families or writers."""
    rows: dict[str, list[tuple[bool, bool]]] = defaultdict(list)
    for fold in every:
        best = scores.highest(fold, "written")
        for number, (writer, poisoned, family, _, tone, language) in enumerate(scores.names["written"]):
            groups: list[str] = []
            if family in fold.families and poisoned:
                groups += [f"family {family}", "ALL families, written"]
            if writer in fold.sources and poisoned:
                spoken = "English" if language == "en" else "other languages"
                groups += ["ALL writers", f"writer {writer}", f"writers, {tone}", f"writers, {spoken}"]
            if writer in fold.sources and not poisoned:
                groups += ["writers, honest twins and hard negatives"]
            for group in groups:
                rows[group].append(levels(best, limits, number))
        best = scores.highest(fold, "example") if fold.families else {}
        for number, (_, family, *_) in enumerate(scores.names["examples"]):
            if family in fold.families:
                for group in (f"family {family}", "ALL families, own corpus"):
                    rows[group].append(levels(best, limits, number))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=Path, required=True)
    parser.add_argument("--scores", type=Path, required=True)
    options = parser.parse_args()
    scores = Scores(options.tables, options.scores)
    every = [fold for fold in folds(scores.names) if f"{fold.name}.network" in scores.scored.files]
    by_family = [fold for fold in every if fold.families]
    held = [np.isin(scores.raw["real_fold"], sorted(fold.servers)) for fold in by_family]
    real = [scores.highest(fold, "real") for fold in by_family]
    pooled = {kind: np.concatenate([each[kind][part] for each, part in zip(real, held, strict=True)]) for kind in WORDS}
    limits = thresholds(pooled)
    rows = held_out(scores, every, limits)
    table = {
        name: [len(each), sum(flagged for flagged, _ in each), sum(dangerous for _, dangerous in each)]
        for name, each in sorted(rows.items())
    }
    for name, (total, flagged, dangerous) in table.items():
        print(f"{name:42} {total:5} {flagged / total:.3f} {dangerous / total:.3f}")
    HELD_OUT.write_text(json.dumps(table, indent=1) + "\n", "utf-8")
    head = json.loads(OUT.read_text("utf-8"))
    head["classifier"] = PassageClassifier().card.digest
    for kind, (lower, upper) in limits.items():
        head[kind] = {"words": WORDS[kind], "suspicious": round(lower, 2), "dangerous": round(upper, 2)}
    OUT.write_text(json.dumps(head) + "\n", "utf-8")
    print({kind: [round(limit, 2) for limit in each] for kind, each in limits.items()}, len(pooled["english"]), "tools")


if __name__ == "__main__":
    main()
