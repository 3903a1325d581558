"""pydantic-ai's local tool search: the `search_tools` function that its toolset hands to a model."""

from benchmarks.baselines.documents import description_of, ids_of, schema_of, wire_names
from benchmarks.baselines.protocol import Baseline, Embed, Tools, finish, package


class PydanticAI:
    """`ToolSearchToolset` with its default keyword algorithm over deferred tools."""

    name = "pydantic-ai"

    def __init__(self, tools: Tools) -> None:
        toolsets, definitions = package("pydantic_ai.toolsets"), package("pydantic_ai.tools")
        names = wire_names(tools)
        self._ids = dict(zip(names, ids_of(tools), strict=True))
        self._retry = package("pydantic_ai").ModelRetry
        self._toolset = package("pydantic_ai.toolsets._tool_search").ToolSearchToolset(
            wrapped=toolsets.ExternalToolset(
                [
                    definitions.ToolDefinition(
                        name=name,
                        description=description_of(tool),
                        parameters_json_schema=schema_of(tool),
                        defer_loading=True,
                    )
                    for name, tool in zip(names, tools, strict=True)
                ]
            )
        )
        self._context = definitions.RunContext(
            deps=None,
            model=package("pydantic_ai.models.test").TestModel(),
            usage=package("pydantic_ai.usage").RunUsage(),
        )
        self._search_tool = finish(self._toolset.get_tools(self._context))["search_tools"]
        self.rank("warm up", 1)

    def rank(self, query: str, limit: int) -> list[str]:
        self._toolset.max_results = limit
        arguments = {"queries": [query]}
        search = self._toolset.call_tool("search_tools", arguments, self._context, self._search_tool)
        try:
            found = finish(search)
        except self._retry:  # a query without a word asks the model to try again
            return []
        return [self._ids[match["name"]] for match in found["discovered_tools"]]


def pydantic_ai(tools: Tools, _embed: Embed | None = None) -> Baseline:
    return PydanticAI(tools)
