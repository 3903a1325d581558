"""Semantic Kernel's functions and plugins, from the real package."""

from typing import Annotated

import pytest

from tests.objects.support import check, read_one

pytest.importorskip("semantic_kernel")


def test_a_semantic_kernel_function_and_plugin_are_read() -> None:
    from semantic_kernel.functions import KernelPlugin, kernel_function

    class Docs:
        @kernel_function(name="search_docs", description="Search the documents.")  # type: ignore[untyped-decorator, unused-ignore]
        def search(self, query: Annotated[str, "What to look for."], limit: int = 5) -> str:
            return f"{query} {limit}"

    plugin = KernelPlugin.from_object("docs", Docs())
    for made in (plugin, plugin["search_docs"]):
        tool = read_one(made)
        check(tool)
        assert tool.server == "docs"
