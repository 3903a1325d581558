import pytest

from shortlist import ToolFilter
from shortlist.demo import CATALOG
from shortlist.text.heads import head_of, head_of_gloss, opposed_action, plain_action, tells
from shortlist.text.languages.reading import read_query

EVERYDAY = {
    "send an email to Karin that the door is open": "mail/send_email",
    "write Priya an email about the broken gate": "mail/send_email",
    "draft an email to the landlord that the heating rattles again": "mail/create_draft",
    "make a playlist called Rainy Sundays in Gdansk": "music/createPlaylist",
    "cancel the meeting with Svetlana": "calendar/delete-event",
    "send Miriam a direct message on slack that I'm stuck on the train": "slack/slack_send_direct_message",
    "open a github issue titled Login button does nothing on Safari": "github/create_issue",
    "create a jira bug: the invoice footer overlaps the logo on A5": "jira/createIssue",
    "add a note to the incident that the disk on kafka-3 was swapped": "pagerduty/add_incident_note",
    "search the news about the election in Bavaria": "websearch/news_search",
    "tell me the weather in Dakar right now": "weather/get_current_weather",
    "is there a bakery near Beirut": "maps/maps_search_places",
    "how do I get to Gdansk by bus": "maps/maps_directions",
    "translate my letter into Tamil": "translate/translate-text",
    "translate the paragraph to arabic": "translate/translate-text",
    "send an email to Torbjörn about the invoice": "mail/send_email",
    "send an email to Søren about the parcels": "mail/send_email",
    "mail Jonas that the roof is fixed": "mail/send_email",
    "email Katja that the concert begins at eight": "mail/send_email",
    "allow Grace to view the spreadsheet": "drive/shareFile",
    "log 2h45 on SHOP-9": "jira/addWorklog",
    "arrange a chat with Marta": "calendar/create-event",
}
NOT_HERE = [
    "delete my whole github account",
    "delete the docker hub account of acme",
    "remove my spotify account",
    "migrate the jira project to another site",
    "upgrade postgres to version 17",
    "buy two tickets for the concert of Nina Simone",
    "install python on Emil's laptop",
    "print the pdf on the printer upstairs",
]
LONG = (
    "We moved into the old mill last winter and nothing works as it should, the roof leaks over the stairs and "
    "the mice have eaten half of the books. My brother says that we were mad to buy it. Yesterday the chimney "
    "started to smoke inwards, so we slept in the barn with the goats. Anyway, I would be happy if you could send "
    "an email to the landlord of our former flat. He still has the deposit, and with that money we might mend the "
    "roof before the next storm. The goats have nothing against guests, but my back does, and the little one has "
    "a cough since Tuesday. Please be kind, he is an old man and forgets things, and his wife bakes the best plum "
    "cake in the valley."
)


def nothing_known(_: str) -> bool:
    return False


@pytest.fixture(scope="module")
def demo() -> ToolFilter:
    return ToolFilter(CATALOG)


@pytest.mark.parametrize(("request_", "tool"), EVERYDAY.items())
def test_names_and_a_message_do_not_make_an_everyday_request_unknown(
    demo: ToolFilter, request_: str, tool: str
) -> None:
    found = demo.search(request_, limit=3)
    assert found.confidence.level != "none"
    assert tool in [f"{hit.tool.server}/{hit.tool.name}" for hit in found.hits]


def test_a_long_request_is_judged_by_the_part_that_asks(demo: ToolFilter) -> None:
    found = demo.search(LONG, limit=3)
    assert (found.hits[0].tool.name, found.confidence.level) == ("send_email", "medium")
    assert "judged by a part of the request" in found.confidence.reasons


def test_a_long_request_whose_part_asks_for_something_else_stays_without_an_answer(demo: ToolFilter) -> None:
    found = demo.search(LONG.replace("send an email to the landlord of our former flat", "mend the roof"), limit=3)
    assert found.confidence.level == "none"


@pytest.mark.parametrize("request_", NOT_HERE)
def test_an_action_that_the_first_tool_does_not_have_is_never_sure(demo: ToolFilter, request_: str) -> None:
    assert demo.search(request_, limit=3).confidence.level != "high"


def test_the_reason_says_which_action_is_missing(demo: ToolFilter) -> None:
    reasons = demo.search("migrate the jira project to another site").confidence.reasons
    assert "it does not say that it can migrate" in reasons


@pytest.mark.parametrize(
    ("text", "head"),
    [
        ("send an email to Karin that the keys are under the mat", "send an email"),
        ("email Marta that the boiler man comes at nine", "email"),
        ("forward the mail to tobias", "forward the mail"),
        ("dim the lamp in Emil's room", "dim the lamp in room"),
        ("ask Noor and Felix to review pull request 88", "ask and to review pull request"),
        ("what are the coordinates of the Sagrada Familia", "what are the coordinates of the"),
        ('translate "good night" to Spanish', "translate"),
        ("what is the traffic in Kraków?", "what is the traffic"),
        ("find a dentist near lisbon", "find a dentist near"),
        ("will it snow in Denver tonight", "will it snow in tonight"),
        ("hand the case over to Grace", "hand the case over"),
    ],
)
def test_the_head_of_a_request_has_neither_names_nor_content(text: str, head: str) -> None:
    found = head_of(text, nothing_known)
    assert found is not None
    assert found.text == head


@pytest.mark.parametrize(
    ("text", "is_whole"),
    [
        ("find a dentist near Lisbon", True),
        ("assign it to Robert", True),
        ("assign it to Xyloph", False),
        ("email Robert about the roof", False),
        ('translate "good night" to Spanish', False),
    ],
)
def test_a_request_without_its_places_people_and_languages_asks_for_the_same(text: str, is_whole: bool) -> None:
    found = head_of(text, nothing_known)
    assert found is not None
    assert found.is_whole == is_whole


def test_a_place_says_that_a_request_is_not_about_a_room(demo: ToolFilter) -> None:
    assert demo.search("how warm is it in Quito", limit=3).hits[0].tool.name == "get_current_weather"


@pytest.mark.parametrize("place", ["Quito", "Vilnius", "Nairobi", "Phoenix", "denver", "Zürich"])
@pytest.mark.parametrize(
    "request_", ["what's the forecast for {}", "look for a hotel near {}", "how do I get to {} by bus"]
)
def test_no_place_makes_a_request_unknown(demo: ToolFilter, request_: str, place: str) -> None:
    assert demo.search(request_.format(place), limit=3).confidence.level != "none"


@pytest.mark.parametrize(
    "text",
    [
        "send an email",
        "get rid of that table",
        "create a ticket in servicenow",
        "add a price to the Zuora product",
        "send an SMS to them",
        "create a card in Linear",
        "open the sheet in Excel",
        "mark the bill as paid",
    ],
)
def test_products_abbreviations_and_ordinary_words_are_no_content(text: str) -> None:
    assert head_of(text, nothing_known) is None


def test_a_word_of_the_catalog_is_no_name() -> None:
    assert head_of("export it to Zuora", lambda word: word == "Zuora") is None


@pytest.mark.parametrize(
    ("text", "action"), [("please delete it", "delete"), ("Rename a", "rename"), ("show me a delete", None), ("", None)]
)
def test_the_action_of_a_request_is_its_first_verb(text: str, action: str | None) -> None:
    assert plain_action(text) == action


@pytest.mark.parametrize("verb", ["delete", "remove", "cancel"])
def test_a_synonym_of_the_action_is_the_action(demo: ToolFilter, verb: str) -> None:
    found = demo.search(f"{verb} an event from the calendar")
    assert found.hits[0].tool.name == "delete-event"
    assert not any("does not say" in reason for reason in found.confidence.reasons)


@pytest.mark.parametrize(
    ("text", "is_message"),
    [
        ("email Karin that the door is open", True),
        ("please tell them, saying nothing else", True),
        ("find the mail that Karin sent", False),
        ("send the file", False),
    ],
)
def test_a_message_is_what_somebody_is_told(text: str, is_message: bool) -> None:
    assert tells(text) == is_message


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("quel temps fait-il à Lyon", "quel temps fait-il à"),
        ("schick eine Nachricht an Miriam", "schick eine Nachricht an"),
        ("borra este archivo", None),
        ("zeig mir die Rechnungen", None),
    ],
)
def test_a_name_behind_a_preposition_of_another_language_is_no_part_of_the_head(text: str, left: str | None) -> None:
    reading = read_query(text)
    assert reading is not None
    head = head_of_gloss(text, reading.units)
    assert (head and head.text.strip()) == left


@pytest.mark.parametrize(
    ("text", "name", "action"),
    [
        ("delete the webhook of the shop", "list_webhooks", "delete"),
        ("please approve that expense", "get_expense", "approve"),
        ("stop the render job", "start_render_job", "stop"),
        ("create a vlan", "delete_vlan", "create"),
        ("create a vlan", "vlan.add", None),
        ("change one file", "create_or_update_file", None),
        ("cancel the order", "delete_order", None),
        ("add up my bills of June", "query_bills", None),
        ("resolve example.org to an address", "lookup_address", None),
        ("move this photo to the trash", "delete_photo", None),
        ("show the vlan", "delete_vlan", None),
        ("create a vlan", "vlan", None),
        ("close the ticket... sorry, I mean create one", "create_ticket", None),
        ("create a vlan", "monitor_vlan_createorupdate", None),
        ("submit the finding", "monitor_findings_send-finding", None),
        ("create a vlan", "monitor_vlan", "create"),
    ],
)
def test_a_tool_is_opposed_that_is_named_for_something_a_change_cannot_mean(
    text: str, name: str, action: str | None
) -> None:
    assert opposed_action(text, name) == action


def test_a_change_is_not_answered_with_a_tool_that_only_reads() -> None:
    reading = {
        "list_webhooks": "List the webhooks of the shop.",
        "get_webhook": "Get a webhook of the shop by its id.",
        "list_products": "List the products of the shop.",
    }
    tools = [{"name": name, "description": said} for name, said in reading.items()]
    of_change = "approve that webhook of the shop"
    found = ToolFilter(tools).filter(of_change)
    assert found.confidence.level == "none"
    assert "it does not say that it can approve" in found.confidence.reasons
    with_it = [*tools, {"name": "approve_webhook", "description": "Approve a webhook of the shop."}]
    assert ToolFilter(with_it).filter(of_change).confidence.level == "high"
