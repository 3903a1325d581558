"""Lower the confidence of an answer to a request that was not a clean sentence of its own."""

from dataclasses import replace

from shortlist.models import Confidence
from shortlist.search.fusion import SURE
from shortlist.text.asks import Ask

PASTED_AT_MOST = 0.35
"""The maximum confidence for a paste without a request; within `low`."""
MEDIUM_AT_MOST = 0.74
"""The maximum confidence for a query that says only part of what is meant; within `medium`."""


def as_asked(confidence: Confidence, ask: Ask) -> Confidence:
    """Lower the confidence as far as a message was pasted, or may have been."""
    if not ask.is_clear:
        return _mostly_pasted(confidence, ask.characters)
    if not ask.asks:
        return with_other_words(confidence)
    return beside_a_paste(confidence) if ask.pasted else confidence


def with_other_words(confidence: Confidence) -> Confidence:
    """Lower a high confidence to medium: words of earlier turns, or of a paste, match what was not asked for now."""
    return _medium(confidence) if confidence.level == "high" else confidence


def beside_a_paste(confidence: Confidence) -> Confidence:
    """Lower a barely high confidence to medium: the request is about a text that was not searched by."""
    return _medium(confidence) if confidence.level == "high" and confidence.probability < SURE else confidence


def _mostly_pasted(confidence: Confidence, characters: int) -> Confidence:
    """Lower the confidence of an answer to a message in which nothing reads like a request."""
    reason = f"nothing in {characters:,} characters reads like a request"
    return replace(
        confidence,
        level="none" if confidence.level == "none" else "low",
        probability=min(confidence.probability, PASTED_AT_MOST),
        reasons=(*confidence.reasons, reason),
    )


def _medium(confidence: Confidence) -> Confidence:
    return replace(confidence, level="medium", probability=min(confidence.probability, MEDIUM_AT_MOST))
