"""Judges an answer again: by the head of a request that got `none`, or by the action that its first tool lacks."""

import math
from typing import TypeAlias

import numpy as np

from shortlist.index.index import Index
from shortlist.index.lexical import StandIns
from shortlist.index.postings import NAME_BIT, SERVER_BIT
from shortlist.models import Confidence, Hit, Level, Query
from shortlist.search.fusion import LOW, MEDIUM, MEDIUM_AT_MOST, NONE_AT_MOST, PASTED_AT_MOST
from shortlist.search.pipeline import Request
from shortlist.text.conversation import refers
from shortlist.text.documents import FIELDS
from shortlist.text.heads import (
    CHANGES,
    PLAIN_ACTIONS,
    RequestHead,
    alike_actions,
    head_of,
    head_of_gloss,
    is_name,
    opposed_action,
    plain_action,
    tells,
)
from shortlist.text.queries import MOST_CHARS, analyse_ask, clauses
from shortlist.text.tokens import stem, terms

LACKING = "it does not say that it can"
OPEN, MENTIONED = 0.3, 0.2
"""A request is searched by its head if a match is this likely at least and if one of the first tools mentions this part
of the head: one in thirteen training requests with a head, 4 of the 6 that become right and 7 of the 15 that become
wrong."""
OPEN_NAME = 0.02
"""… or this likely if only first names, places and languages are left out."""
OPEN_MESSAGE = 0.15
"""… and this likely if it is to tell somebody something: what is told is never what a tool is described by."""
NEAR = 3
"""Among how many of the first hits the first one for the head of a request must be."""
UNMATCHED_ACTION = 0.1
"""The odds of a match, relative to other requests, where the first tool does not say what the verb says: on training
requests over small sets of servers, 0.2 % of the right first hits and 2 % of the hits for requests without a tool."""
OPPOSED_ACTION = 0.02
"""… where the first tool is named for something else than a change that is asked for: 0.9 % of the right tools of
training requests, and 39 % of the first hits for short requests whose tool was taken out of its server."""
THERE_AT_MOST = 0.95
"""The most that a match counts for then: what sees a product and its things rarely saw one without the tool for it."""
JUDGED_ACTIONS = PLAIN_ACTIONS | CHANGES
"""The verbs that the first tool is compared with; without one of them there is nothing to compare."""
FOLLOWS = ("continues", "repeats", "accepts", "fills", "corrects")
"""The relations to the call before in which a tool of the same server is hardly ever no match."""
FOLLOWED, REFERRED = 0.25, 0.15
"""How likely a match must be for that, and for a request with a pronoun for the thing called for. Of 14 unservable
changes of the topic after calls of a catalog none passes; of 51 training and development follow-ups without an answer
31 pass FOLLOWED alone, 17 of them with the right tool first."""
Judged: TypeAlias = tuple[tuple[Hit, ...], Confidence]
NAMING = NAME_BIT | SERVER_BIT
_SAID = np.uint16(sum(1 << FIELDS.index(field) for field in ("name", "title", "description")))


def heads_in(request: Request, index: Index, stand_ins: StandIns, whole: Judged) -> tuple[RequestHead, ...]:
    """Return what a request without an answer is judged by again: the parts of a long one, the head of another."""
    if len(request.analysed.text) > MOST_CHARS and not request.analysed.is_glossed:
        return tuple(map(RequestHead, clauses(request.analysed.text)))
    head = _head_in(request, index, stand_ins, whole)
    return () if head is None else (head,)


def _head_in(request: Request, index: Index, stand_ins: StandIns, whole: Judged) -> RequestHead | None:
    """Return a request without the names and the message that no tool of a catalog mentions.

    None if it has none, or if none of the first hits mentions enough of the rest to be sure of.
    """
    hits, confidence = whole
    if confidence.match_probability < OPEN_NAME:
        return None
    analysed = request.analysed
    open_from = OPEN_MESSAGE if tells(analysed.text) else OPEN

    def is_known(word: str) -> bool:
        """Return whether a tool mentions a word; a place or a language only if a tool or server is named so."""
        if is_name(word):
            return any(bool((index.lexical.postings(term).fields & NAMING).any()) for term in terms(word))
        return any(map(index.lexical.frequency, terms(word)))

    if analysed.reading is not None and analysed.is_glossed:
        is_open = confidence.match_probability >= open_from
        return head_of_gloss(analysed.text, analysed.reading.units) if is_open else None
    head = head_of(analysed.text, is_known)
    if head is None or confidence.match_probability < (OPEN_NAME if head.is_whole else open_from):
        return None
    found = index.lexical.match(analyse_ask(head.text).terms, stand_ins)
    rows = np.array([index.rows[hit.tool.id] for hit in hits[:NEAR]])
    mentioned, *_ = found.gains(rows, index.lexical.size)
    return head if float(mentioned.max()) >= MENTIONED * found.telling else None


def by_head(whole: Judged, of_head: Judged, none_below: float, *, is_whole: bool = False) -> Judged:
    """Judge an answer `none` again, also by the hits for a head or part of its request and the confidence in them.

    The odds are the geometric mean of both, if the head surely finds the same tool first, or one near it, which then
    comes first. Where the head asks for the same as the whole, the odds are those of the head, and the first tool stays
    if it does what is asked: "the temperature in Quito" is not that of a room.
    """
    (hits, confidence), (found, head) = whole, of_head
    near = [hit.tool.id for hit in hits[:NEAR]]
    if head.level not in ("high", "medium") or (meant := found[0].tool.id) not in near:
        return whole
    present = head.match_probability if is_whole else _between(confidence.match_probability, head.match_probability)
    most = MEDIUM_AT_MOST if meant == near[0] else PASTED_AT_MOST
    right = min(head.probability * present / head.match_probability, most)
    if present < none_below or right < LOW:
        return whole
    reasons = (*head.reasons, "judged by a part of the request")
    stays = meant == near[0] or (is_whole and not any(reason.startswith(LACKING) for reason in confidence.reasons))
    return hits if stays else found, _judged(right, present, reasons)


def following(query: Query, judged: Judged) -> Judged:
    """Raise `none` to `low` for a request that goes on with the server called last, and finds a tool of it first."""
    hits, confidence = judged
    is_followed = query.relation in FOLLOWS and hits[0].tool.server in query.recent_servers[:1]
    if confidence.level != "none" or not is_followed:
        return judged
    if confidence.match_probability < (REFERRED if refers(query.text) else FOLLOWED):
        return judged
    reasons = (*confidence.reasons, f"the request goes on with {query.recent_servers[0]!r}")
    return hits, _judged(max(confidence.probability, FOLLOWED), confidence.match_probability, reasons)


def without_action(confidence: Confidence, request: Request, index: Index, row: int, none_below: float) -> Confidence:
    """Lower the confidence in a tool that says nothing of the action that a request begins with, or does another."""
    if not confidence.match_probability:
        return confidence
    odds, there = OPPOSED_ACTION, min(confidence.match_probability, THERE_AT_MOST)
    action = opposed_action(request.analysed.text, index.tool(row).name)
    if action is None:
        odds, there, action = UNMATCHED_ACTION, confidence.match_probability, plain_action(request.analysed.text)
        if action is None or _does(index, row, action):
            return confidence
    present = there * odds / (there * odds + 1 - there)
    right = min(confidence.probability * present / confidence.match_probability, MEDIUM_AT_MOST)
    is_none = confidence.level == "none" or present < none_below
    return _judged(right, present, (*confidence.reasons, f"{LACKING} {action}"), is_none=is_none)


def _judged(right: float, present: float, reasons: tuple[str, ...], *, is_none: bool = False) -> Confidence:
    """State a chance that is at most medium, with the level that it belongs to."""
    right = min(right, NONE_AT_MOST) if is_none else max(right, LOW)
    level: Level = "none" if is_none else "medium" if right >= MEDIUM else "low"
    return Confidence(level=level, probability=right, match_probability=max(right, present), reasons=reasons)


def _does(index: Index, row: int, action: str) -> bool:
    numbers, fields = index.lexical.fields_of(row)
    said, known = frozenset(numbers[(fields & _SAID) > 0].tolist()), index.lexical.vocabulary
    return any(known[term] in said for term in alike_actions(stem(action)) if term in known)


def _between(one: float, other: float) -> float:
    """Return the chance whose odds are the geometric mean of those of two chances."""
    against = math.sqrt((1 - one) * (1 - other))
    return (both := math.sqrt(one * other)) / max(both + against, 1e-9)
