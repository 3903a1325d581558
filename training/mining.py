"""Hard negatives: the nearest tools of the training pool that are not right and not a copy of what is."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from training.prepared import NOTHING, TrainingSet

NEAR_DUPLICATE = 0.92
"""Base-model cosine above which two tools say the same; neither is then the other's negative."""
KEPT = 24
LOOKED_AT = 96
SELF_SUPERVISED_MARGIN = 0.05
"""Beyond the positive by more than this, a self-supervised 'negative' is most likely right as well."""
CHUNK = 2048


@dataclass(frozen=True, slots=True)
class Arrays:
    """The training set on the device, with what masking needs."""

    positives: Tensor
    right: Tensor
    groups: Tensor
    pool: Tensor
    base: Tensor
    unlabelled: Tensor
    several: Tensor
    """Which pairs are errands, made of several others."""


def arrays_of(data: TrainingSet, base_texts: Tensor) -> Arrays:
    """Move the numbers to where the untuned text vectors are."""
    device = base_texts.device
    return Arrays(
        positives=torch.from_numpy(data.positives).long().to(device),
        right=torch.from_numpy(data.right).long().to(device),
        groups=torch.from_numpy(data.groups).long().to(device),
        pool=torch.from_numpy(np.flatnonzero(data.negatives)).to(device),
        base=base_texts.to(torch.bfloat16 if device.type == "cuda" else torch.float32),
        unlabelled=torch.tensor([kind.startswith("self_") for kind in data.kinds], device=device),
        several=torch.tensor([kind.startswith("errand_") for kind in data.kinds], device=device),
    )


def forbidden(arrays: Arrays, rows: Tensor, documents: Tensor) -> Tensor:
    """Mark what is no fair negative: any right group, and near-duplicates of the query's own positive.

    `documents` is one list for all rows, or a list for each row.
    """
    shared = documents.dim() == 1
    groups = arrays.groups[documents]
    groups = groups[None] if shared else groups
    marked = torch.zeros(len(rows), groups.shape[1], dtype=torch.bool, device=rows.device)
    for column in arrays.right[rows].T:
        marked |= groups == column[:, None]
    own = arrays.base[arrays.positives[rows, 0]]
    others = arrays.base[documents]
    closeness = own @ others.T if shared else torch.einsum("rd,rnd->rn", own, others)
    return marked | (closeness > NEAR_DUPLICATE)


@torch.inference_mode()
def mine(arrays: Arrays, queries: Tensor, texts: Tensor) -> Tensor:
    """Return the hardest fair negatives of each pair, hardest first, `NOTHING` where there are fewer."""
    found = torch.full((len(queries), KEPT), NOTHING, dtype=torch.long, device=queries.device)
    pool = texts[arrays.pool]
    looked_at = min(LOOKED_AT, len(pool))
    for start in range(0, len(queries), CHUNK):
        rows = torch.arange(start, min(start + CHUNK, len(queries)), device=queries.device)
        scores, places = (queries[rows] @ pool.T).topk(looked_at, dim=1)
        documents = arrays.pool[places]
        own = (queries[rows] * texts[arrays.positives[rows, 0]]).sum(1, keepdim=True)
        unfair = forbidden(arrays, rows, documents)
        unfair |= arrays.unlabelled[rows, None] & (scores > own + SELF_SUPERVISED_MARGIN)
        order = torch.argsort(unfair.to(torch.int8), dim=1, stable=True)[:, :KEPT]
        kept = documents.gather(1, order).masked_fill(unfair.gather(1, order), NOTHING)
        found[rows, : kept.shape[1]] = kept
    return found
