"""Whether a tool that is new to a server is one of its known tools under another name, or resembles one.

What a server changes beside the name must not hide that it is the same tool: else a change that would be held is
served under a new name.
"""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

from shortlist.text.tokens import compact, terms

FEW_TOOLS = 20
"""As many tools are compared one by one; with more, an index of all definitions is made first."""
TELLING_WORDS = 3
"""A description of fewer words is that of many tools."""
SHARED = 0.8
"""The share of the words of a tool that is gone which make a new tool the same."""
COMMON = 200
"""A word of more tools that are gone does not say which one it is."""
MOST_COMPARED = 20
MAX_DESCRIPTION = 4_000


class KnownTool(Protocol):
    """The definition of a tool; `text` is its canonical JSON."""

    @property
    def name(self) -> str: ...

    @property
    def text(self) -> str: ...

    @property
    def value(self) -> Any: ...


T = TypeVar("T", bound=KnownTool)


class KnownTools(Generic[T]):
    """The accepted tools of a server, with which the new ones of one listing are compared."""

    def __init__(self, accepted: Collection[T], names: Collection[str]) -> None:
        self._accepted, self._names = accepted, names
        self._compared = 0
        self._by_body: dict[bytes, T] = {}

    def same_as(self, entry: T) -> T | None:
        """Return the known tool that a new one equals but for its name, else one that it resembles."""
        return self._with_body_of(entry) or self._spelled_like(entry) or self._gone_like(entry)

    def is_listed(self, entry: T) -> bool:
        return entry.name in self._names

    def _with_body_of(self, entry: T) -> T | None:
        if not self._by_body:
            # What comes before the first name, be it the tool's or that of a parameter, is the same in a twin.
            start = entry.text.partition('"name":')[0]
            alike = [each for each in self._accepted if each.text.startswith(start)]
            self._compared += 1 + len(alike)
            if self._compared > FEW_TOOLS:
                self._by_body = {_body(each): each for each in self._accepted}
            else:
                return next((each for each in alike if _body(each) == _body(entry)), None)
        return self._by_body.get(_body(entry))

    def _spelled_like(self, entry: T) -> T | None:
        """Return a tool of the same name, or of the same description and parameters, in another spelling."""
        if found := self._by_name.get(compact(entry.name)):
            return found
        return self._by_text.get(_text(entry)) if len(_words(entry)) >= TELLING_WORDS else None

    def _gone_like(self, entry: T) -> T | None:
        """Return the tool that is no longer listed and nearly all of whose words a new one has."""
        words, (gone, by_word) = _words(entry), self._gone
        shared = Counter(place for word in words for place in by_word.get(word, ()))
        nearest = (gone[place] for place, _ in shared.most_common(MOST_COMPARED))
        return next((each for each, said in nearest if len(said & words) >= SHARED * len(said)), None)

    @cached_property
    def _by_name(self) -> Mapping[str, T]:
        return {compact(each.name): each for each in self._accepted}

    @cached_property
    def _by_text(self) -> Mapping[tuple[str, frozenset[str]], T]:
        return {_text(each): each for each in self._accepted}

    @cached_property
    def _gone(self) -> tuple[list[tuple[T, frozenset[str]]], Mapping[str, list[int]]]:
        """Return the tools that are no longer listed, one of each text, and their places by their words."""
        told = {_words(each): each for each in self._accepted if not self.is_listed(each)}
        gone = [(each, said) for said, each in told.items() if len(said) >= TELLING_WORDS]
        by_word: defaultdict[str, list[int]] = defaultdict(list)
        for place, (_, said) in enumerate(gone):
            for word in said:
                by_word[word].append(place)
        return gone, {word: places for word, places in by_word.items() if len(places) <= COMMON}


def _body(entry: KnownTool) -> bytes:
    """Return a hash of everything that a tool is but its name."""
    rest = {key: value for key, value in entry.value.items() if key not in ("name", "title")}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).digest()


def _text(entry: KnownTool) -> tuple[str, frozenset[str]]:
    """Return the description of a tool without white space, punctuation and case, and the names of its parameters."""
    tool = entry.value
    return compact(_description(tool)), _parameters(tool)


def _words(entry: KnownTool) -> frozenset[str]:
    return frozenset(terms(_description(entry.value)))


def _description(tool: Mapping[str, Any]) -> str:
    return str(tool.get("description", ""))[:MAX_DESCRIPTION]


def _parameters(tool: Mapping[str, Any]) -> frozenset[str]:
    schema = tool.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return frozenset(properties) if isinstance(properties, Mapping) else frozenset()
