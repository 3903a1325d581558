"""The options of a filter, for one call or as defaults."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypedDict

from shortlist.errors import InvalidInput, InvalidQuery
from shortlist.search.searcher import MAX_LIMIT

LIMIT = 20
CONTEXT_MESSAGES = 3
MAX_CONTEXT_TOKENS = 500


class Choices(TypedDict, total=False):
    """The options of one call; what is left out comes from the filter's defaults."""

    limit: int
    min_score: float | None
    context_messages: int
    max_context_tokens: int
    always_include: Iterable[str]
    exclude: Iterable[str]
    servers: Iterable[str] | None
    categories: Iterable[str] | None
    tags: Iterable[str] | None
    read_only: bool | None
    diverse: bool
    debug: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterOptions:
    """The number of tools, their minimum score, filters, and how much of a chat is read."""

    limit: int = LIMIT
    min_score: float | None = None
    """The minimum score of a tool; None keeps all up to `limit`."""
    context_messages: int = CONTEXT_MESSAGES
    max_context_tokens: int = MAX_CONTEXT_TOKENS
    always_include: Iterable[str] = ()
    exclude: Iterable[str] = ()
    servers: Iterable[str] | None = None
    categories: Iterable[str] | None = None
    tags: Iterable[str] | None = None
    read_only: bool | None = None
    diverse: bool = False
    debug: bool = False

    def __post_init__(self) -> None:
        _whole("limit", self.limit, MAX_LIMIT)
        _whole("context_messages", self.context_messages, 1_000)
        _whole("max_context_tokens", self.max_context_tokens, 100_000)
        if self.min_score is not None and not 0 <= self.min_score <= 1:
            raise InvalidQuery(f"min_score is {self.min_score!r}; it is a probability from 0 to 1, or None.")
        for name in ("always_include", "exclude", "servers", "categories", "tags"):
            object.__setattr__(self, name, _names(name, getattr(self, name)))


def _whole(name: str, value: Any, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InvalidQuery(f"{name} is {value!r}; it is a whole number from 1 to {most:,}.")


def _names(option: str, value: Any) -> tuple[str, ...] | None:
    if value is None or isinstance(value, str):
        return None if value is None else (value,)
    try:
        names = tuple(value)
    except TypeError:
        raise InvalidInput(f"{option} must be a list of names, not {value!r}.") from None
    if not all(isinstance(name, str) for name in names):
        raise InvalidInput(f"{option} must be a list of names, not {value!r}.")
    return tuple(dict.fromkeys(names))
