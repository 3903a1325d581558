"""What is another language, what is an unsupported one, and what is English with foreign words in it."""

import pytest

from shortlist.text.languages.detecting import NAMES, SUPPORTED, _data, language_of
from shortlist.text.languages.glossing import LATIN, gloss
from shortlist.text.languages.lexicon import strange_words
from shortlist.text.languages.reading import glossed, read


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("open het bestand", "nl"),
        ("stuur een e-mail naar Jan over de vergadering", "nl"),
        ("verwijder het bestand uit de map", "nl"),
        ("wat is het weer morgen in Amsterdam", "nl"),
        ("skicka ett mejl till Anna om mötet", "sv"),
        ("tænd lampen", "da"),
        ("hvilke møter har jeg i dag", "da"),
        ("lähetä sähköposti Matille kokouksesta", "fi"),
        ("jaké bude zítra počasí v Praze", "cs"),
        ("odstráň súbor z priečinka", "cs"),
        ("töröld a fájlt a mappából", "hu"),
        ("trimite un e-mail lui Ion", "ro"),
        ("esborra el fitxer de la carpeta", "ca"),
        ("pošalji e-mail Ivanu o sastanku", "hr"),
        ("prižgi luč v kuhinji", "sl"),
        ("koks rytoj bus oras Vilniuje", "lt"),
        ("izdzēs failu no mapes", "lv"),
        ("kustuta fail kaustast", "et"),
        ("kirim email ke Budi tentang rapat", "id"),
        ("padam fail ini", "id"),
        ("tuma barua pepe kwa Juma", "sw"),
        ("burahin ang file sa folder", "tl"),
    ],
)
def test_an_unsupported_language_is_named_and_none_of_its_words_is_glossed(text: str, language: str) -> None:
    reading = read(text)
    assert reading is not None
    assert reading.unknown == (language,)
    assert reading.languages == ()
    assert reading.text == text
    assert NAMES[language] in reading.note


def test_every_unsupported_language_has_a_name_and_no_lexicon() -> None:
    listed = {line.partition("\t")[0] for line in _data("unsupported").splitlines()}
    assert listed <= NAMES.keys() - SUPPORTED


@pytest.mark.parametrize(
    "text",
    [
        "play Die Ärzte",
        "play La Vie en Rose",
        "play La Isla Bonita by Madonna",
        "play Für Elise",
        "weather in El Paso",
        "send an email to Juan de la Cruz",
    ],
)
def test_a_foreign_name_leaves_a_request_english(text: str) -> None:
    assert read(text) is None


@pytest.mark.parametrize("text", ["ls -la", "rm -rf the tmp dir", "ac off", "dns mx", "vue component", "get ip"])
def test_short_tokens_and_options_leave_a_request_english(text: str) -> None:
    assert read(text) is None


@pytest.mark.parametrize(
    ("text", "language"),
    [("lösch die Datei", "de"), ("abre Slack", "es"), ("xoa tep", "vi")],
)
def test_two_or_three_words_are_enough_for_a_supported_language(text: str, language: str) -> None:
    assert language_of(text) == language


@pytest.mark.parametrize(
    ("text", "english"),
    [
        ("ENVIAR UN CORREO A MARIA", "send a email to maria"),
        ("LÖSCHE DIE DATEI", "delete the file"),
        ("SUPPRIME LE FICHIER", "delete the file"),
        ("E-POSTA GÖNDER", "email send"),
        ("DOSYAYI SİL", "file delete"),
        ("XÓA TỆP", "delete file"),
    ],
)
def test_a_request_in_capitals_is_read_like_one_in_small_letters(text: str, english: str) -> None:
    assert glossed(text) == english


@pytest.mark.parametrize("text", ["AWS S3 IAM", "DELETE THE FILE", "SELECT * FROM USERS", "SQL", "I"])
def test_abbreviations_and_english_in_capitals_are_left_alone(text: str) -> None:
    assert read(text) is None


@pytest.mark.parametrize(
    ("text", "english"),
    [
        ("please delete the Datei from the Ordner", "please delete the file from the folder"),
        ("merge den Pull Request und delete the branch", "merge den Pull Request and delete the branch"),
        ("close the ticket puis notify the team dans Slack", "close the ticket notify the team in Slack"),
    ],
)
def test_words_of_another_language_in_an_english_request_are_read(text: str, english: str) -> None:
    assert glossed(text) == english


@pytest.mark.parametrize(
    "text",
    [
        "archive the message from Deutsche Bahn",
        "what is the difference between 'ser' and 'estar'",
        "delete teh branch adn merge",
        "open a ticket und close it",
    ],
)
def test_one_foreign_word_a_name_or_a_quote_is_not_read(text: str) -> None:
    assert read(text) is None


@pytest.mark.parametrize("language", sorted(LATIN - {"vi"}))
def test_an_english_word_is_not_read_as_a_form_of_another_word(language: str) -> None:
    units = gloss("play", language)
    assert "beach" not in {sense.english for unit in units for sense in unit.senses}


def test_an_english_word_in_a_title_of_another_language_keeps_its_meaning() -> None:
    said = glossed("Welches Paper heißt 'learning for image recognition'")
    assert "for image" in said


def test_quoted_words_are_not_strange() -> None:
    assert "liebe" not in strange_words('translate "ich liebe dich" to English')
    assert strange_words("search for 'je ne sais quoi' in githb") == {"githb"}
