"""Events as bytes, for the spool of a gateway that shares its store."""

import io
import pickle
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from shortlist.telemetry.events import Event, Later

_MODULES = ("shortlist.telemetry.", "shortlist.models", "shortlist.storage.port")


@dataclass(frozen=True, slots=True)
class SpooledEvent:
    """An event and the wall-clock time at which it happened."""

    at: float
    event: Event


def encode_spooled(at: float, event: Event) -> bytes:
    """Return an event as bytes; tokens that have not been counted yet are left out.

    A request waits for this: the values of an event take half the time of the event itself.
    """
    kind: Any = type(event)
    values = [0 if isinstance(value := getattr(event, name), Later) else value for name in _names(kind)]
    return pickle.dumps((at, kind, values), pickle.HIGHEST_PROTOCOL)


def decode_spooled(record: bytes) -> SpooledEvent:
    """Return the event of a record; raise ValueError for anything else."""
    try:
        at, kind, values = _EventsOnly(io.BytesIO(record)).load()
        if not issubclass(kind, Event) or not isinstance(at, float):
            raise ValueError("it is of another type")
        return SpooledEvent(at, kind(**dict(zip(_names(kind), values, strict=True))))
    except (pickle.UnpicklingError, TypeError, AttributeError, EOFError, ImportError, IndexError, ValueError) as error:
        raise ValueError(f"not an event: {error}") from None


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


class _EventsOnly(pickle.Unpickler):
    """Makes events and what they are made of, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if not module.startswith(_MODULES) or "." in name:
            raise pickle.UnpicklingError(f"{module}.{name} is not part of an event")
        return super().find_class(module, name)
