"""Sentences made of parts: acts of a family in many moods, with a time, a reason and a tail, and ordinary acts alike.

The ordinary acts stand in the same frames, so that a frame ("IMPORTANT: before using this tool, …") says nothing by
itself. A sentence names every family that it has a part of: a family is held out with all sentences it is part of.
"""

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
ORDINARY = 0.4
"""The share of composed sentences that ask for what real descriptions ask for."""
_VERB = re.compile(r"\^(\w+)")
_SIBILANT = re.compile(r"(?:s|x|z|ch|sh)$")
_CONSONANT_Y = re.compile(r"[^aeiou]y$")
_DOUBLED = frozenset(("get", "set", "put", "run", "drop", "swap", "skip", "stop", "ship", "log", "tag"))
_IRREGULAR = {"do": "does", "go": "goes", "have": "has", "be": "is"}


@dataclass(frozen=True, slots=True)
class Composed:
    """A made sentence and the families its parts belong to; an ordinary one has none."""

    text: str
    families: tuple[str, ...]
    mood: str


def sections() -> dict[str, list[str]]:
    """Read the parts, by their headings; a heading may come again."""
    found: dict[str, list[str]] = {}
    heading = ""
    texts = [(FOLDER / name).read_text("utf-8") for name in ("clauses.txt", "clauses_more.txt")]
    for line in "\n".join(texts).splitlines():
        if line.startswith("[") and line.endswith("]") and line != "[system]":
            heading = line.strip("[]")
        elif line and not line.startswith("# "):
            found.setdefault(heading, []).append(line)
    return found


def third(verb: str) -> str:
    if verb in _IRREGULAR:
        return _IRREGULAR[verb]
    if _CONSONANT_Y.search(verb):
        return f"{verb[:-1]}ies"
    return f"{verb}es" if _SIBILANT.search(verb) else f"{verb}s"


def gerund(verb: str) -> str:
    if verb.endswith("ie"):
        return f"{verb[:-2]}ying"
    if verb.endswith("e") and not verb.endswith("ee") and verb != "be":
        return f"{verb[:-1]}ing"
    return f"{verb}{verb[-1]}ing" if verb in _DOUBLED else f"{verb}ing"


def _inflected(act: str, form: str) -> str:
    forms: dict[str, Callable[[str], str]] = {"base": str, "third": third, "gerund": gerund}
    change = forms[form]
    return _VERB.sub(lambda found: change(found[1]), act)


MOODS: Mapping[str, str] = {
    "imperative": "base:{act}",
    "please": "base:please {act}",
    "kindly": "base:kindly {act}",
    "must": "base:{who} must {act}",
    "should": "base:{who} should {act}",
    "has_to": "base:{who} will need to {act}",
    "expected": "base:{who} is expected to {act}",
    "to": "base:the way to use it is to {act}",
    "states": "third:{one} {act}",
    "then_states": "third:{one} then {act}",
    "begin": "gerund:begin by {act}",
    "requires": "gerund:this tool requires {act}",
    "involves": "gerund:a correct call involves {act}",
    "could": "base:could you {act}?",
    "want": "base:we want {who} to {act}",
    "remember": "base:remember to {act}",
    "sure": "base:be sure to {act}",
    "casual": "base:just {act}, ok?",
    "would": "base:it would be great if you could {act}",
    "job": "base:your job is also to {act}",
}


def composed(count: int, seed: int = 18) -> list[Composed]:
    """Make English sentences, some of them ordinary."""
    chance = random.Random(seed)
    parts = sections()
    acts = {name.removeprefix("act "): found for name, found in parts.items() if name.startswith("act ")}
    tails = {name.removeprefix("tail "): found for name, found in parts.items() if name.startswith("tail ")}
    bad = [name for name in acts if name != "ordinary"]
    made: dict[str, Composed] = {}
    while len(made) < count:
        family = "ordinary" if chance.random() < ORDINARY else chance.choice(bad)
        sentence = _sentence(chance, acts[family], family, parts, tails)
        made.setdefault(sentence.text, sentence)
    return list(made.values())


def translated() -> list[Composed]:
    """Return the sentences that the parts of other languages make: each act bare, with a time, and with a tail."""
    parts: dict[str, dict[str, list[str]]] = {}
    for line in (FOLDER / "clauses_languages.txt").read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            head, _, rest = line.partition(": ")
            language, _, kind = head.partition(" ")
            parts.setdefault(language, {})[kind] = rest.split(" | ")
    made = []
    for language, found in parts.items():
        end = "。" if language in ("zh", "ja") else "."
        (tail,) = (kind for kind in found if kind.startswith("tail"))
        for kind in (kind for kind in found if kind.startswith("act")):
            family = kind.removeprefix("act ")
            families = () if family == "ordinary" else (family,)
            for act in found[kind]:
                made.append(Composed(act[0].upper() + act[1:] + end, families, language))
                made += [Composed(f"{when} {act}{end}", families, language) for when in found["when"]]
                if families:
                    hidden = (*families, tail.removeprefix("tail "))
                    made += [Composed(f"{act}{end} {said}", hidden, language) for said in found[tail]]
    return made


def _sentence(
    chance: random.Random,
    acts: Sequence[str],
    family: str,
    parts: Mapping[str, Sequence[str]],
    tails: Mapping[str, Sequence[str]],
) -> Composed:
    mood = chance.choice(list(MOODS))
    form, _, frame = MOODS[mood].partition(":")
    act = _inflected(chance.choice(acts), form)
    who = chance.choice(parts["who"])
    single = chance.choice([each for each in parts["who"] if each not in ("you", "assistants")])
    text = frame.replace("{act}", act).replace("{who}", who).replace("{one}", single)
    text = text.replace("you is expected", "you are expected").replace("assistants is", "assistants are")
    if chance.random() < 0.45:
        text = f"{chance.choice(parts['when'])} {text}"
    text = text[0].upper() + text[1:] + ("" if text.endswith("?") else ".")
    if chance.random() < 0.3:
        text = f"{chance.choice(parts['opener'])} {text}"
    if chance.random() < 0.3:
        text = f"{text} {chance.choice(parts['why'])}"
    families: tuple[str, ...] = () if family == "ordinary" else tuple(family.split())
    if chance.random() < 0.25:
        tail = chance.choice([name for name in tails if name != "ordinary"]) if families else "ordinary"
        text = f"{text} {chance.choice(tails[tail])}"
        families = tuple(dict.fromkeys((*families, tail))) if families else ()
    if chance.random() < 0.08:
        text = chance.choice((str.lower, str.upper))(text) if "{" not in text else text
    return Composed(text, families, mood)
