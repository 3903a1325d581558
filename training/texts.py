"""Texts as the checks compare them; what the encoder reads is the package's own passage."""

import hashlib
import re

from shortlist.models import Tool
from shortlist.text.tokens import words

WORD = re.compile(r"[^\W_]+")


def normalised(text: str) -> str:
    """Keep only case-folded letters and digits, so that case and punctuation make no difference."""
    return " ".join(WORD.findall(text.casefold()))


def digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def tool_key(tool: Tool) -> str:
    """Name tools by what they say: forks under other ids and servers share the key."""
    return f"{words(tool.name)}|{normalised(tool.description)}"
