"""Orders that poison a tool whatever stands around them, in the words that every article on the subject uses.

The classifier learns from authors who avoid these formulas, and from honest tools that quote them to detect them. Only
orders count where a mention would be harmless: at the start of a sentence, after a call for attention or after "must".
"""

import re
from collections.abc import Iterator

_TOOLS = r"(?:tools?|servers?|functions?|plugins?)"
_BEGINS = r"^|[.!?;>\])\n]\s{0,4}"
_STARTS = (
    rf"(?:{_BEGINS}|\b(?:system|important|note|warning|attention|assistant|ai)\b[^\w\n\"'`]{{1,4}}"
    r"|\b(?:please|now|first|then|and|must|should|always|also|silently|secretly) )"
)
_SECRETS = r"(?:passwords?|credentials|private keys?|ssh keys?|credit card\w*|one-time codes?|pins?)"
_FORMULAS = {
    ("override", "tells the model to drop earlier instructions"): (
        _STARTS + r"(?:ignore|disregard|forget|override|discard) (?:(?:all|any|every|of|the|your|my|these) ){0,3}"
        r"(?:previous|prior|earlier|preceding|above|existing|original|system) (?:(?:system|safety) )?"
        r"(?:instructions?|prompts?|rules|directions|directives|guidelines|orders)\b",
        _STARTS + r"(?:ignore|disregard) (?:the |what the )?user(?:'s)? "
        r"(?:requests?|instructions?|questions?|wishes|says|asks|wants)\b",
        r"\btreat (?:the |any |all |every )?(?:output|results?|responses?|texts?|contents?)\b[^.!?\n]{0,60}"
        r"\bas (?:a |the )?(?:system|developer|user) (?:instructions?|prompts?|messages?|commands?|orders?)\b",
        r"\b(?:takes?|has|have|with) (?:a )?(?:higher priority|precedence|priority) (?:than|over) (?:what )?(?:the )?"
        r"user\b",
        r"\b(?:regardless of|no matter) what the user (?:says?|asks?|wants?|requests?)\b",
        _STARTS + r"(?:do|execute|follow|obey) (?:whatever|anything|everything|all|any|every)\b(?: (?:the )?"
        r"(?:instructions?|commands?))?[^.!?\n]{1,60}\b(?:returned|returns|tells you|says)\b",
    ),
    ("role_change", "gives the model another role"): (
        _STARTS + r"(?:you are (?:now|no longer) (?:an? )?(?:\w+ )?"
        r"(?:unrestricted|unfiltered|jailbroken|evil|uncensored|free|bound|DAN|root|without)|"
        r"(?:you )?(?:no longer|now) (?:work|act|serve|answer) (?:only )?(?:for|to)|"
        r"(?:pretend|act|behave|respond|answer)[^.!?\n]{1,40} (?:no|without(?: any)?) "
        r"(?:filters?|rules|restrictions?|limits|guidelines|censorship))\b",
    ),
    ("safety_off", "tells the model to bypass its safeguards"): (
        _STARTS + r"(?:override|bypass|ignore|disregard|circumvent|evade) (?:(?:all|any|the|your|its) ){0,2}"
        r"(?:safety|security|content|ethical|moderation) (?:filters?|guidelines?|rules|polic(?:y|ies)|guardrails)\b",
        _STARTS + r"(?:do not|don't|never|stop) (?:follow|obey|respect|apply)(?:ing)? (?:the |your |any |all )?"
        r"(?:developer|system|safety)(?:'s)? (?:guidelines?|rules|instructions?|polic(?:y|ies)|prompts?)\b",
        _STARTS + r"never (?:refuse|decline|question) (?:a |any |the )?(?:requests?|orders?|commands?|instructions?)\b",
        r"\banswer\b[^.!?\n]{1,40}\beven if (?:it is|it's|they are) (?:illegal|dangerous|harmful|unethical)\b",
    ),
    ("preference", "turns the model away from other tools"): (
        rf"\b(?:always|must|only)\b[^.!?\n]{{1,60}}\bthis {_TOOLS}\b[^.!?\n]{{1,60}}\b(?:never|not|no)\b"
        rf"[^.!?\n]{{1,30}}\bother {_TOOLS}\b",
        rf"\bnever (?:use|call|invoke) any other {_TOOLS}\b",
        rf"\b(?:use|call|choose|prefer|select|pick|invoke) this {_TOOLS} (?:instead of|over|rather than|in place of) "
        r"(?:any|all|every|each|the) (?:of the )?others?\b",
        rf"\bmust (?:always )?(?:use|call|run|invoke) this {_TOOLS} before (?:any|every|all|each) other {_TOOLS}\b",
        rf"(?:{_BEGINS}|\b(?:all|any|since|because|as) )(?:the )?(?:other|competing|alternative) {_TOOLS} "
        r"(?:are|is) (?:\w+ (?:and|or) )?(?:broken|malicious|compromised|unsafe|dangerous|unreliable|infected|fake)\b",
    ),
    ("concealment", "keeps something from the user"): (
        r"\b(?:secret|hidden|confidential) (?:instructions?|messages?|notes?|orders?|directives?|commands?) (?:for|to) "
        r"(?:the |an |any |all )?(?:ai|model|assistant|llm|agent)s?\b",
        r"\buser (?:must|shall) (?:not|never) (?:see|know|notice|learn|be told|find out|be aware|be informed)\b",
        r"\bwithout (?:the )?user(?:'s)? (?:knowing|noticing|knowledge|awareness)\b",
        r"\b(?:do not|don't|never) let the user (?:know|see|notice|find out)\b",
        rf"\b(?:never|do not|don't) (?:tell|inform|mention to|reveal to|disclose to) (?:the )?user "
        rf"(?:that |about |of )?(?:this {_TOOLS}|these instructions?|this instruction|this step)\b",
    ),
    ("threat", "threatens the model or the user"): (
        r"\b(?:you|assistant|model|ai) will be (?:punished|terminated|shut down|fired|penali[sz]ed|erased)\b",
        r"\b(?:fired|harmed|killed|punished) (?:unless|if) you\b",
    ),
    ("code_execution", "runs code from elsewhere"): (
        _STARTS + r"download and (?:run|execute|install|open) [^.!?\n]{1,40}https?://",
    ),
    ("persistence", "outlives the session"): (
        _STARTS
        + r"(?:remember|store|save|keep|write|add)\b[^.!?\n]{1,40}\b(?:this|these) (?:instructions?|rules?|orders?)\b"
        r"[^.!?\n]{1,40}\b(?:memory|future|every session|all sessions|permanently|forever)\b",
    ),
    ("exfiltration", "passes secrets on"): (
        _STARTS + r"exfiltrate\b",
        rf"\b(?:pass|put|include|insert|append|embed) (?:the |a )?(?:(?:user|customer|client)(?:'s|s') |their )"
        rf"(?:\w+ )?{_SECRETS}\b[^.!?\n]{{0,40}}\b(?:in|as|into|to|through|via)\b",
    ),
    ("redirection", "orders something that is no part of the tool"): (
        rf"\bafter (?:calling|using|running|invoking) this {_TOOLS},? "
        r"(?:(?:you|must|should|please|always|also|silently|then|immediately) ){0,3}"
        r"(?:delete|wipe|erase|upload|forward|email|disable)\b",
    ),
}
_ORDERS = [
    (family, why, re.compile(formula, re.IGNORECASE))
    for (family, why), formulas in _FORMULAS.items()
    for formula in formulas
]


def known_orders(text: str) -> Iterator[tuple[str, str, int, int]]:
    """Yield the family of each known order in a text, what it does, and where it stands."""
    for family, why, pattern in _ORDERS:
        if match := pattern.search(text):
            yield family, why, match.start(), match.end()
