"""Programs over a filter's tools."""

from typing import Any

import pytest

from shortlist import ToolFilter
from shortlist.errors import InvalidInput
from shortlist.models import Tool

pytest.importorskip("pydantic_monty")
pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def shout(text: str) -> str:
    """Write a text in capitals."""
    return text.upper()


async def test_a_program_calls_plain_and_async_functions() -> None:
    code = "import asyncio\na, b = await asyncio.gather(tools.local.add(a=1, b=2), tools.local.shout('hi'))\n[a, b]"
    with ToolFilter([add, shout], embedder="none") as tools:
        report = await tools.run(code)
    assert report.value == '[3, "HI"]'
    assert [(call.name, call.state) for call in report.calls] == [("local.add", "done"), ("local.shout", "done")]


async def test_a_program_finds_functions_and_is_told_their_signatures() -> None:
    with ToolFilter([add, shout], embedder="none") as tools:
        found = await tools.run("hits = await search('add numbers')\nhits[0]['signature']")
        told = await tools.run("await describe('local.shout')")
        wrong = await tools.run("await tools.local.add(a='x', b=1)")
        unknown = await tools.run("await tools.local.nothing()")
    assert found.value == '"tools.local.add(a: int, b: int)"'
    assert "Write a text in capitals." in str(told.value)
    assert wrong.failure is not None
    assert "Signature: tools.local.add(a: int, b: int)" in wrong.failure.reason
    assert unknown.failure is not None
    assert "No function tools.local.nothing" in unknown.failure.reason


async def test_tools_that_are_not_callables_are_called_by_what_is_passed() -> None:
    called: list[tuple[str, dict[str, Any]]] = []

    async def call(tool: Tool, arguments: dict[str, Any]) -> str:
        called.append((tool.id, arguments))
        return "done"

    definition = {"name": "close-issue", "inputSchema": {"type": "object", "properties": {"id": {"type": "integer"}}}}
    with ToolFilter([definition], embedder="none") as tools:
        report = await tools.run("await tools.local.close_issue(id=7)", call)
        without = await tools.run("await tools.local.close_issue(id=7)")
    assert report.value == '"done"'
    assert [arguments for _, arguments in called] == [{"id": 7}]
    assert without.failure is not None
    assert "pass `call`" in without.failure.reason


async def test_a_budget_of_calls_ends_a_program() -> None:
    with ToolFilter([add], embedder="none") as tools:
        report = await tools.run("while True:\n    await tools.local.add(a=1, b=1)", calls=3)
        with pytest.raises(InvalidInput, match="20,000 are allowed"):
            await tools.run("x = 1\n" * 9_000)
    assert report.failure is not None
    assert sum(call.state == "done" for call in report.calls) == 3
