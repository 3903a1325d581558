"""Offers of the same tool: near-duplicates shown as one hit, how copies take part, tools that others replace."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from shortlist.index.index import Index
from shortlist.index.lexical import FieldFilter
from shortlist.index.ports import Among
from shortlist.models import Filters, Query, Tool
from shortlist.search.lookalikes import ToldTool, told
from shortlist.search.pipeline import LEARNED, Ranking, Request, reordered, spelled_rows
from shortlist.text.documents import FIELDS, MAX_DESCRIPTION_CHARS, Field
from shortlist.text.tokens import ACTIONS, THINGS, compact, plain_letters, same_name, sentences, spelling, stem, terms

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
COMPARED, MAX_COMPARED = 12, 120
"""The number of first hits among which lookalikes are looked for; more where a server repeats itself, or where others
score nearly as well as the first."""
MAX_REMEMBERED_ROWS, MAX_REMEMBERED_PAIRS = 10_000, 100_000
FAR_LOWER = 2.0
"""An original that scores this much less than its lookalike does not answer the request as well, and stays behind."""
APART = 1e-3
"""The difference between the scores of an original and its lookalike: in a tie, later stages would go by the id."""

DEPRECATED_PENALTY = 2.0
"""The penalty of a deprecated tool: an equally good one that is not deprecated ranks first."""
LOOKED_AT = 20
"""The number of first hits checked for deprecation."""


@dataclass(frozen=True, slots=True)
class ServerOrder:
    """Which servers were known first, and which are configured to be interchangeable."""

    places: Mapping[str, int] = field(default_factory=dict)
    """By server; of equal tools, that with the lower place is the original. A server that is not named is last."""
    groups: Mapping[str, str] | None = None
    """Servers of one group are interchangeable, and one without a group only with itself. None: any two are."""

    def precedence(self, server: str) -> int:
        return self.places.get(server, len(self.places))

    def interchangeable(self, one: str, other: str) -> bool:
        """Return whether the tools of two servers may stand for each other."""
        return self.groups is None or self.groups.get(one, one) == self.groups.get(other, other)


ANY_ORDER = ServerOrder()
"""No tool is the copy of another, and any two servers may stand for each other."""


def _bits(*fields: Field) -> np.uint16:
    return np.uint16(sum(1 << FIELDS.index(field) for field in fields))


NAME_FIELDS = _bits("name")
OWN_FIELDS = FieldFilter(some=_bits("description", "parameters", "parameter_text"), none=NAME_FIELDS)
"""Words of a tool's own text that are not in its name."""


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
        every, fields = index.lexical.fields_of(row)
        own = every[OWN_FIELDS.passing(fields)]
        words = frozenset(own.tolist()), frozenset(every.tolist())
        return cls(tool.server, *spelling(tool.name), *words, sentences_of(tool))

    def has_name_of(self, other: "OfferedTool") -> bool:
        """Return whether the names are the same, one word before or a repetition aside."""
        return same_name((self.spelled, self.parts), (other.spelled, other.parts))

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
        enough = words >= RENAMED_WORDS and common >= RENAMED_SHARE * words
        return enough and bool(original.said) and original.said[0] in self.said


def sentences_of(tool: Tool) -> tuple[str, ...]:
    return tuple(sentences(plain_letters(tool.description[:MAX_DESCRIPTION_CHARS])))


class Families:
    """Shows the best of several near-duplicates on interchangeable servers, and lists the others as its family."""

    def __init__(self, index: Index, order: ServerOrder = ANY_ORDER) -> None:
        self._index = index
        self._order = order

    def __call__(self, request: Request, ranking: Ranking) -> Ranking:
        if not request.query.collapse:
            return ranking
        families = self._families(ranking, request.query.limit)
        kept = np.array([row in families for row in ranking.rows.tolist()], np.bool_)
        return Ranking(ranking.rows[kept], ranking.scores[kept], families)

    def _families(self, ranking: Ranking, limit: int) -> dict[int, list[int]]:
        """Gather rows behind the first of the same tool, until enough different tools are found."""
        heads: dict[int, Tool] = {}
        families: dict[int, list[int]] = {}
        for row in ranking.rows.tolist():
            tool = self._index.tool(row)
            alike = [head for head, shown in heads.items() if self._may_stand_for(shown, tool)]
            head = next((head for head in alike if self._is_same_tool(head, row)), None)
            if head is not None:
                families[head].append(row)
            elif len(heads) >= limit:
                break
            else:
                heads[row], families[row] = tool, []
        return families

    def _may_stand_for(self, shown: Tool, other: Tool) -> bool:
        """Return whether one tool may stand for another by its name and server; most tools are told apart by these."""
        if shown.server == other.server or not self._order.interchangeable(shown.server, other.server):
            return False
        return same_name(spelling(shown.name), spelling(other.name))

    def _is_same_tool(self, row: int, other: int) -> bool:
        return OfferedTool.of(self._index, row).is_same_tool(OfferedTool.of(self._index, other))


@dataclass(frozen=True, slots=True, eq=False)
class Copies:
    """Which rows are copies, and of which rows; ordered by the copies' servers, those known for longer first."""

    rows: NDArray[np.int64]
    originals: NDArray[np.int64]
    names: Mapping[frozenset[str], NDArray[np.int64]]
    """Places of copies by what sets their server's name apart from the original."""

    def __len__(self) -> int:
        return len(self.rows)

    def left_out(self, query: Query, among: Among, index: Index) -> tuple[Among, bool]:
        """Return what may answer without the copies of what may answer, and whether that left out every copy.

        The copies on a server that the query names, or that the caller prefers, stay.
        """
        allowed = np.ones(among.size, np.bool_) if among.rows is None else among.rows
        hidden = allowed[self.originals]
        asked = frozenset(terms(query.text))
        for name, places in self.names.items():
            if name <= asked:
                hidden[places] = False
        for hint in query.preferred:
            if hint.servers is not None and (preferred := index.among(hint).rows) is not None:
                hidden &= ~preferred[self.rows]
        mask = allowed.copy()
        mask[self.rows[hidden]] = False
        return among._replace(rows=mask), not mask[self.rows].any()


NO_COPIES = Copies(np.empty(0, np.int64), np.empty(0, np.int64), {})


class FirstKnown:
    """Ranks a tool before its lookalikes on servers known later, unless something speaks for one of these.

    That is a word of the request that only the lookalike has, not just its server's text; a far better score, unless
    the request spells the name of the original; its server (preferred, or in use in this conversation); or what was
    learned from calls. One of several lookalikes keeps its rank, the others go behind all hits that were compared.
    """

    def __init__(self, index: Index, order: ServerOrder) -> None:
        self._index = index
        self._order = order
        self._compares = bool(order.places) and order.groups is not None and len(index.catalog.servers) > 1
        vocabulary = index.lexical.vocabulary
        self._actions = frozenset(vocabulary[word] for word in map(stem, ACTIONS - THINGS) if word in vocabulary)
        self._told: dict[int, ToldTool] = {}
        self._compared: dict[int, set[int]] = {}
        """By row, the rows that it was compared with."""
        self._originals: dict[int, set[int]] = {}
        """By row, those of them that it looks like."""
        self._pairs = 0

    def __call__(self, request: Request, ranking: Ranking) -> Ranking:
        if not self._compares or len(ranking) < 2:
            return ranking
        rows = self._first_rows(ranking)
        places = {row: self._order.precedence(self._index.tool(row).server) for row in rows}
        alike = {row: found for row in rows if (found := self._originals_of(row, places))}
        if not alike:
            return ranking
        behind = self._behind(alike, request, dict(ranking[: len(rows)]))
        return _first_known_first(ranking, rows, behind) if behind else ranking

    def _first_rows(self, ranking: Ranking) -> list[int]:
        """Return the first rows; what a server offers several times with the same description counts once.

        Those that score nearly as well as the first are among them: lookalikes cannot crowd out their original.
        """
        rows: list[int] = []
        offers: set[tuple[str, str]] = set()
        near = np.count_nonzero(ranking.scores > ranking.scores[0] - FAR_LOWER)
        for place, row in enumerate(ranking.rows[:MAX_COMPARED].tolist()):
            if len(offers) >= COMPARED and place >= near:
                break
            tool = self._index.tool(row)
            rows.append(row)
            offers.add((tool.server, tool.description or tool.name))
        return rows

    def _originals_of(self, row: int, places: Mapping[int, int]) -> set[int]:
        """Return which of the rows that were known before it a row looks like."""
        others = {other for other, place in places.items() if place < places[row]}
        if not others:
            return others
        if self._pairs > MAX_REMEMBERED_PAIRS:
            self._forget()
        compared, found = self._compared.get(row), self._originals.get(row)
        if compared is None or found is None:
            compared, found = self._compared.setdefault(row, {row}), self._originals.setdefault(row, set())
        if fresh := others - compared:
            copy = self._read(row)
            found.update(other for other in fresh if self._looks_like(copy, self._read(other)))
            compared |= fresh
            self._pairs += len(fresh)
        return found & others

    def _forget(self) -> None:
        for remembered in (self._told, self._compared, self._originals):
            remembered.clear()
        self._pairs = 0

    def _looks_like(self, copy: ToldTool, original: ToldTool) -> bool:
        return not self._order.interchangeable(original.server, copy.server) and copy.says(original)

    def _behind(self, alike: Mapping[int, set[int]], request: Request, scores: Mapping[int, float]) -> dict[int, int]:
        """Return the lookalikes that nothing speaks for, each with the original that was known first."""
        asked, chosen, spelled = _asked(request, self._index), self._chosen(request), spelled_rows(self._index, request)
        learned: Mapping[int, float] = request.kept.get(LEARNED, {})
        behind: dict[int, int] = {}
        for row, originals in alike.items():
            if chosen is not None and chosen[row]:
                continue
            as_good = [
                each
                for each in originals
                if (each in spelled or scores[each] > scores[row] - FAR_LOWER)
                and learned.get(each, 0.0) >= learned.get(row, 0.0)
                and not _answers_more(asked, self._read(row).words_beside(self._read(each)), self._read(each).words)
            ]
            if as_good:
                behind[row] = min(as_good, key=lambda each: (self._read(each).place, self._index.ids[each]))
        return behind

    def _chosen(self, request: Request) -> NDArray[np.bool_] | None:
        """Return the rows on servers that the caller prefers, or that a request continues to work with."""
        query = request.query
        hints = [hint for hint in query.preferred if hint.servers is not None]
        if query.relation != "new" and query.recent_servers:
            hints.append(Filters(servers=frozenset(query.recent_servers[:1])))
        masks = [mask for hint in hints if (mask := self._index.among(hint).rows) is not None]
        return np.logical_or.reduce(masks) if masks else None

    def _read(self, row: int) -> ToldTool:
        known = self._told.get(row)
        if known is None:
            if len(self._told) > MAX_REMEMBERED_ROWS:
                self._forget()
            place = self._order.precedence(self._index.facets.servers[row])
            known = self._told[row] = told(self._index, row, place, self._actions)
        return known


def _asked(request: Request, index: Index) -> list[tuple[int | None, tuple[int, ...]]]:
    """Return the number of each term of a request, and those of its alternatives."""
    known = index.lexical.vocabulary.get
    return [
        (known(term), tuple([number for word, _ in instead if (number := known(word)) is not None]))
        for term, _, instead in request.analysed.terms
    ]


def _answers_more(
    asked: Iterable[tuple[int | None, tuple[int, ...]]], one: frozenset[int], other: frozenset[int]
) -> bool:
    """Return whether a tool has a term that another lacks; alternatives count where neither has the term itself."""
    for term, instead in asked:
        if term in one or term in other:
            if term not in other:
                return True
        elif other.isdisjoint(instead) and not one.isdisjoint(instead):
            return True
    return False


def _first_known_first(ranking: Ranking, rows: list[int], behind: Mapping[int, int]) -> Ranking:
    """Put an original before its first lookalike, and further ones behind the others that were compared, or so many.

    An original that moves up gets the score of what it now precedes.
    """
    head: list[int] = []
    last: list[int] = []
    followed: set[int] = set()

    def put(row: int) -> None:
        if row in head or row in last:
            return
        original = behind.get(row)
        if original is not None:
            put(original)
            if original in followed or original in last:
                last.append(row)
                return
            followed.add(original)
        head.append(row)

    for row in rows:
        put(row)
    others = ranking.rows[len(rows) :].tolist()
    filled = [*head, *others[: max(COMPARED - len(head), 0)], *last]
    order = [*filled, *others[len(filled) - len(rows) :]]
    score = dict(ranking)
    best = np.maximum.accumulate([score[row] for row in reversed(head)])[::-1]
    scores = np.array([*best, *(score[row] for row in order[len(head) :])], ranking.scores.dtype)
    for place in range(1, len(filled)):
        scores[place] = min(scores[place], scores[place - 1] - APART)
    return Ranking(np.array(order, ranking.rows.dtype), np.minimum.accumulate(scores), ranking.families)


class CopyOfFirst:
    """Shows one copy of the first hit behind it, so that others fall by one rank at most."""

    def __init__(self, index: Index, copies: Copies) -> None:
        self._index = index
        self._copies = copies

    def __call__(self, request: Request, ranking: Ranking) -> Ranking:
        if not len(self._copies) or not len(ranking):
            return ranking
        allowed = self._index.among(request.query.filters).rows
        first = int(ranking.rows[0])
        (places,) = np.isin(self._copies.originals, [first, *ranking.families.get(first, ())]).nonzero()
        found = [row for row in self._copies.rows[places].tolist() if allowed is None or allowed[row]]
        if not found or found[0] in ranking.rows:
            return ranking
        rows, scores = np.insert(ranking.rows, 1, found[0]), np.insert(ranking.scores, 1, ranking.scores[0])
        families = {**ranking.families, found[0]: ()} if ranking.families else ranking.families
        return Ranking(rows, scores, families)


class Deprecated:
    """Ranks a tool that says it is deprecated behind others that do the same, and behind the one it names instead.

    A server speaks of its own tools alone: what it says moves no tool of another server.
    """

    def __init__(self, index: Index) -> None:
        self._index = index

    def __call__(self, _: Request, ranking: Ranking) -> Ranking:
        return self.behind_successors(ranking)

    def behind_successors(self, ranking: Ranking) -> Ranking:
        deprecated = self._index.facets.deprecated
        first = ranking.rows[:LOOKED_AT].tolist()
        old: dict[int, str] = {row: named for row in first if (named := deprecated[row]) is not None}
        if not old:
            return ranking
        scores = ranking.scores.copy()
        place = {row: at for at, row in enumerate(ranking.rows.tolist())}
        for row, named in old.items():
            scores[place[row]] -= DEPRECATED_PENALTY
            successors = (other for other in self._successors(row, named) if other in place and other not in old)
            behind = [float(scores[place[other]]) - 0.01 for other in successors]
            scores[place[row]] = min([float(scores[place[row]]), *behind])
        return reordered(ranking, scores, self._index)

    def _successors(self, row: int, named: str) -> list[int]:
        """Return the tools of this name that the same server offers."""
        servers = self._index.facets.servers
        rows = self._index.names.get(compact(named)) if named else ()
        return [other for other in rows if servers[other] == servers[row]]
