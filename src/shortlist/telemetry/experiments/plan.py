"""What an experiment compares, and which variant a workspace is served: the same one always, decided by a hash."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import get_args

from shortlist.config.settings import Mode
from shortlist.disclosure.render import Detail
from shortlist.errors import InvalidInput
from shortlist.models import Json

ALPHA = 0.05
"""How often an experiment without any effect may ever claim one."""
MOST_HITS = 50
MINIMUM = 50
"""Workspaces of every variant before anything is concluded: the intervals rest on a normal approximation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """How a workspace is served; what is None follows the configuration."""

    mode: Mode | None = None
    preset: str | None = None
    pipeline: str | None = None
    detail: Detail | None = None
    """Of a search that asks for none."""
    limit: int | None = None
    """Of a search that asks for none."""

    def settings(self) -> dict[str, Json]:
        """Give what this variant sets."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}

    @property
    def name(self) -> str:
        """Name it by what it sets."""
        return ",".join(f"{key}={value}" for key, value in self.settings().items()) or "as configured"


AS_CONFIGURED = Variant()
_KEYS = tuple(field.name for field in fields(Variant))
_CHOICES: Mapping[str, tuple[str, ...]] = {"mode": get_args(Mode), "detail": get_args(Detail)}


def read_variant(text: str) -> Variant:
    """Read a variant as people write it: `mode=dynamic,limit=10`; empty or `as configured` changes nothing."""
    settings: dict[str, Json] = {}
    for part in text.split(",") if text.strip() not in ("", AS_CONFIGURED.name) else ():
        key, _, value = (piece.strip() for piece in part.partition("="))
        if key not in _KEYS or not value:
            raise InvalidInput(f"A variant sets {', '.join(_KEYS)}, as in mode=dynamic,limit=10; not {part.strip()!r}.")
        if key in _CHOICES and value not in _CHOICES[key]:
            raise InvalidInput(f"{key} must be one of {', '.join(_CHOICES[key])}, not {value!r}.")
        settings[key] = _limit(value) if key == "limit" else value
    return Variant(**settings)


def _limit(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_HITS:
        raise InvalidInput(f"limit goes from 1 to {MOST_HITS}, not {text!r}.")
    return int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """Two or more variants, the first of which is the control, and what decides between them."""

    name: str
    variants: tuple[Variant, ...]
    metric: str
    guardrails: tuple[str, ...] = ()
    alpha: float = ALPHA
    minimum: int = MINIMUM
    started: int = 0
    """Milliseconds since 1970."""
    stopped: int | None = None

    @property
    def control(self) -> Variant:
        return self.variants[0]

    @property
    def treatments(self) -> tuple[Variant, ...]:
        return self.variants[1:]

    def assign(self, workspace: str) -> Variant:
        """Choose a workspace's variant: each with the same chance, and never another one later."""
        # The start salts the hash, so that an experiment run again does not meet the same halves.
        digest = hashlib.sha256(f"{self.name}\0{self.started}\0{workspace}".encode()).digest()
        return self.variants[int.from_bytes(digest[:8], "big") % len(self.variants)]

    def data(self) -> dict[str, Json]:
        """Give the plan as JSON; `from_data` reads it back."""
        return {
            "name": self.name,
            "variants": [variant.settings() for variant in self.variants],
            "metric": self.metric,
            "guardrails": list(self.guardrails),
            "alpha": self.alpha,
            "minimum": self.minimum,
            "started": self.started,
            "stopped": self.stopped,
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Json]) -> "Experiment":
        variants = tuple(Variant(**settings) for settings in data["variants"])
        return cls(**{**data, "variants": variants, "guardrails": tuple(data["guardrails"])})
