"""Notices by which a tool says that it is deprecated, in every supported language, and the successor that it names."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from shortlist.models import Tool
from shortlist.text.tokens import split_identifier

MAX_NOTICE_CHARS = 4_000
"""The length of a description that is searched for a notice."""
SUCCESSOR_CHARS = 240
"""A successor is named within so many characters of the notice."""
FLAGS = ("deprecated", "deprecatedHint")
"""What marks a tool as deprecated in its definition, its annotations or its `_meta`."""
MIN_NAME_WORDS = 2
"""What stands before "deprecated" in a name has so many words: `list_deprecated` lists what is deprecated."""

_WORDS: Mapping[str, str] = {
    "deprecat": r"deprecat(?:ed|ing|o|a)",
    "obsol": r"obsolete|obsolet[oa]|obsolète",
    "veraltet": r"veraltet",
    "abgekündigt": r"abgekündigt",
    "en desuso": r"en desuso",
    "descontinuad": r"descontinuad[oa]",
    "dépréci": r"dépréciée?",
    "dismess": r"dismess[oa]",
    "depreciad": r"depreciad[oa]",
    "przestarzał": r"przestarzał[aey]",
    "wycofan": r"wycofan[aey]",
    "устарел": r"устарел[ао]?",
    "не поддерживается": r"больше не поддерживается",
    "kullanımdan kald": r"kullanımdan kaldırıldı",
    "desteklenmiyor": r"artık desteklenmiyor",
    "lỗi thời": r"(?:đã )?lỗi thời",
    "không còn được": r"không còn được (?:hỗ trợ|sử dụng)",
    "dùng nữa": r"không (?:còn )?dùng nữa",
    "弃用": r"已弃用",
    "棄用": r"已棄用",
    "废弃": r"已废弃",
    "廢棄": r"已廢棄",
    "过时": r"已过时",
    "過時": r"已過時",
    "非推奨": r"非推奨(?:です)?",
    "廃止": r"廃止(?:予定|済み|されました)",
    "더 이상": r"더 이상 (?:사용|지원)되지 않(?:음|습니다)",
    "중단": r"(?:사용|지원) 중단(?:됨|되었습니다)?",
    "مهمل": r"مهملة?",
    "متقادم": r"متقادمة?",
    "مدعوم": r"لم [يت]عد مدعوم(?:ة|ًا|ا)?",
    "अप्रचलित": r"अप्रचलित(?: है)?",
    "समर्थित नहीं": r"अब समर्थित नहीं(?: है)?",
}
"""What says that something is deprecated, by the letters that all of its forms have."""
_PHRASES: Mapping[str, str] = {
    "deprecation": r"deprecation(?: (?:notice|warning))?\s*:",
    "deprecated_": r"deprecated_(?:tool|function|method|endpoint|api)\b",
    "eded by": r"super[sc]eded by\b",
    "replaced by": r"replaced by\b",
    "no longer": r"no longer (?:supported|maintained|recommended)\b",
    "be removed in": r"(?:will|to) be removed in (?:v?\d|(?:version|release|the next|a future|an upcoming)\b)",
}
"""What says so without a mark behind it."""
_WORD, _PHRASE = "|".join(_WORDS.values()), "|".join(_PHRASES.values())
_BEHIND = (
    r"(?=\s*(?:$|[\n.:!;/\])*–—。：！；，、】）।]|- )"
    r"|[,\s]\s*(?:please|use|prefer|see|since|as of|in favou?r|in v?\d|by|and will|instead)\b)"
)
"""What follows the word in a notice; in "Deprecated packages" it says something about the packages."""
_START = r"(?:^\W*|(?:[.!?;।]\s+|[。！？；]|\n[^\S\n]*+)(?:[^\w\s*•+。！？；-]|\*\*)*+[^\S\n]*+(?-i:(?![a-z])))"
"""The start of a description or of a sentence in it, but not a list's item or parameter of that name."""
_THIS = (
    r"(?<!if )(?<!whether )\bthis (?:\w+ )?(?:tool|endpoint|method|function|api|action|command|operation|route|call"
    r"|version|feature|request|service) (?:(?:is|was|has been) )?(?:(?:now|already|officially|being) )?"
    r"|\b(?:dies(?:e|er|es)|est[ae]|cet(?:te)?|ce|quest[oa]|данн(?:ый|ая)|эт(?:от|а)|to|ten|ta|bu|이|هذ[اه]|यह) "
    r"\S{1,20} (?:(?:ist|wurde|está|ha sido|est|a été|è(?: stat[oa])?|é|foi|jest|został[ao]?) )?"
    r"|\bcông cụ này |(?:[此该該本]|この)\w{1,8}?"
)
"""How a sentence begins that says something about the tool itself."""
_NOTICE = re.compile(
    rf"{_START}(?:(?:{_WORD}){_BEHIND}|{_PHRASE})"
    rf"|(?:{_THIS})(?:(?:{_WORD})(?![的のな])|{_PHRASE})"
    rf"|(?:[\[(（]|; )(?:{_WORD})(?:[\])）]\**\s*(?:$|[\n.])|[,:] (?:please )?(?:use|prefer)\b)"
    r"|(?:@|\.\. )deprecated\b"
    r"|^\W*do not use(?: this(?: tool)?)?\s*(?:$|[.!:;–—]|- |,? ?(?:any ?more|any longer|use|prefer)\b)"
    r"|^\W*legacy\b[^\n]{0,200}?\b(?:prefer [`'\"]?\w+_\w|use [`'\"]?[\w./-]+[`'\"]? instead)",
    re.IGNORECASE,
)
_HINTS = (*_WORDS, *_PHRASES, "do not use", "legacy")
"""One of them stands in every notice."""
_ASCII_HINTS = tuple(filter(str.isascii, _HINTS))
_ARGUMENTS = re.compile(r"\n[^\S\n]*+(?:args|arguments|parameters|params|inputs?)\b[^\n]{0,40}:", re.IGNORECASE)
"""Where a description begins to speak of arguments, which may be deprecated themselves."""
_INSTEAD = re.compile(
    r"\b(?:use|prefer|super[sc]eded by|replaced by|in favou?r of)\s+(?:the\s+)?"
    r"(?:[`'\"](\w[\w./-]*)|([A-Za-z]\w*(?:[_./-]\w+)+|[a-z]+[A-Z]\w*))",
    re.IGNORECASE,
)


def successor_of(tool: Tool) -> str | None:
    """Return the name that a deprecated tool gives for its successor, or "", and None where it is not deprecated."""
    notice = next(_notices(tool), None)
    if notice is None:
        return None
    named = _INSTEAD.search(notice)
    return next(filter(None, named.groups()), "") if named else ""


def _notices(tool: Tool) -> Iterator[str]:
    """Yield the texts that say that a tool is deprecated, and perhaps what to use instead."""
    text = _ARGUMENTS.split(tool.description[:MAX_NOTICE_CHARS], maxsplit=1)[0]
    if (found := _notice_in(text)) is not None:
        yield text[found.start() : found.start() + SUCCESSOR_CHARS]
    if _notice_in(tool.title) is not None or _is_named_so(tool):
        yield text[:SUCCESSOR_CHARS]
    yield from _flags(tool)


def _notice_in(text: str) -> re.Match[str] | None:
    lowered = text.lower()
    hints = _ASCII_HINTS if lowered.isascii() else _HINTS
    return _NOTICE.search(text) if any(hint in lowered for hint in hints) else None


def _is_named_so(tool: Tool) -> bool:
    """Return whether a name ends in "deprecated", and the description does not explain it: a tool may mark as such."""
    if "deprecated" not in tool.name.lower() or "deprecat" in tool.description.lower():
        return False
    *others, last = split_identifier(tool.name)
    return last == "deprecated" and len(others) >= MIN_NAME_WORDS


def _flags(tool: Tool) -> Iterator[str]:
    """Yield the text of each flag, which is empty for `true`; a key of `_meta` may have the prefix of its owner."""
    if "deprecated" not in tool.definition:
        return
    definition = tool.mcp()
    for part in (definition, definition.get("annotations"), definition.get("_meta")):
        for key, value in _entries(part):
            if key.rpartition("/")[2] in FLAGS and (value is True or (isinstance(value, str) and value.strip())):
                yield "" if value is True else value


def _entries(part: Any) -> Iterator[tuple[str, Any]]:
    yield from part.items() if isinstance(part, dict) else ()
