"""Compares recipes on the development part; the evaluation sets are printed for the record, never used to choose."""

import argparse
import time
from dataclasses import replace
from pathlib import Path

from training.modelling import base_folder, save_weights
from training.stages import tiny_plan
from training.train import Recipe, choose_alpha, mined_with, train
from training.workbench import Workbench

STANDARD = Recipe(steps=500)
RECIPES = {
    "standard": STANDARD,
    "more self-supervision": replace(
        STANDARD, shares={"written_authored": 0.16, "written": 0.14, "variant": 0.08, "self": 0.62}
    ),
    "more labels": replace(STANDARD, shares={"written_authored": 0.36, "written": 0.30, "variant": 0.16, "self": 0.18}),
    "longer, faster": replace(STANDARD, steps=900, rate=2e-4),
    "dropout": replace(STANDARD, dropout=0.1),
    "temperature 0.03": replace(STANDARD, temperature=0.03),
}


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
    began = time.monotonic()
    bench = Workbench(arguments.work, arguments.out, arguments.base or base_folder(), arguments.tiny)
    bench.judge("untuned", bench.base_state)
    mined = mined_with(bench.encoder(), bench.material)
    print(f"-- ready after {time.monotonic() - began:.0f} s", flush=True)
    best, longest = -1.0, 0.0
    for name in arguments.only:
        if time.monotonic() - began + longest > 60 * arguments.minutes:
            print(f"no time for {name}", flush=True)
            continue
        started = time.monotonic()
        recipe = replace(tiny_plan().first, shares=RECIPES[name].shares) if arguments.tiny else RECIPES[name]
        state = train(bench.encoder(dropout=recipe.dropout), bench.material, mined, recipe)
        choice = choose_alpha(bench.embedder, state, bench.base_state, bench.dev, (0.7, 0.85, 1.0))
        bench.judge(f"{name}, alpha {choice.alpha}", choice.state)
        if choice.score.ndcg10 > best:
            best = choice.score.ndcg10
            save_weights(choice.state, bench.out / "encoder.safetensors")
        longest = max(longest, time.monotonic() - started)
        print(f"-- {name}: {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
