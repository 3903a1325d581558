"""Tools whose names say what a request asks to do."""

import numpy as np
import pytest

from shortlist import ToolFilter
from shortlist.demo import CATALOG
from shortlist.index.index import Index
from shortlist.models import Filters, Query
from shortlist.search.pipeline import NEARLY_AS_GOOD, SAME_ACTION, WHOLE_NAME, Acting, Ranking, Request
from shortlist.text.queries import analyse
from shortlist.text.tokens import named_action, stem
from tests.fakes import catalog

FIRST = {
    "send an email to anna": "send_email",
    "mail bob that i'll be late": "send_email",
    "send an email to Karin that the keys are under the mat": "send_email",
    "open a pull request": "create_pull_request",
    "opne a pull requets": "create_pull_request",
    "create a GitLab merge request targeting develop": "gitlab_create_merge_request",
    "forward the invoice to accounting": "forward_email",
    "verschick eine Mail an Anna": "send_email",
    "öffne einen Pull Request": "create_pull_request",
    "envoie un mail à Marie": "send_email",
    "wyślij maila do Ani": "send_email",
    "qué tiempo hace en Sevilla": "get_current_weather",
    "quel temps fait-il à Lyon": "get_current_weather",
}
NAMES = ("get_issue", "create_issue", "issue.close", "Issue", "send_draft", "send_email")


@pytest.fixture(scope="module")
def demo() -> ToolFilter:
    return ToolFilter(CATALOG)


@pytest.mark.parametrize(("text", "tool"), FIRST.items())
def test_an_everyday_request_finds_the_tool_that_does_what_its_verb_says(
    demo: ToolFilter, text: str, tool: str
) -> None:
    found = demo.search(text)
    assert found.hits[0].tool.name == tool
    assert found.confidence.level != "none"


def first_of(text: str, behind: float = 0.5) -> str:
    """Rank tools by their names alone, the first of them ahead of the others by so much."""
    index = Index.build(catalog({f"s/{name}": "" for name in NAMES}))
    scores = np.array([behind, *[0.0] * (len(NAMES) - 1)], np.float32)
    rows = np.array([index.rows[f"s/{name}"] for name in NAMES], np.int32)
    request = Request(Query(text=text), analyse(text), index.among(Filters()))
    return index.tool(int(Acting(index)(request, Ranking(rows, scores)).rows[0])).name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("create an issue", "create_issue"),
        ("close the issue", "issue.close"),
        ("could you please create one", "create_issue"),
        ("open an issue", "create_issue"),
        ("open the issue", "get_issue"),
        ("mail it", "get_issue"),
        ("issues of this week", "get_issue"),
        ("paint the wall", "get_issue"),
    ],
)
def test_a_name_that_says_what_is_asked_comes_first_among_near_equals(text: str, name: str) -> None:
    assert first_of(text) == name


def test_a_synonym_counts_less_and_with_its_object_only() -> None:
    assert first_of("mail it", behind=0.4) == "send_email"


@pytest.mark.parametrize("behind", [SAME_ACTION + WHOLE_NAME + 0.01, NEARLY_AS_GOOD + 0.01])
def test_a_tool_that_matches_much_better_stays_first(behind: float) -> None:
    assert first_of("create an issue", behind) == "get_issue"


@pytest.mark.parametrize(
    ("name", "verb"),
    [
        ("create_issue", "create"),
        ("createIssue", "create"),
        ("gitlab_create_merge_request", "create"),
        ("records.create", "create"),
        ("browser-click", "click"),
    ],
)
def test_a_name_says_what_is_done_by_its_verb(name: str, verb: str) -> None:
    assert named_action(name)[0] == stem(verb)


@pytest.mark.parametrize("name", ["", "Review", "search", "magi_codex", "weather_oracle"])
def test_a_name_of_one_word_or_without_a_verb_says_nothing(name: str) -> None:
    assert named_action(name) == ()


def test_the_explanation_names_the_stage(demo: ToolFilter) -> None:
    why = demo.explain("create a GitLab merge request targeting develop")
    assert "its name says what the request asks to do" in why.text() or not why.stages


def test_a_name_that_the_request_says_whole_counts_more_than_its_verb_alone() -> None:
    assert first_of("create something", SAME_ACTION + 0.01) == "get_issue"
    assert first_of("create an issue", SAME_ACTION + 0.01) == "create_issue"
