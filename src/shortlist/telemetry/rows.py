"""An event as it is kept: typed columns for what is asked for often, JSON for the rest."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

from shortlist.models import Json
from shortlist.telemetry.attribution import Attribution
from shortlist.telemetry.events import (
    Called,
    CatalogChanged,
    CircleBroken,
    Described,
    Event,
    EventsLost,
    Exposed,
    FoundTool,
    Listed,
    Loaded,
    Searched,
    SessionOpened,
    SuggestionGiven,
    TaskReported,
    ToolsetsListed,
    Unloaded,
    UpstreamChanged,
)
from shortlist.telemetry.redaction import Privacy, redact_json

Columns: TypeAlias = dict[str, Any]

KINDS: Mapping[type, str] = {
    SessionOpened: "opened",
    Listed: "listed",
    Searched: "searched",
    CircleBroken: "circle",
    Described: "described",
    ToolsetsListed: "toolsets",
    SuggestionGiven: "suggested",
    Called: "called",
    Loaded: "loaded",
    Unloaded: "unloaded",
    Exposed: "exposed",
    TaskReported: "reported",
    UpstreamChanged: "upstream",
    CatalogChanged: "catalog",
    EventsLost: "lost",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvent:
    """A fact as the store gives it back; docs/telemetry.md says what each kind has where."""

    id: int
    at: int
    """Milliseconds since 1970."""
    kind: str
    caller: str | None = None
    workspace: str | None = None
    subject: str | None = None
    outcome: str | None = None
    search: int | None = None
    rank: int | None = None
    miss: str | None = None
    milliseconds: float | None = None
    tokens: int | None = None
    data: Mapping[str, Json] = field(default_factory=dict)

    def json(self) -> dict[str, Json]:
        """Give it for a line of an export: what is not known is left out."""
        return {name: value for name, value in asdict(self).items() if value is not None and value != {}}


def columns_of(event: Event, known: Attribution, privacy: Privacy) -> Columns:
    """Write an event in columns; its id and the id of the search it belongs to come when it is stored."""
    columns: Columns = {
        "kind": KINDS[type(event)],
        "caller": getattr(event, "caller", None),
        "workspace": privacy.workspace(event.workspace) if hasattr(event, "workspace") else None,
        "tokens": getattr(event, "tokens", None),
        "milliseconds": getattr(event, "milliseconds", None),
        "rank": known.rank,
        "miss": miss_of(event, known),
        "data": {},
    }
    return {**columns, **_WRITERS[type(event)](event, privacy)}


def miss_of(event: Event, known: Attribution) -> str | None:
    """Say why an event is a retrieval miss; None where it is none, or none that can be seen yet."""
    if isinstance(event, Called):
        if event.outcome == "unknown":
            return "unknown"
        return "unfound" if known.search is None and known.fresh and not event.native else None
    if isinstance(event, Searched):
        if known.search is not None:
            return "rephrased"
        return None if event.hits else "empty"
    return None


def _searched(event: Searched, privacy: Privacy) -> Columns:
    data = {
        "hits": [_hit(hit) for hit in event.hits],
        "probability": round(event.probability, 4),
        "limit": event.limit,
        "mode": event.mode,
        "steps": {name: round(milliseconds, 3) for name, milliseconds in event.steps.items()},
        "offset": event.offset or None,
        "part": event.part or None,
        "filters": redact_json(event.filters) or None,
    }
    return {"subject": privacy.query(event.query), "outcome": event.confidence, "data": _known(data)}


def _hit(hit: FoundTool) -> dict[str, Json]:
    signals = {name: [round(signal.score, 4), signal.rank] for name, signal in hit.signals.items()}
    family = {"family": list(hit.family)} if hit.family else {}
    return {"tool": hit.tool, "rank": hit.rank, "score": round(hit.score, 4), "signals": signals, **family}


def _called(event: Called, privacy: Privacy) -> Columns:
    data = {"native": event.native or None, "size": event.size, "arguments": privacy.call(event.arguments)}
    subject = privacy.name(event.tool) if event.outcome == "unknown" else event.tool
    return {"subject": subject, "outcome": event.outcome, "tokens": event.tokens or None, "data": _known(data)}


def _known(data: Mapping[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in data.items() if value is not None}


_WRITERS: Mapping[type, Callable[[Any, Privacy], Columns]] = {
    SessionOpened: lambda e, _: {"outcome": e.mode, "data": {"tools": e.tools}},
    Listed: lambda e, _: {"data": {"tools": e.tools, "upfront": e.upfront}},
    Searched: _searched,
    CircleBroken: lambda e, privacy: {"subject": privacy.query(e.query)},
    Described: lambda e, _: {"data": {"tools": list(e.tools)}},
    ToolsetsListed: lambda _, __: {},
    SuggestionGiven: lambda e, _: {"subject": e.toolset},
    Called: _called,
    Loaded: lambda e, _: {"subject": e.toolset, "data": {"tools": list(e.tools)}},
    Unloaded: lambda e, _: {"subject": e.toolset, "data": {"tools": list(e.tools)}},
    Exposed: lambda e, _: {"subject": e.experiment, "outcome": e.variant},
    TaskReported: lambda e, privacy: {
        "subject": privacy.query(e.task) if e.task else None,
        "outcome": "completed" if e.completed else "abandoned",
    },
    UpstreamChanged: lambda e, _: {"subject": e.server, "outcome": e.state, "data": {"up": e.up}},
    CatalogChanged: lambda e, _: {
        "subject": e.server,
        "data": {"tools": e.tools, "fingerprint": e.fingerprint, "upfront": e.upfront},
    },
    EventsLost: lambda e, _: {"outcome": e.reason, "data": {"count": e.count}},
}
