"""What the last turn of a chat asks for, with what the turns before it settled.

A last turn stands in one of six relations to the turns before, and each takes something else from them:

- new: it asks for something by itself; nothing is taken.
- continues: it goes on with the thing under discussion ("now merge it"); the thing is taken.
- repeats: it wants the same for something else ("and in Porto?"); the request that led to the last call is taken.
- accepts: it agrees to an offer ("yes please"); the offer is what is asked for.
- fills: it answers a question ("Japanese"); the request that is still open is what is asked for.
- corrects: it rejects the last answer ("not slack, discord"); the request is taken less what is rejected.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from shortlist.models import Relation
from shortlist.text.asks import quoted, read_ask
from shortlist.text.tokens import read_words, terms

Role: TypeAlias = Literal["user", "assistant", "other"]

FEW_WORDS = 3
"""A last turn with at most so many words that tell tools apart may need the turns before."""
SELF_CONTAINED = 6
"""One with so many stands alone even where it says "it" or "that"."""
MAX_TAKEN = 2
"""Requests that are looked back at until one stands alone."""
TAKEN_CHARS = 240

_ACTIONS = read_words("actions.txt")
_START = r"^\W*(?:(?:ok|okay|great|thanks|thank you|good|fine|nice|perfect|cool|hmm|ah|oh|well|so|and|now|then|please|also)\b[\s,.!:–-]*)*"
_YES = re.compile(
    r"^\W*(?:(?:ok|okay|great|perfect)[\s,.!]+)?(?:yes|yep|yeah|yup|sure|ok|okay|go ahead|please do|do it|do that|go for it|"
    r"sounds good|absolutely|definitely|of course|why not|correct|right|exactly|ja|gerne|sí|si|oui|sim|tak|да|evet|はい|好|好的|हाँ)\b"
    r"(?:[\s,.!]+(?:please|pls|do it|do that|go ahead|thanks|thank you|that would be great|bitte))*[\s.!]*",
    re.IGNORECASE,
)
_OFFER = re.compile(
    r"(?:shall|should|may|can) i\b|(?:do you )?want me to\b|would you like me to\b|(?:if you like|if you want),? i\b|i (?:can|could|will|'ll)\b|"
    r"i'd\b|soll ich\b|quieres que\b|veux-tu que\b",
    re.IGNORECASE,
)
_OFFERED = re.compile(r"^.*?\b(?:shall i|should i|may i|can i|want me to|like me to|i can|i could|i will|i'll|soll ich)\s+", re.IGNORECASE)
_CHANGES_TOPIC = re.compile(
    _START + r"(?:by the way|btw|something else|different topic|another (?:topic|thing|question)|new topic|next\s?:|switching to|"
    r"let's look at|forget (?:it|that)|leave that|never ?mind|vergiss es|anders(?:es)? thema)",
    re.IGNORECASE,
)
_CORRECTS = re.compile(
    _START + r"(?:no\b|nope\b|not\b|wrong\b|sorry\b|argh\b|oops\b|wait\b|actually\b|i (?:only )?(?:meant?|wanted|said)\b|i don't (?:need|want)\b|"
    r"should have been\b|nein\b|nicht\b|non\b)|\bi meant?\b|\bshould have been\b|\binstead\b",
    re.IGNORECASE,
)
_REJECTED = re.compile(r"\b(?:not|no|nicht|kein|non) (?:in |the |those |that |an? )?([\w#-]+)", re.IGNORECASE)
_REPEATS = re.compile(
    r"\b(?:again|same|likewise|ditto|once more|another one|one more|nochmal|otra vez|encore)\b|\b(?:too|as well|also)\b[\s.!?]*$|"
    + _START
    + r"(?:what about|how about|and|or|also|now)\b",
    re.IGNORECASE,
)
_POINTS_BACK = re.compile(
    r"\b(?:it|its|it's|that|this|them|they|these|those|there|then|him|her|his|he|she|both|here|one|ones|instead|first|second|third|last|"
    r"latest|newest|oldest|other|rest|das|es|ihn|sie|dort|davon|dafür|eso|lo|la|ça|le|ella|lui)\b",
    re.IGNORECASE,
)
_QUESTION_WORD = re.compile(_START + r"(?:who|what|which|where|when|why|how|is|are|was|does|do|did|has|have)\b", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True, slots=True)
class Turn:
    """One message: who spoke, the words, and the names of the tools that were called in it."""

    role: Role
    text: str
    calls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """What a chat asks for now: the last request, how it relates to the turns before, and what it takes from them."""

    text: str
    relation: Relation = "new"
    taken: str = ""

    @property
    def query(self) -> str:
        """Return the text to search by: what is taken leads where it is the request, and else stands in quotes."""
        if not self.taken:
            return self.text
        if self.relation in ("accepts", "fills", "repeats"):
            return f"{self.taken}\n{quoted(self.text)}" if self.text else self.taken
        return f"{self.text}\n{quoted(self.taken)}"


def asked_now(turns: Sequence[Turn]) -> Asked:
    """Read what the last user turn of a chat asks for."""
    last = max((n for n, turn in enumerate(turns) if turn.role == "user" and turn.text), default=len(turns) - 1)
    ask = read_ask(turns[last].text)
    earlier = [turn for turn in turns[:last] if turn.text or turn.calls]
    relation = relation_of(ask.text, earlier)
    taken = _TAKEN[relation](ask.text, earlier)
    if relation == "new" or not taken:
        return Asked(ask.query, "new" if relation in ("accepts", "fills") else relation)
    return Asked(_remainder(ask.text, relation), relation, taken[:TAKEN_CHARS])


def relation_of(ask: str, earlier: Sequence[Turn]) -> Relation:
    """Tell how a request relates to the turns before it."""
    if not earlier or _CHANGES_TOPIC.match(ask):
        return "new"
    words, said = len(terms(ask)), _said_last(earlier)
    yes = _YES.match(ask)
    if yes and _OFFER.search(said) and len(terms(ask[yes.end() :])) <= FEW_WORDS:
        return "accepts"
    if _CORRECTS.search(ask):
        return "corrects"
    acts = _acts(ask)
    if said.rstrip().endswith("?") and not acts and not _QUESTION_WORD.match(ask) and words <= SELF_CONTAINED:
        return "fills"
    if _REPEATS.search(ask) and words <= FEW_WORDS and not acts:
        return "repeats"
    called = any(turn.calls for turn in earlier)
    if words >= SELF_CONTAINED or not (called or said):
        return "new"
    return "continues" if _POINTS_BACK.search(ask) or words <= (FEW_WORDS - 1 if acts else FEW_WORDS) else "new"


def _acts(ask: str) -> bool:
    """Tell whether a request names an action of its own; "do" and "make" leave it to the turns before."""
    rest = re.sub(_START, "", ask, flags=re.IGNORECASE)
    first = _WORD.search(rest)
    return bool(first and first[0].lower() in _ACTIONS and first[0].lower() != "repeat")


def _remainder(ask: str, relation: Relation) -> str:
    if relation == "accepts" and (yes := _YES.match(ask)):
        return ask[yes.end() :].strip()
    return ask


def _said_last(earlier: Sequence[Turn]) -> str:
    return next((turn.text for turn in reversed(earlier) if turn.role == "assistant" and turn.text), "")


def _requests(earlier: Sequence[Turn]) -> list[str]:
    """Return the asks of the user turns before, the latest first."""
    return [read_ask(turn.text).text for turn in reversed(earlier) if turn.role == "user" and turn.text]


def _nothing(_: str, __: Sequence[Turn]) -> str:
    return ""


def _offer(_: str, earlier: Sequence[Turn]) -> str:
    """Find the sentence of the last answer that offers something, without the words that offer it."""
    sentences = re.split(r"(?<=[.!?])\s+", _said_last(earlier))
    offers = [sentence for sentence in sentences if _OFFER.search(sentence)]
    if not offers:
        return ""
    return _OFFERED.sub("", offers[-1]).strip(" ?.!")


def _open_request(_: str, earlier: Sequence[Turn]) -> str:
    return next(iter(_requests(earlier)), "")


def _thing(_: str, earlier: Sequence[Turn]) -> str:
    """Return the latest requests, back to one that stands alone, without the verbs they begin with."""
    found: list[str] = []
    for request in _requests(earlier)[:MAX_TAKEN]:
        found.append(_without_action(request))
        if len(terms(request)) > FEW_WORDS:
            break
    return " ".join(found)


def _corrected(ask: str, earlier: Sequence[Turn]) -> str:
    """Return the last request less the words that are rejected now."""
    rejected = {word.lower() for word in _REJECTED.findall(ask)}
    return " ".join(word for word in _open_request(ask, earlier).split() if word.strip(".,!?").lower() not in rejected)


def _without_action(request: str) -> str:
    rest = re.sub(_START + r"(?:(?:can|could|would) you\s+)?", "", request, flags=re.IGNORECASE)
    first, _, objects = rest.partition(" ")
    return objects if first.lower() in _ACTIONS and objects else rest


_TAKEN = {
    "new": _nothing,
    "continues": _thing,
    "repeats": _open_request,
    "accepts": _offer,
    "fills": _open_request,
    "corrects": _corrected,
}
"""What each relation takes from the turns before."""
