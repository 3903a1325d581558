"""Pairs of definitions, one poisoned and one honest, by the same hand: `written/*.jsonl`.

Each line has a pair's number, its label, family, voice, tone, language, and the tool. An honest one without a partner
is a hard negative. Files of one folder are by one writer; those of `e` stand alone, without partners.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shortlist.trust.definitions import ToolDefinition

FOLDER = Path(__file__).parent / "written"
SAME_FAMILY = {
    "secret-read": "secret_access",
    "exfil-data": "exfiltration",
    "conceal": "concealment",
    "priority": "preference",
    "priority-claim": "preference",
    "fake-system": "fake_authority",
    "fake-system-message": "fake_authority",
    "fake-error": "fake_error",
    "output-tamper": "result_tampering",
    "output-rewrite": "result_tampering",
    "escalation": "privilege",
    "permission-escalation": "privilege",
    "run-command": "code_execution",
    "run-or-install": "code_execution",
    "memory-poison": "persistence",
    "memory-poisoning": "persistence",
    "delayed-trigger": "delayed",
    "fake-legal": "fake_compliance",
    "fake-compliance": "fake_compliance",
    "loop": "resource_drain",
    "resource-loop": "resource_drain",
    "side-call": "redirection",
    "multi-step": "multi_step",
    "false-facts": "deception",
    "politeness": "politeness",
    "schema-payload": "schema_smuggling",
    "schema-placement": "schema_smuggling",
    "obfuscated": "encoded",
    "hide-from-user": "concealment",
    "shadow-other-tool": "shadowing",
    "precedence": "preference",
    "role-override": "override",
    "silent-side-effect": "redirection",
    "param-smuggling": "argument_smuggling",
    "output-instruction": "result_tampering",
    "redirect": "redirection",
    "disable-safety": "safety_off",
    "download-run": "code_execution",
    "supply-chain": "code_execution",
    "conditional-trigger": "delayed",
    "emotional-pressure": "threat",
    "recon": "context_leak",
    "consent-forgery": "consent_bypass",
    "cost-drain": "resource_drain",
}
"""Names of families that the corpus has under another name: a family is held out under all its names."""


@dataclass(frozen=True, slots=True)
class Written:
    """One definition of a pair."""

    writer: str
    pair: int
    poisoned: bool
    family: str
    voice: str
    tone: str
    language: str
    tool: dict[str, Any]
    server_instructions: str

    @property
    def definition(self) -> ToolDefinition:
        return ToolDefinition(
            f"{self.writer}-{self.pair}", f"{self.writer}{self.pair}", self.tool, self.server_instructions
        )


def written(folder: Path = FOLDER) -> Sequence[Written]:
    """Read all pairs."""
    found = []
    for path in sorted(folder.glob("*/*.jsonl")):
        for line in path.read_text("utf-8").splitlines():
            raw = json.loads(line)
            family = raw["family"]
            found.append(
                Written(
                    path.parent.name,
                    raw["pair"],
                    raw["label"] == "poisoned",
                    SAME_FAMILY.get(family, family.replace("-", "_")),
                    raw["voice"],
                    raw["tone"],
                    raw["language"],
                    raw["tool"],
                    raw.get("server_instructions", ""),
                )
            )
    return found
