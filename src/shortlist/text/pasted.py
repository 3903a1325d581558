"""Which lines of a message are pasted: logs, code, settings, terminals, tables, mail, quoted chats."""

import re
from collections import Counter
from itertools import groupby
from typing import NamedTuple

from shortlist.text.languages.reading import glossed
from shortlist.text.letters import introduces_a_quote, is_greeting, is_sign_off
from shortlist.text.phrasing import score_in_any_language

MAX_LINES = 12_000
"""The maximum number of lines and sentences to read, half from each end, where the request usually is."""
STATEMENT = 60
"""A single line of SQL that is longer than this is pasted; a shorter one may be the request itself."""
LINE_HEAD = 400
"""The length of a line that is read to classify it."""
SIGNATURE, SIGNATURE_LINES = 120, 8
"""The lines below a sign-off, up to a blank one: a name, a position, an address, and how long each is."""
ACTS = 2.0
"""What a line scores that names an action, as the request below a signature may."""
MANY_LINES = 3
"""In a paragraph of so many lines, half of them pasted, the others are pasted too."""

_FENCE = re.compile(r"\s{0,3}(```|~~~)")
_LOG = re.compile(
    r"\s*[\[(]?\d{4}-\d\d-\d\d[T ]\d\d|\s*[\[(]?\d\d:\d\d:\d\d|\s+at \S+\(|Traceback \(|\s*File \"[^\"]*\", line"
    r"|(?:[\w.]+ )?\[?(?:ERROR|WARN|WARNING|INFO|DEBUG|TRACE|FATAL|CRITICAL)\b|[A-Za-z.]*(?:Error|Exception)\b(?::|$)"
)
_QUOTE = re.compile(r"\s*>|\[?\d{1,2}:\d\d(?::\d\d)?\s?(?:[AP]M)?\]? \S+: ")
_SPEAKER = re.compile(r"[A-Z][\w.-]{1,20}(?: [A-Z][\w.-]{1,20})?: \S")
_HEADER = re.compile(
    r"(?:From|To|Cc|Bcc|Subject|Date|Sent|Von|An|Betreff|Gesendet|De|Para|Asunto|Assunto|À|Objet|Da|Oggetto|Od|Do|Temat"
    r"|От|Кому|Тема|Kimden|Konu|发件人|收件人|主题|件名|差出人|보낸 사람|제목)\s?[:：] ?"
)
_CODE = re.compile(
    r"(?:\t| {4})\s*\S"
    r"|\s*(?:def \w+\s*[(:]|class \w+\s*(?:$|[:({<]|extends |implements )|from [\w.]+ import|const |var |async |await )"
    r"|\s*import (?:[\w.*]+(?: as \w+)?(?:\s*,\s*[\w.]+(?: as \w+)?)*;?\s*$|.* from ['\"]|[\"'{(*])"
    r"|\s*let (?:mut )?(?:\w+\s*[=:;]|[{\[])"
    r"|\s*(?:return(?:\s*;?\s*$|\s+[\w.]*[^\w\s,.]|\s+[\w.]+;?\s*$)|function\b\s*\w*\s*[(*]|public |private |static )"
    r"|\s*(?:#include|package [\w.]+;?\s*$|@[\w.]+(?:\(.*)?\s*$|</?\w+|//|/\*|\}|\)|\])"
    r"|\s*(?:for .+ in .+:|if .+:\s*$|else:|try:|except\b.*:)"
    r"|\s*(?:SELECT|FROM|WHERE|GROUP BY|ORDER BY|LIMIT|JOIN|INSERT INTO|CREATE TABLE)\b"
    r"|(?:RUN|COPY|CMD|ENV|WORKDIR|ENTRYPOINT) |\s*[\w.-]+:\s*$|\s*-? ?[\w.\"-]+: [\w\"'{\[./:@-]+\s*$"
)
_SETTING = re.compile(r"\s*(?:export )?[\w.-]+ ?= ?\S|\s*\[[\w .:\"-]+\]\s*$|;\s")
_PROMPT = re.compile(r"(?:\([\w.-]+\) )?(?:[\w.-]+@[\w.-]+[: ]\S*?[$#%]|\$|❯|➜|PS [A-Z]:\S*>|[A-Z]:\\\S*>)(?:\s|$)")
_PATCH = re.compile(r"diff --git |index [0-9a-f]{6,}|@@ -\d|(?:---|\+\+\+) \S|[+ -]")
_PATCH_HEAD = re.compile(r"diff --git |@@ -\d|\+\+\+ \S")
_SENTENCE = re.compile(r"(?:[^\W\d_]+,? ){5}[^{}=<>|;]*[.?!]$")
_STATEMENT = re.compile(r"\s*(?:SELECT|INSERT INTO|UPDATE|DELETE FROM|CREATE TABLE|WITH)\b")
_LISTED = re.compile(r"\s*(?:[-*•]|\d{1,2}[.)])\s+[A-Za-z]+ \w")
_MARKS = re.compile(r"[{}()\[\];=<>|\\/_$#&*+^~`\"]")
_SEPARATORS = re.compile(r"\t| \| |\||,|;| {2,}")

ALIKE = 3
"""Lines that differ in nothing but numbers are pasted from so many on."""
_NUMBERS = re.compile(r"\d+")


class Block(NamedTuple):
    """A paragraph or a run of pasted lines."""

    text: str
    is_pasted: bool
    in_letter: bool = False
    """Whether it is between the headers of a mail and its sign-off."""


def kinds_of(lines: list[str]) -> list[tuple[str, bool]]:
    """Return what each line looks like, and whether it is between the headers of a mail and its sign-off."""
    kinds = _kinds(lines)
    letter = _letter(lines, kinds)
    return [(kind, number in letter) for number, kind in enumerate(kinds)]


def blocks_of(text: str) -> list[Block]:
    """Cut a message into paragraphs and runs of pasted lines."""
    lines = first_and_last(text.split("\n"))
    kinds = _kinds(lines)
    letter = _letter(lines, kinds)
    total = sum(1 for kind in kinds if kind)
    blocks = []
    number = 0
    for (is_pasted, is_blank), run in groupby(
        zip(lines, kinds, strict=True), key=lambda each: (_is_pasted(each[1], total), not each[0].strip())
    ):
        held = [line for line, _ in run]
        if not is_blank:
            blocks.append(Block("\n".join(held).strip(), is_pasted, number in letter))
        number += len(held)
    return blocks


def _is_pasted(kind: str, total: int) -> bool:
    """Keep a single unusual line as the writer's own unless it is certainly pasted."""
    return bool(kind) and (total > 1 or kind in ("log", "fence", "mail", "statement"))


def _kinds(lines: list[str]) -> list[str]:
    """Classify each line; empty for plain prose."""
    kinds = [_kind(line) for line in lines]
    _mark_fences(lines, kinds)
    _mark_patches(lines, kinds)
    _mark_mail(lines, kinds)
    _mark_repeated(lines, kinds, _SPEAKER, "quote")
    _mark_tables(lines, kinds)
    _mark_alike(lines, kinds)
    _mark_surrounded(lines, kinds)
    return kinds


def _letter(lines: list[str], kinds: list[str]) -> range:
    """Find the lines from the head of a mail to its last sign-off."""
    head = next((n for n, kind in enumerate(kinds) if kind == "mail"), None)
    if head is None:
        return range(0)
    end = max(n for n, kind in enumerate(kinds) if kind == "mail")
    return range(head, end) if end > head + 6 else range(head, len(lines) - 1)


def _kind(whole: str) -> str:
    line = whole[:LINE_HEAD]
    if not line or line.isspace():
        return ""
    if _LOG.match(line) or _PROMPT.match(line):
        return "log" if _LOG.match(line) else "terminal"
    if _QUOTE.match(line):
        return "quote"
    if len(line) > STATEMENT and _STATEMENT.match(line):
        return "statement"
    if (_CODE.match(line) or _SETTING.match(line) or line.rstrip()[-1] in ";{([") and not _LISTED.match(line):
        return "code"
    marks = len(_MARKS.findall(line))
    return "code" if marks >= 4 and marks > 0.08 * len(line) else ""


def _mark_fences(lines: list[str], kinds: list[str]) -> None:
    opened: int | None = None
    for number, line in enumerate(lines):
        if not _FENCE.match(line):
            continue
        if opened is None:
            opened = number
        else:
            kinds[opened : number + 1] = ["fence"] * (number + 1 - opened)
            opened = None
    if opened is not None:
        kinds[opened:] = ["fence"] * (len(lines) - opened)


def _mark_patches(lines: list[str], kinds: list[str]) -> None:
    """Mark the lines of a patch: from its head to the first one that begins with none of its signs."""
    inside = False
    for number, line in enumerate(lines):
        inside = bool(_PATCH_HEAD.match(line) or (inside and (not line or _PATCH.match(line))))
        if inside and line:
            kinds[number] = "code"


def _mark_mail(lines: list[str], kinds: list[str]) -> None:
    """Mark headers, the greeting, and a sign-off with what is below it; what lies between is scored lower."""
    signed = 0
    for number, line in enumerate(lines):
        short = line.strip()
        signed = signed - 1 if signed and _is_in_signature(short) else 0
        if signed or _HEADER.match(line) or is_greeting(short) or introduces_a_quote(short):
            kinds[number] = "mail"
        elif len(short) < 60 and is_sign_off(short):
            kinds[number], signed = "mail", SIGNATURE_LINES


def _is_in_signature(short: str) -> bool:
    return 0 < len(short) < SIGNATURE and score_in_any_language(short) < ACTS


def _may_be_asked(lines: list[str], number: int) -> bool:
    """Return whether a line at the edge of a paragraph is not of a piece with the lines beside it."""
    edges = [at for at in (number - 1, number + 1) if not 0 <= at < len(lines) or not lines[at].strip()]
    line = lines[number][:LINE_HEAD]
    reads_like_one = score_in_any_language(line.strip()) >= 1.0 or _SENTENCE.match(line)
    return bool(edges) and bool(reads_like_one or glossed(line))


def _mark_surrounded(lines: list[str], kinds: list[str]) -> None:
    """Mark what no pattern knows in a paragraph that is mostly pasted; its first and last line may be the request."""
    start = 0
    for number in range(len(lines) + 1):
        if number < len(lines) and lines[number].strip():
            continue
        marked = sum(1 for kind in kinds[start:number] if kind)
        is_session = kinds[start:number].count("terminal") > 1
        if number - start >= MANY_LINES and (2 * marked >= number - start or is_session):
            for at in range(start, number):
                if not kinds[at] and not _may_be_asked(lines, at):
                    kinds[at] = "surrounded"
        start = number + 1


def _mark_repeated(lines: list[str], kinds: list[str], pattern: re.Pattern[str], kind: str) -> None:
    found = [not kinds[number] and bool(pattern.match(line)) for number, line in enumerate(lines)]
    for number, is_one in enumerate(found):
        beside = (number > 0 and found[number - 1]) or (number + 1 < len(found) and found[number + 1])
        if is_one and beside:
            kinds[number] = kind


def _mark_alike(lines: list[str], kinds: list[str]) -> None:
    shapes = [_NUMBERS.sub("0", line[:LINE_HEAD]).strip() for line in lines]
    counts = Counter(shapes)
    for number, shape in enumerate(shapes):
        if shape and not kinds[number] and counts[shape] >= ALIKE:
            kinds[number] = "repeated"


def _mark_tables(lines: list[str], kinds: list[str]) -> None:
    """Mark lines that have as many separators as a line beside them."""
    counts = [0 if kinds[n] in ("log", "fence", "mail") else _separators(line) for n, line in enumerate(lines)]
    for number, count in enumerate(counts):
        before = counts[number - 1] if number else 0
        after = counts[number + 1] if number + 1 < len(counts) else 0
        if count >= 2 and count in (before, after):
            kinds[number] = "table"


def _separators(line: str) -> int:
    found = [separator[:2] for separator in _SEPARATORS.findall(line[:LINE_HEAD])]
    if len(found) < 2:
        return 0
    most = max(set(found), key=found.count)
    return found.count(most) if min(len(line), LINE_HEAD) / (found.count(most) + 1) < 40 else 0


def first_and_last(parts: list[str]) -> list[str]:
    return parts if len(parts) <= MAX_LINES else [*parts[: MAX_LINES // 2], *parts[-MAX_LINES // 2 :]]
