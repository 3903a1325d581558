"""WordLlama: static token vectors, the cheapest embedder whose weights come inside its wheel."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from benchmarks.baselines.plain import dense
from benchmarks.baselines.protocol import Baseline, Embed, Tools, package
from numpy.typing import NDArray


def wordllama(tools: Tools, _embed: Embed | None = None) -> Baseline:
    """Cosine over `name: description` with its own vectors, whatever embedder the run uses."""
    return dense(tools, embedder(), name="wordllama")


def embedder() -> Embed:
    module = package("wordllama")
    inside = Path(module.__file__).parent  # the loader looks for the tokenizer everywhere but in its own package
    model = module.WordLlama.load(cache_dir=inside, disable_download=True)

    def embed(texts: Sequence[str]) -> NDArray[np.float32]:
        vectors: NDArray[np.float32] = model.embed(list(texts), norm=True).astype(np.float32)
        return vectors

    return embed
