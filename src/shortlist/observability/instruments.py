"""Counters, histograms and gauges, defined once for both exits: the text that Prometheus reads, and OTLP.

Names, units and labels are OpenTelemetry's; Prometheus' follow from them by the standard translation. The text
format is a page of code, so there is no client library here; the tests read it with the official one.
"""

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal, Protocol, TypeAlias

MAX_SERIES = 1_000
OTHER = "_OTHER"
"""Where label values go when a family has too many of them."""
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_UNITS = {"s": "_seconds"}

Labels: TypeAlias = tuple[str, ...]
Reading: TypeAlias = Callable[[], Mapping[Labels, float]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Family:
    """One metric: what it counts, and by which labels; an empty label is as good as none."""

    name: str
    help: str
    kind: Literal["counter", "gauge", "histogram"] = "counter"
    unit: str = ""
    labels: Labels = ()
    buckets: tuple[float, ...] = ()

    @property
    def exposed_name(self) -> str:
        """Give the name that Prometheus knows it by."""
        return _plain(self.name) + _UNITS.get(self.unit, "") + ("_total" if self.kind == "counter" else "")


@dataclass(slots=True)
class Distribution:
    """How many values fell into each bucket, the last being the rest, and their sum."""

    counts: list[int]
    total: float = 0.0


class Mirror(Protocol):
    """A second exit, which is told everything that happens."""

    def add(self, family: Family, labels: Labels, amount: float) -> None: ...

    def watch(self, family: Family, reading: Reading) -> None: ...


@dataclass(slots=True)
class Instruments:
    """What was counted so far; any thread may count."""

    counts: dict[Family, dict[Labels, float]] = field(default_factory=dict)
    distributions: dict[Family, dict[Labels, Distribution]] = field(default_factory=dict)
    readings: dict[Family, Reading] = field(default_factory=dict)
    _mirrors: list[Mirror] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, family: Family, *labels: str, by: float = 1) -> None:
        with self._lock:
            series = self.counts.setdefault(family, {})
            labels = _bounded(series, labels)
            series[labels] = series.get(labels, 0) + by
        for mirror in self._mirrors:
            mirror.add(family, labels, by)

    def observe(self, family: Family, value: float, *labels: str) -> None:
        with self._lock:
            series = self.distributions.setdefault(family, {})
            labels = _bounded(series, labels)
            if labels not in series:
                series[labels] = Distribution([0] * (len(family.buckets) + 1))
            found = series[labels]
            found.counts[bisect_left(family.buckets, value)] += 1
            found.total += value
        for mirror in self._mirrors:
            mirror.add(family, labels, value)

    def read(self, family: Family, reading: Reading) -> None:
        """Ask for a family's values whenever they are wanted, instead of counting them."""
        self.readings[family] = reading
        for mirror in self._mirrors:
            mirror.watch(family, reading)

    def mirror(self, mirror: Mirror) -> None:
        """Tell another exit as well, from now on."""
        self._mirrors.append(mirror)
        for family, reading in self.readings.items():
            mirror.watch(family, reading)

    def exposition(self) -> str:
        """Write everything down in Prometheus' text format."""
        with self._lock:
            lines = [line for family, series in self.counts.items() for line in _plain_lines(family, series)]
            for family, found in self.distributions.items():
                lines.extend(_histogram_lines(family, found))
        for family, reading in self.readings.items():
            lines.extend(_plain_lines(family, reading()))
        return "\n".join(lines) + "\n" if lines else ""


def _bounded(series: Mapping[Labels, object], labels: Labels) -> Labels:
    """Keep a family from growing without end, whatever its labels turn out to hold."""
    return labels if labels in series or len(series) < MAX_SERIES else (OTHER,) * len(labels)


def _plain_lines(family: Family, series: Mapping[Labels, float]) -> Iterator[str]:
    yield from _head(family)
    for labels, value in series.items():
        yield _line(family.exposed_name, zip(family.labels, labels, strict=True), value)


def _histogram_lines(family: Family, series: Mapping[Labels, Distribution]) -> Iterator[str]:
    yield from _head(family)
    name = family.exposed_name
    bounds = [*(_number(bound) for bound in family.buckets), "+Inf"]
    for labels, found in series.items():
        pairs = list(zip(family.labels, labels, strict=True))
        for bound, count in zip(bounds, accumulate(found.counts), strict=True):
            yield _line(f"{name}_bucket", [*pairs, ("le", bound)], count)
        yield _line(f"{name}_sum", pairs, found.total)
        yield _line(f"{name}_count", pairs, sum(found.counts))


def _head(family: Family) -> Iterator[str]:
    name = family.exposed_name
    yield f"# HELP {name} {family.help}"
    yield f"# TYPE {name} {family.kind}"


def _line(name: str, labels: Iterable[tuple[str, str]], value: float) -> str:
    pairs = ",".join(f'{_plain(key)}="{_escaped(text)}"' for key, text in labels if text)
    return f"{name}{{{pairs}}} {_number(value)}" if pairs else f"{name} {_number(value)}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _plain(name: str) -> str:
    return name.replace(".", "_")
