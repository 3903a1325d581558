"""Edits of JSON with comments: the entry changes, and nothing else."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.config.documents import strip_comments
from shortlist.config.jsonc import NotJson, find, line_of, parse, put, remove

COMMENTED = """{
  // servers of mine
  "mcpServers": {
    "a": {"command": "x"}, // first
    /* second */
    "b": {
      "command": "y"
    } // last
  },
  "other": [1, 2,],
}
"""


def value(text: str) -> Any:
    return json.loads(strip_comments(text))


def test_an_entry_is_added_after_the_last_and_every_other_character_stays() -> None:
    edited = put(COMMENTED, ("mcpServers", "c"), {"command": "z", "args": ["1"]})
    assert value(edited)["mcpServers"]["c"] == {"command": "z", "args": ["1"]}
    added = '    "c": {\n      "command": "z",\n      "args": [\n        "1"\n      ]\n    }\n'
    assert edited == COMMENTED.replace("    } // last\n", f"    }}, // last\n{added}")


def test_an_added_entry_is_removed_again() -> None:
    text = COMMENTED.replace("    } // last\n", "    },\n")
    assert remove(put(text, ("mcpServers", "c"), {"x": 1}), ("mcpServers", "c")) == text


def test_removing_the_last_entry_takes_the_comma_before_it() -> None:
    edited = remove(COMMENTED, ("mcpServers", "b"))
    assert "/* second */" in edited
    assert '"a": {"command": "x"} // first' in edited
    assert value(edited)["mcpServers"] == {"a": {"command": "x"}}


def test_line_endings_and_tabs_are_kept() -> None:
    text = '{\r\n\t"mcpServers": {\r\n\t\t"a": {}\r\n\t}\r\n}\r\n'
    edited = put(text, ("mcpServers", "b"), {"k": 1})
    assert edited == '{\r\n\t"mcpServers": {\r\n\t\t"a": {},\r\n\t\t"b": {\r\n\t\t\t"k": 1\r\n\t\t}\r\n\t}\r\n}\r\n'
    assert remove(edited, ("mcpServers", "b")) == text


@pytest.mark.parametrize("text", ["", "{}", "{ }", "{\n}\n", '{"a": 1}', '{"a": 1,}', "{ // none\n}"])
def test_objects_on_the_way_are_made(text: str) -> None:
    edited = put(text, ("mcpServers", "c"), {"command": "z"})
    assert value(edited)["mcpServers"] == {"c": {"command": "z"}}
    assert value(edited).get("a") == (1 if "a" in text else None)
    assert ("// none" in edited) == ("// none" in text)


def test_a_value_is_replaced_in_its_place() -> None:
    edited = put(COMMENTED, ("mcpServers", "a"), {"command": "new"})
    assert list(value(edited)["mcpServers"]) == ["a", "b"]
    assert "// first" in edited


def test_a_line_is_found_for_a_place_and_for_what_is_missing_below_it() -> None:
    assert line_of(COMMENTED, "mcpServers.b.command") == 7
    assert line_of(COMMENTED, "mcpServers.b.nothing") == 6
    assert line_of(COMMENTED, "other[1]") == 10
    assert line_of('{"a": {\n"b.c": {\n"d": 1}}}', "a.b.c.d") == 3
    assert line_of(COMMENTED, "nothing") is None
    assert line_of("{", "a") is None


@pytest.mark.parametrize("text", ["", "{", '{"a"}', '{"a": }', "{} {}", '{"a": 1 "b": 2}', '{"a": [1}', "nope", "{,}"])
def test_what_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(NotJson):
        parse(text)


keys = st.text(max_size=6)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)
indents = st.sampled_from([None, 2, 4, "\t"])


@given(st.dictionaries(keys, st.dictionaries(keys, values, max_size=3), max_size=4), keys, keys, values, indents)
def test_an_edit_changes_one_value_and_no_other(
    tree: dict[str, Any], outer: str, inner: str, new: Any, indent: Any
) -> None:
    text = json.dumps(tree, indent=indent, ensure_ascii=False)
    edited = put(text, (outer, inner), new)
    assert value(edited) == {**tree, outer: {**tree.get(outer, {}), inner: new}}
    member = find(edited, (outer, inner))
    assert member is not None
    assert json.loads(edited[member.value.start : member.value.end]) == new
    removed = value(remove(edited, (outer, inner)))
    assert removed == {**tree, outer: {k: v for k, v in tree.get(outer, {}).items() if k != inner}}
