from hypothesis import given
from hypothesis import strategies as st

from shortlist.models import Server
from shortlist.text.documents import (
    FIELDS,
    MAX_DESCRIPTION_CHARS,
    document,
    embedding_text,
    server_words,
    shared_sentences,
)
from shortlist.text.tokens import terms
from tests.fakes import tool

SERVER = Server(name="acme-mcp-server", title="Acme", description="Invoices for shops.", tags=("billing",))


def test_every_part_of_a_tool_lands_in_its_field() -> None:
    invoice = tool(
        "acme/create_invoice",
        "Bill a customer.",
        title="New invoice",
        _meta={"category": "finance", "tags": ["money"], "keywords": "payment"},
        inputSchema={
            "type": "object",
            "properties": {
                "currency": {"type": "string", "description": "Three letters", "enum": ["EUR", "USD"]},
                "lines": {"type": "array", "items": {"type": "object", "properties": {"quantity": {}}}},
            },
        },
    )
    fields = document(invoice, SERVER)
    assert set(fields) == set(FIELDS)
    assert fields["name"] == ["creat", "invoic", "createinvoice"]
    assert fields["title"] == terms("New invoice")
    assert set(fields["labels"]) == set(terms("finance money payment"))
    assert fields["description"] == terms("Bill a customer.")
    assert set(fields["parameters"]) == set(terms("currency lines quantity"))
    assert set(fields["parameter_text"]) == set(terms("Three letters EUR USD"))
    assert list(fields["server"]) == terms("acme Acme")
    assert set(fields["server_text"]) == set(terms("Invoices for shops. billing"))


def test_a_tool_is_read_as_it_looks() -> None:
    plain = tool("acme/x", "Create an invoice.", title="Create")
    imitated = tool("acme/x", "Crеаte an invоice.", title="Сreate")  # with Cyrillic а, е, о and С
    assert document(imitated, SERVER) == document(plain, SERVER)
    assert embedding_text(imitated) == embedding_text(plain)
    russian = tool("acme/y", "Создать счёт по API.")
    assert "создат" in " ".join(document(russian, SERVER)["description"])


def test_what_a_server_repeats_is_kept_apart_from_what_a_tool_does() -> None:
    notice = "Requires an API token."
    tools = [tool(f"acme/tool_{n}", f"{notice} Does thing number {n}.") for n in range(4)]
    shared = shared_sentences(tools)
    fields = document(tools[0], SERVER, shared)
    assert set(fields["boilerplate"]) == set(terms(notice))
    assert not set(fields["boilerplate"]) & set(fields["description"])


def test_a_sentence_in_two_tools_is_no_boilerplate() -> None:
    tools = [tool(f"acme/tool_{n}", "The same sentence." if n < 2 else f"Number {n}.") for n in range(4)]
    assert not shared_sentences(tools)


def test_a_tool_that_says_nothing_of_its_own_keeps_its_words() -> None:
    tools = [tool(f"acme/tool_{n}", "All alike.") for n in range(5)]
    assert document(tools[0], SERVER, shared_sentences(tools))["description"] == terms("All alike.")


def test_a_name_of_symbols_gives_no_empty_term() -> None:
    assert document(tool("acme/🎉"), SERVER)["name"] == []


def test_a_stuffed_description_has_each_of_its_words_once() -> None:
    stuffed = tool("acme/spam", "best calendar email search " * 30)
    assert document(stuffed, SERVER)["description"] == terms("best calendar email search")


def test_a_long_description_is_cut() -> None:
    fields = document(tool("acme/big", " ".join(f"word{n}x" for n in range(80_000))), SERVER)
    assert 0 < len(fields["description"]) < MAX_DESCRIPTION_CHARS


def test_a_list_as_description_is_read_as_text() -> None:
    assert document(tool("acme/odd", ["Create", ["an invoice"], None, 7]), SERVER)["description"] == terms(
        "Create an invoice 7"
    )


def test_a_passage_names_server_tool_and_purpose_on_one_clean_line() -> None:
    passage = embedding_text(
        tool(
            "acme-mcp-server/createInvoice",
            "Bill\x1b[31m a\n\ncust\u200bomer.",
            inputSchema={"type": "object", "properties": {"dueDate": {}}},
        )
    )
    assert passage == "acme create invoice: Bill a customer. (due date)"


def test_a_server_is_named_by_the_words_that_tell_it_apart() -> None:
    assert server_words("github-mcp-server") == "github"


@given(st.text(min_size=1, max_size=60).filter(str.strip), st.text(max_size=300))
def test_any_tool_becomes_a_document_and_a_passage(name: str, description: str) -> None:
    odd = tool("acme/x", description.encode("utf-8", "ignore").decode(), title=name.encode("utf-8", "ignore").decode())
    fields = document(odd, SERVER, shared_sentences([odd] * 5))
    assert all(all(found) for found in fields.values())
    assert "\n" not in embedding_text(odd)
