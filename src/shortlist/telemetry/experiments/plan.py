"""What an experiment compares, which variant a workspace is served (decided by a hash), and how plans are stored."""

import hashlib
import json
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TypeAlias, get_args

from shortlist.config.settings import Mode
from shortlist.disclosure.render import Detail
from shortlist.errors import InvalidInput
from shortlist.models import Json
from shortlist.storage.port import ExperimentStore, StoredExperiment
from shortlist.telemetry.events import Exposed, RecordEvent
from shortlist.telemetry.experiments.metrics import METRICS

logger = logging.getLogger(__name__)

ALPHA = 0.05
"""The false positive rate over all looks together."""
MOST_HITS = 50
MINIMUM = 50
"""Workspaces per variant before a conclusion is drawn: the intervals rest on a normal approximation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """How a workspace is served; None means as configured."""

    mode: Mode | None = None
    preset: str | None = None
    pipeline: str | None = None
    detail: Detail | None = None
    """Default of searches that do not set it."""
    limit: int | None = None
    """Default of searches that do not set it."""

    def settings(self) -> dict[str, Json]:
        """Return what this variant sets."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}

    @property
    def name(self) -> str:
        """The settings as text, which names the variant."""
        return ",".join(f"{key}={value}" for key, value in self.settings().items()) or "as configured"


AS_CONFIGURED = Variant()
_KEYS = tuple(field.name for field in fields(Variant))
_CHOICES: Mapping[str, tuple[str, ...]] = {"mode": get_args(Mode), "detail": get_args(Detail)}


def read_variant(text: str) -> Variant:
    """Parse a variant such as `mode=dynamic,limit=10`; empty or `as configured` changes nothing."""
    settings: dict[str, Json] = {}
    for part in text.split(",") if text.strip() not in ("", AS_CONFIGURED.name) else ():
        key, _, value = (piece.strip() for piece in part.partition("="))
        if key not in _KEYS or not value:
            raise InvalidInput(
                f"Cannot parse {part.strip()!r}. A variant sets {', '.join(_KEYS)}, as in mode=dynamic,limit=10."
            )
        if key in _CHOICES and value not in _CHOICES[key]:
            raise InvalidInput(f"{key} must be one of {', '.join(_CHOICES[key])}, not {value!r}.")
        settings[key] = _limit(value) if key == "limit" else value
    return Variant(**settings)


def _limit(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_HITS:
        raise InvalidInput(f"limit must be between 1 and {MOST_HITS}, not {text!r}.")
    return int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """Two or more variants, the first being the control, and the metric that decides between them."""

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
        """Return a workspace's variant: each is equally likely, and it never changes."""
        # The start salts the hash, so a repeated experiment splits the workspaces anew.
        digest = hashlib.sha256(f"{self.name}\0{self.started}\0{workspace}".encode()).digest()
        return self.variants[int.from_bytes(digest[:8], "big") % len(self.variants)]

    def data(self) -> dict[str, Json]:
        """Return the plan as JSON; `from_data` reads it back."""
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
        """Read a plan; raises TypeError, ValueError or KeyError for one that this version cannot serve."""
        variants = tuple(read_variant(Variant(**settings).name) for settings in data["variants"])
        if len(variants) < 2:
            raise ValueError("it has fewer than two variants")
        if unknown := {data["metric"], *data["guardrails"]} - METRICS.keys():
            raise ValueError(f"unknown metrics {sorted(unknown)}")
        if not isinstance(data["started"], int):
            raise TypeError(f"its start is {data['started']!r}")
        return cls(**{**data, "variants": variants, "guardrails": tuple(data["guardrails"])})


REMEMBERED_EXPOSURES = 10_000
"""Recording an exposure again, after so many others or a restart, has no effect in the store."""

Assign: TypeAlias = Callable[[str, str], Variant]
"""Returns how to serve a caller (by name) in its workspace."""


class Assignments:
    """Assigns workspaces to the variants of the running experiment, and records the first time each is served."""

    def __init__(self, record: RecordEvent) -> None:
        self._record = record
        self._experiment: Experiment | None = None
        self._served: OrderedDict[str, Variant] = OrderedDict()
        self.assign: Assign | None = None
        """None while no experiment is running: everybody is served as configured."""

    def __call__(self, caller: str, workspace: str) -> Variant:
        if self._experiment is None:
            return AS_CONFIGURED
        variant = self._served.get(workspace)
        return variant or self._expose(self._experiment, caller, workspace)

    def follow(self, experiment: Experiment | None) -> bool:
        """Switch to the experiment that is running now, if any; returns whether it changed."""
        if experiment == self._experiment:
            return False
        self._experiment = experiment
        self._served.clear()
        self.assign = None if experiment is None else self
        return True

    def _expose(self, experiment: Experiment, caller: str, workspace: str) -> Variant:
        variant = experiment.assign(workspace)
        self._served[workspace] = variant
        if len(self._served) > REMEMBERED_EXPOSURES:
            self._served.popitem(last=False)
        self._record(Exposed(caller=caller, workspace=workspace, experiment=experiment.name, variant=variant.name))
        return variant


def read_experiments(store: ExperimentStore) -> list[Experiment]:
    """Return all experiments, the latest first; one whose plan cannot be read is logged and left out."""
    return [experiment for stored in store.experiments() if (experiment := _read(stored)) is not None]


def running_experiment(store: ExperimentStore) -> Experiment | None:
    return next((each for each in read_experiments(store) if each.stopped is None), None)


def find_experiment(store: ExperimentStore, name: str | None = None) -> Experiment:
    """Return an experiment by its name, or the latest one; raises InvalidInput where there is none."""
    known = read_experiments(store)
    found = next((each for each in known if name in (None, each.name)), None)
    if found is None:
        raise InvalidInput(
            f"No experiment {name!r}. Known experiments: {', '.join(each.name for each in known)}."
            if known
            else "No experiment has been started. Start one with `shortlist ab start`."
        )
    return found


def start_experiment(store: ExperimentStore, experiment: Experiment) -> Experiment:
    """Start an experiment now; only one runs at a time, and a name is used once."""
    begun = replace(experiment, started=_now(), stopped=None)
    store.start(StoredExperiment(name=begun.name, plan=json.dumps(begun.data()), started=begun.started))
    return begun


def stop_experiment(store: ExperimentStore, name: str) -> Experiment:
    """Stop an experiment; what its workspaces do afterwards is not counted."""
    experiment = find_experiment(store, name)
    if experiment.stopped is not None:
        raise InvalidInput(f"The experiment {name!r} has already been stopped.")
    stopped = _now()
    store.stop(name, stopped)
    return replace(experiment, stopped=stopped)


_unreadable: set[tuple[str, str]] = set()
"""Plans that were logged, so that a gateway that looks every two seconds logs each once."""


def _read(stored: StoredExperiment) -> Experiment | None:
    try:
        return replace(Experiment.from_data(json.loads(stored.plan)), stopped=stored.stopped)
    except (InvalidInput, ValueError, TypeError, KeyError, AttributeError) as error:
        if (stored.name, stored.plan) not in _unreadable:
            _unreadable.add((stored.name, stored.plan))
            logger.warning(
                "the experiment %r is ignored: this version of shortlist cannot read its plan (%s). "
                "Upgrade shortlist, or stop it with the version that started it.",
                stored.name,
                error,
            )
        return None


def _now() -> int:
    return int(time.time() * 1000)
