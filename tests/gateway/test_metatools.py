import json
from typing import get_args

import pytest

from shortlist.disclosure.budget import estimate_tokens
from shortlist.gateway.menus import menu_definitions
from shortlist.gateway.view import MenuName

ESTIMATE_ERROR = 1.05


@pytest.mark.parametrize(("menu", "limit"), [("search", 600), ("minimal", 300)])
def test_a_menu_costs_no_more_than_promised(menu: MenuName, limit: int) -> None:
    assert estimate_tokens(json.dumps(menu_definitions(menu))) * ESTIMATE_ERROR <= limit


@pytest.mark.parametrize("menu", get_args(MenuName))
def test_a_menu_is_the_same_bytes_every_time(menu: MenuName) -> None:
    first = menu_definitions(menu)
    before = json.dumps(first)
    first[0]["description"] = "changed by a careless caller"
    assert json.dumps(menu_definitions(menu)) == before


@pytest.mark.parametrize("menu", get_args(MenuName))
def test_every_listed_tool_has_a_schema_of_an_object(menu: MenuName) -> None:
    for tool in menu_definitions(menu):
        assert tool["inputSchema"]["type"] == "object"
        assert set(tool["inputSchema"].get("required", ())) <= set(tool["inputSchema"]["properties"])
