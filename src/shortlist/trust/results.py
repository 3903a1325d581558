"""What results of calls hold that should not reach a model unseen: secrets, and instructions to it."""

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from shortlist.trust.definitions import MAX_CHARACTERS, ToolDefinition
from shortlist.trust.verdicts import OVERSIZED, DefinitionScanner

MAX_INSPECTED = 2_000_000
"""Longer results are read up to here; the rest counts as not inspected."""
TOO_MUCH = "more text than can be inspected"
MAX_DEPTH = 64
Inspect: TypeAlias = Callable[[str, Any], str]
"""Takes a server and a result, and returns what was found in it, in words; empty where it is clean."""
_SECRET = re.compile(
    r"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bgh[pousr]_[A-Za-z0-9]{36,}|"
    r"\bgithub_pat_[A-Za-z0-9_]{40,}|\bglpat-[A-Za-z0-9_-]{20,}|\bxox[abpr]-[A-Za-z0-9-]{20,}|"
    r"\bsk-(?:ant-|proj-)?[A-Za-z0-9_-]{32,}|\bsk_live_[A-Za-z0-9]{20,}|\bAIza[A-Za-z0-9_-]{35}\b|"
    r"\bnpm_[A-Za-z0-9]{36}\b|\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"
)


def inspect_result(scanner: DefinitionScanner, server: str, result: Any) -> str:
    """Return what the texts of a result hold that a policy is about; empty where nothing was found."""
    text = "\n".join(_texts(result, 0))
    if _SECRET.search(text):
        return "a secret"
    for start in range(0, min(len(text), MAX_INSPECTED), MAX_CHARACTERS):
        part = text[start : start + MAX_CHARACTERS]
        verdict = scanner.scan(ToolDefinition("result", server, {"description": part}))
        if verdict.level != "clean":
            unread = all(reason.family == OVERSIZED for reason in verdict.reasons)
            return TOO_MUCH if unread else "instructions to the model"
    return TOO_MUCH if len(text) > MAX_INSPECTED else ""


def _texts(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)) and depth < MAX_DEPTH:
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner, depth + 1)
