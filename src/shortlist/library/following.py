"""Ranks tools for the last message of a chat by several readings of the chat at once.

Rules read what the last message asks (`shortlist.text.conversation`), but people say the next step in more ways than
rules know: "off it goes", "biggest first", "we don't work with them any more". So the chat is searched in six ways: as
the rules read it, by the last message alone, by the last answer, by the request before with the message, by the name of
the tool called last with the message, and by one vector of all of these, if the model was trained for that
(`training/chat_encoder.py`). A linear model weighs what each makes of a tool, and whether the tool or its server was
called before. Its weights depend on signs of the message: how long it is, whether it has a pronoun, how sure the
message alone is of its tool. `training/fit_chats.py` fits them on written chats.
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shortlist.errors import ModelError
from shortlist.library.choosing import CHAT_DEPTH, as_read, named_servers
from shortlist.library.messages import Context
from shortlist.models import Confidence, Hit, Level, Query, SearchResult, ToolId
from shortlist.search.fitted import FOLDER
from shortlist.search.fusion import HIGH, LOW, MEDIUM, MEDIUM_AT_MOST, with_other_words
from shortlist.text.conversation import FEW_WORDS, SAID_CHARS
from shortlist.text.languages.reading import glossed
from shortlist.text.tokens import ACTIONS, split_identifier, terms, words

SearchAll: TypeAlias = Callable[[Sequence[Query], Query], tuple[Sequence[SearchResult], SearchResult | None]]
"""Searches for queries, and for the tools nearest to the text of a whole chat, if the model reads one."""
Numbers: TypeAlias = NDArray[np.float64]

WEIGHTS = FOLDER / "chats.json"
NOT_FOUND = -10.0
"""The logarithm of the share of a tool that a reading does not find, and the least that one has."""
NO_SHARE = 1e-3
"""Added to the share of a server before its logarithm is taken."""
REQUEST_CHARS, ANSWER_CHARS = 240, 300
"""How much is read of the request before, from its beginning, and of the last answer, from its end."""
WHOLE_MESSAGE, WHOLE_REQUEST, WHOLE_ANSWER, WHOLE_CALLS = 300, 200, 300, 3
"""How much of each the text of the whole chat has: characters, and tools called last."""
MARK = "[SEP]"
PART = f" {MARK} "
"""What the encoder was trained to find between the parts of that text."""
THERE = 0.8
"""How likely it must be that there is a tool at all, where the rules find none; else the answer is `none`."""
AT_MOST: Mapping[Level, float] = {"none": 0.39, "low": MEDIUM_AT_MOST}
"""The most that a tool is likely by the level of the rules."""
FEW_TOOLS = 5
"""With fewer tools to choose from their shares say little, and the level of the rules stays."""
CERTAIN = 0.85
"""How likely the first tool must be for high confidence."""

ASKED, MESSAGE, ANSWER, REQUEST, CALL, WHOLE = "asked", "message", "answer", "request", "call", "whole"
READINGS = (ASKED, MESSAGE, ANSWER, REQUEST, CALL, WHOLE)
WITH_WHOLE, WITHOUT_WHOLE = "with the whole chat", "without it"
OF_SERVERS = (ASKED, MESSAGE, ANSWER, REQUEST, WHOLE)
"""The readings whose tools also speak for the other tools of their servers."""
FEATURES = (
    *READINGS,
    *(f"{reading}, server" for reading in OF_SERVERS),
    "server called last",
    "server called before",
    "tool called last",
    "tool called before",
    "same things as the tool called last",
    "server named",
)
SIGNS = (
    "any",
    "at most 3 words",
    "at most 6 words",
    "more than 12 words",
    "message finds a tool",
    "catalog has a tool",
    "rules find a tool",
    "tools were called",
    "may stand alone",
    "asks a question",
    "was asked a question",
    "takes back",
    "names a server",
    "message finds the server called last",
    "message is sure",
    "message finds the server called last first",
    "repeats words",
    "points back",
    "changes the topic",
    "opens as a reply",
    "different words",
    "whole chat is sure",
)

_TAKES_BACK = re.compile(
    r"\b(?:undo|revert|reverse|roll(?:ed)? ?back|put (?:it|that|them|him|her|everything) back"
    r"|back (?:to|how|the way|where|as)|take (?:it|that) back|as it was|like (?:it was )?before"
    r"|un(?!der|i|known|less|read|til)\w+|never ?mind|scrap|cancel|changed my mind|oops|whoops)\b",
    re.IGNORECASE,
)
_POINTS_BACK = re.compile(
    r"\b(?:its?|that|this|them|they|these|those|there|him|her|his|he|she|both|ones?|other|rest|same|again|instead|too"
    r"|as well)\b",
    re.IGNORECASE,
)
_CHANGES_TOPIC = re.compile(
    r"\b(?:by the way|btw|different|another (?:thing|topic|question)|something else|unrelated|separate(?:ly)?"
    r"|while (?:you['’]?re|i have)|before i forget|changing (?:topic|subject)|anyway|anyhow"
    r"|new (?:topic|question|thing)|switching|meanwhile|off topic|side note|quick (?:one|q|question))\b",
    re.IGNORECASE,
)
_REPLY = re.compile(
    r"^\W*(?:and|also|or|but|ok|okay|then|now|so|great|perfect|thanks|nice|good|cool|no|nope|nah|wait|actually|hmm?|yes"
    r"|yep|yeah|sure|oh|ah|ugh|not|sorry)\b",
    re.IGNORECASE,
)


class ChatEvidence(NamedTuple):
    """What is known of the tools that any reading of a chat finds, and of the chat itself."""

    ids: tuple[ToolId, ...]
    tools: Numbers
    """By tool, in the order of the ids, and by FEATURES."""
    signs: Numbers


@dataclass(frozen=True, slots=True)
class ChatWeights:
    """The fitted weight of each feature for each sign, and of each sign for that there is no tool."""

    by_sign: Numbers
    no_tool: Numbers

    def scores(self, evidence: ChatEvidence) -> Numbers:
        """Return the scores of the tools: logarithms of their shares, up to a constant."""
        found: Numbers = evidence.tools @ (evidence.signs @ self.by_sign)
        return found

    def there(self, evidence: ChatEvidence) -> float:
        """Return how likely there is a tool at all, by the signs alone: scores depend on the size of a catalog."""
        return 1 / (1 + math.exp(float(evidence.signs @ self.no_tool)))


@cache
def chat_weights(*, whole: bool) -> ChatWeights:
    """Return the weights that were fitted with a vector of the whole chat, or those without."""
    try:
        raw = json.loads(WEIGHTS.read_text("utf-8"))
        if (tuple(raw["features"]), tuple(raw["signs"])) != (FEATURES, SIGNS):
            raise ValueError("it was fitted for other features")
        fitted = raw[WITH_WHOLE if whole else WITHOUT_WHOLE]
        by_sign = np.array(fitted["weights"], np.float64).reshape(len(SIGNS), len(FEATURES))
        return ChatWeights(by_sign, np.array(fitted["no tool"], np.float64).reshape(len(SIGNS)))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{str(WEIGHTS)!r} cannot be used ({error}); reinstall, or fit it again.") from None


def follows_a_chat(context: Context, found: SearchResult) -> bool:
    """Return whether the turns before are to be read, too.

    They are not if the last message has a paste or several wishes, corrects where to look ("no, gitlab please"), says
    enough to find a tool with medium confidence, or is sure of one and names its server or accepts an offer.
    """
    if not (context.said or context.request) or context.pasted or found.wishes or found.query.diverse or not found.hits:
        return False
    relation, level, first = found.query.relation, found.confidence.level, found.hits[0].tool.server
    is_named = bool(named_servers(context.message, [first]))
    if level == "high":
        return not (is_named or relation == "accepts")
    if level == "medium" and _says_enough(context, found):
        return False
    return relation != "corrects" or not is_named


def _says_enough(context: Context, found: SearchResult) -> bool:
    """Return whether the last message may be a request of its own, by its length."""
    return found.query.relation == "new" and len(terms(context.message)) > FEW_WORDS


def ranked_by_chat(found: SearchResult, context: Context, search: SearchAll) -> SearchResult:
    """Rank what all readings of a chat find; `found` is the answer to the reading by rules.

    A message that says enough and is sure of its tool keeps it, and stays sure if the chat agrees. A few words that are
    sure of a tool elsewhere may mean another: after a list of GitLab issues, "close issue 4" is not about incidents.
    """
    results = readings(found, context, search)
    if found.confidence.level == "high" and WHOLE not in results:
        return found  # without the vector of the chat, the other readings know less than the message
    evidence, weights = chat_evidence(results, context), chat_weights(whole=WHOLE in results)
    scores = weights.scores(evidence)
    order = sorted(range(len(scores)), key=lambda at: (-scores[at], evidence.ids[at]))[: found.query.limit]
    known: dict[ToolId, Hit] = {}
    for result in results.values():
        for hit in result.hits:
            known.setdefault(hit.tool.id, hit)
    hits = tuple(
        known[evidence.ids[at]]._replace(score=float(scores[at]), rank=rank) for rank, at in enumerate(order, 1)
    )
    is_same = hits[0].tool.id == found.hits[0].tool.id
    is_own = found.confidence.level == "high" and _says_enough(context, found)
    if not is_same:
        found = replace(found, confidence=with_other_words(found.confidence))
    if is_own:
        return found
    ranked = replace(found, hits=hits)
    if not terms(_in_english(context.message)):
        return ranked  # "?" may go on with the chat, but is no evidence for a tool
    confidence = _confidence(scores, weights.there(evidence), ranked, is_same=is_same)
    return replace(ranked, confidence=as_read(confidence, ranked, context))


def readings(found: SearchResult, context: Context, search: SearchAll) -> dict[str, SearchResult]:
    """Return the answers to all readings of a chat that find something."""
    others = other_readings(found.query, context)
    results, nearest = search([*others.values()], whole_reading(found.query, context))
    named = {ASKED: found} | dict(zip(others, results, strict=True)) | ({WHOLE: nearest} if nearest is not None else {})
    return {name: result for name, result in named.items() if result.hits}


def other_readings(asked: Query, context: Context) -> dict[str, Query]:
    """Return the queries for a chat as it may be read otherwise than the rules do, without regard to calls."""
    plain = _plain(asked)
    message, request = context.message, context.request[:REQUEST_CHARS]
    texts = {
        MESSAGE: message,
        ANSWER: context.said[-ANSWER_CHARS:],
        REQUEST: f"{request}\n{message}" if request else "",
        CALL: f"{words(_name(asked.recent_tools[0]))}: {message}" if asked.recent_tools else "",
    }
    return {name: replace(plain, text=text) for name, text in texts.items() if text.strip()}


def whole_reading(asked: Query, context: Context) -> Query:
    """Return the query for the vector of the whole chat."""
    return replace(_plain(asked), text=chat_text(context, asked.recent_tools))


def chat_text(context: Context, called: Sequence[ToolId]) -> str:
    """Write a chat as the encoder was trained to read it: message, calls, the request before, the last answer."""
    tools = [
        words(tool.replace("/", " ")) if at == 0 else words(_name(tool))
        for at, tool in enumerate(dict.fromkeys(called[:WHOLE_CALLS]))
    ]
    return PART.join(
        (
            _in_english(context.message).replace(MARK, " ")[:WHOLE_MESSAGE],
            ", ".join(tools),
            _in_english(context.request).replace(MARK, " ")[:WHOLE_REQUEST],
            _in_english(context.said).replace(MARK, " ")[-WHOLE_ANSWER:],
        )
    )


def _in_english(text: str) -> str:
    return glossed(text) or text


def _plain(asked: Query) -> Query:
    """Return a query that does not regard what was called."""
    return replace(asked, relation="new", recent_servers=(), recent_tools=(), diverse=False)


def chat_evidence(results: Mapping[str, SearchResult], context: Context) -> ChatEvidence:
    """Return what the readings of a chat make of each tool, with the signs of its last message."""
    shares = {name: _shares(result) for name, result in results.items()}
    of_servers = {name: _of_servers(shares[name], results[name].hits) for name in OF_SERVERS if name in shares}
    servers = {hit.tool.id: hit.tool.server for result in results.values() for hit in result.hits}
    message, asked = context.message, results[ASKED].query
    named = {*named_servers(message, {*servers.values()})}
    last, *before = asked.recent_tools or ("",)
    last_server = asked.recent_servers[:1]
    things = _things(last)

    def features(tool: ToolId, server: str) -> list[float]:
        is_near = server in last_server
        return [
            *(shares[each].get(tool, NOT_FOUND) if each in shares else -math.log(CHAT_DEPTH) for each in READINGS),
            *(math.log(of_servers.get(each, {}).get(server, 0.0) + NO_SHARE) for each in OF_SERVERS),
            float(is_near),
            float(server in asked.recent_servers[1:]),
            float(tool == last),
            float(tool in before),
            _alike(things, _things(tool)) if is_near and tool != last else 0.0,
            float(server in named),
        ]

    ids = tuple(sorted(servers))
    tools = np.array([features(tool, servers[tool]) for tool in ids], np.float64)
    return ChatEvidence(ids, tools, _signs(results, context, shares, of_servers.get(MESSAGE, {}), named))


def _signs(
    results: Mapping[str, SearchResult],
    context: Context,
    shares: Mapping[str, Mapping[ToolId, float]],
    by_server: Mapping[str, float],
    named: set[str],
) -> Numbers:
    """Describe the last message; what it says is read in English."""
    message, asked, alone = context.message, results[ASKED], results.get(MESSAGE)
    english, count = _in_english(message), len(message.split())
    own, earlier = {*terms(message)}, {*terms(f"{context.request} {context.said[-SAID_CHARS:]}")}
    last_server = next(iter(asked.query.recent_servers), "")
    first_server = alone.hits[0].tool.server if alone is not None else ""
    signs = (
        1,
        count <= 3,
        count <= 6,
        count > 12,
        alone.confidence.probability if alone is not None else 0,
        alone.confidence.match_probability if alone is not None else 0,
        asked.confidence.probability,
        bool(asked.query.recent_tools),
        context.asked.may_stand_alone,
        message.rstrip().endswith("?"),
        context.said.rstrip().endswith("?"),
        bool(_TAKES_BACK.search(english)),
        bool(named),
        math.log((by_server.get(last_server, 0.0) if last_server else 0.0) + NO_SHARE) / 3,
        _surest(shares, MESSAGE),
        bool(last_server) and first_server == last_server,
        len(own & earlier) / max(len(own), 1),
        bool(_POINTS_BACK.search(english)),
        bool(_CHANGES_TOPIC.search(english)),
        bool(_REPLY.match(english)),
        min(len(own), 12) / 6,
        _surest(shares, WHOLE),
    )
    return np.array(signs, np.float64)


def _confidence(scores: Numbers, there: float, found: SearchResult, *, is_same: bool) -> Confidence:
    """State how likely the first tool is right, at most one level above what the rules say."""
    was = found.confidence
    if len(scores) < FEW_TOOLS or (was.level == "none" and there < THERE):
        return was
    right = min(max(there / float(np.exp(scores - scores.max()).sum()), LOW), AT_MOST.get(was.level, 1.0))
    if HIGH <= right < CERTAIN:
        right = MEDIUM_AT_MOST
    level: Level = "high" if right >= HIGH else "medium" if right >= MEDIUM else "low"
    reasons = (*(was.reasons if is_same else ()), "ranked with the messages before")
    return Confidence(level=level, probability=right, match_probability=max(right, there), reasons=reasons)


def _surest(shares: Mapping[str, Mapping[ToolId, float]], reading: str) -> float:
    return max(shares.get(reading, {}).values(), default=-5.0) / 3


def _shares(result: SearchResult) -> dict[ToolId, float]:
    """Return the logarithm of the share of each tool in an answer."""
    scores = np.array([hit.score for hit in result.hits], np.float64)
    logs = scores - scores.max()
    logs -= math.log(np.exp(logs).sum())
    return {hit.tool.id: max(share, NOT_FOUND) for hit, share in zip(result.hits, logs.tolist(), strict=True)}


def _of_servers(shares: Mapping[ToolId, float], hits: Sequence[Hit]) -> dict[str, float]:
    found: defaultdict[str, float] = defaultdict(float)
    for hit in hits:
        found[hit.tool.server] += math.exp(shares[hit.tool.id])
    return found


def _things(tool: ToolId) -> set[str]:
    """Return what a tool is about by its name, without verbs and its server: `issue` of `github/create_issues`."""
    server = tool.partition("/")[0].lower()
    return {word.rstrip("s") for word in split_identifier(_name(tool))} - ACTIONS - {server}


def _name(tool: ToolId) -> str:
    return tool.partition("/")[2] or tool


def _alike(one: set[str], other: set[str]) -> float:
    return len(one & other) / max(len(one | other), 1)
