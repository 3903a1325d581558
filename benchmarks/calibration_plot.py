"""Stated probability against observed, drawn as SVG."""

from collections.abc import Iterator, Mapping, Sequence
from xml.sax.saxutils import escape

from shortlist.evals.calibration import Bin

SIZE, LEFT, TOP, BOTTOM, RIGHT = 420, 60, 40, 56, 210
TICKS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#76b7b2", "#9c755f", "#edc948", "#ff9da7", "#86bcb6", "#8cd17d")
POOLED = "#d62728"
TEXT = 'font-family="sans-serif" font-size="12" fill="#333"'


def plot(pooled: Sequence[Bin], sets: Mapping[str, Sequence[Bin]], title: str) -> str:
    """Draw the pooled bins with their sizes over the lines of the sets; the diagonal is a true statement."""
    width, height = LEFT + SIZE + RIGHT, TOP + SIZE + BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="{LEFT}" y="24" {TEXT} font-weight="bold">{escape(title)}</text>',
        *_axes(),
        *_sets(sets),
        _line(pooled, POOLED, 2.5),
        *(
            f'<circle cx="{_x(each.stated):.1f}" cy="{_y(each.observed):.1f}" r="4" fill="{POOLED}"/>'
            for each in pooled
        ),
        *_legend(["all queries", *sets]),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _axes() -> Iterator[str]:
    for tick in TICKS:
        x, y = _x(tick), _y(tick)
        yield f'<path d="M{x:.1f} {_y(0):.1f}V{_y(1):.1f}M{_x(0):.1f} {y:.1f}H{_x(1):.1f}" stroke="#ddd" fill="none"/>'
        yield f'<text x="{x:.1f}" y="{_y(0) + 18:.1f}" {TEXT} text-anchor="middle">{tick:.1f}</text>'
        yield f'<text x="{_x(0) - 8:.1f}" y="{y + 4:.1f}" {TEXT} text-anchor="end">{tick:.1f}</text>'
    yield f'<path d="M{_x(0)} {_y(0)}L{_x(1)} {_y(1)}" stroke="#777" stroke-dasharray="5 4" fill="none"/>'
    stated, observed = "stated probability that the first tool is right", "share that is right"
    yield f'<text x="{_x(0.5)}" y="{_y(0) + 42}" {TEXT} text-anchor="middle">{stated}</text>'
    yield f'<text transform="translate(18 {_y(0.5)}) rotate(-90)" {TEXT} text-anchor="middle">{observed}</text>'


def _sets(sets: Mapping[str, Sequence[Bin]]) -> Iterator[str]:
    for number, bins in enumerate(sets.values()):
        yield _line(bins, _colour(number), 1.2)


def _legend(names: Sequence[str]) -> Iterator[str]:
    x = LEFT + SIZE + 16
    for number, name in enumerate(names):
        y, colour = TOP + 10 + 20 * number, POOLED if number == 0 else _colour(number - 1)
        yield f'<path d="M{x} {y}h18" stroke="{colour}" stroke-width="{2.5 if number == 0 else 1.2}"/>'
        yield f'<text x="{x + 24}" y="{y + 4}" {TEXT}>{escape(name)}</text>'


def _line(bins: Sequence[Bin], colour: str, width: float) -> str:
    points = " ".join(f"{_x(each.stated):.1f},{_y(each.observed):.1f}" for each in bins)
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width}"/>'


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _x(value: float) -> float:
    return LEFT + SIZE * value


def _y(value: float) -> float:
    return TOP + SIZE * (1 - value)
