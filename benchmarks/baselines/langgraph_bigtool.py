"""LangGraph-bigtool's default retrieval over LangGraph's in-memory store."""

from collections.abc import Sequence

from benchmarks.baselines.documents import description_of, ids_of, name_of
from benchmarks.baselines.protocol import Baseline, Embed, Tools, package, required

NAMESPACE = ("tools",)


class LangGraphBigtool:
    """The store is filled as its README shows: `name: description` under the field that is embedded."""

    name = "langgraph-bigtool"

    def __init__(self, tools: Tools, embed: Embed) -> None:
        self._retrieval = package("langgraph_bigtool.tools").get_default_retrieval_tool
        put = package("langgraph.store.base").PutOp

        def vectors(texts: Sequence[str]) -> list[list[float]]:
            return [[float(value) for value in vector] for vector in embed(texts)]

        index = {"embed": vectors, "dims": embed(["dimensions"]).shape[1], "fields": ["description"]}
        self._store = package("langgraph.store.memory").InMemoryStore(index=index)
        self._store.batch(
            [
                put(NAMESPACE, tool_id, {"description": f"{name_of(tool)}: {description_of(tool)}"})
                for tool_id, tool in zip(ids_of(tools), tools, strict=True)
            ]
        )

    def rank(self, query: str, limit: int) -> list[str]:
        retrieve, _ = self._retrieval(NAMESPACE, limit=limit)
        found: list[str] = retrieve(query, store=self._store)
        return found


def langgraph_bigtool(tools: Tools, embed: Embed | None) -> Baseline:
    return LangGraphBigtool(tools, required(LangGraphBigtool.name, embed))
