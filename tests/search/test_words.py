import pytest

from shortlist.models import Query, SearchMode, Server
from shortlist.search.searcher import Searcher, SearchOptions
from shortlist.text.queries import parse_expansions
from tests.fakes import WORKPLACE, catalog, found, searcher


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("create a calendar event", "calendar/create_event"),
        ("open a PR", "github/create_pull_request"),
        ("merge the PR", "github/merge_pull_request"),
        ("k8s pods", "kubernetes/list_pods"),
        ("notify the channel", "slack/send_message"),
        ("what will the weather be in Oslo", "weather/get_forecast"),
        ("http response", "http/getHTTPResponseV2"),
        ("show me the commits on <branch-name>", "github/list_commits"),
        ("read /etc/nginx/sites/default.conf", "files/read_file"),
        ("email 7f3a9c12-1111-2222-3333-444455556666 to bob@example.com", "mail/send_email"),
        ("get https://example.com/calendar/delete/event with status, headers and body", "http/getHTTPResponseV2"),
    ],
)
def test_the_right_tool_comes_first(by_words: Searcher, text: str, first: str) -> None:
    assert found(by_words, text)[0] == first


def test_a_server_that_is_named_brings_its_tools(by_words: Searcher) -> None:
    assert set(found(by_words, "something in Slack about the deploy")) >= {"slack/send_message", "slack/list_channels"}


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("calender event create", "calendar/create_event"),
        ("wether forcast", "weather/get_forecast"),
        ("kubernets pods", "kubernetes/list_pods"),
        ("scale the deploymnet", "kubernetes/scale_deployment"),
    ],
)
def test_typos_are_forgiven(by_words: Searcher, text: str, first: str) -> None:
    assert found(by_words, text)[0] == first


def test_a_typo_is_answered_with_what_was_meant(by_words: Searcher) -> None:
    assert by_words.search(Query(text="calender event")).did_you_mean == {"calender": "calendar"}


@pytest.mark.parametrize(
    "spelling",
    ["create_pull_request", "createPullRequest", "create-pull-request", "CREATE_PULL_REQUEST", "CreatePullRequest"],
)
@pytest.mark.parametrize("mode", ["hybrid", "lexical", "exact", "prefix", "fuzzy"])
def test_a_name_in_any_spelling_finds_its_tool_first(workplace: Searcher, spelling: str, mode: SearchMode) -> None:
    assert found(workplace, spelling, mode=mode)[0] == "github/create_pull_request"


@pytest.mark.parametrize("spelling", ["getHTTPResponseV2", "get_http_response_v2", "GetHttpResponseV2"])
def test_acronyms_and_digits_are_spelled_any_way_too(workplace: Searcher, spelling: str) -> None:
    assert found(workplace, spelling)[0] == "http/getHTTPResponseV2"
    assert found(workplace, f"please call {spelling} now")[0] == "http/getHTTPResponseV2"


def test_a_name_in_a_sentence_wins_over_the_words_around_it(workplace: Searcher) -> None:
    assert found(workplace, "run search_files to read the file of the message")[0] == "files/search_files"


def test_a_verb_that_every_tool_has_decides_little() -> None:
    many = {f"s/create_{thing}": f"Create a {thing}." for thing in ("invoice", "quote", "order", "refund", "customer")}
    crowd = searcher({**many, "s/find_refund": "Look a refund up."}, dense=False)
    assert set(found(crowd, "create refund", limit=2)) == {"s/create_refund", "s/find_refund"}


def test_what_a_server_repeats_over_its_tools_weighs_little() -> None:
    notice = "Requires an access token with the calendar scope."
    tools = {
        f"office/{name}": f"{notice} {text}"
        for name, text in {
            "send_mail": "Send mail.",
            "list_chats": "List chats.",
            "add_contact": "Add a contact.",
            "get_note": "Get a note.",
        }.items()
    }
    office = searcher({**tools, "office/book_room": "Book a room in the calendar."}, dense=False)
    assert found(office, "calendar", mode="lexical")[0] == "office/book_room"


def test_a_servers_own_words_lead_to_its_tools() -> None:
    described = catalog(
        {"crm/list_records": "List records.", "files/list_folders": "List folders."},
        Server(name="crm", description="Customers, deals and pipelines of the sales team."),
    )
    assert found(searcher(described, dense=False), "sales deals")[0] == "crm/list_records"


def test_users_own_words_are_understood() -> None:
    mine = parse_expansions("standup => calendar event", "mine.txt")
    with_mine = searcher(WORKPLACE, dense=False, options=SearchOptions(expansions=mine))
    assert found(with_mine, "standup")[0].startswith("calendar/")
