"""Judge definitions before a model reads them: `clean`, `suspicious` or `dangerous`, with the reasons and their places.

A scan happens when a definition arrives, never during a search. It takes time proportional to the size of the
definition, which is bounded, and verdicts are kept by content.
"""

import hashlib
import json
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any, Protocol, TypeAlias

import numpy as np

from shortlist.text.tokens import one_line
from shortlist.trust.characters import oddities, unmasked
from shortlist.trust.concepts import concepts, readable
from shortlist.trust.definitions import (
    NO_SURROUNDINGS,
    SHORT,
    Neighbours,
    Sentence,
    TextField,
    ToolDefinition,
    fields_of,
    is_listed,
    passages_of,
    sentences_of,
    spoken_name,
    spoken_names,
    values_of,
)
from shortlist.trust.encodings import COMMAND, IN_LINES, Decoded, decoded, is_prose, joined_letters, rewritten
from shortlist.trust.features import patterns_in
from shortlist.trust.head import LEAST_WORDS, MOST_WORDS, TOGETHER, Head, Mixture, shipped_head
from shortlist.trust.orders import known_orders
from shortlist.trust.patterns import PATTERNS
from shortlist.trust.reading import KEPT_TEXTS, SHORT_TEXT, Window, gloss_of, read_text
from shortlist.trust.verdicts import LEVELS, OVERSIZED, Reason, ScanVerdict, Severity

MAX_READS = 128
"""How many windows of a definition the classifier reads: those that may score highest."""
PASSAGES = 2
"""How many passages of a definition are named as reasons: the worst."""
MAX_REASONS = 8
MAX_EXCERPT = 160
KEPT_VERDICTS = 50_000
SHORT_TEXTS, MAX_JOINED = "short texts", 4_000
"""The field that texts of few words are reported under when they are read together, and how much of them is read."""
LEAST_IN_SHORT_TEXTS = 0.0
"""The least evidence in words that such a text is flagged with: the classifier never learned from joined texts."""
FURTHER_IN_SHORT_TEXTS = 2.0
"""How far above the threshold of dangerous passages such a text must score: names and values in a row look odd."""
FEW_WORDS, FURTHER_IN_FEW_WORDS = 7, 1.5
"""How far above a threshold a passage of fewer words, often a name or a value, must score to pass it; but not one that
describes the tool, where a few words may be an order."""
NEARLY_SUSPICIOUS = 3.0
"""How close to the threshold a sentence about another server's tool must score: servers share many names of tools."""
_ENDING_WORDS = (
    "delete drop remove destroy erase wipe purge truncate terminate kill revoke overwrite uninstall transfer pay "
    "payment execute"
)
_CHANGING_WORDS = (
    "write update insert send format shutdown reboot reset disable create post upload publish deploy install "
    "rename move"
)
_HARMLESS_WORDS = "dry list get show preview check validate describe search status query history log logs template"
_ENDING = frozenset(_ENDING_WORDS.split())
_CHANGING = _ENDING | frozenset(_CHANGING_WORDS.split())
_HARMLESS = frozenset(_HARMLESS_WORDS.split())
_COMMENT = re.compile(r"<!--(.{1,4000}?)(?:-->|$)", re.DOTALL)
_SPOKEN = ("description", "title", "annotations.title", "server_instructions")
_TOOL_NAME = re.compile(r"\b[a-z0-9]+(?:_[a-z0-9]+){1,5}\b|\b[a-z]+(?:[A-Z][a-z0-9]+)+\b")
_ORDER = re.compile(
    r"\b(?:whenever|every time|each time|before|after|instead|when|if you|must|always|never|do not|don't|replaces?|"
    r"supersedes?|deprecated|all calls|any call|calls? to|first|also|rather than|in place of|on behalf)\b",
    re.IGNORECASE,
)
_DIVERTS = re.compile(
    r"\b(?:never use|never call|do not use|do not call|don't use|don't call|b?cc|recipient|forward|intercept|redirect|"
    r"override|in place of|compromised|malicious|unsafe|insecure|silently|secretly|without telling)\b",
    re.IGNORECASE,
)


ReadableText: TypeAlias = tuple[TextField, str, tuple[int, int] | None]
"""A text as a reader sees it, the field that holds it, and where in the field, unless it is the field's whole text."""


class Classifier(Protocol):
    """Scores passages, high where they tell the model more than how to use their tool."""

    def glance(self, texts: Sequence[str]) -> Sequence[Sequence[tuple[float, Any]]]:
        """Return the windows of each text: a quick score, and what `read` takes."""

    def read(self, window: Any) -> float:
        """Return the score of a window by a slower reading."""


@dataclass(frozen=True, slots=True)
class FlaggedPassage:
    """A passage that is not clean, by how much its score is above the threshold."""

    window: Window
    excess: float
    level: Severity


@dataclass(frozen=True, slots=True)
class UnreadWindow:
    """A window of a passage that may turn out suspicious, with what is known of it before the classifier reads it."""

    passage: Window
    window: Any
    quick: float
    words: float
    mixture: Mixture
    gloss: tuple[Any, ...] = ()
    """The windows of what a passage in another language says word by word in English."""

    @property
    def most(self) -> float:
        """How far above the threshold it may score."""
        return self._highest - self.mixture.suspicious

    @property
    def could_be_dangerous(self) -> bool:
        return self._highest > self.mixture.dangerous

    @property
    def _highest(self) -> float:
        return self.mixture.highest(self.quick, self.words) - _further(self.passage)

    def read_by(self, classifier: Classifier) -> FlaggedPassage | None:
        """Return what the classifier makes of the passage, unless it is clean."""
        read = classifier.read(self.window)
        if self.gloss:  # both readings count alike
            read = (self.mixture.bounded(read) + self.mixture.bounded(max(map(classifier.read, self.gloss)))) / 2
        score = self.mixture.score(read, self.quick, self.words) - _further(self.passage)
        joined = self.passage.field.path == SHORT_TEXTS
        if score <= (self.mixture.dangerous + FURTHER_IN_SHORT_TEXTS if joined else self.mixture.suspicious):
            return None
        level: Severity = "dangerous" if score > self.mixture.dangerous and not joined else "suspicious"
        return FlaggedPassage(self.passage, score - self.mixture.suspicious, level)


class Scanner:
    """Judges definitions; without a classifier, because no model runtime is installed, by concepts in their words."""

    def __init__(
        self, classifier: Classifier | None = None, head: Head | None = None, max_reads: int = MAX_READS
    ) -> None:
        self._classifier = classifier
        self._head = head or shipped_head()
        self._max_reads = max_reads
        self._changing = threading.Lock()
        self._kept: OrderedDict[str, ScanVerdict] = OrderedDict()
        self._glances: dict[str, Sequence[tuple[float, Any]]] = {}

    def scan(self, definition: ToolDefinition, around: Neighbours = NO_SURROUNDINGS) -> ScanVerdict:
        """Judge one definition."""
        return next(self.scan_all([definition], around))

    def scan_all(
        self, definitions: Iterable[ToolDefinition], around: Neighbours = NO_SURROUNDINGS
    ) -> Iterator[ScanVerdict]:
        """Yield a verdict for each definition, in order."""
        for definition in definitions:
            key = _key(definition, around)
            verdict = self._kept.get(key) if key else None
            if verdict is None:
                verdict = self._judge(definition, around)
            if key:
                self._keep(key, verdict)
            yield verdict

    def _keep(self, key: str, verdict: ScanVerdict) -> None:
        with self._changing:
            self._kept[key] = verdict
            if len(self._kept) > KEPT_VERDICTS:
                self._kept.popitem(last=False)

    def _judge(self, definition: ToolDefinition, around: Neighbours) -> ScanVerdict:
        fields, oversized = fields_of(definition)
        reasons = [*_oversized(fields, oversized), *_mismatch(definition), *self._references(fields, around)]
        texts = _readable(fields, reasons)
        reasons += _ordered(texts)
        if self._classifier is None:
            reasons += _worst(self._by_words(texts, around), self._head)
        else:
            candidates = sorted(self._candidates(self._classifier, texts, around), key=lambda each: -each.most)
            read, unread = candidates[: self._max_reads], candidates[self._max_reads :]
            reasons += _worst(_by_classifier(self._classifier, read), self._head)
            reasons += _unread(unread, len(candidates))
        return _verdict(reasons)

    def _references(self, fields: Sequence[TextField], around: Neighbours) -> Iterator[Reason]:
        """Yield orders about tools of other servers that divert calls, or that read at all like a poisoned sentence."""
        for reason, sentence in _references(fields, around):
            if reason.level == "dangerous" or self._is_near(TextField(reason.field, sentence), around):
                yield reason

    def _is_near(self, sentence: TextField, around: Neighbours) -> bool:
        """Return whether a sentence is nearly suspicious by itself, as far as the classifier can tell."""
        if self._classifier is None:
            return True
        _, words = self._evidence(sentence, around)
        (windows,) = self._glanced(self._classifier, (sentence.text,))
        return any(
            mixture.score(self._classifier.read(window), quick, words) > mixture.suspicious - NEARLY_SUSPICIOUS
            for (quick, window), mixture in product(windows, _mixtures(sentence.text, self._head))
        )

    def _by_words(self, texts: Iterable[ReadableText], around: Neighbours) -> Iterator[FlaggedPassage]:
        """Yield the runs of sentences whose concepts are rare enough among real tools."""
        head = self._head
        for field, text, span in texts:
            windows = read_text(TextField(field.path, text), around)
            scores = head.word_scores(np.array([row for _, row in windows], np.float32))
            for (window, _), score in zip(windows, scores, strict=True):
                if score > head.suspicious_words:
                    level: Severity = "dangerous" if score > head.dangerous_words else "suspicious"
                    start, end = span or (window.start, window.end)
                    found = Window(field, window.text, start, end, window.concepts)
                    yield FlaggedPassage(found, float(score) - head.suspicious_words, level)

    def _candidates(
        self, classifier: Classifier, texts: Iterable[ReadableText], around: Neighbours
    ) -> Iterator[UnreadWindow]:
        """Yield the windows that may turn out suspicious, by their quick score and the evidence in their words."""
        head = self._head
        passages: dict[str, tuple[TextField, tuple[int, int] | None, Sentence]] = {}
        for field, text, span in texts:  # a text that is repeated is read once, where it stands first
            for passage in passages_of(text):
                passages.setdefault(passage.text, (field, span, passage))
        for (field, span, passage), windows in zip(
            passages.values(), self._glanced(classifier, tuple(passages)), strict=True
        ):
            quickest = max(quick for quick, _ in windows)
            if not any(each.highest(quickest, MOST_WORDS) > each.suspicious for each in (head.english, head.foreign)):
                continue
            mixtures = _mixtures(passage.text, head)
            gloss = self._gloss(classifier, passage.text) if head.foreign in mixtures else ()
            spoken, words = self._evidence(TextField(field.path, passage.text), around)
            if field.path == SHORT_TEXTS and words < LEAST_IN_SHORT_TEXTS:
                continue
            place = span or (passage.start, passage.end)
            for (quick, window), mixture in product(windows, mixtures):
                said = gloss if mixture is head.foreign else ()
                both = (quick + max(each for each, _ in said)) / 2 if said else quick
                if mixture.highest(both, words) > mixture.suspicious:
                    found = Window(field, passage.text, *place, spoken)
                    yield UnreadWindow(found, window, both, words, mixture, tuple(each for _, each in said))

    def _gloss(self, classifier: Classifier, text: str) -> Sequence[tuple[float, Any]]:
        """Return the windows of what a text in another language says word by word in English, if that is a sentence."""
        said = gloss_of(text)
        if not said:
            return ()
        (windows,) = self._glanced(classifier, (said,))
        return windows

    def _glanced(self, classifier: Classifier, texts: Sequence[str]) -> Iterator[Sequence[tuple[float, Any]]]:
        """Yield the windows of texts; those of short ones are kept, since many tools have them."""
        found = {text: self._glances.get(text) for text in texts}
        new = [text for text, windows in found.items() if windows is None]
        fresh = dict(zip(new, classifier.glance(new), strict=True)) if new else {}
        short = {text: windows for text, windows in fresh.items() if len(text) <= SHORT_TEXT}
        with self._changing:
            if len(self._glances) > KEPT_TEXTS:
                self._glances = {}
            self._glances.update(short)
        return (found[text] or fresh[text] for text in texts)

    def _evidence(self, passage: TextField, around: Neighbours) -> tuple[int, float]:
        """Return the concepts in a passage, and the highest score of its windows by their words."""
        windows = read_text(passage, around)
        if not windows:
            return 0, LEAST_WORDS
        spoken = 0
        for window, _ in windows:
            spoken |= window.concepts
        return spoken, float(self._head.word_scores(np.array([row for _, row in windows], np.float32)).max())


def _readable(fields: Sequence[TextField], reasons: list[Reason]) -> list[ReadableText]:
    """Return all texts of a definition as a reader sees them, and add to the reasons what was hidden or encoded."""
    texts: list[ReadableText] = [(field, unmasked(field.text), None) for field in fields]
    texts += [(field, unmasked(v.text), (v.start, v.end)) for field in fields for v in values_of(field)]
    for field in fields:
        if not _hides_nothing(field.text):
            reasons += [*_odd_characters(field), *_comments(field)]
            texts += [(field, text, span) for text, span in _uncovered(field, reasons)]
            texts += [(field, unmasked(each.text), (each.start, each.end)) for each in _rewritten(field)]
    return [*texts, *_joined(fields)]


def _mixtures(text: str, head: Head) -> tuple[Mixture, ...]:
    """Return what judges a passage: a language beside English must not keep it from being judged as English.

    Nor must a passage be taken for English because it has few small words of its language: its gloss tells.
    """
    known, folded = concepts(), readable(text)
    if known.is_foreign(folded):
        return (head.foreign, head.english) if known.has_english(folded) else (head.foreign,)
    return (head.foreign, head.english) if gloss_of(text) else (head.english,)


def _by_classifier(classifier: Classifier, candidates: Iterable[UnreadWindow]) -> Iterator[FlaggedPassage]:
    """Yield the passages that the classifier and their words find suspicious or dangerous together.

    Once there are as many dangerous ones as are reported, nothing that follows can change the verdict.
    """
    dangerous = 0
    for each in candidates:
        if dangerous >= PASSAGES:
            return
        if found := each.read_by(classifier):
            dangerous += found.level == "dangerous"
            yield found


def _ordered(texts: Iterable[ReadableText]) -> Iterator[Reason]:
    """Yield the orders that need no classifier; a row of names and values gives none."""
    seen: set[tuple[str, str]] = set()
    for field, text, span in texts:
        for family, why, start, end in known_orders(text) if field.path != SHORT_TEXTS else ():
            if (field.path, family) not in seen:
                seen.add((field.path, family))
                yield Reason(
                    family, field.path, span or (start, end), f"{why}: {_excerpt(text[start:end])}", "dangerous"
                )


def _further(passage: Window) -> float:
    """Return how far above a threshold a passage must score, by how many words it has as far as spaces part them."""
    described = passage.field.path in _SPOKEN or not passage.text.isascii()
    return 0.0 if described or len(passage.text.split()) >= FEW_WORDS else FURTHER_IN_FEW_WORDS


def _unread(unread: Sequence[UnreadWindow], total: int) -> Iterator[Reason]:
    """Yield that there were more passages to read than the classifier reads of one definition."""
    if unread:
        window = unread[0].passage
        why = f"only {total - len(unread)} of {total} passages that call for a closer look were read"
        level: Severity = "dangerous" if unread[0].could_be_dangerous else "suspicious"
        yield Reason(OVERSIZED, window.field.path, (window.start, window.end), why, level)


def _uncovered(field: TextField, reasons: list[Reason]) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the texts that were hidden or encoded in a field, and add to the reasons what they are."""
    hidden = [(odd.hidden, odd.start, odd.end, "hidden characters") for odd in oddities(field.text) if odd.hidden]
    encoded = [(d.text, d.start, d.end, d.how) for d in (*decoded(field.text), *joined_letters(field.text))]
    for text, start, end, how in hidden + encoded:
        prose = is_prose(text)
        known = concepts()
        if (
            how not in ("hidden characters", "digits for letters", "spaced letters")
            or prose
            or known.found(readable(text), known.languages(readable(text)))
        ):
            level: Severity = "dangerous" if COMMAND.search(text) or prose else "suspicious"
            reasons.append(Reason("encoded", field.path, (start, end), f"{how} decodes to {_excerpt(text)}", level))
        yield text, (start, end)


def _rewritten(field: TextField) -> Iterator[Decoded]:
    """Yield what a field says without what parts its words; values in a row are no sentence, as parameters are none."""
    listed = is_listed(field.path) and field.text.isascii()
    for found in rewritten(field.text):
        if not (listed and found.how == IN_LINES) or spoken_names(found.text.split()):
            yield found


def _joined(fields: Sequence[TextField]) -> Iterator[ReadableText]:
    """Yield all short texts as one text: a sentence can be spread over many of them."""
    short = [words for field in fields if len(words := field.text.split()) < SHORT and not _is_type(field)]
    if len(short) > 1:
        text = " ".join(word for words in short for word in words)[:MAX_JOINED]
        yield TextField(SHORT_TEXTS, text), unmasked(text), None


def _is_type(field: TextField) -> bool:
    return field.path.endswith((".type", ".format")) and len(field.text.split()) == 1


def _worst(findings: Iterable[FlaggedPassage], head: Head) -> Iterator[Reason]:
    """Yield a reason for each of the worst passages."""
    for finding in sorted(findings, key=lambda finding: (-LEVELS.index(finding.level), -finding.excess))[:PASSAGES]:
        window = finding.window
        family, why = _explained(window, head)
        place = (window.start, window.end)
        yield Reason(family, window.field.path, place, f"{why}: {_excerpt(window.text)}", finding.level)


def _verdict(reasons: Sequence[Reason]) -> ScanVerdict:
    ordered = sorted(dict.fromkeys(reasons), key=lambda reason: -LEVELS.index(reason.level))
    return ScanVerdict(ordered[0].level, tuple(ordered[:MAX_REASONS])) if ordered else ScanVerdict()


def _explained(window: Window, head: Head) -> tuple[str, str]:
    """Name the rarest pattern of a passage."""
    present = patterns_in(window.concepts) * head.rarity[TOGETHER]
    if not present.any():
        return "instruction", "reads like an instruction to the model"
    pattern = PATTERNS[tuple(PATTERNS)[int(present.argmax())]]
    return pattern.family, pattern.why


def _oversized(fields: Sequence[TextField], oversized: bool) -> Iterator[Reason]:
    if oversized:
        last = fields[-1]
        why = "the definition is too large to be read whole"
        yield Reason(OVERSIZED, last.path, (0, len(last.text)), why, "dangerous")


def _odd_characters(field: TextField) -> Iterator[Reason]:
    named = field.path == "name" or field.path.endswith(" (name)")
    for odd in oddities(field.text, name=named):
        why = f"{odd.why}: {_excerpt(odd.hidden)}" if odd.hidden else odd.why
        yield Reason(odd.family, field.path, (odd.start, odd.end), why, "dangerous" if odd.severe else "suspicious")


def _hides_nothing(text: str) -> bool:
    """Return whether nothing in a text is odd, commented out or encoded; single words of schemas come thousandfold."""
    return _short_hides_nothing(text) if len(text) <= SHORT_TEXT else not _hides_something(text)


@lru_cache(maxsize=KEPT_TEXTS)
def _short_hides_nothing(text: str) -> bool:
    return not _hides_something(text)


def _hides_something(text: str) -> bool:
    found = (oddities(text, name=True), _COMMENT.finditer(text), decoded(text), joined_letters(text), rewritten(text))
    return not text.isascii() or any(True for each in found for _ in each)


def _comments(field: TextField) -> Iterator[Reason]:
    """Yield comments in markup: whoever renders the text does not see them, and a model does."""
    for match in _COMMENT.finditer(field.text):
        if is_prose(match.group()):
            why = f"a comment that is not shown: {_excerpt(match.group(1))}"
            yield Reason("hidden_text", field.path, match.span(), why, "dangerous")


def _references(fields: Sequence[TextField], around: Neighbours) -> Iterator[tuple[Reason, str]]:
    """Yield sentences that give orders about tools of other servers, each with its reason."""
    if not around.foreign_tools:
        return
    parameters = {part for field in fields for part in field.path.split(".")}
    for field in fields:
        for sentence in sentences_of(field.text) if field.path in _SPOKEN else ():
            named = (set(_TOOL_NAME.findall(sentence.text)) & around.foreign_tools) - around.own - parameters
            order = _ORDER.search(sentence.text) if named else None
            if order:
                level: Severity = "dangerous" if _DIVERTS.search(sentence.text) else "suspicious"
                why = f"gives orders about {sorted(named)[0]!r}, a tool of another server: {_excerpt(sentence.text)}"
                yield Reason("shadowing", field.path, (sentence.start, sentence.end), why, level), sentence.text


def _mismatch(definition: ToolDefinition) -> Iterator[Reason]:
    """Yield where a tool says that it changes nothing, and its name says otherwise."""
    hints = definition.tool.get("annotations")
    name = str(definition.tool.get("name", ""))
    words = spoken_name(name).split()
    if not isinstance(hints, Mapping) or hints.get("readOnlyHint") is not True or not words:
        return
    changing = next((word for word in words if word in _CHANGING), None)
    if changing and words[0] in _CHANGING and not _HARMLESS & set(words):
        level: Severity = "dangerous" if _ENDING & set(words) else "suspicious"
        why = f"readOnlyHint says that nothing changes, but the name says {changing!r}"
        yield Reason("capability_mismatch", "annotations.readOnlyHint", (0, len(name)), why, level)


def _excerpt(text: str) -> str:
    return f'"{one_line(text, MAX_EXCERPT)}"'


def _key(definition: ToolDefinition, around: Neighbours) -> str:
    try:
        text = json.dumps([definition.tool, definition.server_instructions, hash(around)], sort_keys=True, default=str)
    except (RecursionError, TypeError):  # too deep, or keys that cannot be sorted: judged anew each time
        return ""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
