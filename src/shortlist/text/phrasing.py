"""How much a sentence reads like a request, in English or by its English gloss."""

import re

from shortlist.text.languages.reading import glossed
from shortlist.text.letters import is_closing, is_greeting, is_sign_off
from shortlist.text.tokens import ACTIONS

MAX_INTRODUCTION = 80
QUESTION_MARKS = ("?", "？", "؟")
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
_ORDERS = re.compile(
    rf"{LEAD}(?!(?:in|on|at|of|and|or|but|is|are|was|were|be|has|have|had|for|with|from|by|to|as|all|if|when|that"
    rf"|this|not"
    r"|no|both|after|before|under|over|during|since|into|only|per|than|because|while|about|it|they|he|she|we|i)\b)"
    r"[a-z]+(?: (?:up|out|off|down|rid of|me|us|back))? (?:the|an?|my|our|this|that|these|those|it|them|all|every)\b"
)
"""A first word in lower case before an article: an order, whatever its verb."""
_INTRODUCES = re.compile(
    rf"{LEAD}(?:(?:look at|see|check(?: out)?|(?:have|take) a look at|read)(?: (?:this|that|these|those|it|below"
    rf"|here))+"
    r"|(?:here|this|that|these|those|below|following|got|(?:i|we)(?: have|['’]ve)?(?: just)? (?:got|received|found"
    r"|saw|see))\b"
    r"[^.?!:\n]{0,60}:|[\w ]{0,30}\b(?:below|attached|follows))\W*$",
    re.IGNORECASE,
)
"""What only says that something follows: "look at this:", "here is the log:"."""


def introduces(sentence: str) -> bool:
    """Return whether a sentence only says that something follows, and asks for nothing."""
    return (
        len(sentence) <= MAX_INTRODUCTION and bool(_INTRODUCES.match(sentence)) and sentence[-1:] not in QUESTION_MARKS
    )


def formulas_of(sentence: str) -> tuple[bool, ...]:
    """Return whether a sentence greets, takes leave, signs a letter, or only says that something follows."""
    return is_greeting(sentence), is_closing(sentence), is_sign_off(sentence), introduces(sentence)


def asks_nothing(sentence: str) -> bool:
    return any(formulas_of(sentence))


def starts_like_a_request(text: str) -> bool:
    first = FIRST_WORD.match(text)
    return bool(_POLITE.match(text) or (first and first[1].lower() in ACTIONS))


def score_in_any_language(sentence: str) -> float:
    """Score a sentence by what it says in English, where other languages have their verbs at the end."""
    said = glossed(sentence)
    if not said:
        return request_score(sentence)
    asks = 1.5 * (sentence.endswith(QUESTION_MARKS) and not _asks(said))
    acts = not starts_like_a_request(said) and not ACTIONS.isdisjoint(said.lower().split())
    return request_score(said) + 2.0 * acts + asks


def request_score(sentence: str) -> float:
    first = FIRST_WORD.match(sentence)
    acts = bool(first and first[1].lower() in ACTIONS)
    polite, question = bool(_POLITE.match(sentence)), _asks(sentence)
    orders = 1.5 * (not (acts or polite) and bool(_ORDERS.match(sentence)))
    return (
        orders
        + 2.0 * (acts or polite)
        + 1.5 * question
        + 0.5 * bool(_PLEASE.search(sentence))
        + 1.0 * bool(POINTS.search(sentence))
        - 1.0 * (len(sentence) > 250)
    )


def _asks(sentence: str) -> bool:
    return sentence.endswith(QUESTION_MARKS) or bool(_QUESTION.match(sentence))
