"""Events as bytes, for the spool of a gateway that shares its store."""

import io
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from shortlist.telemetry.events import Event, Later

_MODULES = ("shortlist.telemetry.", "shortlist.models", "shortlist.storage.port")


@dataclass(frozen=True, slots=True)
class SpooledEvent:
    """An event and the wall-clock time at which it happened."""

    at: float
    event: Event


def encode_spooled(at: float, event: Event) -> bytes:
    """Return an event as bytes; tokens that have not been counted yet are left out."""
    uncounted: Mapping[str, Any] = {
        name: 0 for name in ("tokens", "upfront") if isinstance(getattr(event, name, 0), Later)
    }
    return pickle.dumps((at, replace(event, **uncounted) if uncounted else event), pickle.HIGHEST_PROTOCOL)


def decode_spooled(record: bytes) -> SpooledEvent:
    """Return the event of a record; raise ValueError for anything else."""
    try:
        at, event = _EventsOnly(io.BytesIO(record)).load()
    except (pickle.UnpicklingError, TypeError, AttributeError, EOFError, ImportError, IndexError) as error:
        raise ValueError(f"not an event: {error}") from None
    if not isinstance(event, Event) or not isinstance(at, float):
        raise ValueError("not an event")
    return SpooledEvent(at, event)


class _EventsOnly(pickle.Unpickler):
    """Makes events and what they are made of, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if not module.startswith(_MODULES) or "." in name:
            raise pickle.UnpicklingError(f"{module}.{name} is not part of an event")
        return super().find_class(module, name)
