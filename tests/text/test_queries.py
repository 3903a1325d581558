import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.text.asks import MAX_ASK_CHARS
from shortlist.text.kinds import with_kinds
from shortlist.text.queries import (
    EXPANSION_WEIGHT,
    MAX_QUERY_TERMS,
    PASTED_WEIGHT,
    analyse,
    wishes,
)
from shortlist.text.tokens import terms


def weights(text: str) -> dict[str, float]:
    return {term.term: term.weight for term in analyse(text).terms}


def instead(text: str) -> set[str]:
    return {word for term in analyse(text).terms for word, _ in term.instead}


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    analysed = analyse(text)
    assert len(analysed.terms) <= MAX_QUERY_TERMS
    assert all(term.term and 0 < term.weight <= 1 for term in analysed.terms)
    assert len({term.term for term in analysed.terms}) == len(analysed.terms)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \t\n",
        "🎉🔥👍🏽",
        "\u200b\u2060",
        "(a+)+$" * 2_000,
        "'; DROP TABLE tools; --",
        "%s %n {0} {{x}} ${jndi:ldap://x}",
        "\x00\x1b[2J",
        "Создай 日程 événement حدث calendar",
    ],
)
def test_hostile_texts_are_read_like_any_other(text: str) -> None:
    analysed = analyse(text)
    glossed = analysed.reading.text if analysed.reading else ""
    assert {term.term for term in analysed.terms} <= {*terms(text), *terms(glossed)}


@pytest.mark.parametrize("unit", ["a", "a.", "a-", "1a", "<", '"', "/a", "a@", "a1-", "('a", "{x", "词"])
def test_a_megabyte_is_cut_before_anything_else_reads_it(unit: str) -> None:
    analysed = analyse(unit * (1_000_000 // len(unit)))
    assert len(analysed.text) <= MAX_ASK_CHARS + 1
    assert len(analysed.terms) <= MAX_QUERY_TERMS


def test_both_ends_of_a_long_paste_are_kept() -> None:
    found = weights("merge the branch " + "x " * 20_000 + " then notify the channel")
    assert {"merg", "branch", "notifi", "channel"} <= found.keys()


@pytest.mark.parametrize(
    ("text", "pasted"),
    [
        ("delete the storage account <resource-group>", "resourc"),
        ("show the bill of {customer_name}", "custom"),
        ("open https://example.com/pricing/table in the browser", "price"),
        ("read /home/user/reports/summary.txt", "summari"),
        ("mail it to accounting@company.example", "account"),
        ('send "quarterly numbers" to the channel', "quarter"),
        (r"list C:\Users\shared\pictures", "pictur"),
    ],
)
def test_what_was_pasted_counts_less_than_what_was_asked(text: str, pasted: str) -> None:
    found = weights(text)
    assert found[pasted] == PASTED_WEIGHT <= 0.5
    assert max(found.values()) == 1.0


def test_a_word_that_is_asked_and_pasted_counts_in_full() -> None:
    assert weights("create an issue titled 'issue with login'")["issu"] == 1.0


@pytest.mark.parametrize(
    "identifier",
    [
        "3f2504e0-4f89-11d3-9a0c-0305e82c3301",
        "sk9f8a7d6c5b4a3f2e1d0c9b8a",
        "2024-03-01",
        "10:30",
        "192.168.0.1",
        "4242",
    ],
)
def test_ids_numbers_and_dates_leave_the_words_alone(identifier: str) -> None:
    assert weights(f"cancel order {identifier} today") == weights("cancel order today")


def test_a_number_before_a_hyphen_does_not_take_the_word_with_it() -> None:
    assert "dimension" in weights("store 1536-dimensional vectors")


def test_a_query_of_nothing_but_an_id_is_still_searched() -> None:
    assert weights("4242") == {"4242": 1.0}


@pytest.mark.parametrize(
    ("text", "identifier"),
    [
        ("create_pull_request", "createpullrequest"),
        ("run createPullRequest for me", "createpullrequest"),
        ("call create-pull-request now", "createpullrequest"),
        ("getHTTPResponseV2", "gethttpresponsev2"),
        ("use s3_list_bucket_objects here", "s3listbucketobjects"),
    ],
)
def test_an_identifier_is_seen_in_any_spelling(text: str, identifier: str) -> None:
    assert identifier in analyse(text).identifiers


@pytest.mark.parametrize("identifier", ["get_http_response_v2", "s3_list_bucket_objects", "createS3BucketPolicy"])
def test_a_digit_in_a_name_does_not_make_it_a_key(identifier: str) -> None:
    assert weights(f"call {identifier} first").keys() >= set(terms(identifier))


@pytest.mark.parametrize(("abbreviation", "meant"), [("PR", "pull"), ("k8s", "kubernet"), ("repo", "repositori")])
def test_abbreviations_stand_for_what_they_mean(abbreviation: str, meant: str) -> None:
    assert meant in instead(f"show the {abbreviation}")


def test_a_synonym_weighs_less_than_the_word() -> None:
    (notify,) = analyse("notify").terms
    assert {word for word, _ in notify.instead} >= {"send", "messag"}
    assert all(0 < weight <= EXPANSION_WEIGHT for _, weight in notify.instead)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tell #dev it is out", 'post a message to channel "dev" it is out'),
        ("please drop it in #deploys", 'please post a message to channel "deploys"'),
        ("let #support know", 'post a message to channel "support"'),
        ("who is in #dev", "who is in channel #dev"),
        ("rename draft.md to final.md", "rename file draft.md to final.md"),
        ("open an issue in acme/api", "open an issue in repository acme/api"),
        ("rename the file draft.md", "rename the file draft.md"),
        ("fetch https://example.com/notes.md", "fetch https://example.com/notes.md"),
        ("give her read/write access", "give her read/write access"),
        ("look at example.com", "look at example.com"),
        ("list /etc/nginx/sites", "list /etc/nginx/sites"),
    ],
)
def test_names_of_channels_files_and_repositories_are_said_to_be_such(text: str, said: str) -> None:
    assert with_kinds(text) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mail Jonas that the roof is fixed", "send an email to Jonas that the roof is fixed"),
        ("please email my landlord about the damp", "please send an email to my landlord about the damp"),
        ("email her@example.org the plan", "send an email to her@example.org the plan"),
        ("email the minutes to the board", "email the minutes to the board"),
        ("email search", "email search"),
        ("allow Grace to view the budget", "give Grace permission to view the budget"),
        ("let the whole team see the folder", "give the whole team permission to see the folder"),
        ("let me see the folder", "let me see the folder"),
        ("grant Ines edit access to the roadmap", "give Ines permission to edit the roadmap"),
        ("arrange a quick chat with Marta", "arrange a meeting with Marta"),
        ("set up a call forward", "set up a call forward"),
        ("save it as plans/garden.txt", "write it to the file plans/garden.txt"),
        ("save the playlist", "save the playlist"),
        ("log 1h15 on the ticket", "log 1 hours 15 minutes on the ticket"),
        ("track 2h for the garden", "track 2 hours for the garden"),
        ("coin price of 24h", "coin price of 24h"),
        ("let the team know the deploy is done", "send a message to the team that the deploy is done"),
        ("please tell Ana that I am late", "please send a message to Ana that I am late"),
        ("let me know when it is done", "let me know when it is done"),
        ("let her know when it is done", "let her know when it is done"),
        ("tell me that again", "tell me that again"),
        ("can you answer Marit that it is included?", "can you reply to the message of Marit that it is included?"),
    ],
)
def test_everyday_words_are_said_as_tools_say_them(text: str, said: str) -> None:
    assert with_kinds(text) == said


def test_a_yes_before_the_first_wish_does_not_hide_the_second() -> None:
    found = wishes("yes, show the load of the pods and list slow database queries")
    assert [wish.text for wish in found] == ["yes, show the load of the pods", "list slow database queries"]
