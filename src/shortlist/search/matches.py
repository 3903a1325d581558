"""What answers the terms of a query: where each stands in the catalog, and what that is worth to a tool."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shortlist.index.lexical import NAME_BIT, SERVER_BIT, LexicalIndex, Postings
from shortlist.models import Scores
from shortlist.text.queries import QueryTerm

GAINS = ("anywhere", "in_name", "name_terms", "in_server")
"""What a row gains by a match: how telling it is, if it stands there at all, in the name, in the server's name; and how
many of the name's terms it is."""


class Match(NamedTuple):
    """What answers one term: the rows that have it or what may stand for it, by the best that each has."""

    rows: NDArray[np.int64]
    scores: Scores
    gains: NDArray[np.float32]
    """A line for each row, of `GAINS`."""
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
        gains = np.array([telling * anywhere, telling * name, name, telling * server], np.float32).T
        likeliest = stand_ins[0][0]
        meant = "" if asked.instead or likeliest == asked.term else likeliest
        kept = scores.copy()  # a part of what was worked out would keep all of it
        return cls(rows, kept, np.ascontiguousarray(gains), telling, meant)


NO_MATCH = Match(np.empty(0, np.int64), np.empty(0, np.float32), np.empty((0, len(GAINS)), np.float32), 0.0)


class Matches(NamedTuple):
    """The matches of all terms of a query, one after the other: few large arrays are read faster than many small."""

    rows: NDArray[np.int64]
    scores: Scores
    gains: NDArray[np.float32]
    telling: float
    unknown: float
    """The share of the terms, by weight, that nothing answers."""
    respelled: Mapping[str, str]
    """What the words that the catalog does not have are likely to be."""

    @classmethod
    def of(cls, terms: Sequence[QueryTerm], matches: Sequence[Match]) -> "Matches":
        if not terms:
            return UNREAD._replace(unknown=1.0)
        rows, scores, gains, telling, _ = zip(*matches, strict=True)
        pairs = list(zip(terms, matches, strict=True))
        return cls(
            np.concatenate(rows),
            np.concatenate(scores),
            np.concatenate(gains),
            sum(telling),
            sum([asked.weight for asked, match in pairs if not len(match.rows)]) / sum([a.weight for a in terms]),
            {asked.term: match.meant for asked, match in pairs if match.meant},
        )


UNREAD = Matches(NO_MATCH.rows, NO_MATCH.scores, NO_MATCH.gains, 0.0, 0.0, {})
"""Stands for a query whose words nobody looked at: an ablation, or a search by meaning alone."""


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
