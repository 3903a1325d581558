"""Rule-made user language: everyday verbs, question frames, typos, placeholders, keyword queries."""

import re
from random import Random

from shortlist.text.tokens import words

EVERYDAY = {
    "get": ("show me", "give me", "find", "what is", "pull up", "look up", "check", "see"),
    "list": ("show me all", "what are", "give me all", "show", "see all", "which are"),
    "create": ("make", "add", "set up", "start", "new", "build"),
    "add": ("put in", "include", "insert", "attach"),
    "delete": ("remove", "get rid of", "erase", "drop", "throw away"),
    "remove": ("delete", "take out", "get rid of"),
    "update": ("change", "edit", "modify", "fix", "adjust"),
    "modify": ("change", "edit", "alter"),
    "edit": ("change", "rewrite", "fix"),
    "set": ("change", "make", "put"),
    "search": ("find", "look for", "look up", "hunt for"),
    "find": ("look for", "search for", "locate", "track down"),
    "query": ("ask", "look up", "search"),
    "retrieve": ("get", "pull up", "show me", "fetch", "bring up"),
    "fetch": ("get", "grab", "download", "pull"),
    "return": ("give me", "show", "tell me"),
    "read": ("open", "see what is in", "show me"),
    "write": ("save", "put", "store"),
    "send": ("shoot", "deliver", "share", "message"),
    "execute": ("run", "do", "carry out"),
    "run": ("start", "launch", "kick off"),
    "start": ("begin", "launch", "turn on"),
    "stop": ("end", "turn off", "halt", "kill"),
    "generate": ("make", "create", "produce", "come up with"),
    "calculate": ("work out", "compute", "figure out", "how much is"),
    "compute": ("calculate", "work out", "figure out"),
    "convert": ("turn", "change", "switch"),
    "analyze": ("look at", "examine", "study", "break down"),
    "validate": ("check", "verify", "make sure of"),
    "verify": ("check", "confirm", "make sure of"),
    "check": ("see", "verify", "is there", "look at"),
    "compare": ("what is the difference between", "put side by side"),
    "upload": ("put up", "send", "add"),
    "download": ("get", "save", "grab"),
    "open": ("go to", "show", "bring up"),
    "close": ("shut", "end", "finish"),
    "enable": ("turn on", "activate", "switch on"),
    "disable": ("turn off", "deactivate", "switch off"),
    "assign": ("give", "hand", "allocate"),
    "book": ("reserve", "schedule"),
    "schedule": ("plan", "book", "arrange"),
    "monitor": ("watch", "keep an eye on", "track"),
    "track": ("follow", "keep an eye on"),
    "configure": ("set up", "adjust the settings of"),
    "deploy": ("ship", "publish", "roll out", "put live"),
    "publish": ("post", "make public", "release"),
    "extract": ("pull out", "get", "take"),
    "summarize": ("sum up", "give me the gist of", "shorten"),
    "translate": ("put into another language", "how do you say"),
    "describe": ("explain", "tell me about", "details of"),
    "export": ("save", "dump", "download"),
    "import": ("bring in", "load", "upload"),
    "move": ("shift", "transfer", "put"),
    "rename": ("change the name of", "call"),
    "copy": ("duplicate", "clone"),
    "subscribe": ("sign up for", "follow"),
    "cancel": ("call off", "drop", "undo"),
    "view": ("see", "look at", "show me"),
    "count": ("how many", "number of"),
    "load": ("open", "bring in"),
    "save": ("keep", "store", "hold on to"),
    "connect": ("link", "hook up"),
    "submit": ("send in", "hand in", "file"),
    "filter": ("narrow down", "only show"),
    "sort": ("order", "arrange"),
    "merge": ("combine", "join"),
    "invite": ("ask in", "add"),
    "archive": ("put away", "store"),
    "restore": ("bring back", "recover"),
    "install": ("set up", "add"),
    "play": ("put on", "start"),
}
PLAIN_NOUNS = {
    "repository": "repo",
    "repositories": "repos",
    "document": "doc",
    "documents": "docs",
    "directory": "folder",
    "directories": "folders",
    "application": "app",
    "applications": "apps",
    "image": "picture",
    "images": "pictures",
    "information": "info",
    "database": "db",
    "configuration": "settings",
    "parameters": "options",
    "pull request": "PR",
    "pull requests": "PRs",
    "kubernetes": "k8s",
    "account": "profile",
    "message": "note",
    "metadata": "details",
    "specified": "given",
    "current": "latest",
    "employee": "staff member",
    "employees": "staff",
    "customer": "client",
    "customers": "clients",
    "transaction": "payment",
    "environment": "env",
    "statistics": "numbers",
    "organization": "company",
}
FRAMES = (
    "how do I {}?",
    "how can I {}",
    "I need to {}",
    "I want to {}",
    "I'd like to {}",
    "can you {} for me?",
    "can you {}",
    "could you please {}",
    "please {}",
    "help me {}",
    "is there a way to {}?",
    "what's the best way to {}",
    "we have to {}",
    "let's {}",
    "{} please",
    "{} asap",
    "my boss wants me to {}",
    "tool to {}",
    "something that can {}",
)
FILLER = frozenset(
    [
        "a",
        "an",
        "the",
        "of",
        "to",
        "for",
        "in",
        "on",
        "by",
        "with",
        "and",
        "or",
        "from",
        "at",
        "as",
        "is",
        "are",
        "be",
        "this",
        "that",
        "it",
        "its",
        "your",
        "you",
        "can",
        "will",
        "into",
        "using",
        "use",
        "used",
        "given",
        "specified",
        "provided",
        "via",
        "all",
        "any",
        "which",
        "tool",
        "returns",
        "return",
    ]
)
THIRD_PERSON = re.compile(r"^([a-z]+?)(ches|shes|sses|xes|zes|ies|s)$")
QUOTED = re.compile(r"'[^']{2,40}'|\"[^\"]{2,60}\"|\b[A-Z]{2,}[-_]?\d+\b|\b\d{2,}\b|\b\S+@\S+\.\w+\b|https?://\S+")
QUESTION_STARTS = ("what ", "how ", "which ", "is ", "who ", "when ", "where ", "why ", "I ")
CLAUSE_END = re.compile(r";| \(|, including|, such as|, which| \u2014 | - ")
LONGEST_CLAUSE = 140
SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")


def first_sentence(text: str) -> str:
    return SENTENCE_END.split(text.strip(), 1)[0].strip(" .")


def rest_of(text: str) -> str:
    parts = SENTENCE_END.split(text.strip(), 1)
    return parts[1].strip() if len(parts) > 1 else ""


def imperative(sentence: str) -> str:
    """Turn 'Retrieves the list' into 'retrieve the list'."""
    head, _, tail = sentence.partition(" ")
    word = head.lower()
    match = THIRD_PERSON.match(word)
    if match and word not in EVERYDAY and not word.endswith("ss"):
        ending = {"ies": "y", "s": ""}.get(match[2], match[2][:-2])
        word = match[1] + ending
    return f"{word if head.isalpha() else head} {tail}".strip()


def clause(sentence: str) -> str:
    """Cut a long sentence where its main clause ends."""
    return CLAUSE_END.split(sentence, 1)[0][:LONGEST_CLAUSE].strip(" ,")


def everyday(phrase: str, random: Random) -> str:
    """Swap the verb and some nouns for the words people use."""
    head, _, tail = phrase.partition(" ")
    choices = EVERYDAY.get(head.lower())
    start = random.choice(choices) if choices else head
    for formal, plain in PLAIN_NOUNS.items():
        if formal in tail and random.random() < 0.5:
            tail = re.sub(rf"\b{formal}\b", plain, tail)
    return f"{start} {tail}".strip()


def framed(phrase: str, random: Random) -> str:
    """Put a phrase into a sentence a user would say; questions stay as they are."""
    if phrase.startswith(QUESTION_STARTS):
        return phrase
    return random.choice(FRAMES).format(phrase)


def typo(text: str, random: Random) -> str:
    """Make one slip in a longer word: a swap, a loss, a double or a neighbour."""
    parts = text.split()
    long = [index for index, word in enumerate(parts) if len(word) > 4 and word.isalpha()]
    if not long:
        return text
    index = random.choice(long)
    parts[index] = slipped(parts[index], random)
    return " ".join(parts)


def slipped(word: str, random: Random) -> str:
    at = random.randrange(1, len(word) - 1)
    slips = (
        word[:at] + word[at + 1] + word[at] + word[at + 2 :],
        word[:at] + word[at + 1 :],
        word[:at] + word[at] + word[at:],
        word[:at] + random.choice("abcdefghilmnoprstu") + word[at + 1 :],
    )
    return random.choice(slips)


def with_placeholders(text: str, names: tuple[str, ...], random: Random) -> str:
    """Replace concrete values by `<placeholders>`, as prompt catalogs write them."""
    labels = [words(name).replace(" ", random.choice("-_")) for name in names] or ["value", "name", "id"]
    return QUOTED.sub(lambda _: f"<{random.choice(labels)}>", text)


def placeholder_tail(names: tuple[str, ...], random: Random) -> str:
    chosen = random.sample(names, min(len(names), random.choice((1, 1, 2))))
    join = random.choice((" in {w} <{p}>", " for {w} <{p}>", " with {w} <{p}>", " <{p}>"))
    return "".join(join.format(w=words(name), p=words(name).replace(" ", "_")) for name in chosen)


def keywords(text: str, count: int, random: Random) -> str:
    """Pick content words in their order, as agents type them into a search box."""
    content = [word for word in words(text).split() if word not in FILLER and len(word) > 1]
    distinct = list(dict.fromkeys(content))
    kept = sorted(random.sample(range(len(distinct)), min(count, len(distinct))))
    return " ".join(distinct[index] for index in kept)
