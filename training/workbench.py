"""What every stage needs: the device, the untuned model, the prepared data and a place for results."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from training.evaluate import judge
from training.metrics import Embed, Score, development_macro, evaluate, table
from training.modelling import Encoder, TorchEmbedder, base_folder, load_encoder, load_tokenizer
from training.prepared import RankingSet, TrainingSet, read_sets, read_training
from training.train import Material, State, prepare

TINY_PAIRS = 160
TINY_QUERIES = 8
TINY_TEXTS = 80


@dataclass
class Workbench:
    """Loads each thing once, when it is first asked for."""

    work: Path
    out: Path
    base: Path = field(default_factory=base_folder)
    tiny: bool = False
    report: dict[str, Any] = field(default_factory=dict)

    @property
    def layers(self) -> int | None:
        return 1 if self.tiny else None

    @cached_property
    def device(self) -> torch.device:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return load_tokenizer(self.base)

    @cached_property
    def base_state(self) -> State:
        return load_encoder(self.base, layers=self.layers).state_dict()

    @cached_property
    def data(self) -> TrainingSet:
        return read_training(self.work, TINY_PAIRS if self.tiny else None)

    @cached_property
    def dev(self) -> Sequence[RankingSet]:
        return self._sets("dev")

    @cached_property
    def eval(self) -> Sequence[RankingSet]:
        return self._sets("eval")

    @cached_property
    def material(self) -> Material:
        return prepare(self.data, self.encoder(), self.tokenizer, self.device)

    @cached_property
    def embedder(self) -> TorchEmbedder:
        """One encoder for all evaluations, so that texts are tokenized once; load weights into it."""
        return TorchEmbedder(self.encoder(), self.tokenizer, self.device)

    def encoder(self, state: State | None = None, dropout: float = 0.0) -> Encoder:
        encoder = load_encoder(self.base, dropout=dropout, layers=self.layers)
        if state is not None:
            encoder.load_state_dict(state)
        return encoder.to(self.device)

    def judge(self, name: str, state: State, *, evaluation: bool = True) -> Score:
        self.embedder.encoder.load_state_dict(state)
        return self.judge_embedder(name, self.embedder, evaluation=evaluation)

    def judge_embedder(self, name: str, embed: Embed, *, evaluation: bool = True) -> Score:
        """Print and keep how a model does: the development part decides, the evaluation sets only inform."""
        development = dict(evaluate(self.dev, embed, lenient=False))
        development["MACRO of the development part"] = development_macro(development)
        self.keep(f"{name} development", development)
        if evaluation:
            self.keep(f"{name} evaluation", judge(self.eval, embed))
        return development["MACRO of the development part"]

    def keep(self, name: str, scores: Mapping[str, Score]) -> None:
        print(f"== {name}: top-1 nDCG@10 R@5\n{table(scores)}", flush=True)
        self.report[name] = {key: asdict(score) for key, score in scores.items()}
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / "report.json").write_text(json.dumps(self.report, indent=1) + "\n")

    def _sets(self, name: str) -> Sequence[RankingSet]:
        path = self.work / f"{name}.jsonl.gz"
        return read_sets(path, TINY_QUERIES, TINY_TEXTS) if self.tiny else read_sets(path)
