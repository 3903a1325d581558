"""Runs the Python of a page of the docs, block after block in one module, and compares what it prints."""

import asyncio
import contextlib
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"
README = DOCS.parent / "README.md"
_BLOCK = re.compile(r"^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Snippet:
    """A block of Python with its place, and the text that it should print, where the page shows one."""

    line: int
    code: str
    printed: str | None


def snippets(page: Path) -> list[Snippet]:
    """Read the Python of a page; a `text` block right after one is its output."""
    text = page.read_text("utf-8")
    found: list[Snippet] = []
    blocks = list(_BLOCK.finditer(text))
    for position, block in enumerate(blocks):
        if block["kind"] != "python":
            continue
        after = blocks[position + 1] if position + 1 < len(blocks) else None
        follows = after is not None and after["kind"] == "text" and not text[block.end() : after.start()].strip()
        line = text.count("\n", 0, block.start()) + 2
        found.append(Snippet(line, block["text"], after["text"] if after is not None and follows else None))
    return found


def run_page(page: Path, **names: Any) -> int:
    """Run every snippet of a page with these names at hand; say how many there were."""
    module: dict[str, Any] = {"__name__": "__page__", **names}
    found = snippets(page)
    for snippet in found:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            _execute(snippet, page, module)
        if snippet.printed is not None:
            assert printed.getvalue() == snippet.printed, f"{page.name} line {snippet.line} prints something else"
    return len(found)


def _execute(snippet: Snippet, page: Path, module: dict[str, Any]) -> None:
    place = "\n" * (snippet.line - 1)
    flags = 0x2000  # PyCF_ALLOW_TOP_LEVEL_AWAIT: pages show `await` as a notebook would
    code = compile(place + snippet.code, str(page), "exec", flags=flags)
    answer = eval(code, module)
    if asyncio.iscoroutine(answer):
        asyncio.run(answer)
