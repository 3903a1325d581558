"""Refuses calls that do not fit the schema of their tool, or that no client can make as the schema is shown to it."""

import json
from functools import lru_cache

from shortlist.disclosure.render import compact_json
from shortlist.gateway.recording import SCHEMA_FOLLOWS
from shortlist.models import Tool
from shortlist.validation import Check, hides_characters

SCHEMA_CHARACTERS = 6_000
"""How much of a schema a refused call shows."""
REMEMBERED_SCHEMAS = 1_024
HIDDEN = (
    "its schema hides invisible characters in names or values, which are shown without them: no call can match it. "
    "Ask the owner of the server to remove them."
)


def refusal_of(name: str, tool: Tool, check: Check) -> str:
    """Return why a call was not made, with the schema."""
    wrong = (
        f"- {HIDDEN}"
        if hides_characters(tool.definition)
        else "\n".join(f"- {violation}" for violation in check.violations)
    )
    schema = _shown_schema(tool.definition)
    return f"{name} was NOT invoked: its arguments do not fit its schema.\n{wrong}{SCHEMA_FOLLOWS}{schema}"


@lru_cache(maxsize=REMEMBERED_SCHEMAS)
def _shown_schema(definition: str) -> str:
    schema = compact_json(json.loads(definition).get("inputSchema") or {"type": "object"})
    if len(schema) <= SCHEMA_CHARACTERS:
        return schema
    return f"{schema[:SCHEMA_CHARACTERS]}… (describe_tools shows all of it)"
