"""What the models weigh and how fast they read: python -m benchmarks.models [--also FOLDER].

Every model embeds the same queries in the same run, taking turns, one at a time; documents on all cores, as an index.
`--also` puts another ONNX model beside ours, such as the untuned one that ours was made from.
"""

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measuring import bench_file, in_a_process, interleaved, milliseconds, publish, rows, spread

from shortlist.catalog.readers import read_catalog
from shortlist.evals.tables import Table
from shortlist.index.embedders import WEIGHTS, Embedder, OnnxEmbedder, StaticEmbedder
from shortlist.text.documents import embedding_text

QUERIES, DOCUMENTS = 200, 400
STATIC_DOCUMENTS = 10_000
SEARCHING = """
import json, sys, tempfile
from pathlib import Path
from benchmarks.measuring import RandomEmbedder, resident_megabytes
from shortlist.catalog.readers import read_catalog
from shortlist.index.embedders import OnnxEmbedder, WEIGHTS
from shortlist.index.index import Index
from shortlist.index.store import load_index, save_index
from shortlist.models import Query
from shortlist.search.searcher import Searcher
if sys.argv[1] == "build":
    index = Index.build(read_catalog(sys.argv[2]).catalog)
    model = RandomEmbedder()
    model.model_id = OnnxEmbedder(WEIGHTS / "small").model_id
    index = index.embedded(model)
    save_index(index, Path(sys.argv[3]))
    print(json.dumps({"tools": len(index)}))
else:
    searcher = Searcher(load_index(Path(sys.argv[3])), OnnxEmbedder(WEIGHTS / "small"))
    for text in ("send a message", "list open pull requests", "what is the weather in Paris tomorrow") * 10:
        searcher.search(Query(text=text))
    print(json.dumps({"megabytes": resident_megabytes(), "model": searcher.model_id}))
"""
"""A search process in two steps: one makes the index, the other only loads and asks it. Vectors are drawn: memory does
not depend on what they say."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--also", type=Path, nargs="*", default=[], metavar="FOLDER", help="other models beside ours")
    options = parser.parse_args()
    catalog = bench_file("eval", "mcp_union", "tools.jsonl.gz")
    texts = [embedding_text(tool) for tool in read_catalog(catalog).catalog.tools.values()]
    queries = [row["query"] for row in spread(rows(bench_file("eval", "mcp_union", "queries.jsonl.gz")), QUERIES)]
    others = {OnnxEmbedder(folder).model_id.partition("@")[0]: folder for folder in options.also}
    data = {
        "sizes": {name: _megabytes(folder) for name, folder in {**_ours(), **others}.items()},
        "queries": _query_times(others, queries),
        "documents": _document_rates(others, texts),
        "search_process": _search_process(catalog),
        "all_weights_megabytes": _megabytes(WEIGHTS),
    }
    publish("models", [_table(data), _process_table(data)], data)


def _ours() -> dict[str, Path]:
    return {"small": WEIGHTS / "small", "static": WEIGHTS / "static"}


def _megabytes(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6


def _embedders(others: Mapping[str, Path]) -> dict[str, Embedder]:
    transformers = {"small": WEIGHTS / "small", **others}
    models: dict[str, Embedder] = {name: OnnxEmbedder(folder) for name, folder in transformers.items()}
    return {**models, "static": StaticEmbedder(WEIGHTS / "static")}


def _query_times(others: Mapping[str, Path], queries: Sequence[str]) -> dict[str, Any]:
    models = _embedders(others)
    return interleaved({name: model.embed_query for name, model in models.items()}, queries)


def _document_rates(others: Mapping[str, Path], texts: Sequence[str]) -> dict[str, float]:
    """Documents a second; every model reads some first, so that none pays for its start."""
    rates = {}
    for name, model in _embedders(others).items():
        chosen = spread(texts, STATIC_DOCUMENTS if name == "static" else DOCUMENTS)
        model.embed_documents(chosen[:32])
        rates[name] = len(chosen) / milliseconds(lambda m=model, c=chosen: m.embed_documents(c)) * 1000  # type: ignore[misc]
    return rates


def _search_process(catalog: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        built = in_a_process(SEARCHING, "build", str(catalog), str(Path(folder) / "index"))
        return built | in_a_process(SEARCHING, "search", str(catalog), str(Path(folder) / "index"))


def _table(data: Mapping[str, Any]) -> Table:
    lines = [
        (name, f"{data['sizes'][name]:.1f}", f"{times.p50:.2f}", f"{times.best:.2f}", f"{data['documents'][name]:,.0f}")
        for name, times in data["queries"].items()
    ]
    return Table(
        title="Models: megabytes on disk, milliseconds a query, documents a second",
        columns=("model", "MB", "query p50", "query best", "documents/s"),
        rows=tuple(lines),
    )


def _process_table(data: Mapping[str, Any]) -> Table:
    process = data["search_process"]
    return Table(
        title="Together",
        columns=("what", "MB"),
        rows=(
            ("all weights in the wheel", f"{data['all_weights_megabytes']:.1f}"),
            (f"resident memory of a process that searches {process['tools']:,} tools", f"{process['megabytes']:.0f}"),
        ),
    )


if __name__ == "__main__":
    main()
