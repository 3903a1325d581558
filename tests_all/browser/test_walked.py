"""Every page and every action is walked by the tests before this one: a route that none of them uses fails here."""

from pathlib import Path

import pytest
from starlette.routing import compile_path

from shortlist.web.app import CHANGES, DOWNLOADS, PAGES
from shortlist.web.page import LOGIN_CALLBACK
from tests_all.browser.accessibility import DESK, PHONE
from tests_all.browser.walked import LOOKED, REQUESTED

FRAGMENTS = {"/activity/feed"}
"""Parts of a page, which a script puts into it."""
OUTSIDE = ("/open", "/sign-in", LOGIN_CALLBACK)
"""Pages that are shown to a browser without a session."""


@pytest.fixture(autouse=True)
def after_all_others(request: pytest.FixtureRequest) -> None:
    here = Path(__file__).parent
    run = {item.path for item in request.session.items}
    if not run.issuperset(here.glob("test_*.py")) or request.config.option.keyword:
        pytest.skip("the routes are counted after all browser tests")


@pytest.mark.parametrize("route", [*(PAGES.keys() - FRAGMENTS), *OUTSIDE])
def test_a_page_was_audited_on_a_desk_and_on_a_phone_light_and_dark(route: str) -> None:
    matches = compile_path(route)[0].match
    found = {(look.width, look.dark) for look in LOOKED if matches(look.path)}
    assert found >= {(size["width"], dark) for size in (DESK, PHONE) for dark in (False, True)}


@pytest.mark.parametrize("route", [*FRAGMENTS, *DOWNLOADS])
def test_a_route_was_asked_for(route: str) -> None:
    assert ("GET", route) in REQUESTED


@pytest.mark.parametrize("route", [*CHANGES, "/sign-in", "/sign-out"])
def test_an_action_was_done(route: str) -> None:
    matches = compile_path(route)[0].match
    assert any(method == "POST" and matches(path) for method, path in REQUESTED)
