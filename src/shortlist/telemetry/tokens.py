"""Numbers of tokens that events carry, counted when somebody needs them."""

from collections.abc import Callable
from typing import TypeAlias


class Later:
    """A number that is computed when it is first asked for: counting tokens takes longer than most requests."""

    __slots__ = ("_count", "_number")

    def __init__(self, count: Callable[[], int]) -> None:
        self._count: Callable[[], int] | None = count
        self._number = 0

    def __call__(self) -> int:
        if (count := self._count) is not None:
            self._number = count()
            self._count = None  # and what it was counted from can be freed
        return self._number


Tokens: TypeAlias = int | Later
"""A number of tokens, or how to count them."""


def count(tokens: Tokens) -> int:
    """Return a number of tokens, counting them now if that was deferred."""
    return tokens if isinstance(tokens, int) else tokens()
