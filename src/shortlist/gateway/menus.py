"""The gateway's own tools: the one table from which they are listed and called."""

import json
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from shortlist.config.settings import Settings
from shortlist.gateway.calling import CALL, READ
from shortlist.gateway.discovery import DESCRIBE, SEARCH
from shortlist.gateway.loading import LIST_TOOLSETS, LOAD_TOOLS, LOAD_TOOLSET, UNLOAD_TOOLSET
from shortlist.gateway.optional import AB_TEST_REPORT, RUN, SELECT, STATS, TASK_REPORT
from shortlist.gateway.tools import (
    DEFAULTS,
    INTEGER,
    MAX_QUERIES,
    STRING,
    STRINGS,
    Defaults,
    MetaTool,
    Translate,
    same_arguments,
)
from shortlist.gateway.view import MenuName

META_TOOLS: tuple[MetaTool[Any], ...] = (
    *(SEARCH, DESCRIBE, CALL, RUN, READ),
    *(LIST_TOOLSETS, LOAD_TOOLSET, LOAD_TOOLS, UNLOAD_TOOLSET),
    *(STATS, AB_TEST_REPORT, TASK_REPORT, SELECT),
)
META_NAMES = frozenset(tool.name for tool in META_TOOLS)
BY_NAME: Mapping[str, tuple[MetaTool[Any], Translate]] = MappingProxyType(
    {
        name: (tool, translate)
        for tool in META_TOOLS
        for name, translate in {tool.name: same_arguments, **tool.aliases}.items()
    }
)
"""Every name that is accepted: a tool's own and its aliases."""

MINIMAL_SEARCH = replace(
    SEARCH,
    description="Find tools by what they do; answers with signatures. "
    "Search before saying that something cannot be done.",
    properties={
        "query": {**STRING, "description": "The action in plain words"},
        "limit": INTEGER,
        "servers": STRINGS,
    },
    required=("query",),
    menus=("minimal",),
)
"""search_tools as the minimal menu lists it."""

CODE_SEARCH = replace(
    SEARCH,
    description="Find the functions that a program can call, by what they do. Search for everything a task needs at "
    "once, then use run_code.",
    properties={
        "query": {**STRING, "description": "The action in plain words, e.g. 'create a GitHub issue'"},
        "queries": {**STRINGS, "description": f"Several searches at once, at most {MAX_QUERIES}"},
        "limit": {**INTEGER, "default": DEFAULTS.limit},
        "servers": {**STRINGS, "description": "Preferred servers"},
    },
    menus=("code",),
)
CODE_DESCRIBE = replace(DESCRIBE, description="Whole descriptions of functions that were found.", menus=("code",))
"""search_tools and describe_tools as the menu of code mode lists them."""


def menu_definitions(menu: MenuName, defaults: Defaults = DEFAULTS) -> list[dict[str, Any]]:
    """Return the definitions of a menu as they are listed, in a fixed order."""
    known: tuple[MetaTool[Any], ...] = (MINIMAL_SEARCH, CODE_SEARCH, CODE_DESCRIBE, *META_TOOLS)
    listed = [tool for tool in known if menu in tool.menus]
    copied: list[dict[str, Any]] = json.loads(json.dumps([tool.definition for tool in listed]))
    for name in ("limit", "detail"):
        stated = copied[0]["inputSchema"]["properties"].get(name, {})
        if "default" in stated:
            stated["default"] = getattr(defaults, name)
    return copied


def optional_definitions(settings: Settings) -> list[dict[str, Any]]:
    """Return the definitions of the tools that the configuration offers beside any menu."""
    return [tool.definition for tool in META_TOOLS if not tool.menus and tool.is_offered(settings)]
