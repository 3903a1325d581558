"""The geometry of charts: coordinates that templates draw as SVG, at any width and in any theme.

Shapes are drawn into a box of WIDTH by HEIGHT that the browser stretches; labels are text beside it, evenly spaced,
so that they keep their size on a phone. Colours are classes: `tone-1` and so on.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

WIDTH, HEIGHT = 1000.0, 200.0
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
TICKS = 4
LABELS = 6
GAP = 0.18
"""The share of a bar's slot that stays empty."""

ChartValue: TypeAlias = float | None
ChartKind: TypeAlias = Literal["bars", "lines"]


@dataclass(frozen=True, slots=True)
class Series:
    """One line, or one layer of stacked bars; None where there is no data."""

    name: str
    values: Sequence[ChartValue]
    tone: int = 1


@dataclass(frozen=True, slots=True)
class Bar:
    x: float
    y: float
    width: float
    height: float
    tone: int


@dataclass(frozen=True, slots=True)
class Slot:
    """The area of one interval, with its tooltip."""

    x: float
    width: float
    moment: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Values over time, as stacked bars or lines."""

    title: str
    kind: ChartKind
    moments: Sequence[str]
    series: Sequence[Series]
    show: Callable[[float], str]
    """Formats a value."""
    seconds: Sequence[int] = ()
    """When each interval begins, where the browser writes it in the reader's time."""
    local: str = ""
    """How it is written: `time`, or `both` with the day; empty: as the moments are."""

    @property
    def empty(self) -> bool:
        return not any(value for series in self.series for value in series.values)

    @property
    def top(self) -> float:
        return self.ticks[-1]

    @property
    def ticks(self) -> tuple[float, ...]:
        """Round, evenly spaced numbers from zero to above the largest value."""
        return round_ticks(max(self._heights(), default=0.0))

    @property
    def labels(self) -> tuple[str, ...]:
        """One label for each interval, empty for most: evenly spaced ones are named, with the first and the last."""
        last = len(self.moments) - 1
        count = next((n for n in range(LABELS - 1, 0, -1) if last % n == 0), 1)
        named = {last * i // count for i in range(count + 1)} if last > 0 else {0}
        return tuple(moment if at in named else "" for at, moment in enumerate(self.moments))

    @property
    def bars(self) -> Iterator[Bar]:
        room, top = WIDTH / max(len(self.moments), 1), self.top
        for at in range(len(self.moments)):
            floor = HEIGHT
            for series in self.series:
                height = (series.values[at] or 0.0) / top * HEIGHT
                floor -= height
                if height:
                    yield Bar(_r((at + GAP / 2) * room), _r(floor), _r((1 - GAP) * room), _r(height), series.tone)

    @property
    def paths(self) -> Iterator[tuple[int, str]]:
        """Tone and path of each line; a gap where there is no data."""
        for series in self.series:
            yield series.tone, path(series.values, self.top, HEIGHT)

    @property
    def slots(self) -> Iterator[Slot]:
        room = WIDTH / max(len(self.moments), 1)
        for at, moment in enumerate(self.moments):
            words = ", ".join(f"{series.name} {self._shown(series.values[at])}" for series in self.series)
            yield Slot(_r(at * room), _r(room), moment, words)

    @property
    def rows(self) -> Iterator[tuple[str, list[str]]]:
        """The same data as table rows."""
        for at, moment in enumerate(self.moments):
            yield moment, [self._shown(series.values[at]) for series in self.series]

    def _heights(self) -> Iterator[float]:
        if self.kind == "lines":
            yield from (value for series in self.series for value in series.values if value is not None)
        else:
            yield from (
                sum(value or 0.0 for value in layers) for layers in zip(*(s.values for s in self.series), strict=True)
            )

    def _shown(self, value: ChartValue) -> str:
        return "–" if value is None else self.show(value)


def round_ticks(most: float) -> tuple[float, ...]:
    """Return round, evenly spaced ticks from zero to at least `most`."""
    if most <= 0 or not math.isfinite(most):
        return (0.0, 1.0)
    magnitude = 10.0 ** math.floor(math.log10(most / TICKS))
    step = next(s * magnitude for s in STEPS if s * magnitude * TICKS >= most * (1 - 1e-9))
    return tuple(step * i for i in range(math.ceil(most / step - 1e-9) + 1))


def path(values: Sequence[ChartValue], top: float, height: float) -> str:
    """Return an SVG path through the middle of each slot; an isolated value becomes a dash."""
    room = WIDTH / max(len(values), 1)
    drawn, pen = [], "M"
    for at, value in enumerate(values):
        if value is None:
            pen = "M"
            continue
        alone = (at == 0 or values[at - 1] is None) and (at + 1 == len(values) or values[at + 1] is None)
        x, y = (at + 0.5) * room, height - value / top * height
        drawn.append(f"M{_r(x - room / 4)} {_r(y)}H{_r(x + room / 4)}" if alone else f"{pen}{_r(x)} {_r(y)}")
        pen = "L"
    return "".join(drawn)


def spark(values: Sequence[ChartValue]) -> str:
    """Return the path of a sparkline from zero to its largest value."""
    return path(values, max([value for value in values if value is not None] or [0.0]) or 1.0, 40.0)


@dataclass(frozen=True, slots=True)
class EffectInterval:
    """An effect with its bounds, scaled to 0 to 100 around zero."""

    value: float
    low: float
    high: float

    @property
    def drawable(self) -> bool:
        return all(map(math.isfinite, (self.value, self.low, self.high)))

    def at(self, number: float) -> float:
        """Return the x coordinate of a number; zero is in the middle."""
        most = max(abs(self.low), abs(self.high)) * 1.1 or 1.0
        return _r(50 + number / most * 50)


def _r(number: float) -> float:
    return round(number, 2)
