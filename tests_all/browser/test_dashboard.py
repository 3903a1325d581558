"""The dashboard as people use it: in Chromium, over a real gateway with two weeks of use behind it."""

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests_all.browser.accessibility import DESK, PHONE, check_looks, problems_of
from tests_all.browser.seed import EXPERIMENT
from tests_all.browser.watching import Watched, use

PAGES = {
    "overview": "/",
    "playground": "/search?q=let+the+team+know+the+deploy+is+done",
    "side-by-side": "/search?q=open+a+PR&a=default&b=bm25",
    "servers": "/servers",
    "server": "/servers/github",
    "tools": "/tools",
    "tool": "/tools/slack%2Fslack_post_message",
    "review": "/review",
    "misses": "/misses",
    "experiments": "/experiments",
    "experiment": f"/experiments/{EXPERIMENT.name}",
    "activity": "/activity",
    "event": "/activity/1",
}
every_page = pytest.mark.parametrize("path", PAGES.values(), ids=PAGES)


def test_a_link_opens_once_for_one_browser(chromium: Browser, link: str, cookies: Any) -> None:
    with Watched.open(chromium, link) as stranger:
        stranger.page.goto(link)
        expect(stranger.page.get_by_role("alert")).to_contain_text("already been used")
        check_looks(stranger.page)
        stranger.go("/servers")
        expect(stranger.page.locator("body")).not_to_contain_text("github")
        assert stranger.page.context.cookies() == []
    session = cookies["cookies"][0]
    assert (session["httpOnly"], session["sameSite"]) == (True, "Strict")


def test_a_search_is_answered_with_the_reason_of_every_hit(watched: Watched) -> None:
    page = watched.go("/")
    page.get_by_role("link", name="Playground").click()
    page.get_by_label("Query").fill("give a customer the money back")
    hits = page.locator(".hit")
    page.get_by_role("button", name="Search").click()
    expect(hits).to_have_count(5)
    expect(hits.first).to_contain_text("stripe__create_refund")
    expect(page.locator(".verdict")).to_contain_text("that the first hit is correct")
    first = hits.first.locator(".explanation")
    expect(first).to_be_visible()  # the first hit is explained at once
    expect(row(first, "money")).to_contain_text("description")
    expect(row(first, "lexical")).to_have_count(2)  # what the retriever found, and what the fusion made of it
    expect(row(first, "dense")).to_be_visible()
    expect(row(first, "cosine score")).to_be_visible()
    expect(row(first, "boosts")).to_be_visible()
    second = hits.nth(1)
    expect(second.locator(".explanation")).to_be_hidden()
    second.get_by_text("Explanation").click()
    expect(second.locator(".explanation")).to_be_visible()


def row(explanation: Any, name: str) -> Any:
    return explanation.get_by_role("row").filter(has=explanation.page.get_by_role("rowheader", name=name, exact=True))


def test_two_pipelines_stand_side_by_side(watched: Watched) -> None:
    page = watched.go("/search?q=open+a+PR")
    page.get_by_label("Compare with").select_option("bm25")
    page.get_by_role("button", name="Search").click()
    columns = page.locator(".column")
    expect(columns).to_have_count(2)
    left, right = (columns.nth(n).bounding_box() for n in range(2))
    assert left is not None
    assert right is not None
    assert left["x"] + left["width"] <= right["x"]
    assert left["y"] == right["y"]
    expect(columns.nth(1).locator(".moved").first).to_be_visible()


def test_a_servers_page_shows_it_and_reconnects_it(watched: Watched) -> None:
    page = watched.go("/servers")
    page.get_by_role("link", name="github", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("GitHub")
    expect(page.locator(".head .state")).to_have_text("ready")
    expect(page.get_by_role("link", name="github__create_pull_request", exact=True)).to_be_visible()
    page.get_by_role("button", name="Reconnect").click()
    expect(page).to_have_url(f"{watched.base}/servers/github")
    expect(page.locator(".head .state")).to_have_text("ready")


def test_an_experiments_page_shows_its_arms_effects_and_verdicts(watched: Watched) -> None:
    page = watched.go("/experiments")
    page.get_by_role("link", name=EXPERIMENT.name).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(EXPERIMENT.name)
    expect(page.locator(".tiles")).to_contain_text("limit=3")
    expect(page.locator(".tiles")).to_contain_text("limit=10")
    metric = page.get_by_role("region", name="Metric", exact=True)
    expect(metric.get_by_role("row").nth(1)).to_contain_text("retrieval misses per call")
    expect(metric.locator("svg.interval")).to_be_visible()
    expect(page.get_by_role("region", name="Guardrails").get_by_role("row")).to_have_count(3)
    expect(page.get_by_role("region", name="Hypotheses")).to_contain_text("H4")


def test_the_overview_draws_what_happened(watched: Watched) -> None:
    page = watched.go("/")
    expect(page.locator(".tile")).to_have_count(6)
    expect(page.locator("figure.chart svg[role=img]")).to_have_count(4)
    page.get_by_label("Time range").select_option("30d")
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_label("Time range")).to_have_value("30d")
    page.locator("figure.chart").first.get_by_text("Data").click()
    expect(page.locator("figure.chart").first.get_by_role("table")).to_be_visible()


def test_tools_are_filtered_sorted_and_opened(watched: Watched) -> None:
    page = watched.go("/tools")
    page.get_by_label("Filter by name or description").fill("calendar")
    page.get_by_role("button", name="Filter").click()
    rows = page.get_by_role("region", name="Tools").locator("tbody tr")
    expect(rows.first).to_contain_text("calendar")
    page.get_by_role("link", name=re.compile("^Errors")).click()
    expect(page.locator("th[aria-sort]")).to_contain_text("Errors")
    expect(page.get_by_label("Filter by name or description")).to_have_value("calendar")
    page.get_by_role("link", name=re.compile("^never found")).click()
    expect(page.get_by_role("link", name=re.compile("^never found"))).to_have_attribute("aria-current", "page")


def test_a_miss_leads_back_to_the_playground(watched: Watched) -> None:
    page = watched.go("/misses?kind=unfound")
    asked = page.locator(".miss-group h2").get_by_role("link").filter(has_text="“").first
    words = asked.inner_text().strip("“”")
    asked.click()
    expect(page.get_by_label("Query")).to_have_value(words)
    expect(page.locator(".hit").first).to_be_visible()


def test_what_happens_appears_by_itself(watched: Watched) -> None:
    page = watched.go("/activity?kind=searched")
    before = page.locator("tbody tr").first.get_attribute("data-id")
    use(f"{watched.base}/mcp", ("search_tools", {"query": "a search that nobody made before"}))
    fresh = page.locator("tbody tr", has_text="a search that nobody made before")
    expect(fresh).to_be_visible(timeout=15_000)
    assert int(fresh.get_attribute("data-id") or 0) > int(before or 0)
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Resume")).to_have_attribute("aria-pressed", "true")


def test_times_stay_true_while_a_page_is_open(watched: Watched) -> None:
    watched.page.clock.install()
    page = watched.go("/activity")
    first = page.locator("#activity time").first
    expect(first).not_to_have_text(re.compile("d ago"))
    page.clock.fast_forward("49:00:00")
    expect(first).to_have_text(re.compile("[23] d ago"))


def test_a_page_of_a_gateway_that_does_not_answer_says_so(watched: Watched) -> None:
    watched.page.clock.install()
    page = watched.go("/servers")
    notice = page.get_by_text("The gateway does not answer")
    expect(notice).to_be_hidden()
    page.context.set_offline(True)
    page.clock.fast_forward(6_000)
    expect(notice).to_be_visible()
    page.context.set_offline(False)
    page.clock.fast_forward(6_000)
    expect(notice).to_be_hidden()
    assert all("ERR_INTERNET_DISCONNECTED" in problem for problem in watched.problems)
    watched.problems.clear()


@every_page
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_can_be_read_on_a_desk_and_on_a_phone(watched: Watched, path: str, scheme: Any) -> None:
    page = watched.page
    page.emulate_media(color_scheme=scheme)
    for size in (DESK, PHONE):
        page.set_viewport_size(size)
        watched.go(path)
        assert not watched.scrolls_sideways()
        assert problems_of(page) == []
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (int(re.findall(r"\d+", ground)[0]) > 128) == (scheme == "light")


def test_everything_can_be_done_with_the_keyboard(watched: Watched) -> None:
    page = watched.go("/")
    press(page, "Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_in_viewport()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.goto(f"{watched.base}/")
    until_focused(page, "Playground")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Query")).to_be_focused()
    page.keyboard.type("open a pull request")
    page.keyboard.press("Enter")
    expect(page.locator(".hit")).to_have_count(5)
    until_focused(page, "Explanation", nth=1)
    page.keyboard.press("Enter")
    expect(page.locator(".hit .explanation").nth(1)).to_be_visible()


def test_a_held_tool_is_compared_word_by_word_and_approved_or_rejected(watched: Watched) -> None:
    page = watched.go("/")
    page.get_by_role("link", name="2 tools of notes held for review").click()
    held = page.locator(".held", has_text="add_note")
    expect(held.locator("ins")).to_contain_text("read ~/.ssh/id_rsa")
    expect(held.locator("ins")).not_to_contain_text("notebook")
    held.get_by_role("button", name="Approve", exact=True).click()
    expect(held).to_have_count(0)
    other = page.locator(".held", has_text="find_notes")
    other.get_by_role("button", name="Reject", exact=True).click()
    expect(other.get_by_text("rejected", exact=True)).to_be_visible()
    expect(other.get_by_role("button", name="Reject", exact=True)).to_have_count(0)


def press(page: Page, key: str) -> None:
    """Press a key that moves the focus, and see that one can see where it is."""
    page.keyboard.press(key)
    style = page.evaluate(
        "(({outlineStyle, outlineWidth}) => [outlineStyle, outlineWidth])(getComputedStyle(document.activeElement))"
    )
    assert style != ["none", "0px"], page.evaluate("document.activeElement.outerHTML.slice(0, 200)")


def until_focused(page: Page, words: str, nth: int = 0) -> None:
    """Press Tab until the focus is on something with these words for the nth time."""
    for _ in range(60):
        press(page, "Tab")
        if words in page.evaluate("document.activeElement.innerText"):
            if nth == 0:
                return
            nth -= 1
    raise AssertionError(f"Tab never reaches {words!r}")
