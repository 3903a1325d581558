"""Links between the pages of the documentation: each leads to a file and a heading that are there."""

import re
from collections.abc import Iterator
from pathlib import Path

_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def broken_links(pages: list[Path]) -> Iterator[str]:
    """Yield each link of these pages that leads nowhere; addresses on the web are not asked."""
    for page in pages:
        for match in _LINK.finditer(_FENCE.sub("", page.read_text("utf-8"))):
            target, _, anchor = match["target"].partition("#")
            if target.startswith(("http://", "https://", "mailto:")):
                continue
            file = (page.parent / target).resolve() if target else page
            if not file.exists():
                yield f"{page.name}: {match['target']} leads to no file"
            elif anchor and file.suffix == ".md" and anchor not in set(anchors(file.read_text("utf-8"))):
                yield f"{page.name}: {match['target']} leads to no heading"


def anchors(text: str) -> Iterator[str]:
    """Yield the anchors of a page's headings, as GitHub makes them."""
    for heading in _HEADING.findall(_FENCE.sub("", text)):
        yield re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
