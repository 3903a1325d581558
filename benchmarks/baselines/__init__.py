"""Other people's tool search behind one Protocol, so that one run measures them and us on the same data."""

from benchmarks.baselines.dense import memoised
from benchmarks.baselines.protocol import Baseline, Build, Embed, NeedsEmbedder, NotInstalled, Tools
from benchmarks.baselines.registry import BASELINES, Attempt, Watched, attempt

__all__ = [
    "BASELINES",
    "Attempt",
    "Baseline",
    "Build",
    "Embed",
    "NeedsEmbedder",
    "NotInstalled",
    "Tools",
    "Watched",
    "attempt",
    "memoised",
]
