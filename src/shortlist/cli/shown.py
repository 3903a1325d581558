"""JSON on a terminal: what servers say is quoted there, and a terminal would act on some characters or hide them."""

import json
import re
from typing import Any

_UNSEEN = re.compile(
    "[\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ufe00-\ufe0f\ufeff\ud800-\udfff\U000e0000-\U000e0fff]"
)
"""Controls that JSON does not escape by itself, and characters without a shape of their own."""


def shown_json(data: Any, *, indent: int | None = None) -> str:
    """Return JSON with escapes for every character that a terminal would not show."""
    text = json.dumps(data, ensure_ascii=False, indent=indent)
    return text if text.isascii() and "\x7f" not in text else _UNSEEN.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}" if found[0] == "\x7f" else json.dumps(found[0])[1:-1]
