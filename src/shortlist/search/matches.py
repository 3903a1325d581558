"""What answers the terms of a query: where each stands in the catalog, and what that is worth to a tool."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shortlist.index.lexical import NAME_BIT, SERVER_BIT, LexicalIndex, Postings
from shortlist.models import Scores
from shortlist.text.queries import QueryTerm

Rows: TypeAlias = NDArray[np.int64]
Lines: TypeAlias = NDArray[np.float32]

SCORE_AND_GAINS = 5
"""What a match is worth to a row: its score, and how telling it is, if it stands there at all, in the name, in the
server's name; and, between these two, what part of the name it is."""
FEW_ROWS = 2_000
"""In a catalog of no more, a match has a column for every row: adding up is faster than gathering."""


class Match(NamedTuple):
    """What answers one term: the rows that have it or what may stand for it, by the best that each has."""

    rows: Rows | None
    """None where every row has a column."""
    worth: Lines
    """A column for each row."""
    telling: float
    """How much it tells that this was asked: its idf, by its weight in the query."""
    meant: str = ""
    """The likeliest spelling of a word that the catalog does not have."""

    @classmethod
    def of(cls, index: LexicalIndex, asked: QueryTerm, stand_ins: Sequence[tuple[str, float]]) -> "Match":
        telling = asked.weight * index.idf(asked.term)
        if not stand_ins:
            return NO_MATCH._replace(telling=telling)
        found = [index.postings(term) for term, _ in stand_ins]
        each = [
            _worth(postings, weight * index.idf(term), weight / asked.weight)
            for postings, (term, weight) in zip(found, stand_ins, strict=True)
        ]
        rows, (scores, anywhere, name, server) = _best([postings.rows for postings in found], each)
        part_of_name = name / index.name_sizes[rows]
        worth = np.array([scores, telling * anywhere, telling * name, part_of_name, telling * server], np.float32)
        likeliest = stand_ins[0][0]
        meant = "" if asked.instead or likeliest == asked.term else likeliest
        if index.size > FEW_ROWS:
            return cls(rows, worth, telling, meant)
        return cls(None, _in_every_row(rows, worth, index.size), telling, meant)


NO_MATCH = Match(np.empty(0, np.int64), np.empty((SCORE_AND_GAINS, 0), np.float32), 0.0)


class Matches(NamedTuple):
    """The matches of all terms of a query: added up in a small catalog, else one after the other."""

    rows: Rows | None
    """None where every row has a column, and all that was found is added up in it."""
    worth: Lines
    telling: float
    unknown: float
    """The share of the terms, by weight, that nothing answers."""
    respelled: Mapping[str, str]
    """What the words that the catalog does not have are likely to be."""

    @classmethod
    def of(cls, terms: Sequence[QueryTerm], matches: Sequence[Match]) -> "Matches":
        if not terms:
            return UNREAD._replace(unknown=1.0)
        found: list[Match] = []
        respelled: dict[str, str] = {}
        telling = asked = unanswered = 0.0
        for (term, weight, _), match in zip(terms, matches, strict=True):
            telling += match.telling
            asked += weight
            if match.worth.size:
                found.append(match)
            else:
                unanswered += weight
            if match.meant:
                respelled[term] = match.meant
        return cls(*_together(found), telling, unanswered / asked, respelled)

    def scores(self, size: int) -> Scores:
        """Give the score of every row."""
        added: Scores = self.worth[0]
        if self.rows is None:
            return added
        scores = np.zeros(size, np.float32)
        np.add.at(scores, self.rows, added)
        return scores

    def gains(self, rows: Rows, size: int) -> Lines:
        """Give what each of some rows gains, a column a row."""
        if self.rows is None:
            return self.worth[1:, rows]
        place = np.full(size, -1)
        place[rows] = np.arange(len(rows))
        at = place[self.rows]
        (here,) = (at >= 0).nonzero()
        gains = SCORE_AND_GAINS - 1
        cells = at[here] + len(rows) * np.arange(gains)[:, None]
        summed = np.bincount(cells.ravel(), self.worth[1:, here].ravel(), gains * len(rows))
        return summed.astype(np.float32).reshape(gains, len(rows))


UNREAD = Matches(NO_MATCH.rows, NO_MATCH.worth, 0.0, 0.0, {})
"""Stands for a query whose words nobody looked at: an ablation, or a search by meaning alone."""


def _together(matches: Sequence[Match]) -> tuple[Rows | None, Lines]:
    if not matches:
        return NO_MATCH.rows, NO_MATCH.worth
    if matches[0].rows is not None:
        return np.concatenate([m.rows for m in matches]), np.concatenate([m.worth for m in matches], axis=1)
    worth = matches[0].worth.copy()
    for match in matches[1:]:
        worth += match.worth
    return None, worth


def _in_every_row(rows: Rows, worth: Lines, size: int) -> Lines:
    every = np.zeros((len(worth), size), np.float32)
    every[:, rows] = worth
    return every


def _worth(postings: Postings, weight: float, share: float) -> NDArray[np.float32]:
    """Give each row's score, and the share of what was asked that it has, has in its name, has in its server's."""
    anywhere = np.full(len(postings.rows), share, np.float32)
    named = [anywhere * ((postings.fields & bit) > 0) for bit in (NAME_BIT, SERVER_BIT)]
    return np.array([np.float32(weight) * postings.weights, anywhere, *named], np.float32)


def _best(
    rows: list[NDArray[np.int64]], worth: list[NDArray[np.float32]]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Keep the best that each row has."""
    if len(rows) == 1:
        return rows[0], worth[0]
    every, at = np.unique(np.concatenate(rows), return_inverse=True)
    best = np.zeros((len(worth[0]), len(every)), np.float32)
    for kept, offered in zip(best, np.concatenate(worth, axis=1), strict=True):
        np.maximum.at(kept, at, offered)
    return every, best
