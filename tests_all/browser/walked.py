"""What the tests have walked so far: every request of their windows, and every page that was audited, and how."""

from typing import NamedTuple

REQUESTED: set[tuple[str, str]] = set()
"""Method and path."""


class Look(NamedTuple):
    """A page as it was audited."""

    path: str
    width: int
    dark: bool


LOOKED: set[Look] = set()
