import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.text.kinds import with_kinds
from shortlist.text.queries import MAX_WISHES, wishes


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("merge it and tell #dev about it", ["merge it", "tell #dev about it"]),
        ("stop the container, then remove it", ["stop the container", "remove it"]),
        ("1. trigger the pipeline 2. create a release", ["trigger the pipeline", "create a release"]),
        ("create a bucket\nlist all buckets", ["create a bucket", "list all buckets"]),
        ("what song is this? add it to my favourites", ["what song is this?", "add it to my favourites"]),
        (
            "I need a flight to Rome. Can you book a hotel too?",
            ["I need a flight to Rome.", "Can you book a hotel too?"],
        ),
        ("I need the bus times and what is the weather?", ["I need the bus times", "what is the weather?"]),
        (
            "turn the lights off, close the blinds and arm the alarm",
            ["turn the lights off", "close the blinds", "arm the alarm"],
        ),
        ("first stop the container, then remove it", ["stop the container", "remove it"]),
        ("First, open an issue. Then email Karin about it.", ["open an issue.", "email Karin about it."]),
        ("Create a bucket. After that, list all buckets.", ["Create a bucket.", "list all buckets."]),
        ("First of all, stop the web container. Second, remove it.", ["stop the web container.", "remove it."]),
        ("ack it and show me the logs", ["ack it", "show me the logs"]),
        ("The demo is today. Create a bucket and email Tom", ["The demo is today. Create a bucket", "email Tom"]),
        (
            "We go to the castle. What will the weather be and how do we get there?",
            ["We go to the castle. What will the weather be", "how do we get there?"],
        ),
    ],
)
def test_each_wish_of_a_request_is_found(text: str, parts: list[str]) -> None:
    assert [wish.text for wish in wishes(text)] == parts


@pytest.mark.parametrize(
    "text",
    [
        "create an issue",
        "search and replace a word in the file",
        "send a message to Ana and Bob",
        "find a cheap, quiet and central hotel",
        "which tests pass and fail on the same commit",
        "I want to cook lasagne tonight. Can you find a recipe?",
        "I need help with the pump. Can you send me its manual and catalog?",
        "It is late. I want to cook lasagne tonight. Can you find a recipe?",
        "find a flight and its price",
        "print the page in black and white",
        "list users and groups",
        "first name, email and phone of the customer",
        "In the shared folder, find the newest report and open it",
        "",
    ],
)
def test_one_wish_stays_whole(text: str) -> None:
    assert wishes(text) == ()


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Lösch die Datei und schick eine E-Mail an Tom", ["Lösch die Datei", "schick eine E-Mail an Tom"]),
        ("die Datei löschen und den Text übersetzen", ["die Datei löschen", "den Text übersetzen"]),
        ("busca el archivo y envía un correo a Luis", ["busca el archivo", "envía un correo a Luis"]),
        ("apague o arquivo e mande um email", ["apague o arquivo", "mande um email"]),
        ("arrête le conteneur puis supprime l'image", ["arrête le conteneur", "supprime l'image"]),
        ("cerca il file e poi crea una cartella", ["cerca il file", "crea una cartella"]),
        ("usuń plik i utwórz folder", ["usuń plik", "utwórz folder"]),
        ("удали файл и создай папку", ["удали файл", "создай папку"]),
        ("dosyayı sil ve klasör oluştur", ["dosyayı sil", "klasör oluştur"]),
        ("xóa tệp rồi gửi email", ["xóa tệp", "gửi email"]),
        ("फ़ाइल हटाओ और ईमेल भेजो", ["फ़ाइल हटाओ", "ईमेल भेजो"]),
        ("احذف الملف وأرسل بريدا", ["احذف الملف", "أرسل بريدا"]),
        ("查一下天气，然后发一封邮件", ["查一下天气", "发一封邮件"]),
        ("搜索昨天的日志，再把这个文件删掉", ["搜索昨天的日志", "把这个文件删掉"]),
        ("メールを検索して、添付ファイルをダウンロードして", ["メールを検索して", "添付ファイルをダウンロードして"]),
        ("メールを検索してスラックに投稿して", ["メールを検索して", "スラックに投稿して"]),
        ("trova un hotel e dimmi come ci vado", ["trova un hotel", "dimmi come ci vado"]),
        ("이메일을 검색하고 첨부파일을 다운로드해줘", ["이메일을 검색하고", "첨부파일을 다운로드해줘"]),
    ],
)
def test_each_wish_of_a_request_in_another_language_is_found(text: str, parts: list[str]) -> None:
    assert [wish.text for wish in wishes(text)] == parts


@pytest.mark.parametrize(
    "text",
    [
        "finde Restaurants mit Musik und Terrasse",
        "envía un correo a Ana y Luis",
        "cherche un vol et un hôtel",
        "查找邮件和附件",
        "把文件移到文档文件夹，谢谢",
        "来週の予定を確認して教えて",
        "translate 'wash and go' to Spanish",
        "post `stop the server and delete the file` in the channel",
    ],
)
def test_one_wish_in_another_language_or_with_a_quote_stays_whole(text: str) -> None:
    assert wishes(text) == ()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("merge the pull request and tell #review", "review"),
        ("1) stop the container 2) remove it 3) notify #ops", "ops"),
        ("lösch die Datei und sag's in #deploy", "deploy"),
        ("supprime la branche et écris-le dans #merge", "merge"),
    ],
)
def test_a_channel_that_is_named_like_a_thing_is_still_a_channel(text: str, name: str) -> None:
    last = wishes(text)[-1].query
    assert with_kinds(last) == f'post a message to channel "{name}"'


def test_a_part_too_short_to_tell_its_language_is_searched_by_its_gloss() -> None:
    _, second = wishes("usuń plik i wyślij mail do Ani")
    assert second.text == "wyślij mail do Ani"
    assert {"send", "email", "Ani"} <= {*second.query.split()}


def test_a_wish_that_says_it_is_about_the_one_before() -> None:
    first, second = wishes("create a poll about the date and pin it")
    assert (first.about, second.about) == ("", "create a poll about the date")
    assert second.query == 'pin it\n"create a poll about the date"'


def test_a_wish_that_says_enough_is_searched_by_itself() -> None:
    assert wishes("download the report and mail it to Ruth")[1].query == "mail it to Ruth"


def test_what_earlier_turns_said_is_not_a_wish() -> None:
    assert wishes('stage both\n"what changed in my working copy?"') == ()
    merge, tell = wishes('merge it and tell #dev about it\n"what is the state of PR 12?"')
    assert (merge.text, merge.about) == ("merge it", "what is the state of PR 12?")
    assert tell.text == "tell #dev about it"


def test_a_task_described_at_length_is_not_taken_apart() -> None:
    assert wishes("create a bucket, then list all buckets. " * 20) == ()


@given(st.text(max_size=400))
def test_any_text_can_be_taken_apart(text: str) -> None:
    found = wishes(text)
    assert len(found) != 1
    assert len(found) <= MAX_WISHES
    assert all(wish.text.strip() for wish in found)
