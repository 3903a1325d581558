"""How much a sentence reads like a request, in English or by its English gloss."""

import re

from shortlist.text.languages.reading import glossed
from shortlist.text.tokens import ACTIONS

LEAD = (
    r"(?:(?:please|pls|now|then|and|also|ok|okay|so|just|hey|hi|hello|thanks|first|next|finally|kindly|well)"
    r"[,.!:]?\s+)*"
)
_POLITE = re.compile(
    rf"{LEAD}(?:please|pls|(?:can|could|would|will) (?:you|we|someone|somebody)|help me|i need|i want|i'd like"
    r"|i would like|i have to|i must|we need|we should|we want|let's|lets|tell me|give me|show me|do you know"
    r"|is there (?:a|any)|how (?:do|can) i|bitte|kannst du|können sie|por favor|puedes|peux-tu|pouvez-vous|puoi"
    r"|proszę|пожалуйста|请|帮我)\b",
    re.IGNORECASE,
)
_QUESTION = re.compile(
    rf"{LEAD}(?:who|what|which|where|when|why|how|is|are|was|were|does|do|did|has|have|should|can|could|will)\b",
    re.IGNORECASE,
)
FIRST_WORD = re.compile(rf"[\s\"'“(]*{LEAD}([a-z]+)", re.IGNORECASE)
_PLEASE = re.compile(r"\b(?:please|pls|bitte|for me|so that)\b", re.IGNORECASE)
POINTS = re.compile(r"\b(?:this|it|that|these|those|them|below|above|following|here|attached)\b", re.IGNORECASE)


def starts_like_a_request(text: str) -> bool:
    first = FIRST_WORD.match(text)
    return bool(_POLITE.match(text) or (first and first[1].lower() in ACTIONS))


def score_in_any_language(sentence: str) -> float:
    """Score a sentence by what it says in English, where other languages have their verbs at the end."""
    said = glossed(sentence)
    if not said or starts_like_a_request(said):
        return request_score(said or sentence)
    return request_score(said) + 2.0 * (not ACTIONS.isdisjoint(said.lower().split()))


def request_score(sentence: str) -> float:
    first = FIRST_WORD.match(sentence)
    acts = bool(first and first[1].lower() in ACTIONS)
    polite, question = bool(_POLITE.match(sentence)), sentence.endswith("?") or bool(_QUESTION.match(sentence))
    return (
        2.0 * (acts or polite)
        + 1.5 * question
        + 0.5 * bool(_PLEASE.search(sentence))
        + 1.0 * bool(POINTS.search(sentence))
        - 1.0 * (len(sentence) > 250)
    )
