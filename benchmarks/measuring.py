"""What the speed benchmarks share: one thread, interleaved timing, vectors without a model, results by commit."""

import gc
import gzip
import json
import os
import resource
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shortlist.errors import DatasetMissing
from shortlist.evals.datasets import DATA_VARIABLE, data_root
from shortlist.evals.tables import Table, to_json, to_markdown
from shortlist.index.embedders import Progress, Vectors

RESULTS = Path(__file__).parent / "results"
_CACHE = Path(__file__).parent / ".cache" / "compiled"
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "RAYON_NUM_THREADS")


def one_thread() -> None:
    """Start this program again with one thread for every library that would take more: numpy asks at its import."""
    if any(os.environ.get(name) != "1" for name in THREADS):
        os.environ.update(dict.fromkeys(THREADS, "1"))
        os.execv(sys.executable, sys.orig_argv)


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds per call; `best` is the median over the questions of the fastest answer to each.

    Whatever else runs on the machine only ever adds, so `best` is what to compare on a busy one.
    """

    p50: float
    p95: float
    best: float

    @classmethod
    def of(cls, rounds: Sequence[Sequence[float]] | NDArray[np.float64]) -> "Times":
        """Sum up rounds that each asked the same questions in the same order."""
        p50, p95 = np.percentile(rounds, (50, 95))
        best = np.median(np.min(np.array(rounds), axis=0))
        return cls(*(round(float(each), 4) for each in (p50, p95, best)))


def interleaved(
    contenders: Mapping[str, Callable[[str], object]], queries: Sequence[str], repeats: int = 5
) -> dict[str, Times]:
    """Time every contender on every query, in turns short enough that a busy machine slows all of them alike.

    In its turn one answers all the queries: it finds its own code and data where the others would have pushed them
    out of the caches after every answer, as in a process of its own.
    """
    for query in queries:
        for ask in contenders.values():
            ask(query)
    times = {name: np.zeros((repeats, len(queries))) for name in contenders}
    gc.collect()
    gc.disable()
    try:
        for turn in range(repeats):
            for name, ask in contenders.items():
                for at, query in enumerate(queries):
                    times[name][turn, at] = milliseconds(lambda ask=ask, query=query: ask(query))  # type: ignore[misc]
    finally:
        gc.enable()
    return {name: Times.of(found) for name, found in times.items()}


def milliseconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1000


class RandomEmbedder:
    """Unit vectors drawn at random, a query's by its checksum: latency does not depend on what a vector says."""

    def __init__(self, dimensions: int = 384) -> None:
        self.dimensions = dimensions
        self.model_id = f"random@{dimensions}"
        self._queries: dict[str, Vectors] = {}
        self._drawing = np.random.default_rng(dimensions)

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        drawn = self._drawing.standard_normal((len(texts), self.dimensions), np.float32)
        if progress:
            progress(len(texts), len(texts))
        unit: Vectors = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
        return unit

    def embed_query(self, text: str) -> Vectors:
        """Draw once, then look up: the query's vector is given, not part of what is measured."""
        if text not in self._queries:
            drawn = np.random.default_rng(zlib.crc32(text.encode())).standard_normal(self.dimensions, np.float32)
            self._queries[text] = drawn / np.linalg.norm(drawn)
        return self._queries[text]

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Serve the baselines, which embed queries and documents alike."""
        return np.stack([self.embed_query(text) for text in texts]) if len(texts) < 8 else self.embed_documents(texts)


def bench_file(*parts: str) -> Path:
    """Find a file of the benchmark data, or say plainly that it is not there."""
    path = data_root().joinpath(*parts)
    if not path.is_file():
        raise DatasetMissing(
            f"The benchmark data is absent: no {'/'.join(parts)!r} in {str(data_root())!r}. "
            f"Set {DATA_VARIABLE} to its folder; benchmarks/README.md says what is in it."
        )
    return path


def rows(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def spread(items: Sequence[Any], count: int) -> list[Any]:
    """Take some of them, evenly over the whole."""
    return list(items[:: max(len(items) // count, 1)][:count])


def resident_megabytes() -> float:
    """How much memory this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def in_a_process(code: str, *arguments: str) -> dict[str, Any]:
    """Run code that prints one JSON object in a process of its own, with modules that are compiled once."""
    compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(_CACHE)}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **compiled},
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def publish(name: str, tables: Sequence[Table], data: Mapping[str, Any]) -> Path:
    """Print the tables and write the data under the name of the commit it was measured at."""
    path = RESULTS / f"{name}-{_commit()}.json"
    RESULTS.mkdir(exist_ok=True)
    path.write_text(to_json({"machine": machine(), **data}) + "\n", "utf-8")
    print(to_markdown(tables))
    print(f"written to {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path.name}")
    return path


def machine() -> dict[str, Any]:
    """Describe the machine, as far as it matters for the figures."""
    info = Path("/proc/cpuinfo")
    models = [line.partition(":")[2].strip() for line in _lines(info) if line.startswith(("model name", "CPU part"))]
    return {
        "cpu": models[0] if models else "unknown",
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "python": sys.version.split()[0],
        "numpy": np.__version__,
    }


def _commit() -> str:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], check=False, capture_output=True, text=True)
    return found.stdout.strip() or "no-commit"


def _lines(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines() if path.is_file() else []
