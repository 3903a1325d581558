import pytest

from shortlist.text.languages.detecting import language_of
from shortlist.text.languages.lexicon import LANGUAGES, english_words, lexicon
from shortlist.text.languages.reading import read
from shortlist.text.queries import analyse


@pytest.mark.parametrize(
    ("text", "language", "english"),
    [
        ("Schick dem Kunden die Rechnung per E-Mail", "de", ("send", "customer", "invoice")),
        ("Benenne den Ordner bitte um", "de", ("rename", "folder")),
        ("Öffne den Kundenbericht", "de", ("open", "customer", "report")),
        ("muéstrame los archivos de la carpeta", "es", ("show", "file", "folder")),
        ("crie uma página com o resumo da reunião", "pt", ("create", "page", "meeting")),
        ("montre-moi les fichiers du dossier", "fr", ("show", "file", "folder")),
        ("aggiungi un promemoria al calendario", "it", ("add", "calendar")),
        ("wyślij wiadomość do zespołu", "pl", ("send", "message", "team")),
        ("покажи все файлы в папке", "ru", ("show", "file", "folder")),
        ("أرسل رسالة إلى الفريق", "ar", ("send", "message", "team")),
        ("takıma bir mesaj gönder", "tr", ("team", "message", "send")),
        ("टीम को संदेश भेजो", "hi", ("team", "message", "send")),
        ("team ko sandesh bhejo", "hi", ("message", "send")),
        ("gửi tin nhắn cho nhóm", "vi", ("send", "message")),
        ("gui tin nhan cho nhom cua toi", "vi", ("send", "message")),
        ("给团队发送消息", "zh", ("team", "send", "message")),
        ("チームにメッセージを送って", "ja", ("team", "message", "send")),
        ("팀에게 메시지를 보내줘", "ko", ("team", "message", "send")),
        ("リビングの電気を消して", "ja", ("living room", "light", "turn off")),
        ("décale la réunion à 14h", "fr", ("reschedule", "meeting")),
        ("запусти пылесос на кухне", "ru", ("vacuum", "kitchen")),
        ("schließe die Jalousien im Wohnzimmer", "de", ("close", "blinds", "living room")),
        ("verschick eine Mail an Anna", "de", ("send", "email")),
        ("starte den Container neu", "de", ("restart", "container")),
        ("otworz maila do Ani", "pl", ("open", "email")),
        ("qué tiempo hace en Sevilla", "es", ("weather",)),
        ("quel temps fait-il à Lyon", "fr", ("weather",)),
        ("me lembra da reunião", "pt", ("remind", "meeting")),
        ("скинь отчёт Ане", "ru", ("send",)),
        ("dosyayı siler misin", "tr", ("delete", "file")),
    ],
)
def test_a_request_is_read_word_by_word(text: str, language: str, english: tuple[str, ...]) -> None:
    reading = read(text)
    assert reading is not None
    assert reading.languages == (language,)
    senses = {sense.english for unit in reading.units for sense in unit.senses}
    assert senses >= set(english)


@pytest.mark.parametrize(
    "text",
    [
        "list open pull requests",
        "pay the invoice for my son, not the ad",
        "the car para el coche",
        "k8s terminate pod by name",
        "I'm planning to go skiing",
        "send an email to Juan de la Cruz",
        "translate 你好 to English for me",
        "creat a new isue in githb",
        "attich my cv on thsi fomr",
        "go to thiis siet in the otherr browset",
        "die roll for a war game",
        "sned an emial to bob",
        "get_user_by_id",
        "https://example.com/de/la/el/los",
        "",
        "🎉🔥",
        "1234 5678",
    ],
)
def test_english_and_names_are_left_alone(text: str) -> None:
    assert read(text) is None


def test_each_clause_has_its_own_language() -> None:
    reading = read("Покажи все файлы. Then send an email to the team. 给团队发送消息。")
    assert reading is not None
    assert reading.languages == ("ru", "zh")
    assert "Then send an email to the team." in reading.text


def test_what_stands_in_links_and_names_is_not_translated() -> None:
    reading = read("abre https://example.com/la/casa y muestra el archivo main_de.py de la carpeta")
    assert reading is not None
    assert "https://example.com/la/casa" in reading.text
    assert "main_de.py" in reading.text


@pytest.mark.parametrize(
    ("text", "name"),
    [("Στείλε ένα μήνυμα", "Greek"), ("שלח הודעה לצוות", "Hebrew"), ("надішли листа моїй команді", "Ukrainian")],
)
def test_a_language_without_a_lexicon_is_named(text: str, name: str) -> None:
    reading = read(text)
    assert reading is not None
    assert reading.languages == ()
    assert name in reading.note


def test_right_to_left_text_with_a_latin_name_keeps_the_name() -> None:
    reading = read("افتح مشكلة في GitHub عن تسجيل الدخول")
    assert reading is not None
    assert "GitHub" in reading.text
    assert "open" in reading.text


def test_short_forms_do_not_match_inside_other_words() -> None:
    reading = read("日本語の文書を検索して")
    assert reading is not None
    assert "day" not in {sense.english for unit in reading.units for sense in unit.senses}


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_words_and_function_words(language: str) -> None:
    words = lexicon(language)
    assert len(words.forms) > 2_000
    assert len(words.function_words) > 50


def test_no_function_word_of_english_alone_makes_a_text_foreign() -> None:
    ordinary = sorted(english_words())
    foreign = [word for word in ordinary if language_of(word)]
    assert foreign == []


def test_a_model_is_not_given_unknown_words_in_letters_that_it_cannot_read() -> None:
    known, strange = read("покажи файлы"), read("покажи файлы квжщцбрык")
    assert known is not None
    assert strange is not None
    assert strange.readings == known.readings
    assert strange.units[-1].text == "квжщцбрык"


def test_a_model_reads_function_words_in_english_and_the_index_is_not_searched_for_them() -> None:
    reading = read("qué juegos puedo jugar en mi ordenador")
    assert reading is not None
    assert "my" in reading.text.split()
    assert "my" not in {term.term for term in analyse("qué juegos puedo jugar en mi ordenador").terms}


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("在Personal库的House.md末尾追加'- called the plumber, coming Thursday'。", "zh"),
        ("제목이 'Deep residual learning for image recognition'에 가장 가까운 논문이 뭐야?", "ko"),
        ("En The Graph ejecuta { pools(first: 5) { id } } sobre el subgraph.", "es"),
        ("Выполни на The Graph { pools(first: 5, orderBy: volumeUSD) { id volumeUSD } } в сабграфе.", "ru"),
    ],
)
def test_english_in_quotes_braces_and_names_leaves_a_request_in_its_language(text: str, language: str) -> None:
    reading = read(text)
    assert reading is not None
    assert reading.languages == (language,)


def test_of_languages_with_as_many_words_the_first_by_name_is_taken() -> None:
    assert language_of("crea lista") == "es"  # Italian has as many; sets must not decide, whose order changes


@pytest.mark.parametrize(
    ("text", "name"), [("manda el informe a Contoso", "Contoso"), ("envoie la facture à Contoso", "Contoso")]
)
def test_a_name_is_not_read_as_a_word_that_begins_like_it(text: str, name: str) -> None:
    reading = read(text)
    assert reading is not None
    assert {unit.text: unit.senses for unit in reading.units}[name] == ()
