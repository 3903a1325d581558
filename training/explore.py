"""Compares recipes on the development part; the evaluation sets are printed for the record, never used to choose."""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from torch import Tensor

from training.modelling import base_folder, save_weights
from training.stages import Plan, make_teacher, tiny_plan
from training.train import Recipe, State, Teacher, choose_alpha, mined_with, train
from training.workbench import Workbench

STANDARD = Recipe(steps=350)
RECIPES = {
    "standard": STANDARD,
    "mined again": STANDARD,
    "taught": replace(STANDARD, distil=1.0),
    "longer, faster": replace(STANDARD, steps=700, rate=2e-4),
    "more labels": replace(STANDARD, shares={"written_authored": 0.36, "written": 0.30, "variant": 0.16, "self": 0.18}),
    "more self-supervision": replace(
        STANDARD, shares={"written_authored": 0.16, "written": 0.14, "variant": 0.08, "self": 0.62}
    ),
    "temperature 0.03": replace(STANDARD, temperature=0.03),
    "dropout": replace(STANDARD, dropout=0.1),
}
MINED_AGAIN = ("mined again", "taught")
ALPHAS = (0.7, 0.85, 1.0)


@dataclass
class Exploration:
    """What the recipes share: negatives by the untuned model, and by the first recipe's, and a teacher from it."""

    bench: Workbench
    plan: Plan
    tiny: bool
    first: State = field(default_factory=dict)

    @cached_property
    def mined(self) -> Tensor:
        return mined_with(self.bench.encoder(), self.bench.material)

    @cached_property
    def mined_again(self) -> Tensor:
        return mined_with(self.bench.encoder(self.first or None), self.bench.material)

    @cached_property
    def teacher(self) -> Teacher:
        return make_teacher(self.bench, self.plan, self.first or self.bench.base_state, self.mined_again)

    def run(self, name: str) -> float:
        """Train one recipe, mix it with the untuned weights as the development part likes best, and report."""
        recipe = RECIPES[name]
        if self.tiny:
            recipe = replace(self.plan.first, shares=recipe.shares, distil=recipe.distil)
        mined = self.mined_again if name in MINED_AGAIN else self.mined
        teacher = self.teacher if recipe.distil else None
        state = train(self.bench.encoder(dropout=recipe.dropout), self.bench.material, mined, recipe, teacher)
        self.first = self.first or state
        choice = choose_alpha(self.bench.embedder, state, self.bench.base_state, self.bench.dev, ALPHAS)
        self.bench.judge(f"{name}, alpha {choice.alpha}", choice.state)
        save_weights(choice.state, self.bench.out / f"{name.replace(' ', '_').replace(',', '')}.safetensors")
        return choice.score.ndcg10


def explore(exploration: Exploration, names: Sequence[str], minutes: float) -> None:
    """Run the recipes until the time is up; only the best one's weights stay."""
    began, longest, scores = time.monotonic(), 0.0, dict[str, float]()
    for name in names:
        started = time.monotonic()
        if started - began + longest > 60 * minutes:
            print(f"no time for {name}", flush=True)
            continue
        scores[name] = exploration.run(name)
        longest = max(longest, time.monotonic() - started)
        print(f"-- {name}: {time.monotonic() - started:.0f} s", flush=True)
    best = max(scores, key=lambda name: scores[name])
    print("development nDCG@10: " + ", ".join(f"{name} {score:.2f}" for name, score in scores.items()))
    for path in exploration.bench.out.glob("*.safetensors"):
        if path.stem != best.replace(" ", "_").replace(",", ""):
            path.unlink()


def main() -> None:
    """Train each recipe from the untuned model and report; stops starting new ones when time runs out."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--work", type=Path, default=Path("training/.work"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--base", type=Path)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--only", nargs="*", default=list(RECIPES))
    parser.add_argument("--tiny", action="store_true")
    arguments = parser.parse_args()
    bench = Workbench(arguments.work, arguments.out, arguments.base or base_folder(), arguments.tiny)
    bench.judge("untuned", bench.base_state)
    plan = tiny_plan() if arguments.tiny else Plan()
    explore(Exploration(bench, plan, arguments.tiny), arguments.only, arguments.minutes)


if __name__ == "__main__":
    main()
