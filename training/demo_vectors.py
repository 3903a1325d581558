"""The vectors of the bundled demo, shipped with the model so that a first search waits for nothing."""

from shortlist.catalog.readers import read_catalog
from shortlist.cli.stack import list_tools
from shortlist.config.settings import Settings
from shortlist.demo import CATALOG
from shortlist.demo.server import demo_settings
from shortlist.index.embedders import shipped
from shortlist.index.shipped import DEMO_VECTORS, write_shipped
from shortlist.text.documents import embedding_text


def demo_texts() -> list[str]:
    """Return what is embedded of every tool, as its file has it and as a gateway does, which adds its server's tags."""
    catalogs = (read_catalog(CATALOG).catalog, list_tools(Settings(servers=demo_settings())))
    return list(dict.fromkeys(embedding_text(tool) for catalog in catalogs for tool in catalog.tools.values()))


def main() -> None:
    embedder, texts = shipped("small"), demo_texts()
    assert embedder is not None
    vectors = embedder.embed_documents(texts)
    write_shipped(DEMO_VECTORS, embedder.model_id, dict(zip(texts, vectors, strict=True)))
    print(f"{len(texts)} vectors by {embedder.model_id}: {DEMO_VECTORS.name}, {DEMO_VECTORS.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
