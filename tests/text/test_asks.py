from collections.abc import Callable
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.text import asks, pasted
from shortlist.text.asks import MAX_ASK_CHARS, read_ask
from shortlist.text.queries import ask_of, query_of

LOG = "\n".join(
    f"2026-03-0{n % 9 + 1} 10:{n % 60:02}:00,123 ERROR [checkout] connection to postgres timed out after {n} ms"
    for n in range(60)
)
CODE = "def refund(charge):\n    return stripe.Refund.create(charge=charge)\n\n" * 30
TABLE = "\n".join(["region,product,units", *(f"North,Lamp,{n}" for n in range(200))])
MAIL = (
    "From: Ana Keller <ana@partner.example>\nSubject: Contract\n\nHi Bob,\n\n"
    + "Please find the contract attached. Could you tell me who takes care of the deployment? Thanks for the call.\n\n"
    * 12
    + "Best regards,\nAna"
)
ARTICLE = (
    "The harbour of the old town was built in the thirteenth century. Merchants settled on the eastern bank. "
    "The museum keeps letters, maps and calendars of the explorer. "
) * 12
CHAT = "\n".join(f"[1{n % 10}:30] Omar: can somebody restart the staging box, I get 502s" for n in range(60))
PASTES = {"log": LOG, "code": CODE, "table": TABLE, "mail": MAIL, "article": ARTICLE, "chat": CHAT}
ASK = "open a bug in Jira for this"


def after(paste: str) -> str:
    return f"{paste}\n\n{ASK}"


def before(paste: str) -> str:
    return f"{ASK}\n\n{paste}"


def between(paste: str) -> str:
    lines = paste.split("\n")
    half = len(lines) // 2
    return "\n".join([*lines[:half], "", ASK, "", *lines[half:]])


@pytest.mark.parametrize("kind", PASTES)
@pytest.mark.parametrize("place", [after, before, between])
def test_the_ask_is_found_wherever_it_stands(kind: str, place: Callable[[str], str]) -> None:
    ask = read_ask(place(PASTES[kind]))
    assert ask.text == ASK
    assert ask.is_clear
    assert ask.characters >= len(PASTES[kind]) * 0.9


@pytest.mark.parametrize(
    "ask",
    [
        "import this csv into the sqlite database",
        "return the items of these orders",
        "let the team know about these figures",
        "package these rows as a zip file",
        "@bot please put these rows into a new spreadsheet",
    ],
)
def test_a_request_that_begins_with_a_keyword_of_programs_is_not_code(ask: str) -> None:
    rows = "\n".join(f"north,{number},{number * 17},rain" for number in range(40))
    assert read_ask(f"{rows}\n\n{ask}").text == ask


@pytest.mark.parametrize(
    "line",
    [
        "import os",
        "import numpy as np, pandas as pd",
        "import React, { useState } from 'react'",
        "return foo(bar)",
        "let x = 3;",
        "package main",
        "@app.route('/x')",
        "class Foo(Bar):",
    ],
)
def test_lines_of_programs_are_pasted(line: str) -> None:
    assert read_ask(f"{line}\n{line}\n{line}x\n\nexplain this code").text == "explain this code"


def test_a_fenced_block_is_pasted_whatever_it_holds() -> None:
    ask = read_ask("```\nplease delete the database\n```\nsave this as a note")
    assert ask.text == "save this as a note"


@pytest.mark.parametrize(
    "text",
    [
        "create an issue",
        "create an issue\nand assign it to Bob",
        "I am planning a party for my sister, who turns thirty in May. We are twelve people. Please find a restaurant "
        "by the river, then book a table in the garden, and send everyone an invitation by mail. I would also like to "
        "know what the weather will be like. Two of us eat no meat, so ask the kitchen. Put the evening into "
        "my calendar, with a reminder on the day before, and order a taxi for my parents.",
        "1. trigger the pipeline\n2. create a release\n3. tell the team",
        "Erstelle ein Ticket.\n\nUnd schick es Bob.",
    ],
)
def test_a_request_without_a_paste_is_left_whole(text: str) -> None:
    assert read_ask(text).text == text.strip()
    assert read_ask(text).characters == 0


def test_a_paste_alone_is_not_a_clear_request() -> None:
    ask = read_ask(LOG)
    assert not ask.is_clear
    assert ask.text


def test_a_vague_ask_is_informed_by_the_paste_and_a_telling_one_is_not() -> None:
    assert "postgres" in query_of(read_ask(f"{LOG}\n\nfix this"))
    assert "postgres" not in query_of(read_ask(after(LOG)))


@given(st.text(max_size=3_000))
def test_any_text_is_read(text: str) -> None:
    ask = read_ask(text)
    assert len(ask.text) <= MAX_ASK_CHARS + 1
    assert bool(ask.text.strip()) == bool(text.strip())


@pytest.mark.parametrize(
    "unit", ["a", "( ", "> ", "a, ", "x: y\n", "From: a\n", "Is it? ", "\t|", "2026-01-01 10:00 x\n"]
)
def test_a_megabyte_of_paste_does_not_hide_the_ask(unit: str) -> None:
    ask = read_ask(unit * (1_000_000 // len(unit)) + "\n\nsave it to a file")
    assert ask.text.endswith("save it to a file")
    assert len(query_of(ask)) <= MAX_ASK_CHARS + 1


def test_a_long_request_with_a_short_table_in_it_is_searched_whole() -> None:
    task = (
        "Could you check the readings below against our limits and tell me which of them fail? The limits are in the"
        " sheet of last year. Please look up the name of each sensor, and open a ticket for every one that is too high."
        " Also plot the readings over the week, and mail the plot to the people on the list of the plant."
    )
    text = f"{task}\n\n[4, 2, 1]\n[0, 3, 1]\n[2, 0, 1]\n\nThen convert the units and write a summary for my boss."
    assert read_ask(text).text == text


def test_a_task_in_several_steps_with_a_list_of_values_is_searched_whole() -> None:
    text = (
        "Please scan the host 192.168.18.49. Use the following user names: admin, root, guest. "
        "Set the timeout of each attempt to a suitable value. Then check the soil of the field for bacteria. "
        "Finally, retrieve the number of visitors of the museum on the first of January, and write it down with "
        "the date, the weather of that day, the exhibitions that were open and the names of the guides who were there."
    )
    assert read_ask(text).text == text


ABROAD = """\
My daughter is 16 and wants to spend a year in Argentina. She speaks some Spanish, plays the cello, and is allergic to \
peanuts. We have about 9,000 euros. School starts in February there. Her passport is valid until next May.

Find programmes that fit, check what visa she needs, and tell me what flights in January cost. And please look up \
whether peanuts are common in the food there."""
MOVE = """\
We are moving our web shop from one host to another. It has 2,300 products, 40,000 customers and a database of 18 GB. \
At night there are hardly any orders. The old host ends the contract on 30 June. We have tried an export once, and it \
took five hours.

Please plan the migration, estimate how long it takes, and check our DNS records. Can you also set up monitoring for \
the new server and warn me if the certificate expires?"""


@pytest.mark.parametrize("message", [ABROAD, MOVE], ids=["abroad", "move"])
def test_facts_that_a_writer_tells_about_a_case_belong_to_the_request(message: str) -> None:
    assert read_ask(message).text == message
    assert not read_ask(message).pasted


def test_lines_that_differ_in_nothing_but_numbers_are_pasted() -> None:
    lines = "\n".join(f"log line {number} of the run" for number in range(40))
    assert ask_of(f"{lines}\nopen a jira ticket").text == "open a jira ticket"


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("mute notifications? no wait, set me as away on slack", "set me as away on slack"),
        ("delete it. scratch that, archive the page", "archive the page"),
        ("wait, no pods are listed", "wait, no pods are listed"),
        ("explain what i meant to say", "explain what i meant to say"),
    ],
)
def test_a_request_that_is_taken_back_is_not_asked(text: str, asked: str) -> None:
    assert ask_of(text).text == asked


ONE_MORE = 130
"""The length of one more sentence: where two may be the request, both are searched."""


def is_mostly(ask: str, found: str) -> bool:
    return ask in found and len(found) <= len(ask) + ONE_MORE


RUNBOOK = """# Moving the shop to another host

## Before
Ask the owner for a window. Please tell support, and check that you can log in.

## Steps
1. Stop the workers and create a dump of the database.
2. Upload the dump, restore it and run the checks.
3. Restart the workers. Open a ticket if they fail.

## Afterwards
Send everybody a message. Delete the dump, and remove the old host from the list."""


@pytest.mark.parametrize(
    "ask",
    [
        "make a pdf out of this",
        "which language is this?",
        "can you put that into the wiki?",
        "refund her",
        "traduce esto al alemán",
        "schreib das in eine datei",
        "fasse das bitte zusammen und zeig es mir",
    ],
)
def test_a_paragraph_that_points_at_instructions_is_the_request(ask: str) -> None:
    assert read_ask(f"{ask}\n\n{RUNBOOK}").text == ask
    assert read_ask(f"{RUNBOOK}\n\n{ask}").text == ask


@pytest.mark.parametrize(
    "ask", ["who is on call tonight?", "add a note to customer 4471", "投稿到 discord 的 #news 频道"]
)
def test_a_request_beside_a_document_with_a_heading_need_not_point_at_it(ask: str) -> None:
    assert is_mostly(ask, read_ask(f"{ask}\n\n{RUNBOOK}").text)
    assert is_mostly(ask, read_ask(f"{RUNBOOK}\n\n{ask}").text)


FIRST_MAIL = """From: Gudrun Asmus <gudrun@nordhaus.example>
To: Office <office@acme.example>
Subject: Delivery of the shelves

Dear all,

the shelves will be delivered on Friday. Somebody has to be there to sign for them and to show the driver the lift.
Could someone please confirm who will be there? I would also like to know whether the old shelves should be taken along.

Best regards
Gudrun Asmus"""
SECOND_MAIL = """From: Piet de Boer <piet@acme.example>
To: Office <office@acme.example>
Subject: Re: Delivery of the shelves

> Could someone please confirm who will be there?

I can be there until 11. If they come later, Rosa has to do it. And yes, please have them take the old ones along.

Piet

--
Piet de Boer | Facility | +31 20 555 01 23"""


@pytest.mark.parametrize(
    "ask",
    [
        "put it on the calendar",
        "who is on call tonight?",
        "erstelle dazu ein Ticket",
        "envoie ça à Claire",
        "把这个翻译成英文",
        "これを要約して",
        "bunu slack'te paylaş",
        "переведи это на английский",
    ],
)
def test_two_mails_in_a_row_are_pasted_wherever_the_request_stands(ask: str) -> None:
    assert read_ask(f"{FIRST_MAIL}\n\n{SECOND_MAIL}\n\n{ask}").text == ask
    assert read_ask(f"{ask}\n\n{FIRST_MAIL}\n\n{SECOND_MAIL}").text == ask
    assert read_ask(f"{FIRST_MAIL}\n\n{ask}\n\n{SECOND_MAIL}").text == ask


@pytest.mark.parametrize("ask", ["envoie ça à Claire", "これを要約して"])
def test_a_request_in_another_language_than_the_prose_beside_it_is_found(ask: str) -> None:
    story = "The keeper counted the ships every evening. He wrote their names into a book, with the hour. " * 8
    assert read_ask(f"{story}\n\n{ask}").text == ask
    assert read_ask(f"{ask}\n\n{story}").text == ask


TASK = (
    "Please create a calendar event on Friday at ten with Ada and Karim in room four. It should be one hour"
    " long, with "
    "a video link in the description. Add the quarterly report as an agenda item and invite both by mail. Set a "
    "reminder before it starts, and mark it as private. Put it into the team calendar, and move what is there "
    "by an hour, so that nobody has to be in two places at once."
)


SIGN_OFFS = ("Mit freundlichen Grüßen", "Von meinem iPhone gesendet")
"""What stands only below a message."""


@pytest.mark.parametrize(
    "courtesy",
    [
        "Vielen Dank im Voraus!",
        "Danke",
        "Hola!",
        "Bonjour,",
        "Ciao",
        "Hallo zusammen,",
        "Mit freundlichen Grüßen",
        "Von meinem iPhone gesendet",
        "Gracias",
        "Grazie mille!",
        "Спасибо большое",
        "ありがとうございます",
    ],
)
def test_a_greeting_or_thanks_in_another_language_does_not_replace_the_request(courtesy: str) -> None:
    assert TASK in read_ask(f"{TASK}\n\n{courtesy}").text
    if courtesy not in SIGN_OFFS:
        assert TASK in read_ask(f"{courtesy}\n\n{TASK}").text


@pytest.mark.parametrize("ask", ["wie ist das wetter morgen", "明天天气怎么样？"])
def test_a_question_in_another_language_than_the_prose_beside_it_is_found(ask: str) -> None:
    assert is_mostly(ask, read_ask(f"{TASK}\n\n{ask}").text)


def test_thanks_in_another_language_do_not_replace_a_document_with_a_heading() -> None:
    assert "calendar event" in read_ask(f"# Task\n\n{TASK}\n\nVielen Dank im Voraus!").text


def test_a_long_message_that_asks_nobody_may_be_pasted() -> None:
    recipe = (
        "Chop the onions and fry them in butter until they are soft. Peel the carrots and cut them into slices. Add"
        " the carrots, half a litre of stock and a pinch of salt. Let it simmer for twenty minutes on a low flame. The"
        " soup is ready when a fork goes through the carrots. Take the pot off the stove and stir in cream. Serve it"
        " with parsley and a slice of dark bread. It keeps for three days in the fridge, and is better on the second."
        " In winter, a spoonful of grated ginger goes well with it. Children like it with small dumplings. The recipe"
        " comes from a village in the north, where carrots were cheap and butter was not. Every house has its own way."
    )
    assert not read_ask(recipe).asks
    assert read_ask(f"{recipe}\n\nCould you help me with the shopping, and where do they sell good carrots?").asks


def test_a_request_that_leaves_all_to_the_prose_beside_it_is_searched_whole() -> None:
    tasks = (
        "Firstly, the governance policy of the library is wanted, with the names of those who wrote it. Secondly, the"
        " average of all grades of the past three years, by subject. Thirdly, the opening hours in July, and if the"
        " reading room can be rented for a day. Lastly, a list of the books that were lent most often this spring."
    )
    message = f"I need assistance with several tasks.\n{tasks}"
    assert read_ask(message).text == message.strip()


SETTINGS = (
    "[server]\nlisten = 0.0.0.0:8443\nworkers = 4\n\n[mail]\nhost = smtp.example\n\n[jobs]\n; delete old"
    " carts\ncleanup = 3"
)
SESSION = (
    "$ docker ps\nNAMES   STATUS\nweb     Up 3 hours\n$ docker logs worker\npicked up job 88120\nKilled\n"
    "$ git log --oneline\n8c1f0aa resize images\n51d20be update pillow\n$ _"
)
PATCH = (
    "diff --git a/app/up.py b/app/up.py\nindex 41c2e0a..9be1f77 100644\n--- a/app/up.py\n+++ b/app/up.py\n@@"
    " -12,3 +12,3 @@\n"
    " def save(upload):\n-    name = upload.filename\n+    name = secure(upload.filename)\n+    # delete the"
    " copies\n return name"
)
STORY = (
    "The return of the night train\n\nFor decades the sleeping car seemed to be gone. Now operators order new"
    " coaches.\n\n"
    'Why are travellers coming back? "You go to bed in Zurich and wake up at the sea," says a guide. Families'
    " save a night "
    "in a hotel, and whoever wants to compare prices has to open several websites and send the same data each"
    " time.\n\n"
    "Brussels has promised a single ticket. Until then, fans of the night train help each other with maps and hints."
)
CONTRACT = (
    "7.1 This Agreement enters into force on the Effective Date and continues for a term of two years.\n\n"
    "7.2 Either party may terminate this Agreement for good cause, in particular if the other party fails to"
    " pay invoices "
    "despite two reminders. The Provider shall export all data and delete it at the request of the Customer.\n\n"
    "8.1 The parties shall keep all information confidential. Please note that this obligation survives termination."
)
MINUTES = (
    "Weekly sync, 11 June\nPresent: Priya, Sam, Lukas\n\n1. Release\n- translations are missing, Lukas asks the"
    " agency\n"
    "- search is slow for big accounts\n- decision: release on Tuesday\n\n2. Office\n- the heating does not work\n"
    "- create a short list until the end of the month\n\nOpen points\n[ ] update the status page\n[ ] book the flights"
    "\n[ ] write to the customer about the payment that failed, and call the landlord about the heating in the"
    " small room"
)
GERMAN_LETTER = (
    "Sehr geehrte Frau Albrecht,\n\nin der Wohnung über uns ist ein Rohr undicht, das Wasser tropft durch die"
    " Decke. Bitte "
    "schicken Sie einen Installateur. Können Sie prüfen, ob die Versicherung den Schaden übernimmt?\n\n"
    "Fotos habe ich angehängt.\n\nMit freundlichen Grüßen\nTobias Wendt\nLindenstraße 8, 2. OG links"
)
LETTER = (
    "Hi Jonas,\n\nsorry for the late answer. Could you send me the price list by Wednesday? Please add Hanna to"
    " the thread.\n\n"
    "One more question: can we book the training for July?\n\nKind regards,\nMarit Solberg\nHead of Procurement\n"
    "Fjordtek AS | Strandgaten 14\n\nOn Thu, 4 Jun 2026, Jonas Reuter wrote:\n> attached is the offer. Let me know."
)
DOCUMENTS = {
    "settings": SETTINGS,
    "terminal": SESSION,
    "patch": PATCH,
    "article": STORY,
    "contract": CONTRACT,
    "minutes": MINUTES,
    "German letter": GERMAN_LETTER,
    "letter": LETTER,
}


@pytest.mark.parametrize("kind", DOCUMENTS)
@pytest.mark.parametrize(
    "ask",
    [
        "block the afternoon of 7 July",
        "who is on call tonight?",
        "Can you answer that Saturday is included?",
        "get rid of the worker container",
        "leg dafür ein Ticket an",
        "quelle heure est-il à Tokyo ?",
        "把这个翻译成英文",
    ],
)
def test_a_request_beside_any_document_is_found_at_either_end(kind: str, ask: str) -> None:
    assert is_mostly(ask, read_ask(f"{DOCUMENTS[kind]}\n\n{ask}").text)
    assert is_mostly(ask, read_ask(f"{ask}\n\n{DOCUMENTS[kind]}").text)


@pytest.mark.parametrize("kind", ["patch", "article", "contract", "minutes"])
def test_a_request_on_the_line_next_to_a_document_is_found(kind: str) -> None:
    assert is_mostly("who is on call tonight?", read_ask(f"{DOCUMENTS[kind]}\nwho is on call tonight?").text)
    assert is_mostly("who is on call tonight?", read_ask(f"who is on call tonight?\n{DOCUMENTS[kind]}").text)


@pytest.mark.parametrize("lead", ["look at this:", "see this:", "here is the log:", "got this mail:", "log below"])
def test_a_line_that_says_what_follows_is_not_the_request(lead: str) -> None:
    assert read_ask(f"{lead}\n\n{LOG}\n\nsilence the alert for an hour").text == "silence the alert for an hour"
    assert read_ask(f"{lead}\n\n{STORY}\n\nfind recent news about this").text == "find recent news about this"


def test_the_items_of_a_long_task_are_not_set_apart() -> None:
    task = "You have a deck of 52 cards and want to explain how likely it is to draw certain ones. " * 4
    text = f"{task}\n\n1. What is the probability of an ace?\n\n2. Finally, what is the probability of a red card?"
    assert read_ask(text).text == text


@pytest.mark.parametrize(
    "closing",
    [
        "Schönen Tag noch!",
        "Ich freue mich auf Ihre Antwort.",
        "Have a nice day!",
        "I look forward to your reply",
        "Merci d'avance et bonne journée",
        "Espero su respuesta",
        "Aguardo o seu retorno.",
        "Resto in attesa di un suo riscontro",
        "Czekam na odpowiedź",
        "Жду вашего ответа",
        "Cevabınızı bekliyorum",
        "Mong nhận được phản hồi",
        "期待您的回复",
        "お返事をお待ちしております",
        "회신 기다리겠습니다",
        "في انتظار ردكم",
        "आपका दिन शुभ हो",
    ],
)
def test_a_polite_closing_does_not_replace_the_request(closing: str) -> None:
    assert TASK in read_ask(f"{TASK}\n\n{closing}").text
    assert read_ask(f"{LOG}\n\n{ASK}\n\n{closing}").text == ASK


def test_a_document_is_classified_once_however_many_of_its_paragraphs_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    classified = counted(monkeypatch, asks, "_is_addressed")
    assert read_ask("\n\n".join(["fix it?"] * 1_000)).text == "fix it?"
    assert len(classified) < 10


def test_lines_of_a_log_are_not_read_as_requests_without_a_signature_above(monkeypatch: pytest.MonkeyPatch) -> None:
    scored = counted(monkeypatch, pasted, "score_in_any_language")
    assert read_ask(f"{ASK}, today\n\n{LOG}").text == f"{ASK}, today"
    assert len(scored) < 10


def counted(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> list[tuple[object, ...]]:
    """Note the arguments of every call of a function."""
    calls: list[tuple[object, ...]] = []
    real = getattr(module, name)

    def noted(*given: object) -> object:
        calls.append(given)
        return real(*given)

    monkeypatch.setattr(module, name, noted)
    return calls


def test_a_list_that_a_request_introduces_is_part_of_it() -> None:
    text = (
        "I'm putting together a highlight for our newsletter and want two posts. Could you:\n\n"
        + "\n".join(f"• Grab thread number {n} and count the comments below it" for n in range(8))
        + "\n\nI need specific numbers."
    )
    assert read_ask(text).text == text


def test_a_log_below_a_list_of_wishes_is_still_pasted() -> None:
    log = "\n".join(f"2026-03-01 10:00:{n:02} ERROR merge of pdf {n} failed" for n in range(60))
    asked = read_ask(f"could you:\n- create an issue for this\n\n{log}")
    assert asked.characters > 2_000


TRIP = """I'm travelling to Lisbon with my two kids from 4 to 11 July and need some help to get it all sorted.

First, look for direct flights that leave after ten in the morning. The small one gets sick on early flights.

For the stay, I'd prefer a flat near a park with a kitchen and a washing machine. Our budget is 140 euros per night.

Finally, make a list of things to do when it rains, and add the opening hours. Put it into a document and share it."""
JOB = """Our checkout service needs a nightly job which compares the orders of the day with the payments in Stripe.

The job should read the orders from Postgres. Every mismatch goes into a table with the order number and a short reason.

If there are more than ten mismatches, post a message to #payments. Otherwise a mail in the morning is enough.

Write it in Python, add tests, and open a pull request against main."""


@pytest.mark.parametrize("text", [TRIP, JOB], ids=["trip", "job"])
def test_a_request_in_several_paragraphs_is_searched_whole_although_its_last_one_asks_most(text: str) -> None:
    assert read_ask(text).text == text
    assert not read_ask(text).characters


@pytest.mark.parametrize(
    "text",
    ["\n\n\n", "... !!!\n" * 60, "\0" * 500, "\ud800\n" * 300, "😀 " * 300, "-\n\n" * 300, "```\n" * 300, "> " * 400],
)
def test_a_message_of_marks_is_read_without_losing_all_of_it(text: str) -> None:
    ask = read_ask(text)
    assert bool(ask.text) == bool(text.strip())
    assert len(ask.pasted) <= ask.characters <= len(text)
