"""Texts as the checks compare them and as the encoder reads them."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from shortlist.models import Parameter, Tool

DESCRIPTION_CHARACTERS = 480
WORD = re.compile(r"[^\W_]+")
CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def words_of(identifier: str) -> str:
    """Split an identifier into lower-case words."""
    return " ".join(WORD.findall(CAMEL.sub(" ", identifier))).lower()


def normalised(text: str) -> str:
    """Keep only case-folded letters and digits, so that case and punctuation make no difference."""
    return " ".join(WORD.findall(text.casefold()))


def digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def tool_key(tool: Tool) -> str:
    """Name tools by what they say: forks under other ids and servers share the key."""
    return f"{normalised(words_of(tool.name))}|{normalised(tool.description)}"


def embedding_text(tool: Tool) -> str:
    """Stand-in for the package's function until it lands."""
    server = words_of(tool.server.rsplit("/", 1)[-1])
    description = " ".join(tool.description.split())[:DESCRIPTION_CHARACTERS]
    labels = " ".join((*tool.tags, *tool.keywords, tool.category)).strip()
    parameters = ", ".join(words_of(parameter.name) for parameter in tool.parameters)
    head = f"{server}: {words_of(tool.name)}" if server else words_of(tool.name)
    body = " ".join(part for part in (tool.title, description, labels) if part)
    return f"{head}. {body}" + (f" ({parameters})" if parameters else "")


def tool_of(record: Mapping[str, Any]) -> Tool:
    """Read one tool of the benchmark data."""
    schema = record.get("input_schema") or {}
    properties = schema.get("properties") if isinstance(schema, dict) else None
    names = properties if isinstance(properties, dict) else {}
    description = record.get("description") or ""
    return Tool(
        id=record["id"],
        name=record["name"],
        server=record.get("server") or "",
        description=description if isinstance(description, str) else " ".join(map(str, description)),
        category=record.get("category") or "",
        tags=tuple(record.get("tags") or ()),
        keywords=tuple(record.get("keywords") or ()),
        parameters=tuple(Parameter(name=name) for name in names),
    )
