"""The tools: what is used, what fails, what says the same as another, and what nobody finds."""

import json
from collections.abc import Mapping
from functools import lru_cache

from shortlist.catalog.catalog import Catalog
from shortlist.evals.duplicates import near_duplicates
from shortlist.gateway.snapshot import definition_tokens
from shortlist.models import ToolId
from shortlist.web.page import NoSuchPage, Page, Visit

PER_PAGE = 100


def page(visit: Visit) -> Page:
    """Show one tool."""
    tool_id = visit.path["tool"]
    if not visit.may_see(tool_id):
        raise NoSuchPage(f"There is no tool {tool_id!r}.")
    tool = visit.state.snapshot.catalog.tools[tool_id]
    return Page(
        "tool.html",
        visit.state.snapshot.name(tool_id),
        {
            "tool": tool,
            "name": visit.state.snapshot.name(tool_id),
            "tokens": definition_tokens(tool),
            "definition": json.dumps(tool.mcp(), indent=2, ensure_ascii=False),
            "twins": [other for other in _twins(visit).get(tool_id, ()) if other != tool_id and visit.may_see(other)],
        },
    )


def listing(visit: Visit) -> Page:
    """Show all tools."""
    return Page(
        "tools.html", "Tools", {"rows": list(visit.tools().values())[:PER_PAGE], "names": visit.state.snapshot.name}
    )


def _twins(visit: Visit) -> Mapping[ToolId, tuple[ToolId, ...]]:
    """Give the near-duplicates of each tool that has some."""
    return _families(visit.state.snapshot.catalog)


@lru_cache(maxsize=2)  # a catalog is a value, and finding what is alike in a large one takes a second
def _families(catalog: Catalog) -> Mapping[ToolId, tuple[ToolId, ...]]:
    return {tool_id: family for family in near_duplicates(catalog.tools) for tool_id in family}
