"""Errands: several wishes in one text, with the talk that people put around them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

OPENINGS = (
    "I need a hand with something that has a few parts to it.",
    "I'm in the middle of a bigger job and could use your help.",
    "Quick favour before the team meeting.",
    "This has been on my list for days, so let's get it done.",
    "Okay, here is what has to happen today.",
    "My manager wants this sorted out before the weekend.",
    "I'm new to this project and still finding my way around.",
    "We're preparing a handover and some pieces are missing.",
    "A client called this morning and left me with a small pile of work.",
    "I keep putting this off because it takes several steps.",
    "I have half an hour, so let's see how far we come.",
    "Somebody asked me about this yesterday and I had no answer.",
    "I want to get this right the first time.",
    "Let me explain what I'm after.",
    "We had an incident last night and I'm cleaning up behind it.",
    "I'm writing something up and need the facts for it.",
    "Here's the situation: things are spread over several places and I've lost the overview.",
    "I'm planning ahead for next month.",
    "Not sure where to begin, so I'll just say everything at once.",
    "I did this by hand last time and never want to do that again.",
)
ASIDES = (
    "It doesn't have to be pretty.",
    "I've tried it myself and got nowhere.",
    "That part matters most to me.",
    "Somebody else will check it afterwards.",
    "I don't remember how we did it last year.",
    "Take whatever is most recent.",
    "If that fails, just carry on with the rest.",
    "There may be more than one, I'm not certain.",
    "We had trouble with exactly this before.",
    "I'd rather have it complete than quick.",
)
CLOSINGS = (
    "Thanks a lot!",
    "Tell me when you're done.",
    "Put it all together in one short summary at the end, please.",
    "I have to show this to others, so keep to what you actually find.",
    "A table would be great.",
    "Don't guess; say so where something is missing.",
    "If anything looks odd, point it out.",
    "That would save my day.",
    "No rush, but today would be good.",
    "Keep a note of where each piece came from.",
    "Let me know if you need anything from me.",
    "I can take it from there.",
)
CONNECTIVES = ("Then", "After that,", "Next,", "Also,", "And", "Besides that,", "Once that's done,", "On top of that,")
MOST_WISHES = 6
SAME_SERVER, TWO_SERVERS = 0.6, 0.9
"""Shares, added up: most errands stay with one service, some need two, few need more."""


@dataclass(frozen=True, slots=True)
class Wish:
    """One thing asked for, the server it is done on, and the number that its answer goes by."""

    text: str
    server: str
    answer: int


@dataclass(frozen=True, slots=True)
class Errand:
    """What somebody wrote, and the wishes in it."""

    text: str
    wishes: tuple[Wish, ...]


def errands(wishes: Sequence[Wish], count: int, seed: int) -> list[Errand]:
    """Make up errands; the same wishes and seed give the same ones."""
    random = Random(f"errands {seed}")
    by_server: defaultdict[str, list[Wish]] = defaultdict(list)
    for wish in wishes:
        by_server[wish.server].append(wish)
    broad = sorted(server for server, own in by_server.items() if len({wish.answer for wish in own}) > 1)
    return [_errand(by_server, broad, random) for _ in range(count)] if broad else []


def _errand(by_server: Mapping[str, Sequence[Wish]], broad: Sequence[str], random: Random) -> Errand:
    chance = random.random()
    servers = 1 if chance < SAME_SERVER else 2 if chance < TWO_SERVERS else 3
    within = [wish for server in random.sample(broad, min(servers, len(broad))) for wish in by_server[server]]
    by_answer: defaultdict[int, list[Wish]] = defaultdict(list)
    for wish in within:
        by_answer[wish.answer].append(wish)
    wanted = random.randint(2, MOST_WISHES)
    answers = random.sample(sorted(by_answer), min(wanted, len(by_answer)))
    chosen = tuple(random.choice(by_answer[answer]) for answer in answers)
    return Errand(told([wish.text for wish in chosen], random), chosen)


def told(wishes: Sequence[str], random: Random) -> str:
    """Combine several wishes into one text: as prose, as a list or in sequence, mostly with conversational filler."""
    how = random.choice((_flowing, _flowing, _listed, _plain))
    parts = [random.choice(OPENINGS)] * (random.random() < 0.7)
    parts.append(how([_sentence(wish) for wish in wishes], random))
    parts += [random.choice(CLOSINGS)] * (random.random() < 0.6)
    return ("\n\n" if how is _listed else " ").join(parts)


def _sentence(wish: str) -> str:
    text = " ".join(wish.split())
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _flowing(sentences: Sequence[str], random: Random) -> str:
    first, *rest = sentences
    told = [first[:1].upper() + first[1:]]
    for sentence in rest:
        told += [random.choice(ASIDES)] * (random.random() < 0.2)
        told.append(f"{random.choice(CONNECTIVES)} {sentence[:1].lower()}{sentence[1:]}")
    return " ".join(told)


def _listed(sentences: Sequence[str], random: Random) -> str:
    mark = random.choice(("- {}", "* {}", "• {}", "{n}. {}", "{n}) {}"))
    return "\n".join(mark.format(sentence, n=number) for number, sentence in enumerate(sentences, 1))


def _plain(sentences: Sequence[str], _: Random) -> str:
    return " ".join(sentences)
