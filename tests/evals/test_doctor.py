from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from shortlist.disclosure.budget import estimate_tokens
from shortlist.evals.contender import NOTHING_FOUND
from shortlist.evals.doctor import Doctor, server_costs
from shortlist.evals.duplicates import near_duplicates
from shortlist.evals.paraphrase import paraphrase
from shortlist.models import Tool, ToolId
from shortlist.text.tokens import terms
from tests.evals.fakes import tool

ISSUE = tool("git/create_issue", "Create a new issue in a GitHub repository. Needs a token.", server="git")
FORK = tool("hub/create_issue", "Create a new issue in a GitHub repository. Needs a token!", server="hub")
WEATHER = tool("sky/forecast", "Fetch hourly temperature and rain for a city.", server="sky")


def by_id(*tools: Tool) -> dict[ToolId, Tool]:
    return {each.id: each for each in tools}


def always(*ids: ToolId) -> Doctor:
    return Doctor(rank=lambda _query, limit: replace(NOTHING_FOUND, ids=ids[:limit]))


def test_the_paraphrase_drops_stop_words_and_name_words_and_swaps_verbs() -> None:
    assert paraphrase(ISSUE) == "make new github repository"


def test_the_paraphrase_swaps_forms_of_verbs_but_not_the_nouns_made_of_them() -> None:
    assert paraphrase(tool("x", "Creating and listing past deployments.")) == "make show all past deployments"


def test_the_paraphrase_keeps_name_words_when_little_else_is_said() -> None:
    assert paraphrase(tool("list_files", "List files.")) == "show all files"


def test_the_paraphrase_of_a_description_without_words_is_empty() -> None:
    assert paraphrase(tool("x", "...")) == ""
    assert paraphrase(tool("x", "")) == ""


def test_the_paraphrase_skips_an_opening_line_without_words() -> None:
    assert paraphrase(tool("x", "---\nSend a fax to someone.")) == "deliver fax"


@given(st.text(max_size=80))
def test_a_paraphrase_is_the_same_every_time_and_one_line(text: str) -> None:
    made = paraphrase(tool("some_name", text))
    assert made == paraphrase(tool("some_name", text))
    assert "\n" not in made


def test_a_tool_that_its_paraphrase_does_not_find_is_unfindable() -> None:
    (finding,) = always("sky/forecast").examine(by_id(ISSUE, WEATHER)).of("unfindable")
    assert finding.tools == ("git/create_issue",)
    assert "'sky/forecast' comes first" in finding.message


def test_finding_a_copy_counts_as_finding_the_tool() -> None:
    assert always("hub/create_issue").examine(by_id(ISSUE, FORK)).of("unfindable") == ()


def test_copies_are_grouped_and_other_tools_are_not() -> None:
    assert near_duplicates(by_id(ISSUE, FORK, WEATHER)) == (("git/create_issue", "hub/create_issue"),)


def test_tools_without_a_description_are_no_copies_of_each_other() -> None:
    assert near_duplicates(by_id(tool("a/get"), tool("b/get"))) == ()


words = st.lists(st.sampled_from([f"word{c}" for c in "abcdefghijkl"]), min_size=1, max_size=12)


@given(st.lists(words, max_size=8), st.sampled_from([0.5, 0.7, 0.9]))
def test_prefix_filtering_finds_the_pairs_that_comparing_all_would(texts: list[list[str]], threshold: float) -> None:
    tools = by_id(*(tool(f"t{n}/same", " ".join(text)) for n, text in enumerate(texts)))
    families = near_duplicates(tools, threshold=threshold)
    sets = {key: set(terms(f"{each.name} {each.description}")) for key, each in tools.items()}
    together = {(a, b) for family in families for a in family for b in family}
    for a, ours in sets.items():
        for b, theirs in sets.items():
            if a != b and len(ours & theirs) >= threshold * len(ours | theirs):
                assert (a, b) in together


def test_descriptions_are_told_apart_as_empty_thin_and_bloated() -> None:
    bloated = tool("d", "Sort the numbers of a list. " + "Really! " * 400)
    found = always("a", "b", "c", "d").examine(by_id(tool("a", " "), tool("b", "..."), bloated))
    assert [finding.tools for finding in found.of("empty description")] == [("a",)]
    assert [finding.tools for finding in found.of("thin description")] == [("b",)]
    assert [finding.tools for finding in found.of("bloated description")] == [("d",)]
    assert (found.tools, found.tested) == (3, 1)


def test_servers_are_listed_by_what_their_definitions_cost() -> None:
    costs = server_costs(by_id(ISSUE, WEATHER, tool("sky/now", server="sky")))
    one = estimate_tokens(ISSUE.definition)
    assert [(cost.server, cost.tools, cost.tokens) for cost in costs] == [("sky", 2, 2 * one), ("git", 1, one)]


def test_an_empty_catalog_is_healthy() -> None:
    found = always().examine({})
    assert (found.findings, found.costs, found.tested) == ((), (), 0)
