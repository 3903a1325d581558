import pytest

from shortlist.models import Relation
from shortlist.text import conversation
from shortlist.text.conversation import ChatTurn, asked_now
from shortlist.text.tokens import terms

LISTED = (ChatTurn("user", "list the pods in production"), ChatTurn("assistant", "worker-1 is crashing."))
WEATHER = (ChatTurn("user", "what's the weather in Lisbon?"), ChatTurn("assistant", "22 degrees."))
OFFERED = (
    ChatTurn("user", "the cart crashes when it is empty"),
    ChatTurn("assistant", "I could open a bug in Jira for that. Shall I create it?"),
)
CRASH = '"the cart crashes when it is empty"'
FOUND = (
    ChatTurn("user", "find the mail about the deposit"),
    ChatTurn("assistant", "There are three mails. Which one should I open?"),
)
GOES_IN = '"Which table, and what goes into the row?"'
ROW = (ChatTurn("user", "add a row to my base"), ChatTurn("assistant", GOES_IN.strip('"')))
STORED = (ChatTurn("user", "get the key session:1"), ChatTurn("assistant", "Its value is abc."))
WHICH = (ChatTurn("user", "translate our welcome text"), ChatTurn("assistant", "Into which language?"))
POSTED = (ChatTurn("user", "post the release notes in slack"), ChatTurn("assistant", "Posted in #general."))


@pytest.mark.parametrize(
    ("turns", "ask", "relation", "taken"),
    [
        (LISTED, "kill it", "continues", "the pods in production"),
        (LISTED, "restart", "continues", "the pods in production"),
        ((ChatTurn("user", "show me PR 91 in acme/site"),), "merge it", "continues", "PR 91 in acme/site"),
        (WEATHER, "and in Porto?", "repeats", "what's the weather in Lisbon?"),
        (
            WEATHER,
            "Same for Porto and wherever the ferry to the islands starts",
            "repeats",
            "what's the weather in Lisbon?",
        ),
        (WEATHER, "ahh better. same in Porto, but only the morning", "repeats", "what's the weather in Lisbon?"),
        (WEATHER, "do it again for Faro", "repeats", "what's the weather in Lisbon?"),
        (OFFERED, "yes please", "accepts", f"open a bug in Jira for that\ncreate it\n{CRASH}"),
        (WHICH, "Japanese", "fills", 'translate our welcome text\n"Into which language?"'),
        (FOUND, "the second one", "fills", "open the mail about the deposit"),
        (ROW, "table Contacts, name: Lena Ott, phone 0151 2233", "fills", f"add a row to my base\n{GOES_IN}"),
        (ROW, "I need the weather in Oslo, Bergen, Narvik, Tromsø and Bodø", "new", ""),
        (STORED, "session:2?", "repeats", "get the key session:1"),
        (STORED, "looks good, now delete", "continues", "the key session:1"),
        (STORED, "now throw those away", "continues", "the key session:1"),
        (POSTED, "wait, pin them", "corrects", "the release notes in slack"),
        (POSTED, "god no, not in slack, in discord", "corrects", "post the release notes in"),
        (POSTED, "don't touch the channel, leave a comment", "corrects", "the release notes in slack"),
        (POSTED, "not slack, the discord community", "corrects", "post the release notes in"),
        (LISTED, "something else: book a meeting with Karim", "new", ""),
        (
            LISTED,
            "My flight got cancelled. Same thing happened last week. What are my options to get to Oslo by train?",
            "new",
            "",
        ),
        (
            LISTED,
            "customers in Lyon cannot log in since noon, same with the ones from Madrid, and we need a list",
            "new",
            "",
        ),
        (LISTED, "send Lena a private message on slack that lunch is at 12", "new", ""),
        (LISTED, "how many people are reading our shop this very second?", "new", ""),
        (LISTED, "show the sales by region since last week", "new", ""),
        (LISTED, "now move that two days", "continues", "the pods in production"),
        ((), "merge it", "new", ""),
        (LISTED, "kill it, and create a jira ticket for the checkout team", "continues", "the pods in production"),
        (LISTED, "create a jira ticket for the checkout team and assign it", "new", ""),
        (LISTED, "onu sil", "continues", "the pods in production"),
        (LISTED, "szczegóły tego drugiego", "continues", "the pods in production"),
        (LISTED, "それを消して", "continues", "the pods in production"),
        (LISTED, "帮我看看明天北京的天气怎么样", "new", ""),
        (WEATHER, "¿y en Cádiz?", "repeats", "what's the weather in Lisbon?"),
        (WEATHER, "大阪は？", "repeats", "what's the weather in Lisbon?"),
    ],
)
def test_the_last_turn_takes_what_it_needs(
    turns: tuple[ChatTurn, ...], ask: str, relation: Relation, taken: str
) -> None:
    asked = asked_now(ask, turns)
    assert (asked.relation, asked.taken) == (relation, taken)


def test_what_was_accepted_is_what_is_searched_for() -> None:
    assert asked_now("yes please", OFFERED).query.startswith("open a bug in Jira")


def test_a_yes_that_asks_for_more_stands_by_itself() -> None:
    asked = asked_now("yes, show the cpu of the pods and list the slow database queries", OFFERED)
    assert "slow database queries" in asked.text
    assert asked.relation == "new"


def test_a_yes_that_names_the_step_is_searched_by_the_step() -> None:
    turns = (ChatTurn("user", "news about the bridge"), ChatTurn("assistant", "I could load the article for you."))
    asked = asked_now("yes, fetch it", turns)
    assert asked.relation == "accepts"
    assert asked.query.startswith("fetch it")
    assert "article" in asked.query


@pytest.mark.parametrize(
    ("ask", "wanted", "rejected"),
    [
        ("don't touch the channel, leave a comment", "leave a comment", {"touch", "channel"}),
        ("I didn't want it split, just compressed", "compressed", {"split"}),
        ("wrong place, that belongs on gitlab", "that belongs on gitlab", set()),
        ("oh no everyone writes essays, i meant a poll", "oh no everyone writes essays, i meant a poll", set()),
    ],
)
def test_a_correction_rejects_all_that_is_not_to_be_done(ask: str, wanted: str, rejected: set[str]) -> None:
    asked = asked_now(f"no, {ask}", POSTED)
    assert (asked.text, set(asked.rejected)) == (wanted, rejected)


def test_a_correction_with_its_own_verb_is_not_searched_by_the_verb_before() -> None:
    query = asked_now("wait, don't post it, only archive it", POSTED).query
    assert query.startswith("archive it")
    assert "post" not in query


def test_a_turn_with_a_pronoun_does_not_stand_alone() -> None:
    assert not asked_now("say in there that it is fixed, then close it", STORED).may_stand_alone
    assert asked_now("list queries", STORED).may_stand_alone


def test_what_is_rejected_is_not_searched_for() -> None:
    assert "slack" not in asked_now("not slack, the discord community", POSTED).query


@pytest.mark.parametrize(
    ("ask", "wanted", "taken"),
    [
        ("lol no, discord", "discord", "post the release notes in slack"),
        ("i use discord for that, not slack", "discord", "post the release notes in"),
        ("no wait don't post them, just save them", "save them", "the release notes in slack"),
        ("argh, not post. i wanted a draft", "a draft", "the release notes in slack"),
        ("I don't need slack, only the wiki", "the wiki", "post the release notes in"),
    ],
)
def test_a_correction_leaves_what_is_wanted_instead(ask: str, wanted: str, taken: str) -> None:
    asked = asked_now(ask, POSTED)
    assert (asked.relation, asked.text, asked.taken) == ("corrects", wanted, taken)


def test_a_paste_in_the_last_turn_is_not_what_is_asked() -> None:
    log = "\n".join(f"2026-03-01 10:00:{n:02} ERROR timeout" for n in range(50))
    assert asked_now(f"{log}\n\nput that on the wiki", LISTED).text == "put that on the wiki"


def test_a_chat_of_many_turns_takes_the_nearest_request() -> None:
    turns = [
        turn for number in range(250) for turn in (ChatTurn("user", f"list the users of tenant {number}"), *LISTED)
    ]
    assert asked_now("delete them", turns).taken == "the pods in production"


def test_a_request_after_calls_alone_continues_when_it_says_little() -> None:
    assert asked_now("merge it", (), called=True).relation == "continues"
    assert asked_now("create an invoice for the customer in Berlin", (), called=True).relation == "new"


STAGED = (ChatTurn("user", "stage the readme"), ChatTurn("assistant", "README.md is staged."))
ZONE = (ChatTurn("user", "add a mail record for our domain"), ChatTurn("assistant", "Which zone, and which value?"))
PREPARED = (
    ChatTurn("user", "prepare a post about the outage"),
    ChatTurn("assistant", "The post is saved as a draft. Do you want to change it, or shall I publish it?"),
)


def test_an_offer_of_little_but_a_value_is_read_with_the_thing_under_discussion() -> None:
    turns = (ChatTurn("user", "list the open issues"), ChatTurn("assistant", "The newest is 91. Should I close 91?"))
    assert asked_now("yep", turns).taken == 'close 91\n"the open issues"'


@pytest.mark.parametrize("ask", ["sounds right, carry on", "all good, proceed", "perfect, then let's do it", "lgtm"])
def test_an_approval_in_other_words_accepts_the_offer(ask: str) -> None:
    asked = asked_now(ask, PREPARED)
    assert (asked.relation, asked.text) == ("accepts", "")
    assert asked.taken.startswith("change it, or")


def test_an_offer_that_says_little_is_read_with_what_was_said_before_it() -> None:
    turns = (ChatTurn("user", "write the minutes"), ChatTurn("assistant", "The minutes are a draft. Shall I mail it?"))
    assert asked_now("yes, off you go", turns).taken == 'mail it\n"The minutes are a draft"'


@pytest.mark.parametrize(
    "said", ["I'd overwrite the old prices.", "I am going to overwrite the old prices.", "I'm about to overwrite them."]
)
def test_an_announcement_is_an_offer(said: str) -> None:
    asked = asked_now("fine by me", (ChatTurn("user", "the prices changed"), ChatTurn("assistant", said)))
    assert (asked.relation, asked.taken.partition(" ")[0]) == ("accepts", "overwrite")


def test_what_stands_in_a_quote_rejects_nothing() -> None:
    asked = asked_now('title: "Charge once, not twice"', STAGED)
    assert asked.relation == "continues"
    assert '"Charge once, not twice"' in asked.query
    assert asked_now('no, the title is "Charge once, not twice"', STAGED).text.endswith('"Charge once, not twice"')


def test_a_quote_and_an_identifier_are_one_word_of_a_request() -> None:
    assert asked_now("example.net, v=spf1-include:_mail.example.net", ZONE).relation == "fills"
    assert asked_now("let kim.lee@mail.example.com in", STAGED).relation == "continues"
    assert asked_now('ah, file it under my "read during the long winter" shelf', STAGED).relation == "continues"


@pytest.mark.parametrize(
    ("ask", "relation"),
    [
        ("and the humidity?", "continues"),
        ("now with a chart", "continues"),
        ("and who measured that?", "continues"),
        ("and how is it in Braga?", "repeats"),
        ("and the other one?", "repeats"),
        ("what about Sintra", "repeats"),
    ],
)
def test_another_side_of_the_thing_is_not_a_repetition(ask: str, relation: Relation) -> None:
    assert asked_now(ask, WEATHER).relation == relation


ANYTHING_ELSE = (WEATHER[0], ChatTurn("assistant", "It is sunny. Anything else I can help with?"))
WHAT_ELSE = (WEATHER[0], ChatTurn("assistant", "It is sunny. What else can I do for you?"))


@pytest.mark.parametrize("turns", [ANYTHING_ELSE, WHAT_ELSE])
@pytest.mark.parametrize(
    "ask",
    [
        "driving directions from Berlin Hauptbahnhof to Hamburg Altona please",
        "the unread emails from my boss since last Monday please",
        "stock price of Apple and Microsoft over the last month",
    ],
)
def test_a_long_turn_after_a_question_for_anything_else_is_new(turns: tuple[ChatTurn, ...], ask: str) -> None:
    assert asked_now(ask, turns).relation == "new"


@pytest.mark.parametrize("ask", ["Correct typos in README.md of acme/site", "proceed to checkout with order 12"])
def test_a_verb_that_may_be_an_agreement_is_part_of_its_request(ask: str) -> None:
    assert asked_now(ask, WEATHER).relation == "new"


@pytest.mark.parametrize(
    ("ask", "relation"),
    [
        ("don't you have a tool to translate text?", "new"),
        ("don't forget to add milk to my shopping list", "new"),
        ("do not forget to add milk and flour to my shopping list", "new"),
        ("send an email to the whole team about the picnic, but not to Bob", "new"),
        ("flight no. LH 400 status", "new"),
        ("invoice no. 4471 please", "continues"),
        ("god no, the one in Porto", "corrects"),
        ("in Porto, but not the rain", "corrects"),
    ],
)
def test_a_negation_that_rejects_nothing_is_not_a_correction(ask: str, relation: Relation) -> None:
    assert asked_now(ask, WEATHER).relation == relation


def test_a_question_that_begins_with_a_negation_is_kept_whole() -> None:
    asked = asked_now("no, don't you have a tool to translate text?", WEATHER)
    assert (asked.text, asked.rejected) == ("don't you have a tool to translate text?", frozenset())


def test_a_rejection_of_anything_leaves_what_is_wanted() -> None:
    assert asked_now("no, don't post anything yet, just draft it", POSTED).text == "draft it"


DAY = (ChatTurn("user", "what's on my calendar on friday"), ChatTurn("assistant", "Standup at 9, dentist at 11."))
VOID = (
    ChatTurn("user", "void an invoice of Hansen"),
    ChatTurn("assistant", "Please give me the number of the invoice."),
)
COUNTED = (ChatTurn("user", "how many users do we have"), ChatTurn("assistant", "48,211."))


@pytest.mark.parametrize(
    ("turns", "ask", "relation", "text"),
    [
        (DAY, "push the dentist to next week", "continues", "push the dentist to next week"),
        (DAY, "push the release to next week", "new", "push the release to next week"),
        (VOID, "invoice no. 4471 please", "fills", "invoice no. 4471 please"),
        (VOID, "invoice Olsen for the hours of June", "new", "invoice Olsen for the hours of June"),
        (WHICH, "Japanese. Schönen Tag noch!", "fills", "Japanese."),
        (COUNTED, "only those from Norway", "repeats", "only those from Norway"),
        (COUNTED, "just in case, back up the database", "continues", "just in case, back up the database"),
        (POSTED, "hell no. discord please", "corrects", "discord please"),
        (POSTED, "no. 3 please", "repeats", "no. 3 please"),
        (WEATHER, "Danke dir. Was anderes: wer hat heute Bereitschaft?", "new", "wer hat heute Bereitschaft?"),
        (WEATHER, "merci beaucoup. qui est d'astreinte ce soir ?", "new", "qui est d'astreinte ce soir ?"),
        (
            WEATHER,
            "thanks!! different thing: which queries, all in all, are slow?",
            "new",
            "which queries, all in all, are slow?",
        ),
    ],
)
def test_courtesies_and_announcements_are_left_out_of_a_turn(
    turns: tuple[ChatTurn, ...], ask: str, relation: Relation, text: str
) -> None:
    asked = asked_now(ask, turns)
    assert (asked.relation, asked.text) == (relation, text)


def test_thanks_alone_are_kept() -> None:
    assert asked_now("vielen Dank!", WEATHER).text == "vielen Dank!"


def test_only_the_end_of_a_long_answer_is_searched_for_what_a_request_names(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def noted(text: str) -> list[str]:
        read.append(len(text))
        return terms(text)

    monkeypatch.setattr(conversation, "terms", noted)
    said = "the dentist is closed. " + "nothing else was found. " * 100_000
    asked_now("push the dentist", (ChatTurn("user", "show my day"), ChatTurn("assistant", said)))
    assert max(read) <= conversation.SAID_CHARS
