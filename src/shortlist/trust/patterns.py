"""Meetings of concepts that poisoned definitions are made of, each with its family and what to tell a reviewer.

A pattern is a conjunction: one concept out of every group has to be there. How much each counts is fitted (`head.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pattern:
    """Groups of concepts, all of which must be present; `family` and `why` explain a hit."""

    family: str
    why: str
    groups: tuple[tuple[str, ...], ...]


def _of(family: str, why: str, *groups: str) -> Pattern:
    return Pattern(family, why, tuple(tuple(group.split("|")) for group in groups))


_ACT = "send|read|pass|persist|money|shell|context|secret|secretpath|destroy|privilege|code|sink"
_SECRETS = "secret|secretpath"
_MOVE = "pass|send"

PATTERNS: Mapping[str, Pattern] = {
    "override": _of("override", "tells the model to drop its instructions", "override", "instructions"),
    "override_prior": _of(
        "override", "tells the model to drop earlier instructions", "override", "prior", "instructions"
    ),
    "override_ai": _of("override", "claims precedence over what the model was told", "override", "ai|everycall|user"),
    "role": _of("override", "gives the model a new role or mode", "role"),
    "role_ai": _of("override", "gives the model a new role or mode", "role", "instructions|ai|not|everycall|override"),
    "markup": _of("fake_authority", "imitates system messages or markup", "markup"),
    "markup_order": _of(
        "fake_authority", "gives orders inside imitated system markup", "markup", f"must|not|override|first|{_ACT}"
    ),
    "authority": _of(
        "fake_authority",
        "invokes an authority to demand data",
        "authority",
        "must",
        f"{_SECRETS}|context|pass|send|noconsent|silent",
    ),
    "authority_override": _of(
        "fake_authority",
        "invokes an authority to change rules",
        "authority",
        "override|role|disable",
        "instructions|safety|prior",
    ),
    "conceal": _of("concealment", "asks for secrecy", "silent"),
    "conceal_user": _of("concealment", "hides something from the user", "silent", "user"),
    "conceal_tell": _of("concealment", "forbids telling the user", "not", "tell", "user"),
    "conceal_act": _of("concealment", "does something in secret", "silent", _ACT),
    "conceal_ai": _of("concealment", "tells the model what to leave unsaid", "silent", "ai|must|everycall"),
    "consent": _of("consent_bypass", "does away with the user's confirmation", "noconsent"),
    "consent_act": _of("consent_bypass", "acts without the user's confirmation", "noconsent", _ACT),
    "consent_user": _of("consent_bypass", "claims the user's consent", "noconsent", "user|ai|must"),
    "secret_read": _of("secret_access", "reads a file with secrets in it", "secretpath", "read|all"),
    "secret_pass": _of("secret_access", "moves a file with secrets in it", "secretpath", _MOVE),
    "secret_first": _of("secret_access", "asks for secrets before a call", _SECRETS, "first", f"read|{_MOVE}"),
    "secret_file_pass": _of("secret_access", "collects secrets and passes them on", _SECRETS, "read", _MOVE),
    "secret_all": _of("secret_access", "asks for secrets in full", _SECRETS, "all", _MOVE),
    "secret_sink": _of("exfiltration", "sends secrets away", _SECRETS, "send", "sink"),
    "secret_pretext": _of("secret_access", "asks for secrets under a pretext", _SECRETS, "pretext", f"read|{_MOVE}"),
    "secret_everycall": _of("secret_access", "asks for secrets with every call", _SECRETS, "everycall|must", _MOVE),
    "file_pass": _of("exfiltration", "passes on files of the user", "file", "read", _MOVE, "first|must|everycall|all"),
    "context_pass": _of("context_leak", "passes on the conversation or the prompt", "context", _MOVE),
    "context_all": _of("context_leak", "passes on the whole conversation or prompt", "context", "all", _MOVE),
    "context_must": _of(
        "context_leak", "demands the conversation or the prompt", "context", "must|first|everycall", _MOVE
    ),
    "context_sink": _of("context_leak", "sends the conversation or the prompt away", "context", "sink|pretext"),
    "send_sink": _of(
        "exfiltration", "sends data to an outside address", "send|pass", "sink", "must|everycall|silent|all|first"
    ),
    "send_everycall": _of("exfiltration", "sends something with every call", "send", "everycall"),
    "everycall_must": _of("shadowing", "gives orders for other tools", "everycall", "must"),
    "everycall_change": _of("shadowing", "changes what other tools do", "everycall", "instead|pass|send|not"),
    "redirect": _of("redirection", "changes who receives something", "instead", "money"),
    "redirect_sink": _of("redirection", "diverts to another address", "instead|send|everycall", "money", "sink"),
    "redirect_must": _of(
        "redirection", "changes who receives something", "instead", "money", "must|everycall|silent|not"
    ),
    "prefer": _of("preference", "claims to come before other tools", "prefer"),
    "prefer_over": _of("preference", "claims to come before other tools", "prefer", "everycall|discredit|must"),
    "discredit": _of("preference", "speaks against other tools", "discredit", "prefer|instead|everycall"),
    "persist": _of(
        "persistence", "outlives the session", "persist", "must|pass|send|override|instructions|everycall|first|silent"
    ),
    "persist_ai": _of("persistence", "writes into the model's memory or rules", "persist", "ai|instructions|everycall"),
    "shell": _of("code_execution", "runs a command", "shell", "first|must|silent|noconsent|everycall"),
    "shell_sink": _of("code_execution", "runs code from elsewhere", "shell", "sink"),
    "safety_off": _of("safety_off", "turns protections off", "disable", "safety"),
    "safety_off_must": _of(
        "safety_off", "turns protections off", "disable", "safety", "must|ai|everycall|first|not|silent"
    ),
    "loop": _of("resource_drain", "asks for endless repetition", "loop"),
    "loop_must": _of("resource_drain", "asks for endless repetition", "loop", "must|not|ai|everycall|user"),
    "ask_secret": _of("social_engineering", "gets the user to give secrets away", "ask", "user", "secret"),
    "ask_enter": _of(
        "social_engineering", "gets the user to give secrets away", "ask", "user", "enter", "secret|shell|disable|sink"
    ),
    "falsify": _of("deception", "has something false reported", "falsify", "user|ai|must|not"),
    "falsify_more": _of("deception", "has something false reported", "falsify", "silent|everycall|promote"),
    "promote": _of("deception", "has something advertised", "promote", "must|everycall|ai|not"),
    "promote_more": _of("deception", "has something advertised", "promote", "everycall|falsify|silent|instead"),
    "trigger": _of("delayed", "waits for a trigger", "trigger", _ACT),
    "trigger_more": _of(
        "delayed", "waits for a trigger", "trigger", "silent|override|everycall|instead|falsify|disable"
    ),
    "code": _of(
        "code_execution", "changes the code that is written", "code", "silent|everycall|sink|noconsent|disable"
    ),
    "code_must": _of(
        "code_execution", "changes the code that is written", "code", "must|everycall", "pass|sink|disable|not"
    ),
    "privilege": _of("privilege", "widens rights", "privilege", "silent|noconsent|everycall|first|must"),
    "destroy": _of("destruction", "destroys something", "destroy", "silent|noconsent|first|trigger|everycall"),
    "encode": _of("exfiltration", "encodes what it takes", "encode", f"{_SECRETS}|context|override|send|silent"),
    "encode_order": _of(
        "encoded",
        "has a hidden text decoded and followed",
        "encode",
        "must|first|instructions",
        "instructions|shell|override|ai",
    ),
    "pretext": _of("exfiltration", "asks for data under a pretext", "pretext", f"context|{_SECRETS}|file", _MOVE),
    "ai_must": _of("fake_authority", "gives the model orders", "ai", "must"),
    "ai_not": _of("fake_authority", "gives the model orders", "ai", "not", "tell|must|user"),
}
