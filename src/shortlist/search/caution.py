"""Lower the confidence of an answer to a request that was not a clean sentence of its own."""

from dataclasses import replace

from shortlist.models import Confidence
from shortlist.search.fusion import SURE

PASTED_AT_MOST = 0.35
"""The maximum confidence for a paste without a request; within `low`."""
MEDIUM_AT_MOST = 0.74
"""The maximum confidence for a query that says only part of what is meant; within `medium`."""


def with_taken_words(confidence: Confidence) -> Confidence:
    """Lower a high confidence to medium: words taken from earlier turns match tools that were not asked for now."""
    return _medium(confidence) if confidence.level == "high" else confidence


def beside_a_paste(confidence: Confidence) -> Confidence:
    """Lower a barely high confidence to medium: the request is about a text that was not searched by."""
    return _medium(confidence) if confidence.level == "high" and confidence.probability < SURE else confidence


def mostly_pasted(confidence: Confidence, characters: int) -> Confidence:
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
