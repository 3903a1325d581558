"""Dense-only evaluation of one model over a bench folder, or over sets prepared before."""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from training.metrics import (
    SINGLE_CATALOG,
    Embed,
    Score,
    Vectors,
    evaluate,
    macro,
    table,
)
from training.prepared import RankingSet, read_sets

LENIENT_SETS = ("mcp_union", "mcp_union_unseen", "authored_dev")
UNION_SPLITS = ("azure_mcp", "mcptoolbenchpp", "mcpbench", "mcpproxy_golden")


def summary(scores: Mapping[str, Score], lenient: Mapping[str, Score]) -> dict[str, Score]:
    """Add the averages that the targets speak of."""
    found = dict(scores)
    found["MACRO of 11 single catalogs, strict"] = macro(scores, SINGLE_CATALOG)
    for name in LENIENT_SETS[:2]:
        if name in lenient:
            found[f"{name} macro, lenient"] = macro(lenient, [f"{name}/{split}" for split in UNION_SPLITS])
    for name, score in lenient.items():
        if name.startswith("authored_dev"):
            found[f"{name}, lenient"] = score
    return found


def judge(sets: Sequence[RankingSet], embed: Embed) -> dict[str, Score]:
    strict = evaluate(sets, embed, lenient=False)
    forked = [each for each in sets if each.name in LENIENT_SETS]
    return summary(strict, evaluate(forked, embed, lenient=True) if forked else {})


def truncated(embed: Embed, width: int) -> Embed:
    """Keep the first dimensions only, as a smaller index would."""

    def short(texts: Sequence[str], queries: bool) -> Vectors:
        kept = embed(texts, queries)[:, :width]
        return kept / np.maximum(np.linalg.norm(kept, axis=1, keepdims=True), 1e-9)

    return short


def embedder_of(model: str) -> Embed:
    """Open a model by what it is: `base`, a .safetensors file, or a folder as the package ships it."""
    path = Path(model)
    if model == "base" or path.suffix == ".safetensors":
        import torch

        from training.modelling import TorchEmbedder, base_folder, load_encoder, load_tokenizer

        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        encoder = load_encoder(base_folder(), path if path.suffix else None)
        return TorchEmbedder(encoder, load_tokenizer(base_folder()), device)
    from shortlist.index.embedders import shipped

    embedder = shipped(model)
    if embedder is None:
        raise SystemExit(f"No model {model!r}.")

    def embed(texts: Sequence[str], queries: bool) -> Vectors:
        return np.stack([embedder.embed_query(t) for t in texts]) if queries else embedder.embed_documents(texts)

    return embed


def main() -> None:
    """Print top-1, nDCG@10 and R@5 of every set; `--out` keeps them as JSON."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("model", help="base, weights.safetensors, small, static or a model folder")
    parser.add_argument("--sets", type=Path, default=Path("training/.work/eval.jsonl.gz"))
    parser.add_argument("--only", nargs="*", help="names of sets")
    parser.add_argument("--width", type=int, help="keep this many dimensions")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    sets = [each for each in read_sets(arguments.sets) if not arguments.only or each.name in arguments.only]
    embed = embedder_of(arguments.model)
    scores = judge(sets, truncated(embed, arguments.width) if arguments.width else embed)
    print("top-1 nDCG@10 R@5\n" + table(scores))
    if arguments.out:
        arguments.out.write_text(json.dumps({name: asdict(score) for name, score in scores.items()}, indent=1))


if __name__ == "__main__":
    main()
