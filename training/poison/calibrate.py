"""Choose the scanner's thresholds on real tools that were held out, and measure families and writers held out.

    python -m training.poison.calibrate --tables TABLES --scores FOLDER/scores.npz

`FOLDER` is the output of `training.poison.train`. Every real tool of `catalogs/` and `train/` is scored by the fold
that was not trained on its server; no tool of `eval/` is scored. Writes the thresholds to `head.json`. Where a fold
left families or writers out, writes how many of their definitions are flagged to `held_out.json`, which
`benchmarks.scanner` prints.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shortlist.index.passages import PassageClassifier
from shortlist.trust.concepts import concepts, readable
from shortlist.trust.definitions import NO_SURROUNDINGS, TextField, ToolDefinition
from shortlist.trust.head import LEAST_WORDS, MOST_WORDS, shipped_head
from shortlist.trust.reading import gloss_of, read_text
from shortlist.trust.scanner import Scanner
from shortlist.trust.verdicts import LEVELS
from training.poison.corpus import corpus
from training.poison.fit import OUT
from training.poison.folds import UNSORTED, Fold, Glosses, folds
from training.poison.written import written

Floats = NDArray[np.float32]
RATES = {"english": (0.0062, 0.0013), "foreign": (0.0036, 0.00066)}
"""Suspicious and dangerous, as shares of all held-out real tools. Larger shares flagged more tools of `eval/` than the
limits of `benchmarks.scanner` allow, where disguised text counts too. Of real tools that speak another language, 557 of
9,764, these are large shares: two servers that repeat a sentence in each of their tools are 21 of them."""
WEIGHTS = {
    "english": {"words": 0.05, "quick": 0.45, "least": -8.0, "most": 3.0, "reach": 1.5},
    "foreign": {"words": 0.05, "quick": 0.45, "least": -8.0, "most": 3.0, "reach": 1.5},
}
"""How much each score counts, the bounds of the classifier's, and what it is expected to reach: with a higher one it
reads more passages and finds hardly more. The evidence in words counts little, since it finds less
in the texts of writers that nothing was trained on."""
CLEAN = -99.0
Limits = dict[str, tuple[float, float]]
"""The thresholds of suspicious and dangerous passages."""
HELD_OUT = Path(__file__).parent / "held_out.json"


class Scores:
    """The scores of all windows of texts, and which of them are in other languages."""

    def __init__(self, folder: Path, scores: Path) -> None:
        self.raw = dict(np.load(folder / "tables.npz"))
        self.names = json.loads((folder / "names.json").read_text())
        self.texts = json.loads((folder / "texts.json").read_text())
        self.scored = np.load(scores)
        rows = len(self.raw["lengths"])
        self.text_of = np.arange(rows)
        for row, text in self.names["later"]:
            self.text_of[row] = text
        groups = [self.raw[f"{group}_passages"] for group in ("real", "written", "example", "rule")]
        judged = np.unique(self.text_of[np.unique(np.concatenate(groups))])
        foreign, english = np.zeros((2, len(self.texts)), np.bool_)
        words = np.full(len(self.texts), LEAST_WORDS, np.float32)
        for text in judged:
            folded = readable(self.texts[text])
            by_words = concepts().is_foreign(folded)
            foreign[text] = by_words or bool(gloss_of(self.texts[text]))
            english[text] = not by_words or concepts().has_english(folded)
            words[text] = self._words(self.texts[text])
        self.of_kind = {"english": english[self.text_of], "foreign": foreign[self.text_of]}
        self.words = words[self.text_of]
        self.glosses = Glosses(self.names)

    @staticmethod
    def _words(text: str) -> float:
        """Return the evidence in the words of a text."""
        rows = [row for _, row in read_text(TextField("description", text), NO_SURROUNDINGS)]
        found = shipped_head().word_scores(np.array(rows, np.float32)) if rows else np.array([LEAST_WORDS])
        return min(max(float(found.max()), LEAST_WORDS), MOST_WORDS)

    def highest(self, fold: Fold, group: str, limits: Limits | None = None) -> dict[str, Floats]:
        """Return the highest score among the passages of each definition that are read, English and foreign."""
        passages, counts = self.raw[f"{group}_passages"], self.raw[f"{group}_counts"]
        owner = np.repeat(np.arange(len(counts)), counts)
        network, quick = (self.scored[f"{fold.name}.{part}"].astype(np.float32) for part in ("network", "pairs"))
        found = {}
        for kind, weights in WEIGHTS.items():
            read, glance = np.clip(network, weights["least"], weights["most"]), quick
            if kind == "foreign":
                read, glance = self._with_glosses(read), self._with_glosses(glance)
            known = weights["quick"] * glance + weights["words"] * self.words
            score = (
                np.where(weights["reach"] + known > limits[kind][0], read + known, CLEAN) if limits else read + known
            )
            of_kind = self.of_kind[kind][passages]
            found[kind] = np.full(len(counts), CLEAN, np.float32)
            np.maximum.at(found[kind], owner[of_kind], score[passages[of_kind]])
        return found

    def _with_glosses(self, scores: Floats) -> Floats:
        """Return the mean of the score of each window and the highest one of its gloss, where there is a gloss."""
        found = scores.copy()
        for text in self.glosses.glosses:
            rows = [text, *self.glosses.later.get(text, ())]
            found[rows] = (scores[rows] + scores[self.glosses.of(np.array([text]))].max()) / 2
        return found


def thresholds(real: dict[str, Floats]) -> Limits:
    """Return what only the given shares of the real tools exceed: between the scores on both sides."""
    found = {}
    for kind, rates in RATES.items():
        ranked = np.sort(real[kind])[::-1]
        between = (ranked[:-1] + ranked[1:]) / 2
        suspicious, dangerous = np.interp(np.array(rates) * len(ranked), np.arange(len(between)) + 1, between)
        found[kind] = float(suspicious), float(dangerous)
    return found


class _Blind:
    """A classifier that finds nothing in any text: what is left is what the structure of a definition tells."""

    def glance(self, texts: Sequence[str]) -> list[list[tuple[float, None]]]:
        return [[(CLEAN, None)] for _ in texts]

    def read(self, _: object) -> float:
        return CLEAN


def structural(definitions: Sequence[ToolDefinition]) -> list[int]:
    """Return the level of each definition by checks that nothing is learned for."""
    scanner = Scanner(_Blind())
    return [LEVELS.index(scanner.scan(each).level) for each in definitions]


def levels(best: dict[str, Floats], limits: Limits, number: int, least: int) -> tuple[bool, bool]:
    """Return whether a definition is flagged, and whether it is dangerous, by its text or at least by its structure."""
    above = [[best[kind][number] > limit for limit in limits[kind]] for kind in limits]
    return least > 0 or any(each[0] for each in above), least > 1 or any(each[1] for each in above)


def groups_of(fold: Fold, writer: str, family: str, tone: str, language: str) -> list[str]:
    """Return the groups that a poisoned definition counts in, as far as a fold left them out."""
    known = family in fold.families and family != UNSORTED
    found = [f"family {family}", "ALL families, written"] if known else []
    if writer in fold.sources:
        spoken = "English" if language == "en" else "other languages"
        found += ["ALL writers", f"writer {writer}", f"writers, {tone}", f"writers, {spoken}"]
    return found


def held_out(scores: Scores, every: Sequence[Fold], limits: Limits) -> dict[str, list[tuple[bool, bool]]]:
    """Return the levels of definitions by the folds that left out their families, writers or rules."""
    rows: dict[str, list[tuple[bool, bool]]] = defaultdict(list)
    of_written = structural([each.definition for each in written()])
    of_examples = structural([ToolDefinition(e.id, e.server, e.tool, e.server_instructions) for e in corpus()])
    for fold in every:
        best = scores.highest(fold, "written", limits)
        for number, (writer, poisoned, family, _, tone, language) in enumerate(scores.names["written"]):
            groups = groups_of(fold, writer, family, tone, language) if poisoned else []
            if writer in fold.sources and not poisoned:
                groups = ["writers, honest twins and hard negatives"]
            for group in groups:
                rows[group].append(levels(best, limits, number, of_written[number]))
        best = scores.highest(fold, "example", limits) if fold.families else {}
        for number, (_, family, *_) in enumerate(scores.names["examples"]):
            if family in fold.families:
                for group in (f"family {family}", "ALL families, own corpus"):
                    rows[group].append(levels(best, limits, number, of_examples[number]))
    for fold in (each for each in every if "rules0" in each.sources):
        best = scores.highest(fold, "rule", limits)
        rules = range(0, len(best["english"]), 2)
        rows["honest rules in a strong voice"] = [levels(best, limits, number, 0) for number in rules]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=Path, required=True)
    parser.add_argument("--scores", type=Path, required=True)
    options = parser.parse_args()
    scores = Scores(options.tables, options.scores)
    every = [fold for fold in folds(scores.names) if f"{fold.name}.network" in scores.scored.files]
    partial = [fold for fold in every if fold.servers]
    held = [np.isin(scores.raw["real_fold"], sorted(fold.servers)) for fold in partial]
    real = [scores.highest(fold, "real") for fold in partial]
    pooled = {
        kind: np.concatenate([each[kind][part] for each, part in zip(real, held, strict=True)]) for kind in WEIGHTS
    }
    limits = thresholds(pooled)
    rows = held_out(scores, every, limits)
    table = {
        name: [len(each), sum(flagged for flagged, _ in each), sum(dangerous for _, dangerous in each)]
        for name, each in sorted(rows.items())
    }
    for name, (total, flagged, dangerous) in table.items():
        print(f"{name:42} {total:5} {flagged / total:.3f} {dangerous / total:.3f}")
    if table:
        HELD_OUT.write_text(json.dumps(table, indent=1) + "\n", "utf-8")
    head = json.loads(OUT.read_text("utf-8"))
    head["classifier"] = PassageClassifier().card.digest
    for kind, (lower, upper) in limits.items():
        head[kind] = {**WEIGHTS[kind], "suspicious": round(lower, 2), "dangerous": round(upper, 2)}
    OUT.write_text(json.dumps(head) + "\n", "utf-8")
    print({kind: [round(limit, 2) for limit in each] for kind, each in limits.items()}, len(pooled["english"]), "tools")


if __name__ == "__main__":
    main()
