"""Semantic Kernel's functions and plugins, from the real package."""

from typing import Annotated

import pytest
from pydantic import BaseModel, Field

from tests.objects.support import check, read_one

pytest.importorskip("semantic_kernel")


class Order(BaseModel):
    """What is to be shipped."""

    count: int = Field(1, ge=1, description="How many.")


def test_a_semantic_kernel_function_and_plugin_are_read() -> None:
    from semantic_kernel import Kernel
    from semantic_kernel.functions import KernelPlugin, kernel_function

    class Docs:
        @kernel_function(name="search_docs", description="Search the documents.")  # type: ignore[untyped-decorator, unused-ignore]
        def search(self, query: Annotated[str, "What to look for."], limit: int = 5) -> str:
            return f"{query} {limit}"

    plugin = KernelPlugin.from_object("docs", Docs())
    kernel = Kernel(plugins=plugin)
    for made in (plugin, plugin["search_docs"], kernel, kernel.plugins):
        tool = read_one(made)
        check(tool)
        assert tool.server == "docs"


def test_a_constraint_that_is_an_object_does_not_lose_the_function() -> None:
    from semantic_kernel.functions import KernelPlugin, kernel_function

    class Shop:
        @kernel_function(description="Ship an order.")  # type: ignore[untyped-decorator, unused-ignore]
        def ship(self, order: Order) -> str:
            return str(order)

    tool = read_one(KernelPlugin.from_object("shop", Shop()))
    # Semantic Kernel puts the constraint where the description should be
    assert tool.input_schema["properties"]["order"]["properties"] == {"count": {"type": "integer"}}
