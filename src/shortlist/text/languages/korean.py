"""Korean words without their particles and verb endings."""

from shortlist.text.tokens import read_words

_LONGEST_FIRST = sorted(read_words("korean_endings.txt"), key=lambda ending: (-len(ending), ending))
MOST_STRIPPED = 3


def bare_forms(word: str) -> tuple[str, ...]:
    """Return a word with more and more of its endings taken off, the longest form first."""
    found: dict[str, None] = {}
    queue = [word]
    for _ in range(MOST_STRIPPED):
        queue = [
            shorter
            for form in queue
            for ending in _LONGEST_FIRST
            if (shorter := form.removesuffix(ending)) != form and shorter
        ]
        found |= dict.fromkeys(queue)
    return tuple(sorted(found, key=lambda form: -len(form)))
