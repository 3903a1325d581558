"""Clean requests typed with errors as people make them: the first hit should stay the same.

The errors are drawn with a fixed seed: letters swapped, missing, doubled or typed for their neighbours on the keyboard,
vowels mistaken for each other, spaces left out, and misspellings that are common in English.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random

from benchmarks.understanding.row import Row, Setup
from benchmarks.understanding.searchers import searcher_over

from shortlist.evals.cases import Case
from shortlist.evals.datasets import golden, load_dataset
from shortlist.models import Query
from shortlist.search.searcher import Searcher

SEED = 16
REQUESTS = 400
"""Requests of the training catalog, at most."""
SEGMENTS = ("new_user", "experienced", "multi_tool")
"""Golden requests in plain sentences; the splits that nothing is reported on."""
SPLITS = ("train", "validation")
SHARE = 0.35
"""How many of the longer words have an error."""
JOINED = 0.05
"""How many requests lack a space instead."""

Slip = Callable[[str, Random], str]

_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_WORD = re.compile(r"(?<![\w./:=@#<{'\"`&+-])[a-z]{4,}(?![\w/:=@>}'\"`+-]|\.\w)")
_SPACE = re.compile(r"(?<=[a-z]{3}) (?=[a-z]{3})")
_MISSPELLED = {
    "receive": "recieve", "received": "recieved", "calendar": "calender", "separate": "seperate", "address": "adress",
    "environment": "enviroment", "occurred": "occured", "success": "sucess", "schedule": "shedule",
    "available": "availible", "message": "mesage", "messages": "mesages", "reminder": "remider", "which": "wich",
    "weather": "wether", "tomorrow": "tommorow", "definition": "defination", "attachment": "attachement",
    "repository": "repositry", "recommend": "reccomend", "customer": "custumer", "restaurant": "restaraunt",
    "necessary": "neccessary", "until": "untill", "because": "becuase", "their": "thier", "database": "databse",
    "delete": "delte", "channel": "chanel", "channels": "chanels", "search": "serach", "subscription": "subscribtion",
    "document": "documnet", "language": "langauge", "payment": "paymet", "account": "acount", "colour": "coler",
    "meeting": "meating", "quantity": "quanity", "question": "quesiton", "access": "acess", "comment": "coment",
    "comments": "coments", "commit": "comit", "committed": "commited", "library": "libary", "business": "buisness",
    "forecast": "forcast", "balance": "balence", "budget": "buget", "invoice": "invoce", "response": "responce",
    "performance": "preformance", "query": "querry", "deployment": "deployement", "folder": "foldar",
}  # fmt: skip


def rows(setup: Setup) -> list[Row]:
    """Measure golden requests and those of the training catalog."""
    dataset = golden()
    plain = [case for split in SPLITS for name in SEGMENTS for case in dataset.only(split=split, segment=name).cases]
    training = load_dataset("train/authored")
    some = Random(SEED).sample([case for case in training.cases if case.query.isascii()], REQUESTS)
    return [
        _row("golden requests, mistyped", searcher_over(setup.embedding, dataset.catalogs), plain),
        _row("training requests, mistyped", searcher_over(setup.embedding, training.catalogs), some),
    ]


def _row(request: str, searcher: Searcher, cases: Sequence[Case]) -> Row:
    pairs = list(pairs_of(cases))
    same = [float(_first(searcher, typed) == _first(searcher, clean)) for clean, typed in pairs]
    return Row(request=request, metric="first hit as if typed right", values=same, asked=97)


def pairs_of(cases: Sequence[Case]) -> Iterator[tuple[str, str]]:
    """Yield each request as it should be and as it was typed."""
    random = Random(SEED)
    for case in cases:
        typed = mistyped(case.query, random)
        if typed != case.query:
            yield case.query, typed


def _first(searcher: Searcher, text: str) -> str | None:
    hits = searcher.search(Query(text=text, limit=1)).hits
    return hits[0].tool.id if hits else None


def mistyped(text: str, random: Random) -> str:
    """Return a text with errors in a third of its longer words and in one at least, or without one of its spaces."""
    words = list(_WORD.finditer(text))
    if not words:
        return text
    spaces = list(_SPACE.finditer(text))
    if spaces and random.random() < JOINED:
        space = random.choice(spaces)
        return text[: space.start()] + text[space.end() :]
    chosen = [word for word in words if random.random() < SHARE] or [random.choice(words)]
    for word in reversed(chosen):
        text = text[: word.start()] + _slipped(word[0], random) + text[word.end() :]
    return text


def _slipped(word: str, random: Random) -> str:
    if word in _MISSPELLED and random.random() < 0.5:
        return _MISSPELLED[word]
    (slip,) = random.choices(list(_SLIPS), list(_SLIPS.values()))
    return slip(word, random)


def _place(word: str, random: Random) -> int:
    """Choose a letter; the first one seldom, which people rarely miss."""
    return 0 if random.random() < 0.05 else random.randrange(1, len(word))


def _swapped(word: str, random: Random) -> str:
    at = min(_place(word, random), len(word) - 2)
    return word[:at] + word[at + 1] + word[at] + word[at + 2 :]


def _missing(word: str, random: Random) -> str:
    at = _place(word, random)
    return word[:at] + word[at + 1 :]


def _doubled(word: str, random: Random) -> str:
    at = _place(word, random)
    return word[: at + 1] + word[at:]


def _neighbour(word: str, random: Random) -> str:
    at = _place(word, random)
    row, place = next((n, row.index(word[at])) for n, row in enumerate(_ROWS) if word[at] in row)
    near = [other for other in (place - 1, place + 1) if 0 <= other < len(_ROWS[row])]
    return word[:at] + _ROWS[row][random.choice(near)] + word[at + 1 :]


def _vowel(word: str, random: Random) -> str:
    places = [at for at, letter in enumerate(word) if at and letter in "aeiou"]
    if not places:
        return _missing(word, random)
    at = random.choice(places)
    return word[:at] + random.choice("aeiou".replace(word[at], "")) + word[at + 1 :]


_SLIPS: Mapping[Slip, float] = {_swapped: 0.28, _missing: 0.27, _doubled: 0.12, _neighbour: 0.2, _vowel: 0.13}
"""How often each kind is made."""
