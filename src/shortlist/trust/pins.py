"""Pins: what each server's definitions were when they were accepted, so that every later change is noticed.

`admit` compares what a server lists with its pins and says what may be served and what is held. It is a pure function;
`keeping.py` keeps the pins.
"""

import hashlib
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from shortlist.config.settings import Trust
from shortlist.trust.definitions import ToolDefinition
from shortlist.trust.renames import KnownTools
from shortlist.trust.verdicts import Reason, ScanVerdict

ItemKind: TypeAlias = Literal["prompt", "resource", "template"]
Kind: TypeAlias = Literal["tool", "instructions"] | ItemKind
Cause: TypeAlias = Literal[
    "new", "changed", "renamed", "twin", "flagged", "parameter", "annotation", "crowded", "rejected", "unreadable"
]
INSTRUCTIONS = "instructions"
ITEM_NAMES: Mapping[ItemKind, str] = {"prompt": "name", "resource": "uri", "template": "uriTemplate"}
"""The member that names an item of each kind."""
_ENTRY_BYTES = 500
"""What an entry takes beside its text."""
_EXPRESSION = re.compile(r"\{[^{}]*\}")
_VARYING = frozenset(("size", "lastModified"))
"""Of an item and its annotations: these differ without anybody's doing."""

CAUSES: Mapping[Cause, str] = {
    "new": "new, and this server's definitions are reviewed before they are served",
    "changed": "changed since it was approved",
    "renamed": "has another name than the tool that it equals or resembles",
    "twin": "equals or resembles another tool of the same server",
    "flagged": "flagged by the scanner",
    "parameter": "a change adds a required parameter",
    "annotation": "a change weakens an annotation",
    "crowded": "new, and the server has replaced so many tools that no more can be remembered",
    "rejected": "rejected in a review",
    "unreadable": "the store of approvals cannot be read, so nothing can be compared",
}


@dataclass(frozen=True, slots=True)
class PinnedEntry:
    """One definition of a server: a tool, its instructions, a prompt, a resource or a template, as canonical JSON."""

    kind: Kind
    name: str
    text: str

    @property
    def hash(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def value(self) -> Any:
        return json.loads(self.text)


@dataclass(frozen=True, slots=True)
class ServerListing:
    """Everything that a server lists, by kind and name."""

    server: str
    entries: tuple[PinnedEntry, ...]

    @property
    def hash(self) -> str:
        """The hash of the whole set: a rename or an added twin changes it."""
        return hashlib.sha256(
            "\n".join(sorted(f"{e.kind} {e.name} {e.hash}" for e in self.entries)).encode()
        ).hexdigest()


@dataclass(frozen=True, slots=True)
class Pins:
    """What was accepted of a server, what is approved or rejected by hash, and whether it was ever seen before."""

    known: bool = False
    accepted: Mapping[tuple[Kind, str], PinnedEntry] = field(default_factory=dict)
    approved: frozenset[str] = frozenset()
    rejected: frozenset[str] = frozenset()
    doubts: Mapping[str, tuple[Reason, ...]] = field(default_factory=dict)
    """Why an accepted tool is not clean, by name."""
    scanned: Mapping[tuple[Kind, str], str] = field(default_factory=dict)
    """Which version of the scanner read an accepted prompt, resource or template."""


@dataclass(frozen=True, slots=True)
class Held:
    """A definition that is not served until somebody decides, with what it was before."""

    entry: PinnedEntry
    cause: Cause
    reasons: tuple[Reason, ...] = ()
    before: PinnedEntry | None = None

    @property
    def why(self) -> str:
        first = f": {self.reasons[0].why}" if self.reasons else ""
        return f"{CAUSES[self.cause]}{first}"


@dataclass(frozen=True, slots=True)
class Admitted:
    """What of a listing is served, what is held, and what was accepted although it changed."""

    accepted: Mapping[tuple[Kind, str], PinnedEntry]
    held: tuple[Held, ...] = ()
    changed: tuple[PinnedEntry, ...] = ()
    doubts: Mapping[str, tuple[Reason, ...]] = field(default_factory=dict)
    """Why an accepted tool is not clean, by name."""


Judge: TypeAlias = Callable[[ToolDefinition], ScanVerdict]


def canonical(value: Any) -> str:
    """Return JSON in the canonical form of RFC 8785: sorted keys, shortest numbers, no white space."""
    if isinstance(value, Mapping):
        keys = sorted(map(str, value), key=lambda key: key.encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(f"{_quoted(key)}:{canonical(value[key])}" for key in keys) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(canonical, value)) + "]"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, float):
        return _number(value)
    return json.dumps(value)


def _quoted(text: str) -> str:
    return json.dumps(text.encode("utf-8", "replace").decode(), ensure_ascii=False)


def _number(value: float) -> str:
    """Write a number as ECMAScript does: 1.0 is 1, 1e21 has an exponent."""
    if not math.isfinite(value):
        return "null"
    if value == int(value) and abs(value) < 1e21:
        return str(int(value))
    text = repr(value)
    if "e" in text:
        mantissa, _, exponent = text.partition("e")
        sign = "-" if exponent.startswith("-") else "+"
        return f"{mantissa.removesuffix('.0')}e{sign}{exponent.lstrip('+-').lstrip('0')}"
    return text


def tool_entry(tool: Mapping[str, Any]) -> PinnedEntry:
    """Pin a tool: every member of it, since clients get those that no specification names too."""
    pinned = {key: value for key, value in tool.items() if value is not None}
    return PinnedEntry("tool", str(tool.get("name", "")), canonical(pinned))


def item_entry(kind: ItemKind, item: Mapping[str, Any]) -> PinnedEntry:
    """Pin a prompt, a resource or a template: every member of it that does not vary by itself."""
    pinned = {key: value for key, value in item.items() if value is not None and key not in _VARYING}
    if annotations := _mapping(item.get("annotations")):
        pinned["annotations"] = {key: value for key, value in annotations.items() if key not in _VARYING}
    return PinnedEntry(kind, str(item.get(ITEM_NAMES[kind], "")), canonical(pinned))


def is_of_template(uri: str, template: str) -> bool:
    """Return whether a URI template could stand for a URI: its literal parts appear in the URI, in their order."""
    first, *others = _EXPRESSION.split(template)
    if not others or not uri.startswith(first):
        return uri == template
    *middle, last = others
    place = len(first)
    for part in middle:
        place = uri.find(part, place)
        if place < 0:
            return False
        place += len(part)
    return len(uri) - len(last) >= place and uri.endswith(last)


def listing(server: str, tools: Sequence[Mapping[str, Any]], instructions: str | None = None) -> ServerListing:
    """Gather the tools that a server lists, and what it says of itself."""
    entries = [tool_entry(tool) for tool in tools]
    if instructions is not None:
        entries.append(PinnedEntry("instructions", INSTRUCTIONS, canonical(instructions)))
    return ServerListing(server, tuple(entries))


@dataclass(frozen=True, slots=True)
class AdmissionRules:
    """How far a server is trusted, and what judges its definitions."""

    trust: Trust
    judge: Judge
    rescan: bool = False
    """Whether definitions that equal their pins are judged again, because the scanner has changed."""
    crowded: bool = False
    """Whether so much is remembered of tools that the server no longer lists that further new tools are held."""


def admit(listed: ServerListing, pins: Pins, rules: AdmissionRules) -> Admitted:
    """Compare a listing with its pins and decide what may be served.

    A definition that was approved is served, and one that was rejected is held. One that equals its pin is served
    unless a newer scanner calls it dangerous. Of the others, `review` holds all, `scan` holds what the scanner calls
    dangerous and every change that could mislead, and `auto` holds none.
    """
    names = frozenset(entry.name for entry in listed.entries if entry.kind == "tool")
    admission = admit_some(listed.server, listed.entries, names, pins, rules)
    spoken: tuple[Kind, str] = ("instructions", INSTRUCTIONS)
    if spoken not in admission.accepted and spoken in pins.accepted:  # the approved ones, while new ones are held
        return replace(admission, accepted={**admission.accepted, spoken: pins.accepted[spoken]})
    return admission


def admit_some(
    server: str, entries: Iterable[PinnedEntry], names: Collection[str], pins: Pins, rules: AdmissionRules
) -> Admitted:
    """Decide about some definitions of a server; `names` are those of all its tools."""
    known = KnownTools([each for each in pins.accepted.values() if each.kind == "tool"], names)
    accepted: dict[tuple[Kind, str], PinnedEntry] = {}
    held: list[Held] = []
    changed: list[PinnedEntry] = []
    doubts: dict[str, tuple[Reason, ...]] = {}
    for entry in entries:
        key = (entry.kind, entry.name)
        before = pins.accepted.get(key)
        same = before is not None and before.text == entry.text
        judged = rules.rescan or not same
        verdict = rules.judge(_definition(server, entry)) if judged else ScanVerdict()
        finding = None if rules.trust == "auto" else _finding(entry, verdict, pins, known, rules)
        if finding is not None:
            held.append(finding)
            continue
        accepted[key] = entry
        if not same:
            changed.append(entry)
        reasons = verdict.reasons if judged else pins.doubts.get(entry.name, ())
        if reasons and entry.kind == "tool":
            doubts[entry.name] = reasons
    return Admitted(accepted, tuple(held), tuple(changed) if pins.known else (), doubts)


def _finding(
    entry: PinnedEntry, verdict: ScanVerdict, pins: Pins, known: KnownTools[PinnedEntry], rules: AdmissionRules
) -> Held | None:
    before = pins.accepted.get((entry.kind, entry.name))
    if pins.rejected and entry.hash in pins.rejected:
        return Held(entry, "rejected", before=before)
    if entry.hash in pins.approved:
        return None
    same = before is not None and before.text == entry.text
    if rules.trust == "review" and not same:
        return Held(entry, "new" if before is None else "changed", verdict.reasons, before)
    if verdict.level == "dangerous":
        return Held(entry, "flagged", verdict.reasons, before)
    if same or not pins.known:
        return None
    cause, other = _renamed(entry, known) if before is None else (_worse(before, entry), before)
    if before is None and entry.kind == "tool" and rules.crowded:
        cause = cause or "crowded"
    if before is not None and verdict.level == "suspicious":
        cause = cause or "flagged"
    return Held(entry, cause, verdict.reasons, other) if cause else None


def _renamed(entry: PinnedEntry, known: KnownTools[PinnedEntry]) -> tuple[Cause | None, PinnedEntry | None]:
    """Return whether a new tool is a known one under another name."""
    other = known.same_as(entry) if entry.kind == "tool" else None
    return ("twin" if known.is_listed(other) else "renamed") if other else None, other


def gone_tools(pins: Pins, names: Collection[str]) -> dict[str, int]:
    """Return the pinned tools that are not among these names, with what remembering each takes in bytes."""
    gone = (each for each in pins.accepted.values() if each.name not in names and each.kind == "tool")
    return {each.name: remembered_bytes(each) for each in gone}


def remembered_bytes(entry: PinnedEntry) -> int:
    return len(entry.text) + _ENTRY_BYTES


def without_gone(pins: Pins, names: Collection[str]) -> Pins:
    """Return the pins without those of tools that are not among these names."""
    accepted = {key: each for key, each in pins.accepted.items() if each.kind != "tool" or each.name in names}
    return replace(pins, accepted=accepted, doubts={name: pins.doubts[name] for name in pins.doubts if name in names})


def _worse(before: PinnedEntry, after: PinnedEntry) -> Cause | None:
    """Return why a change needs a review, or None."""
    if before.kind == "instructions":
        return "changed"
    old, new = before.value, after.value
    if before.kind != "tool":
        return "parameter" if _required_arguments(new) - _required_arguments(old) else None
    if _required(new) - _required(old):
        return "parameter"
    if _weaker(_mapping(old.get("annotations")), _mapping(new.get("annotations"))):
        return "annotation"
    return None


def _required(tool: Mapping[str, Any]) -> set[str]:
    required = _mapping(tool.get("inputSchema")).get("required")
    return {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()


def _required_arguments(prompt: Mapping[str, Any]) -> set[str]:
    arguments = prompt.get("arguments")
    given = arguments if isinstance(arguments, list) else []
    return {str(each.get("name")) for each in given if isinstance(each, Mapping) and each.get("required") is True}


def _weaker(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    lost_caution = old.get("destructiveHint", True) is not False and new.get("destructiveHint", True) is False
    became_writing = old.get("readOnlyHint") is True and new.get("readOnlyHint") is not True
    claims_reading = old.get("readOnlyHint") is not True and new.get("readOnlyHint") is True
    opened = old.get("openWorldHint", True) is False and new.get("openWorldHint", True) is not False
    return lost_caution or became_writing or claims_reading or opened


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _definition(server: str, entry: PinnedEntry) -> ToolDefinition:
    if entry.kind == "instructions":
        return ToolDefinition(f"{server}/instructions", server, {}, entry.value)
    return ToolDefinition(f"{server}/{entry.name}", server, entry.value)


def admit_items(
    server: str,
    entries: Iterable[PinnedEntry],
    stale: Collection[tuple[Kind, str]],
    pins: Pins,
    rules: AdmissionRules,
) -> Admitted:
    """Decide about prompts, resources and templates; the stale ones were last read by another scanner."""
    listed = list(entries)
    old = [entry for entry in listed if (entry.kind, entry.name) in stale]
    rest = [entry for entry in listed if (entry.kind, entry.name) not in stale]
    one, other = (
        admit_some(server, rest, (), pins, rules),
        admit_some(server, old, (), pins, replace(rules, rescan=True)),
    )
    return Admitted({**one.accepted, **other.accepted}, (*one.held, *other.held), (*one.changed, *other.changed))


def closed(listed: ServerListing) -> Admitted:
    """Hold everything, because the pins cannot be read."""
    return Admitted({}, tuple(Held(entry, "unreadable") for entry in listed.entries if entry.kind == "tool"))


def with_accepted(pins: Pins, admission: Admitted) -> Pins:
    """Return the pins after an admission: what is served is pinned, and what left keeps its pin.

    A definition that is held although it equals its pin loses it, so that it stays held.
    """
    lost = {(h.entry.kind, h.entry.name) for h in admission.held if h.before and h.before.text == h.entry.text}
    accepted = {key: entry for key, entry in pins.accepted.items() if key not in lost} if lost else pins.accepted
    accepted = {**accepted, **admission.accepted}
    doubts = {name: why for name, why in pins.doubts.items() if ("tool", name) not in admission.accepted}
    return replace(pins, known=True, accepted=accepted, doubts={**doubts, **admission.doubts})
