import gc
import weakref
from dataclasses import replace

import pytest

from shortlist.catalog.catalog import Catalog
from shortlist.index.index import Index
from shortlist.models import Query, Tool
from shortlist.search.searcher import Searcher
from shortlist.search.spelling import Speller
from shortlist.text.languages.reading import read_query
from shortlist.text.queries import parse_expansions, shipped_expansions

TOOLS = (
    Tool(id="git/merge", server="git", name="merge_branch", description="Merge a branch into another one."),
    Tool(id="k8s/pods", server="kubernetes", name="list_pods", description="List the pods of a Kubernetes cluster."),
    Tool(id="vault/read", server="vault", name="read_secret", description="Read a secret from the vault."),
    Tool(id="city/find", server="places", name="find_city", description="Find cities by name. Returns the value."),
)


@pytest.fixture(scope="module")
def speller() -> Speller:
    return Speller(Index.build(Catalog.of(TOOLS)))


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("merg the brnach", "merge the branch"),
        ("lsit the pods of kubernets", "list the pods of kubernetes"),
        ("raed a secrte from the valut", "read a secret from the vault"),
        ("find citeis", "find cities"),
        ("Mereg it", "Merge it"),
        ("Mereg Branch", "Merge Branch"),
        ("wats in the vault", "whats in the vault"),
        ("wat is a secret", "what is a secret"),
    ],
)
def test_a_typing_error_becomes_a_whole_word(speller: Speller, typed: str, meant: str) -> None:
    assert speller(typed).text == meant


@pytest.mark.parametrize(
    "text",
    [
        "merge the crate with a banana yesterday",
        "read /etc/secrte and secrte@example.com",
        "run get_secrte for Marco",
        "merge 'brnach' and `secrte`",
        "zeige alle Dateien im Ordner",
        "секрте",
        "play it louder and faster",
        "an untidier crate plus a brazier",
        "read the wifi secret by sms from lyon",
        "Merga Vestergaard",
        "Merga Vestergaard may read the secret",
        "read it to linh and marek",
    ],
)
def test_ordinary_words_names_and_pasted_text_are_not_corrected(speller: Speller, text: str) -> None:
    assert speller(text)[:2] == (text, {})


def test_words_are_joined_only_to_words_that_exist() -> None:
    on_call = Tool(
        id="pager/oncalls", name="list_oncalls", description="List who is on-call, and secrets of the vault."
    )
    speller = Speller(Index.build(Catalog.of((*TOOLS, on_call))))
    assert speller("who is on calll").text == "who is on call"
    assert speller("read the sec ret").text == "read the secret"


def test_no_word_of_the_catalog_is_corrected(speller: Speller) -> None:
    for tool in TOOLS:
        assert speller(tool.description).corrected == {}


def test_the_answer_and_the_explanation_say_what_was_assumed() -> None:
    searcher = Searcher(Catalog.of(TOOLS))
    found = searcher.explained(Query(text="raed secrte"))
    assert found.result.hits[0].tool.id == "vault/read"
    assert found.result.did_you_mean == {"raed": "read", "secrte": "secret"}
    assert "'secrte' taken as 'secret'" in found.explanations[0].text()


def test_a_word_that_a_team_has_given_a_meaning_is_not_corrected() -> None:
    index = Index.build(Catalog.of(TOOLS))
    own = parse_expansions("brnach => fork\n", "words.txt").added_to(shipped_expansions())
    assert Speller(index)("open the brnach").corrected == {"brnach": "branch"}
    assert Speller(index, own)("open the brnach").corrected == {}


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("wirte the value", "write the value"),
        ("shwo it", "show it"),
        ("findbranch", "find branch"),
        ("merge branchinto main", "merge branch into main"),
        ("read a sec ret", "read a secret"),
        ("list the pods of jubernetes", "list the pods of kubernetes"),
        ("ilst the pods", "list the pods"),
        ("delte the tab fom the valut", "delete the tab from the vault"),
        ("howmany pods", "how many pods"),
        ("read the secret in thebedroom", "read the secret in the bedroom"),
        ("find buton of the city", "find button of the city"),
        ("read the secret of the intermezo", "read the secret of the intermezzo"),
    ],
)
def test_the_commoner_word_is_meant_and_spaces_left_out_or_typed_into_a_word_are_seen(
    speller: Speller, typed: str, meant: str
) -> None:
    assert speller(typed).text == meant


def test_an_english_word_is_read_as_an_action_where_the_answer_to_that_is_likelier() -> None:
    searcher = Searcher(Catalog.of(TOOLS))
    found = searcher.search(Query(text="lit the pods of the cluster"))
    assert (found.hits[0].tool.id, found.did_you_mean) == ("k8s/pods", {"lit": "list"})
    assert searcher.search(Query(text="green cities")).did_you_mean == {}


def test_the_second_choice_for_a_word_is_a_reading_of_its_own(speller: Speller) -> None:
    first, *others = speller.readings("merge the fiel")
    assert first.text == "merge the file"
    assert [other.text for other in others] == ["merge the field"]


def test_a_text_that_is_asked_again_is_not_read_again(speller: Speller) -> None:
    assert speller.readings("raed a secrte") is speller.readings("raed a secrte")


def test_a_rare_name_is_not_turned_into_a_rare_word(speller: Speller) -> None:
    assert speller("list the okta tenants of the standup in citybranch").corrected == {}


def test_an_english_request_with_typing_errors_is_not_taken_for_another_language() -> None:
    assert read_query("opeh a pr frm my branch") is None


def test_the_words_beside_it_tell_which_word_was_meant(speller: Speller) -> None:
    assert speller("what is the wether like").text == "what is the weather like"
    assert speller("i wonder wether it is a secret").text == "i wonder whether it is a secret"


def test_an_english_word_that_never_stands_there_is_read_as_one_of_the_catalog_that_does() -> None:
    song = Tool(id="music/play", server="music", name="play_song", description="Play a song.")
    speller = Speller(Index.build(Catalog.of((*TOOLS, song))))
    assert [each.text for each in speller.readings("play teh son by Nina")] == [
        "play the son by Nina",
        "play the song by Nina",
    ]


def test_wishes_with_typing_errors_are_told_apart() -> None:
    found = Searcher(Catalog.of(TOOLS)).search(Query(text="lsit the pods and raed a secrte from the vault", limit=4))
    assert {hit.tool.id for hit in found.hits[:2]} == {"k8s/pods", "vault/read"}
    assert {hit.wish for hit in found.hits[:2]} == {"list the pods", "read a secret from the vault"}


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("page the enginer", "page the engineer"),
        ("prot foward to a pod", "port forward to a pod"),
        ("fill the fomr", "fill the form"),
        ("the standupand the city", "the standup and the city"),
        ("what the deploy hist says", "what the deploy history says"),
    ],
)
def test_forms_small_words_and_cut_words_do_not_hide_an_error(typed: str, meant: str) -> None:
    engine = Tool(id="pager/engine", server="pager", name="start", description="It has an engine.")
    history = Tool(id="ci/history", server="ci", name="deploy_history", description="Port forward, fill a form.")
    assert Speller(Index.build(Catalog.of((*TOOLS, engine, history))))(typed).text == meant


def test_a_rare_word_competes_with_the_ordinary_one_that_usually_stands_there(speller: Speller) -> None:
    song = Tool(id="music/play", server="music", name="open_request", description="Open a pull request.")
    speller = Speller(Index.build(Catalog.of((*TOOLS, song))))
    assert "list the pods of the cluster" in [each.text for each in speller.readings("lsit the pids of the cluster")]


def test_an_error_that_a_description_has_too_is_corrected() -> None:
    many = [Tool(id=f"db/{n}", server="db", name=f"tool_{n}", description="Query a database.") for n in range(30)]
    wrong = Tool(id="db/wrong", server="db", name="other", description="Query a databse.")
    assert Speller(Index.build(Catalog.of((*many, wrong))))("query the databse").text == "query the database"


def test_a_few_words_that_seem_foreign_are_also_read_as_english() -> None:
    tool = Tool(id="pdf/compress", server="pdf", name="compress_pdf", description="Compress a PDF.")
    speller = Speller(Index.build(Catalog.of((*TOOLS, tool))))
    readings = speller.readings("compres pfd")
    assert readings[0].text == "compres pfd"
    assert "compress pdf" in [each.text for each in readings]


@pytest.mark.parametrize("text", ["delete pod", "port forward to a pod"])
def test_one_small_word_of_another_language_does_not_make_a_request_foreign(text: str) -> None:
    assert read_query(text) is None
    assert read_query("meine emails") is not None


def test_a_speller_and_its_index_are_freed_without_the_garbage_collector() -> None:
    speller = Speller(Index.build(Catalog.of(TOOLS)))
    assert speller("merge the fiel").text
    left = weakref.ref(speller)
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        del speller
        assert left() is None
    finally:
        if was_enabled:
            gc.enable()


def test_a_word_of_a_tool_that_is_gone_is_not_looked_up_in_its_text() -> None:
    """Postings keep removed rows until they are merged."""
    newer = Tool(id="ops/list", server="ops", name="list_zebrax", description="List what zebrax keeps.")
    searcher = Searcher(Catalog.of((*TOOLS, replace(newer, id="old/list", server="old"), newer)))
    searcher.update(Catalog.of((*TOOLS, newer)))

    assert searcher.search(Query(text="what is in zebrax")).hits[0].tool is newer
