"""Makes the shipped weights from the data: `python -m training.make --data DIR --out DIR`."""

import argparse
from pathlib import Path

STAGES = ("data", "encoder", "static", "rerank", "ensemble", "export", "evaluate")


def main() -> None:
    """Run the stages in order; each reads what the ones before it wrote."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--data", help="benchmark folder; default: SHORTLIST_BENCH_DATA or benchmarks/data")
    parser.add_argument("--work", type=Path, default=Path("training/.work"), help="prepared data")
    parser.add_argument("--out", type=Path, required=True, help="weights and report")
    parser.add_argument("--base", type=Path, help="folder of the untuned model; default: the installed package")
    parser.add_argument("--companion", type=Path, help="model.onnx of the second model, gte-small; for `ensemble`")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=list(STAGES))
    parser.add_argument("--tiny", action="store_true", help="a minute on a CPU, to see that every stage runs")
    arguments = parser.parse_args()
    if "ensemble" in arguments.stages and arguments.companion is None:
        parser.error("the ensemble needs --companion: training/README.md says where gte-small comes from")
    arguments.out.mkdir(parents=True, exist_ok=True)
    if "data" in arguments.stages:
        from training.bench import data_folder
        from training.data import write_all

        write_all(data_folder(arguments.data), arguments.work, seed=0)
    if {"encoder", "static", "rerank", "ensemble"} & set(arguments.stages):
        run_models(arguments)
    if "export" in arguments.stages:
        from training.export import export_all

        export_all(arguments.out, arguments.work, arguments.base)
    if "evaluate" in arguments.stages:
        run_evaluation(arguments)


def run_models(arguments: argparse.Namespace) -> None:
    """Train on whatever device there is; the later models need what the encoder's stage mined."""
    from training.ensemble import run_ensemble
    from training.modelling import base_folder
    from training.stages import Plan, resume, run_encoder, run_rerank, run_static, tiny_plan
    from training.workbench import Workbench

    plan = tiny_plan() if arguments.tiny else Plan()
    bench = Workbench(arguments.work, arguments.out, arguments.base or base_folder(), arguments.tiny)
    if {"encoder", "static", "rerank"} & set(arguments.stages):
        tuned = (run_encoder if "encoder" in arguments.stages else resume)(bench, plan)
    if "static" in arguments.stages:
        run_static(bench, plan, tuned)
    if "rerank" in arguments.stages:
        run_rerank(bench, plan, tuned)
    if "ensemble" in arguments.stages:
        run_ensemble(bench, plan, arguments.companion)


def run_evaluation(arguments: argparse.Namespace) -> None:
    """Judge the exported models exactly as the package runs them."""
    from training.evaluate import embedder_of, judge
    from training.metrics import table
    from training.prepared import read_sets
    from training.workbench import TINY_QUERIES, TINY_TEXTS

    limits = (TINY_QUERIES, TINY_TEXTS) if arguments.tiny else (None, None)
    sets = read_sets(arguments.work / "eval.jsonl.gz", *limits)
    for tier in ("small", "static"):
        print(f"== {tier}, as shipped: top-1 nDCG@10 R@5\n{table(judge(sets, embedder_of(str(arguments.out / tier))))}")


if __name__ == "__main__":
    main()
