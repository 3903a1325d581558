"""Offers of the same tool: whether two rows are one, and families of near-duplicates shown as one hit."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from shortlist.index.index import Index
from shortlist.models import Ranking
from shortlist.search.pipeline import Request
from shortlist.text.documents import FIELDS, Field, sentences
from shortlist.text.tokens import compact, split_identifier

SAME_TOOL_OVERLAP = 0.6
"""Equal names and this share of equal terms: one tool offered by several servers."""
COPIED_SHARE = 0.75
"""Of the words that an original has beside its name, a copy with the same name has this share."""
MANY_WORDS = 6
"""With fewer words of its own, an original is recognised only where its description is repeated word by word."""
RENAMED_SHARE = 0.9
"""A copy under another name has the first sentence of the original, and this share of its words."""
RENAMED_WORDS = 3
"""Shorter originals have too few words to be recognised under another name."""
REMEMBERED_NAMES = 10_000
"""Many servers offer tools of the same few names, and the same tools are found again and again."""

Interchangeable: TypeAlias = Callable[[str, str], bool]
"""Whether the tools of two servers may stand for each other."""


def always_interchangeable(_: str, __: str) -> bool:
    """Return that any two servers may stand for each other, where a caller asks for families."""
    return True


def _bits(*fields: Field) -> np.uint16:
    return np.uint16(sum(1 << FIELDS.index(field) for field in fields))


_NAME = _bits("name")
_OWN = _bits("description", "parameters", "parameter_text")


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """What shows whether two rows offer the same tool."""

    server: str
    spelled: str
    parts: tuple[str, ...]
    own: frozenset[int]
    """The words of its description and parameters that are not in its name."""
    every: frozenset[int]
    said: tuple[str, ...]
    """The sentences of its description."""

    @classmethod
    def of(cls, index: Index, row: int) -> "OfferedTool":
        tool = index.tool(row)
        said = tuple(sentences(tool.description))
        terms, fields = index.lexical.fields_of(row)
        own = terms[((fields & _OWN) > 0) & ((fields & _NAME) == 0)]
        return cls(tool.server, *spelling(tool.name), frozenset(own.tolist()), frozenset(terms.tolist()), said)

    def has_name_of(self, other: "OfferedTool") -> bool:
        """Return whether the names are the same, one word before or a repetition aside."""
        if said_once(self.spelled) == said_once(other.spelled):
            return True
        left, right = self.parts, other.parts
        return len(left) > 1 and len(right) > 1 and (left[1:] == right or right[1:] == left)

    def is_same_tool(self, other: "OfferedTool") -> bool:
        """Return whether two servers offer the same tool, judged by what both have in common."""
        if self.server == other.server or not self.has_name_of(other):
            return False
        return len(self.every & other.every) >= SAME_TOOL_OVERLAP * min(len(self.every), len(other.every))

    def copies(self, original: "OfferedTool") -> bool:
        """Return whether this is the original under the same or another name, whatever was added to it."""
        if self.server == original.server:
            return False
        words, common = len(original.own), len(original.own & self.every)
        if self.has_name_of(original):
            told = words >= MANY_WORDS or (bool(original.said) and set(original.said) <= set(self.said))
            return told and common >= COPIED_SHARE * words
        return words >= RENAMED_WORDS and common >= RENAMED_SHARE * words and set(original.said[:1]) <= set(self.said)


@lru_cache(maxsize=REMEMBERED_NAMES)
def spelling(name: str) -> tuple[str, tuple[str, ...]]:
    return compact(name), tuple(split_identifier(name))


@lru_cache(maxsize=REMEMBERED_NAMES)
def said_once(spelled: str) -> str:
    """Return a name that repeats itself only once: `sendsend` is `send`."""
    period = (spelled + spelled).find(spelled, 1)
    return spelled[:period]


class Families:
    """Shows the best of several near-duplicates on interchangeable servers, and lists the others as its family."""

    def __init__(self, index: Index, interchangeable: Interchangeable = always_interchangeable) -> None:
        self._index = index
        self._interchangeable = interchangeable

    def __call__(self, request: Request, ranking: Ranking) -> Ranking:
        if not request.query.collapse:
            return ranking
        families = self._families(ranking, request.query.limit)
        kept = np.isin(ranking.rows, list(families))
        return Ranking(ranking.rows[kept], ranking.scores[kept], families)

    def _families(self, ranking: Ranking, limit: int) -> dict[int, list[int]]:
        """Gather rows behind the first of the same tool, until enough different tools are found."""
        heads: dict[int, OfferedTool] = {}
        families: dict[int, list[int]] = {}
        for row in ranking.rows.tolist():
            offer = OfferedTool.of(self._index, row)
            head = next((head for head, shown in heads.items() if self._stands_for(shown, offer)), None)
            if head is not None:
                families[head].append(row)
            elif len(heads) >= limit:
                break
            else:
                heads[row], families[row] = offer, []
        return families

    def _stands_for(self, shown: OfferedTool, other: OfferedTool) -> bool:
        return self._interchangeable(shown.server, other.server) and shown.is_same_tool(other)
