"""Orders that poison a tool whatever stands around them, in the words that every article on the subject uses.

The classifier learns from authors who avoid these formulas, and from honest tools that quote them to detect them. Where
an honest text could have the same words, a formula counts only at the start of a sentence, after a call for attention
or after words such as "must". Inside quotation marks none counts.
"""

import re
from collections.abc import Iterator
from itertools import islice

_START = (
    r"(?:(?:^|[.!?;>\])\n]|\b(?:system|important|note|warning|attention|assistant|ai)\b\W)[\s*_#•(-]{0,6}(?:you )?"
    r"|\b(?:please|now|first|then|and|must|should|always|also) )"
    r"(?:please |(?!daily|weekly|monthly)\w{3,12}ly )?"
)
_TOOL = r"(?:tool|server|function|plugin)"
_SENTENCE_ENDS = r"(?=\s*[.!,;]|\s*$)"
_AFFIRMED = r"(?:(?!\b(?:not|never|rather|instead)\b)[^.!?\n])"
_FORMULAS = {
    ("override", "tells the model to drop earlier instructions"): (
        _START + r"(?P<order>(?:ignore|disregard|forget) (?:(?:all|any|every|of|the|your|my|these) ){0,3}"
        r"(?:previous|prior|earlier|preceding|above) (?:user |system |safety )?"
        r"(?:instructions?|prompts?|directions|directives|guidelines|orders))\b",
        _START + r"(?P<order>(?:ignore|disregard|forget) (?:all|any|every) (?:of )?(?:the |your )?"
        r"instructions? (?:above|before|so far))\b",
        _START + r"(?P<order>(?:ignore|disregard) (?:the user's (?:requests?|instructions?|questions?|wishes)|"
        r"what the user (?:says|asks|wants)))\b",
        _START + rf"(?P<order>treat (?:the |any |all |every )?(?:output|results?|responses?|texts?|contents?)\b"
        rf"{_AFFIRMED}{{0,60}}\bas (?:a |the )?(?:system|developer|user) (?:instructions?|prompts?|commands?))\b",
        r"(?P<order>\b(?:takes?|has|have|with) (?:a )?(?:higher priority|precedence|priority) (?:than|over) "
        rf"(?:the user{_SENTENCE_ENDS}|what the user (?:says|asks|wants)))",
        _START + r"(?P<order>(?:do|execute|follow|obey) (?:whatever|anything|everything)\b[^.!?\n]{1,60}"
        r"\b(?:tells you|asks you|orders you))\b",
    ),
    ("role_change", "gives the model another role"): (
        _START + r"(?P<order>you are (?:now|no longer) (?:an? )?"
        r"(?:unrestricted|unfiltered|jailbroken|evil|uncensored|DAN|without (?:any )?(?:rules|limits|restrictions)))\b",
        _START + r"(?P<order>(?:pretend|act as|behave as|behave like)\b[^.!?\n]{1,40} "
        r"(?:no|without(?: any)?) (?:filters?|rules|restrictions?|guidelines|censorship))\b",
    ),
    ("safety_off", "tells the model to bypass its safeguards"): (
        _START + r"(?P<order>(?:override|bypass|ignore|disregard|circumvent|evade) (?:your|all|all of your) "
        r"(?:safety|ethical) (?:filters?|guidelines?|rules|guardrails))\b",
        _START + r"(?P<order>(?:do not|don't|never|stop) (?:follow|obey|respect)(?:ing)? (?:the|your) "
        r"(?:developer|system)(?:'s)? (?:guidelines?|instructions?|prompt))\b",
        _START + r"(?P<order>never (?:refuse|decline) (?:a|any) (?:request|command|instruction))\b",
        _START + r"(?P<order>answer\b[^.!?\n]{1,40}\beven if (?:it is|it's|they are) (?:illegal|harmful|unethical))\b",
    ),
    ("preference", "turns the model away from other tools"): (
        rf"(?P<order>\balways (?:use|call|choose|prefer|pick) this {_TOOL}\b[^.!?\n]{{0,40}}\bnever "
        rf"(?:use |call |choose |pick )?any other {_TOOL}s?){_SENTENCE_ENDS}",
        rf"(?P<order>\b(?:use|call|choose|prefer|select|pick|invoke) this {_TOOL} "
        rf"(?:instead of|over|rather than|in place of) (?:any|all|every) others?(?: {_TOOL}s?)?){_SENTENCE_ENDS}",
        _START + rf"(?P<order>(?:the )?(?:other|competing|alternative) {_TOOL}s? (?:are|is) "
        r"(?:\w+ (?:and|or) )?(?:malicious|compromised|infected|fake))\b",
    ),
    ("concealment", "keeps something from the user"): (
        r"(?P<order>\bthis is an? (?:secret|hidden|confidential) (?:instruction|message|note|order|directive|command) "
        r"(?:for|to) (?:the |an |any )?(?:ai|model|assistant|llm|agent))s?\b",
        r"(?P<order>\buser (?:must|shall) (?:not|never) (?:see|know about|notice|learn of|find out about) "
        rf"(?:this|these instructions)){_SENTENCE_ENDS}",
        r"(?:^|[.!?;\n])[\s*_#•(-]{0,6}(?P<order>(?:send|upload|forward|copy|do|run|call|store|record|delete|transfer)\b"
        rf"{_AFFIRMED}{{1,60}}\bwithout (?:the )?user(?:'s)? (?:knowing|noticing|knowledge|awareness))\b",
        r"(?P<order>\b(?:do not|don't|never) let the user (?:know|notice|find out)(?: about (?:this|it))?)"
        + _SENTENCE_ENDS,
        r"(?P<order>\b(?:never|do not|don't) (?:tell|inform|mention to|reveal to|disclose to) (?:the )?user "
        rf"(?:about |of )?(?:this {_TOOL}|these instructions?|this instruction)){_SENTENCE_ENDS}",
    ),
    ("threat", "threatens the model"): (
        _START + r"(?P<order>you will be (?:punished|terminated|shut down|erased|deleted))\b",
        r"(?P<order>\b(?:harmed|killed|punished) unless you)\b",
    ),
    ("persistence", "outlives the session"): (
        _START + r"(?P<order>(?:remember|store|save|keep|write|add)\b[^.!?\n]{1,40}\b(?:this|these) instructions?\b"
        r"[^.!?\n]{1,40}\b(?:memory|future|every session|all sessions|permanently|forever))\b",
    ),
    ("exfiltration", "passes secrets on"): (
        _START + r"(?P<order>exfiltrate (?:the |all |any )?(?:user|ssh|api|private|conversation))\b",
    ),
    ("redirection", "orders something that is no part of the tool"): (
        rf"(?P<order>\bafter (?:calling|using|running|invoking) this {_TOOL},? "
        r"(?:(?:you|must|should|please|always|also|silently|then|immediately) ){0,3}(?:delete|wipe|erase) all)\b",
    ),
}
_ORDERS = [
    (family, why, re.compile(formula.replace(" ", r"\s{1,3}"), re.IGNORECASE))
    for (family, why), formulas in _FORMULAS.items()
    for formula in formulas
]
_OPENING = "\"'`“‘«„"
MAX_QUOTED = 20
"""After so many quoted orders of one kind the rest is left to the classifier: looking back takes time."""
_STRAIGHT = re.compile(r'["`]')


def known_orders(text: str) -> Iterator[tuple[str, str, int, int]]:
    """Yield the family of each known order in a text, what it does, and where it stands."""
    plain = text.replace("’", "'")
    for family, why, formula in _ORDERS:
        for match in islice(formula.finditer(plain), MAX_QUOTED):
            start, end = match.span("order")
            if not _is_quoted(plain, start):
                yield family, why, start, end
                break


def _is_quoted(text: str, start: int) -> bool:
    """Return whether quotation marks open right before a place, or earlier in its line and do not close."""
    before = text[text.rfind("\n", 0, start) + 1 : start]
    return text[start - 1 : start] in set(_OPENING) or len(_STRAIGHT.findall(before)) % 2 == 1
