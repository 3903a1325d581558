"""What the last turn of a chat asks for, with what the turns before it settled.

A last turn stands in one of six relations to the turns before, and each takes something else from them:

- new: it asks for something by itself; nothing is taken.
- continues: it goes on with the thing under discussion ("now merge it"); the thing is taken.
- repeats: it wants the same for something else ("and in Porto?"); the request that led to the last call is taken.
- accepts: it agrees to an offer ("yes please"); the offer is what is asked for.
- fills: it answers a question ("Japanese"); the request that is still open is what is asked for.
- corrects: it rejects the last answer ("not slack, discord"); the request is taken less what is rejected.

A turn in another language is read by its own words and by its English gloss, so that its pronouns point back as English
ones do.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, TypeAlias

from shortlist.models import Relation
from shortlist.text.asks import quoted, read_ask
from shortlist.text.languages.reading import glossed
from shortlist.text.letters import without_courtesies
from shortlist.text.queries import query_of, wishes
from shortlist.text.tokens import read_words, terms

Role: TypeAlias = Literal["user", "assistant", "other"]

FEW_WORDS = 3
"""A last turn with at most this many informative words may depend on earlier turns."""
SELF_CONTAINED = 6
"""A turn with this many is self-contained, even if it contains "it" or "that"."""
LONG_ANSWER = 12
"""An answer to a question for details ("which table?") has fewer, as long as it asks for nothing itself."""
MAX_TAKEN = 2
"""How many earlier requests to read until one is self-contained."""
SAID_CHARS = 20_000
"""The end of the last answer in which things that a request names are looked for."""
TAKEN_CHARS = 240

_ACTIONS = read_words("actions.txt")
_START = (
    r"^\W*(?:(?:ok|okay|great|thanks|thank you|good|fine|nice|perfect|cool|hmm|ah|oh|well|so|and|now|then|please|also"
    r"|lol|haha|hehe|ugh|argh|oops|hey|hell|heck|gosh|god|damn|jeez|lord|uh|um|erm|eh)"
    r"\b[\s,.!:–-]*)*"
)


def _pattern(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(alternatives), re.IGNORECASE)


_AGREES = (
    r"(?:yes|yep|yeah|yup|sure|ok|okay|alright|all right|lgtm|proceed|carry on|off you go|make it so|be my guest"
    r"|go (?:ahead|on|for it)|please do|(?:let['’]?s )?do (?:it|that|so|this)|ship it"
    r"|(?:(?:that|this|it|all|everything) )?(?:looks|sounds|is|seems)"
    r" (?:all )?(?:good|fine|right|great|perfect|ok|okay)"
    r"|all (?:good|fine)|(?:fine|good) (?:by|with|for) me|works for me|absolutely|definitely"
    r"|of course|why not|correct|right|exactly|ja|gerne|sí|si|claro|oui|sim|tak|да|evet|vâng|نعم"
    r"|はい|네|응|好|好的|是的|हाँ)\b"
)
_YES = _pattern(
    r"^\W*(?:(?:great|perfect|lovely|nice|cool|good|fine|super|excellent|awesome|so|then)[\s,.!–-]+)*"
    + _AGREES
    + rf"(?:[\s,.!–-]+(?:{_AGREES}|please|pls|then|now|thanks|thank you|that would be great|bitte))*[\s.!]*"
)
_YES_ALONE = _pattern(rf"{_YES.pattern}(?:(?=[,;:?–]|$)|(?<=[.!])|(?<=\s)(?=-))")
"""An agreement up to a mark or the end: "correct typos" and "proceed to checkout" ask for something."""
_OFFER = _pattern(
    r"(?:shall|should|may|can) i\b",
    r"(?:want|like) me to\b",
    r"(?:if you like|if you want),? i\b",
    r"i(?: (?:can|could|will|would)|['’](?:ll|d))\b",
    r"\bi(?: am|['’]m) (?:about|going|ready) to\b",
    r"(?:would you like|do you want)\b",
    r"soll ich\b",
    r"quieres que\b",
    r"veux-tu que\b",
)
_OFFERED = _pattern(
    r"^.*?\b(?:shall i|should i|may i|can i|want me to|like me to|i can|i could|i will|i would|i['’]ll|i['’]d"
    r"|(?:i am|i['’]m) (?:about|going|ready) to|would you like(?: me)?(?: to)?|do you want(?: me)?(?: to)?"
    r"|soll ich|quieres que|veux-tu que)\b\s*"
)
_OFFERED_LAST = _pattern(r"(?<!\W)(?:\W++(?:or|and))?\W*+\b(?:shall|should|may|can) i\b.*$")
_CHOICE = _pattern(r"^\W*(?:and |so |but )?(?:which|what|who|where)\b.*\b(?:shall|should|may|can) i\b")
_ELSEWHERE = (
    r"(?:et)?was (?:ganz )?anderes|anderes thema|übrigens|nebenbei|otra cosa|por cierto|autre chose|au fait|à propos"
    r"|(?:un['’])?altra cosa|a proposito|outra coisa|aliás|coś innego|inna sprawa|przy okazji|другой вопрос|кстати"
    r"|başka bir (?:şey|konu)|bu arada|chuyện khác|nhân tiện|换个话题|另外|顺便|ところで|그런데|다른 얘기|بالمناسبة"
    r"|على فكرة"
    r"|वैसे|एक और बात|(?:a |one )?different thing|one more thing"
    r"|(?:and )?(?:now )?(?:for )?something (?:completely )?different"
    r"|before i forget"
)
"""What announces another topic, in any language."""
_CHANGES_TOPIC = _pattern(
    _START + r"(?:by the way|btw|something else|different topic|another (?:topic|thing|question)|new topic|next\s?:"
    r"|switching to|let's look at|forget (?:it|that)|leave that|never ?mind|vergiss es"
    rf"|{_ELSEWHERE})"
)
_BREAK = re.compile(r"\s*[,.:;!–—-]+\s*")
_NOT_MEANT = r"(?!\s+(?:forget|hesitate|let|worry|i|you|we|they)\b)"
"""What after "don't" rejects nothing: "don't forget to …", "don't you have …?"."""
_CORRECTS = _pattern(
    _START
    + rf"(?:no(?!\.? ?\d)|nope|nah|not|(?:don['’]?t|do not){_NOT_MEANT}|wrong|sorry|wait|actually|nein|nicht|non)\b",
    r"^\W*(?:[^\W\d]+\W+){1,2}no\s*(?:[,!]|\.(?!\s*\w))",  # and not "invoice no. 12"
    r"\bi (?:didn['’]?t|did not) (?:want|mean|ask|say)\b",
    r",\s*not\s+(?:(?:in|on|to|with|via|the|an?)\s+)*[\w#-]+\W*$",
    r"\bi (?:only )?(?:mean|meant|wanted|said|asked)\b",
    r"\bi don't (?:need|want)\b",
    r"\bshould have been\b",
    r"\binstead\b",
)
_EXCEPT = _pattern(r"[,.;!–]\s+(?:but )?not\s+(?:the|an?|in|on|to|with|via)\s")
"""What corrects in a few words, and in a request at length only limits it: "…, but not to Bob"."""
_NOT_WANTED = r"(?:(?:need|want|mean|ask|say|for|about|in|on|to|with|via|the|those|that|an?)\s+)*"
_REJECTED = _pattern(
    rf"\b(?:(?:i|we) )?(?:do not|don['’]?t|did not|didn['’]?t){_NOT_MEANT}\s+{_NOT_WANTED}([^,.;:!?–\n]+?)"
    r"(?=\s*(?:[,.;:!?–\n]|$)|\s+(?:but|just|only|rather|instead)\b)",
    rf"\b(?:not{_NOT_MEANT}|(?<!oh )no(?! (?:no|not|wait|do|don|i|just)\b)|nicht|kein|non)\s+{_NOT_WANTED}([\w#-]+)"
    r"(?:\s+(?:it|them|that|this|any(?:thing|one|body)|yet|now)\b)*",
)
"""What is rejected: all that is not to be done, up to the next clause, or the first word after "not"."""
_OBJECTION = _pattern(
    _START + r"(?:(?:no|nope|nah|wait|sorry|wrong(?: [a-z]+(?=[,.!]))?|actually|just|only"
    r"|(?:i|we) (?:only )?(?:mean|meant|want|wanted|said|asked)(?: (?:for|about))?"
    r"|(?:i|we) (?:always |usually )?(?:use|keep|have|do)(?: (?:it|that|this|those|these|them))?)\b[\s,.!:;–-]*)+"
)
_FOR_THAT = _pattern(r"(?<!\s)\s+for (?:it|that|this|those|these|them)\b")
"""What introduces a replacement, and says nothing about it: "no wait, I use Todoist for that"."""
_REPEATS = _pattern(
    r"\b(?:again|same|likewise|ditto|once more|another one|one more|nochmal|otra vez|encore)\b",
    r"\b(?:too|as well|also)\b[\s.!?]*$",
    _START + r"(?:only|just) (?!in (?:case|time)\b|for (?:fun|now|once|the record)\b)"
    r"(?:those|these|the ones?|for|from|in|with|where|since|until|before|after)\b",
    _START + r"(?:what about|how about|and|or|also|now (?:for|in|with|on|from|at)|und|y|et|и|а)\b",
    r"(?:は|呢|은|는)[?？]\s*$",
)
_LIKEWISE = _pattern(
    _START + r"(?:(?:a+h+|better|do|love it)\b[\s,.!]*)*(?:the )?same (?:thing )?(?:for|in|with|on|at|to|from)\b[^?]*$"
)
"""What repeats in more words: "same for Ada and whoever leads the network team"."""
_ANOTHER = _pattern(
    r"^\W*(?:(?:ok|okay|thanks|great|cool|and|now|then|so|also)\b[\s,.!]*)+"
    r"(?:(?:the|its|their|his|her|as|with(?:out)?)\s+(?:an?\s+|the\s+)?[^\W\d_]"
    r"|(?:who|which|where|when|why|what|how)(?!\s+about\b|(?:['’]s|\s+is)\s+(?:it|the \w+)\s+(?:in|on|at|for)\b)\b)"
)
"""What names another side of the thing under discussion, and not another thing."""
_SAME = _pattern(
    r"\b(?:again|same|likewise|ditto|once more|too|as well|others?|ones?|first|second|third|last|next|rest|nochmal)\b"
)
_A_TIME = (
    r"\s+(?:(?:very|past|coming|same|few)\s+)?(?:seconds?|minutes?|moment|hours?|days?|mornings?|afternoons?"
    r"|evenings?|nights?|weeks?|weekends?|months?|quarters?|years?|spring|summer|autumn|winter|(?:mon|tues|wednes|thurs|fri|satur|sun)days?)\b"
)
"""What says with "this" or "last" when something is, and points back at nothing: "this very second", "last week"."""
_POINTS_BACK = _pattern(
    rf"\b(?:this|that|these|those|last)\b(?!{_A_TIME})",
    r"\b(?:it|its|it's|them|they|there|then|him|her|his|he|she|both|here|one|ones|instead|first"
    r"|(?<!very )second|third|latest|newest|oldest|other|rest)\b",
    r"\b(?:das|es|ihn|sie|dort|davon|dafür|eso|lo|la|ça|le|ella|lui)\b",
    r"\b(?:onu|onun|bunu|şunu|tego|tę|ją|его|её|их|nó)\b|[它这那]|それ|これ|あれ|그거|그걸|이거|이걸",
)
_REFERS = re.compile(
    rf"\b(?:it|its|them|they|him|her|he|she|ones?|(?:that|this|these|those)(?!{_A_TIME}))\b", re.IGNORECASE
)
_DEFINITE = re.compile(r"\b(?:the|my|our|your) ([^\W\d_]+)", re.IGNORECASE)
_QUESTION = _pattern(_START + r"(?:who|what|which|where|when|why|how|is|are|was|does|do|did|has|have)\b")
_DETAIL = _pattern(r"\b(?:who|whom|whose|what|which|where|when|how)\b")
_WANTS_TO_KNOW = _pattern(
    r"\W*(?:(?:ok|okay|sure|please|just|then|also)\b[\s,]*)*(?:give|tell|send|name|provide|share|specify|enter"
    r"|let) me\b"
    r"|\W*(?:please |just )(?:name|provide|specify|enter|choose|pick)\b|\W*i(?: still|['’]ll)? need (?:the|your|a|an"
    r"|to know)\b"
)
"""What asks for a detail without a question mark."""
_ANYTHING = _pattern(r"\b(?:anything|something|what|who|where) else\b|\bhow (?:can|could|may|else)\b")
_NEED = _pattern(_START + r"(?:i|we)(?:['’]d| would)? (?:need|want|like|have to)\b")
_QUESTION_MARKS = ("?", "？", "؟")
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_WORD = re.compile(r"[^\W\d_]+")
_QUOTE = re.compile(r"\"[^\"\n]*\"|“[^“”\n]*”|„[^„“”\n]*[“”]|«[^«»\n]*»|「[^「」\n]*」|(?<!\w)'[^'\n]*'(?!\w)")
"""A quote has no second opening mark: else a text of such marks is read to its end from each of them."""
_OUTSIDE_QUOTES = re.compile(rf"(?P<quote>{_QUOTE.pattern})|(?:(?!{_QUOTE.pattern}).)+", re.DOTALL)
_VALUE = re.compile(r"(?<!\S)(?=\S*?(?:\w[@/:=_.\\-]+\w|\d))\S+")
"""An address, a path, a number, an identifier: one word of a request, however many it is made of."""
_NUMBERED = re.compile(
    r"\W*(?:invoice|order|issue|file|page|note|charge|record|comment|message|report|draft|build|task|ticket|row|line"
    r"|mail)"
    r"s? (?:no\.?|nr\.?|number|id|#)? ?#?\d",
    re.IGNORECASE,
)
"""A thing with its number, where its name may be a verb too: "invoice no. 4471", "page 2 is upside down"."""
_FOR_WHOM = re.compile(r"^(?:me|us)\s+(?=\S)", re.IGNORECASE)
"""Whom an action is for, as in "show me"; it is not part of the thing."""


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """One message: who spoke, the words, and the names of the tools that were called in it."""

    role: Role
    text: str
    calls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """What a chat asks for now: the last request, how it relates to the turns before, and what it takes from them."""

    text: str
    relation: Relation = "new"
    taken: str = ""
    rejected: frozenset[str] = frozenset()
    """The words that a correction rejects."""

    @property
    def query(self) -> str:
        """Return the text to search by: what is taken leads where it is the request, and else stands in quotes."""
        if not self.taken:
            return self.text
        if self.relation in ("accepts", "fills", "repeats") and not (self.relation == "accepts" and _acts(self.text)):
            return f"{self.taken}\n{quoted(self.text)}" if self.text else self.taken
        says_little = self.relation == "corrects" and len(terms(self.text)) < FEW_WORDS and not _asks_itself(self.text)
        return f"{self.taken}, {self.text}" if says_little else f"{self.text}\n{quoted(self.taken)}"

    @property
    def may_stand_alone(self) -> bool:
        """Return whether the request may be a new topic after all, which only a search can decide."""
        words = _words(self.text)
        return (
            not (_first_wish_points(self.text) or (_REFERS.search(_unquoted(self.text)) and words < SELF_CONTAINED))
            and self.relation in ("continues", "repeats")
            and (words >= FEW_WORDS or (words > 1 and not _matches(_POINTS_BACK, self.text)))
        )

    @property
    def is_short_gloss(self) -> bool:
        """Return whether the request is a few words of another language, whose gloss alone is weak evidence."""
        return bool(glossed(self.text)) and _words(self.text) < SELF_CONTAINED


def asked_now(text: str, earlier: Sequence[ChatTurn], *, called: bool = False) -> Asked:
    """Read what a user's turn asks for after the turns before it; `called` says that tools were called already."""
    ask = read_ask(text)
    ask = ask._replace(text=without_courtesies(ask.text))
    relation = relation_of(ask.text, earlier, called=called)
    taken = _TAKEN[relation](ask.text, earlier)
    if relation == "new" or (not taken and relation in ("accepts", "fills")):
        return Asked(query_of(ask._replace(text=_after_change(ask.text))))
    rejected = _rejected(ask.text) if relation == "corrects" else frozenset()
    return Asked(_remainder(ask.text, relation), relation, taken[:TAKEN_CHARS], rejected)


def _after_change(ask: str) -> str:
    """Return a request without the words that only announce another topic, as in "different thing: …"."""
    said = _CHANGES_TOPIC.match(ask)
    ends = _BREAK.match(ask, said.end()) if said else None
    rest = ask[ends.end() :] if ends else ask
    return rest if len(terms(rest)) > 1 or glossed(rest) else ask


def relation_of(ask: str, earlier: Sequence[ChatTurn] = (), *, called: bool = False) -> Relation:
    """Return how a request relates to the turns before it, or to the calls before it if no turns are known."""
    if not (earlier or called) or _CHANGES_TOPIC.match(ask):
        return "new"
    said, rest = _said_last(earlier), _YES_ALONE.sub("", ask)
    acts, words = _acts(rest), _words(rest)
    if _accepts(ask, said):
        return "accepts"
    own = _unquoted(ask)
    if _matches(_CORRECTS, own) or (words < SELF_CONTAINED and _matches(_EXCEPT, own)):
        return "corrects"
    if _fills(ask, said) and not acts and words < _longest_answer(ask, said):
        return "fills"
    is_short = words <= FEW_WORDS
    again = is_short and not _names_another(own) and (_matches(_REPEATS, own) or _is_value(own))
    if not acts and (again or (words < LONG_ANSWER and _LIKEWISE.match(own))):
        return "repeats"
    points = (_matches(_POINTS_BACK, own) or _names_what_was(said, own)) and words < SELF_CONTAINED
    says_little = words <= (FEW_WORDS - 1 if acts else FEW_WORDS)
    return "continues" if points or says_little or _first_wish_points(ask) else "new"


def refers(query: str) -> bool:
    """Return whether the request of a query, its first line, has a pronoun for the thing under discussion."""
    return bool(_REFERS.search(_unquoted(query.partition("\n")[0])))


def _first_wish_points(ask: str) -> bool:
    """Return whether the first of several wishes points back, as in "archive it, and list the tasks in Todoist"."""
    first = next(iter(wishes(ask)), None)
    return first is not None and _matches(_POINTS_BACK, first.text) and _words(first.text) < SELF_CONTAINED


def _names_what_was(said: str, ask: str) -> bool:
    """Return whether a request is about a thing of the last answer: "push the dentist", after one that lists it."""
    named = {term for found in _DEFINITE.findall(ask) for term in terms(found)}
    return bool(named) and not named.isdisjoint(terms(said[-SAID_CHARS:]))


def _matches(pattern: re.Pattern[str], text: str) -> bool:
    """Search a text, or what it says in English."""
    return bool(pattern.search(text) or pattern.search(glossed(text)))


def _words(text: str) -> int:
    """Count the informative words of a text; of another language all but one count, by the gloss without spaces.

    A quote or an identifier is one word, whatever it says.
    """
    said = glossed(text)
    if said:
        return max(len(terms(said)), len(text.split()) - 1)
    plain, values = _VALUE.subn(" ", _QUOTE.sub(" 0 ", text))
    return len(terms(plain)) + values


def _unquoted(text: str) -> str:
    """Return a text with its quotes emptied: what stands in them is not said by who asks."""
    return _QUOTE.sub('""', text)


def _accepts(ask: str, said: str) -> bool:
    yes = _YES.match(ask)
    return bool(yes and _OFFER.search(said)) and len(terms(ask[yes.end() if yes else 0 :])) <= FEW_WORDS


def _names_another(ask: str) -> bool:
    """Return whether a turn that begins like a repetition asks for something else: "and the price?", "and who?"."""
    return bool(_ANOTHER.match(ask)) and not _SAME.search(ask)


def _is_value(ask: str) -> bool:
    """Return whether a turn is nothing but a value: "session:2?", "now B1:C9 of costs.xlsx"."""
    plain, values = _VALUE.subn(" ", re.sub(_START, "", ask, flags=re.IGNORECASE))
    return values > 0 and not terms(plain)


def _fills(ask: str, said: str) -> bool:
    *_, last = _SENTENCE.split(said.strip())
    asks = last.endswith(_QUESTION_MARKS) or _WANTS_TO_KNOW.match(last)
    return bool(asks) and not (_QUESTION.match(ask) or ask.endswith(_QUESTION_MARKS))


def _longest_answer(ask: str, said: str) -> int:
    """Return how many words an answer to the last question has at most; to "anything else?" it may be a new request."""
    *_, question = _SENTENCE.split(said.strip())
    is_detail = _matches(_DETAIL, question) or _WANTS_TO_KNOW.match(question)
    wants_detail = is_detail and not _matches(_ANYTHING, question)
    return LONG_ANSWER if wants_detail and not _NEED.match(ask) else SELF_CONTAINED


def _acts(ask: str) -> bool:
    """Return whether a request names its own action (a foreign one anywhere); "do" leaves it to earlier turns."""
    if said := glossed(ask):
        return not _ACTIONS.isdisjoint(said.lower().split())
    rest = re.sub(_START, "", ask, flags=re.IGNORECASE)
    first = _WORD.search(rest)
    return bool(first and first[0].lower() in _ACTIONS and first[0].lower() != "repeat") and not _NUMBERED.match(rest)


def _asks_itself(ask: str) -> bool:
    """Return whether a request names its own action or asks a question; else what to do was said before."""
    return _acts(ask) or bool(_QUESTION.match(ask))


def _remainder(ask: str, relation: Relation) -> str:
    if relation == "accepts" and (yes := _YES.match(ask)):
        return ask[yes.end() :].strip(" ,.!")
    if relation != "corrects":
        return ask
    kept = _OUTSIDE_QUOTES.sub(lambda part: part["quote"] or _REJECTED.sub(" ", part[0]), ask)
    wanted = _FOR_THAT.sub("", _OBJECTION.sub("", kept.strip(" ,.!;")))
    return wanted.strip(" ,.!;") or ask


def _rejected(ask: str) -> frozenset[str]:
    found = " ".join(chain.from_iterable(_REJECTED.findall(_unquoted(ask))))
    return frozenset(word.lower() for word in found.split() if terms(word))


def _said_last(earlier: Sequence[ChatTurn]) -> str:
    return next((turn.text for turn in reversed(earlier) if turn.role == "assistant" and turn.text), "")


def _requests(earlier: Sequence[ChatTurn]) -> list[str]:
    """Return the asks of the user turns before, the latest first."""
    return [read_ask(turn.text).text for turn in reversed(earlier) if turn.role == "user" and turn.text]


def _nothing(_: str, __: Sequence[ChatTurn]) -> str:
    return ""


def _offer(ask: str, earlier: Sequence[ChatTurn]) -> str:
    """Return what the last answer offers to do, without the words that offer it.

    An offer that says little ("shall I send it?") is read with what was said before it, and one that points back
    ("shall I add one for Ada?") with the thing under discussion.
    """
    said = _said_last(earlier)
    sentences = _SENTENCE.split(said)
    found = [_OFFERED.sub("", sentence).strip(" ?.!") for sentence in sentences if _OFFER.search(sentence)]
    offers = "\n".join(offer for offer in found if terms(offer))
    about = _OFFERED_LAST.sub("", said)
    if len(terms(offers)) <= 1 and terms(about):
        return f"{offers}\n{quoted(about)}"
    says_little = len(terms(_VALUE.sub(" ", offers))) <= 1
    thing = _thing(ask, earlier) if says_little or _matches(_POINTS_BACK, offers) else ""
    return f"{offers}\n{quoted(thing)}" if thing else offers


def _open_request(_: str, earlier: Sequence[ChatTurn]) -> str:
    return next(iter(_requests(earlier)), "")


def _open_question(ask: str, earlier: Sequence[ChatTurn]) -> str:
    """Return the last request with the question about it, whose words say what the answer is.

    "Which one should I open?" names the next step itself, and the last request says what it is about.
    """
    request, (*_, question) = _open_request(ask, earlier), _SENTENCE.split(_said_last(earlier))
    if _CHOICE.match(question) and _acts(step := _OFFERED.sub("", question)):
        return f"{step.strip(' ?')} {_thing(ask, earlier)}"
    return f"{request}\n{quoted(question)}" if request else ""


def _thing(_: str, earlier: Sequence[ChatTurn]) -> str:
    """Return the latest requests, back to one that stands alone, without the verbs they begin with."""
    found: list[str] = []
    for request in _requests(earlier)[:MAX_TAKEN]:
        found.append(_without_action(request))
        if len(terms(found[-1])) > 1:
            break
    return " ".join(found)


def _corrected(ask: str, earlier: Sequence[ChatTurn]) -> str:
    """Return the last request without the words that are rejected now, nor its verb if there is another one now."""
    rejected = _rejected(ask)
    request = (_thing if _asks_itself(_remainder(ask, "corrects")) else _open_request)(ask, earlier)
    return " ".join(word for word in request.split() if word.strip(".,!?").lower() not in rejected)


def _without_action(request: str) -> str:
    rest = re.sub(_START + r"(?:(?:can|could|would) you\s+)?", "", request, flags=re.IGNORECASE)
    first, _, objects = rest.partition(" ")
    return _FOR_WHOM.sub("", objects) if first.lower() in _ACTIONS and objects else rest


_TAKEN = {
    "new": _nothing,
    "continues": _thing,
    "repeats": _open_request,
    "accepts": _offer,
    "fills": _open_question,
    "corrects": _corrected,
}
"""What each relation takes from the turns before."""
