"""LlamaIndex's `ObjectIndex` over function tools, in its default vector store."""

from collections.abc import Mapping
from typing import Any

from benchmarks.baselines.documents import description_of, ids_of, parameters_of, wire_names
from benchmarks.baselines.protocol import Baseline, Embed, Tools, package, required
from pydantic import BaseModel, Field, create_model


class LlamaIndex:
    """Name, description and JSON schema of every tool, written out by the package's own mapping."""

    name = "llama-index"

    def __init__(self, tools: Tools, embed: Embed) -> None:
        core, kinds = package("llama_index.core"), package("llama_index.core.tools")
        names = wire_names(tools)
        self._ids = dict(zip(names, ids_of(tools), strict=True))
        objects = [
            kinds.FunctionTool(
                fn=_unused,
                metadata=kinds.ToolMetadata(
                    name=name, description=description_of(tool), fn_schema=arguments_model(name, tool)
                ),
            )
            for name, tool in zip(names, tools, strict=True)
        ]
        self._index = package("llama_index.core.objects").ObjectIndex.from_objects(
            objects, index_cls=core.VectorStoreIndex, embed_model=_embedding(embed)
        )

    def rank(self, query: str, limit: int) -> list[str]:
        found = self._index.as_retriever(similarity_top_k=limit).retrieve(query)
        return [self._ids[tool.metadata.name] for tool in found]


def llama_index(tools: Tools, embed: Embed | None) -> Baseline:
    return LlamaIndex(tools, required(LlamaIndex.name, embed))


def arguments_model(name: str, tool: Mapping[str, Any]) -> type[BaseModel]:
    """Turn the schema into the pydantic model that the package wants; an alias lets any parameter name in."""
    fields: dict[str, Any] = {
        f"p{i}": (Any, Field(alias=parameter, title=parameter, description=description or None))
        for i, (parameter, description) in enumerate(parameters_of(tool).items())
    }
    model: type[BaseModel] = create_model(name, **fields)
    return model


def _embedding(embed: Embed) -> Any:
    base = package("llama_index.core.embeddings").BaseEmbedding

    class RunEmbedding(base):  # type: ignore[misc, valid-type]
        def _get_text_embedding(self, text: str) -> list[float]:
            return self._get_text_embeddings([text])[0]

        def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
            return [[float(value) for value in vector] for vector in embed(texts)]

        def _get_query_embedding(self, query: str) -> list[float]:
            return self._get_text_embedding(query)

        async def _aget_query_embedding(self, query: str) -> list[float]:
            return self._get_text_embedding(query)

    return RunEmbedding(embed_batch_size=256)


def _unused(**_arguments: Any) -> None:
    """Stand where a tool's function would: only its text is searched."""
