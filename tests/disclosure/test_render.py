import json
from typing import Any

import pytest

from shortlist.disclosure.budget import estimate_tokens
from shortlist.disclosure.render import (
    Detail,
    bound_definition,
    describe_text,
    entries_text,
    entries_toon,
    entry_of,
    entry_text,
    signature_of,
)
from shortlist.models import Annotations, Hit, Tool


def tool(name: str = "create", description: str = "Create a thing.", schema: Any = None, **fields: Any) -> Tool:
    definition = {"name": name, "description": description, "inputSchema": schema or {"type": "object"}}
    return Tool(
        id=f"s/{name}", name=name, server="s", description=description, definition=json.dumps(definition), **fields
    )


SCHEMA = {
    "type": "object",
    "properties": {
        "note": {"type": "string", "description": "What to write."},
        "count": {"type": "integer"},
        "kind": {"enum": ["a", "b"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "deep": {"type": ["object", "null"]},
    },
    "required": ["count"],
}


def shown(detail: Detail, **fields: Any) -> str:
    hit = Hit(tool=tool(schema=SCHEMA, **fields), score=0.5, rank=1, family=("s/create", "t/make"))
    return entry_text(entry_of(hit, detail, lambda tool_id: tool_id.replace("/", "__")))


def test_a_signature_names_required_arguments_first() -> None:
    assert signature_of(tool(schema=SCHEMA), "s__create") == (
        's__create(count: int, note?: string, kind?: "a"|"b", tags?: string[], deep?: object)'
    )


def test_a_signature_of_many_optional_arguments_is_cut() -> None:
    many = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(30)}}
    assert signature_of(tool(schema=many), "t").endswith("p5?: string, …)")


def test_compact_is_a_signature_one_line_and_the_family() -> None:
    assert shown("compact").splitlines()[1:] == ["  Create a thing.", "  also: t__make"]


def test_standard_adds_arguments_and_effects() -> None:
    text = shown("standard", annotations=Annotations(read_only=True))
    assert "  - note: What to write." in text
    assert "  effects: read-only" in text


def test_full_adds_the_schema() -> None:
    assert json.loads(shown("full").split("input schema: ")[1]) == SCHEMA


def test_more_detail_costs_more() -> None:
    compact, standard, full = (estimate_tokens(shown(detail)) for detail in ("compact", "standard", "full"))
    assert compact < standard < full


@pytest.mark.parametrize("dirty", ["a\x1b[31mb", "a\u200bb", "a\u202eb", "a\x00b", "a\U000e0041b"])
def test_what_nobody_can_see_is_never_shown(dirty: str) -> None:
    bad = tool(name="create", description=dirty, schema={"type": "object", "properties": {dirty: {"type": "string"}}})
    for text in (shown("full", title=dirty), describe_text(bad, "s__create"), signature_of(bad, "n")):
        assert not set(text) & set("\x1b\u200b\u202e\x00\U000e0041")
    assert "ab" in describe_text(bad, "s__create")


def test_toon_is_used_only_where_it_is_smaller_and_never_for_schemas() -> None:
    hits = [Hit(tool=tool(name=f"t{i}", description="Do it."), score=0.5, rank=i) for i in range(8)]
    compact = [entry_of(hit, "compact", str) for hit in hits]
    full = [entry_of(hit, "full", str) for hit in hits]
    chosen, plain = entries_text(compact, toon=True), entries_text(compact, toon=False)
    assert estimate_tokens(chosen) == min(estimate_tokens(plain), estimate_tokens(entries_toon(compact)))
    assert entries_text(full, toon=True) == entries_text(full, toon=False)


def test_a_bound_definition_is_the_servers_own_but_for_its_name() -> None:
    raw = {
        "name": "x",
        "title": "X",
        "inputSchema": {"type": "object", "$defs": {"a": {}}},
        "outputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
        "icons": [{"src": "data:"}],
        "_meta": {"k": 1},
    }
    given = Tool(id="s/x", name="x", server="s", definition=json.dumps(raw))
    assert bound_definition(given, "s__x") == {**raw, "name": "s__x"}
