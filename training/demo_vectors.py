"""The vectors of the bundled demo, shipped with the model so that a first search waits for nothing."""

from shortlist.catalog.readers import read_catalog
from shortlist.evals.datasets import demo_catalog
from shortlist.index.embedders import shipped
from shortlist.index.index import embed_cached
from shortlist.index.shipped import DEMO_VECTORS, write_shipped
from shortlist.text.documents import embedding_text


def main() -> None:
    embedder = shipped("small")
    assert embedder is not None
    tools = read_catalog(demo_catalog()).catalog.tools.values()
    texts = list(dict.fromkeys(map(embedding_text, tools)))
    vectors = embed_cached(embedder, texts, None, None)
    write_shipped(DEMO_VECTORS, embedder.model_id, dict(zip(texts, vectors, strict=True)))
    print(f"{len(texts)} vectors by {embedder.model_id}: {DEMO_VECTORS.name}, {DEMO_VECTORS.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
