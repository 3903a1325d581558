"""The configuration page and the schema: complete, true, and written again after a change."""

import json
from pathlib import Path

import jsonschema
import pytest

from shortlist.config.load import settings_of
from shortlist.config.reference import SCHEMA, Key, reference, schema, schema_text, sections

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
KEYS = [key for section in sections() for key in section.keys]


@pytest.mark.parametrize("key", KEYS, ids=[key.place for key in KEYS])
def test_a_key_has_a_text_and_an_example_that_is_accepted(key: Key) -> None:
    assert key.text, f"{key.place}: write what it does below it in config/shapes.py, then run `make docs`"
    assert key.example, f"{key.place}: end its text with an example (Example: `…`), then run `make docs`"
    value = json.loads(key.example)
    for name in reversed(key.place.split(".")):
        value = {"name" if name == "NAME" else name: value}
    jsonschema.validate(_completed(value), schema())


def _completed(tree: dict[str, object]) -> dict[str, object]:
    """Add what the schema requires beside an example's own key."""
    tokens = tree.get("shortlist", {}).get("tokens", {}) if isinstance(tree.get("shortlist"), dict) else {}  # type: ignore[attr-defined]
    for token in tokens.values():
        token.setdefault("hash", f"sha256:{'0' * 64}")
    oauth = tree.get("shortlist", {}).get("oauth") if isinstance(tree.get("shortlist"), dict) else None  # type: ignore[attr-defined]
    if oauth is not None:
        oauth.setdefault("resource", "https://tools.example.com/mcp")
        for issuer in oauth.setdefault("issuers", {}).values():
            issuer.setdefault("issuer", "https://login.example.com")
            rules = issuer.get("rules", {})
            issuer["rules"] = rules if isinstance(rules, list) else [rules]
            asked = issuer.get("introspection")
            if asked is not None:
                for key in ("url", "client_id", "client_secret"):
                    asked.setdefault(key, "x")
    return tree


def test_the_page_and_the_shipped_schema_are_up_to_date() -> None:
    assert PAGE.read_text("utf-8") == reference(), "run `make docs`"
    assert SCHEMA.read_text("utf-8") == schema_text(), "run `make docs`"


def test_the_page_is_written_in_words_of_the_file() -> None:
    assert "Shape" not in reference()
    assert "## `shortlist.limits`" in reference()
    assert "| `result_characters` | whole number | `20000` |" in reference()


def test_the_example_of_the_page_is_read_and_passes_the_schema() -> None:
    example = json.loads(reference().split("```json\n")[1].split("```")[0])
    settings = settings_of(example, source="docs", environment={})
    assert set(settings.servers) == {"memory", "wiki"}
    jsonschema.validate(example, schema())


@pytest.mark.parametrize(
    "tree",
    [{"mcpServer": {}}, {"mcpServers": {"a": {"comand": "x"}}}, {"shortlist": {"mode": "fast"}}],
)
def test_the_schema_refuses_what_the_reader_refuses(tree: dict[str, object]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(tree, schema())
