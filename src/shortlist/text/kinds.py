"""What a name stands for that is written as one: `#dev` is a channel, `draft.md` a file, `acme/api` a repository."""

import re
from functools import lru_cache

from shortlist.text.tokens import MAX_REMEMBERED_TEXTS

FILLER = (
    r"(?:(?:please|pls|can you|could you|would you|i need to|i want to|i'd like to|i have to|just|also|both|maybe"
    r"|finally|then|afterwards|yes|yeah|ok|okay|sure|great|thanks|so|now|hey|hi)[,.!]?\s+)*"
)
FIRST_WORD = re.compile(rf"^\W*{FILLER}([^\W\d_]+)", re.IGNORECASE)
CHANNEL = re.compile(r"(?<![\w&/#])#(?=[a-z][\w-]*[a-z])", re.IGNORECASE)
"""The sign of a chat channel's name: `#dev`; not of an issue's number."""
_FILE_NAME = re.compile(
    r"(?<![\w./\\:@-])(?:[\w-]+/)*[\w-]+\.(?:md|txt|py|ts|tsx|jsx|json|ya?ml|toml|ini|cfg|conf|env|html?|css|go|rs|rb|java|cpp|sh|sql|log|xml|csv)"
    r"(?![\w./-]|\.\w)"
)
"""The name of a text file, also in a folder: `draft.md`, `src/cart.py`; not an address or a part of a whole path."""
_REPOSITORY = re.compile(
    r"(?:(?<=\bin )|(?<=\bon )|(?<=\bof )|(?<=\bfor )|(?<=\bfrom )|(?<=\bto )|(?<=\binto ))"
    r"[a-z][\w-]{2,}/[a-z][\w-]+(?![\w./-]*/|\.\w|\w)"
)
"""The name of a repository with its owner: `in acme/api`. So are alternatives, which have nothing to do with code."""
_CODE_WORDS = re.compile(
    r"\b(?:issues?|branch\w*|commits?|pull|prs?|merge|releases?|forks?|workflows?|readme)\b", re.IGNORECASE
)
_FILE_WORDS = re.compile(
    r"\b(?:files?|folders?|director(?:y|ies)|documents?|scripts?|logs?|notes?|repo\w*|fichier|archivo|nota|datei)\b",
    re.IGNORECASE,
)
_TELLING = re.compile(
    rf"^(?P<before>\W*{FILLER})(?:tell|notify|inform|alert|ping|update|message|let"
    r"|(?:write|put|say|drop)(?: (?:it|this|that|so))?(?: (?:in|into|to|on))?)"
    r"\s+(?:the )?#(?P<name>[a-z][\w-]*[a-z])(?: know\b)?",
    re.IGNORECASE,
)
"""A request to tell a channel something, however it says so."""
_NAMED = re.compile(r"(?<![\w&/#])#([a-z][\w-]*[a-z])", re.IGNORECASE)
TELLING_WORDS = frozenset(
    ("tell", "say", "write", "post", "send", "notify", "inform", "announce", "report", "let", "put")
)


_WHO = r"(?!(?:me|us|you|it)\b)([\w@.'’-]+(?: \w+){0,2}?)"
_PLAINER = tuple(
    (re.compile(rf"^(\W*(?i:{FILLER})){said}"), meant)
    for said, meant in (
        (
            r"(?i:e-?mail|mail) (?=[A-Z][a-z]|\S+@|(?i:him|her|them|every\w+)\b|(?i:the|my|our)\b(?!.* to\b))",
            r"\1send an email to ",
        ),
        (
            rf"(?i:let) {_WHO} know\b(?: that\b)?(?! (?:when|if|whether|once|how|what|who|where|why)\b)",
            r"\1send a message to \2 that",
        ),
        (rf"(?i:tell) {_WHO} that\b", r"\1send a message to \2 that"),
        (
            r"(?i:answer|reply(?: to)?|write back to) (him|her|them|[A-Z][a-z]+) that\b",
            r"\1reply to the message of \2 that",
        ),
        (rf"(?i:let|allow) {_WHO} (?:to )?(edit|view|see|read|access|comment on) ", r"\1give \2 permission to \3 "),
        (
            rf"(?i:give|grant) {_WHO} (edit|view|read|write|comment)(?:ing|er|or)? (?:rights?|access|permissions?) "
            r"(?:on|to|for|in) ",
            r"\1give \2 permission to \3 ",
        ),
        (
            r"((?i:schedule|set up|arrange|book|plan)) (?:an?|another) (?:\w+ )?(?:call|chat|catch-?up|sync) with\b",
            r"\1\2 a meeting with",
        ),
        (
            r"(?i:save) (this|it|that|the \w+) (?:as|to|in|under) (?:file )?(?=[\w./-]+\.[a-z]{1,5}\b(?!\.))",
            r"\1write \2 to the file ",
        ),
    )
)
"""What people say, and what tools say for it: whoever is emailed is sent an email, and whoever is let edit a document
is given the permission."""
_TIMED = frozenset(("log", "track", "record", "enter"))
_REWORDED = _TIMED.union(
    (
        "e",
        "email",
        "mail",
        "let",
        "tell",
        "answer",
        "reply",
        "write",
        "allow",
        "give",
        "grant",
        "schedule",
        "set",
        "arrange",
        "book",
        "plan",
        "save",
    )
)
"""The first words of what is said in other words."""
_HOURS = re.compile(r"(?<![\w.])(\d{1,3})h(?:(\d{1,2})(?:m|min)?)?(?![\w-])")


@lru_cache(maxsize=MAX_REMEMBERED_TEXTS)
def with_kinds(text: str) -> str:
    """Say what a name stands for that is written as one, as "tell #dev" and "rename a.md" leave it out."""
    if "#" in text and "channel" not in text.lower():
        text = CHANNEL.sub("channel #", _TELLING.sub(_posting, text))
    if "." in text and (found := _FILE_NAME.search(text)) and not _FILE_WORDS.search(text):
        text = f"{text[: found.start()]}file {text[found.start() :]}"
    if "/" in text and (found := _REPOSITORY.search(text)) and _CODE_WORDS.search(text) and "repo" not in text.lower():
        text = f"{text[: found.start()]}repository {text[found.start() :]}"
    return in_words_of_tools(text)


def in_words_of_tools(text: str) -> str:
    """Say what people say in other words as tools do: "email her" sends an email, "log 3h30" logs hours and minutes."""
    first = FIRST_WORD.match(text)
    if first is None or (word := first[1].lower()) not in _REWORDED:
        return text
    if word in _TIMED:
        return _HOURS.sub(lambda f: f"{f[1]} hours {f[2]} minutes" if f[2] else f"{f[1]} hours", text)
    return next((plain for said, meant in _PLAINER if (plain := said.sub(meant, text, count=1)) != text), text)


def told_channel(text: str, said: str) -> str:
    """Return a request to tell a channel something, in English; empty for others. `said` is the gloss of its text."""
    found = _NAMED.search(text)
    if found is None or TELLING_WORDS.isdisjoint(said.lower().split()):
        return ""
    return f'post a message to channel "{found[1]}"'


def _posting(found: re.Match[str]) -> str:
    """Quote the name: a channel that is called like a thing is still a channel, as `#release` is."""
    return f'{found["before"]}post a message to channel "{found["name"]}"'
