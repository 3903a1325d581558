"""Values that are written out in JavaScript or TypeScript, read without running it: also zod's schemas.

It is no parser. Brackets are matched, and what stands between them is read where it is a literal, a sum of strings, a
constant with one definition, or a schema by zod or TypeBox. Everything else is `UNREAD`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

UNREAD: Any = type("Unread", (), {"__repr__": lambda _: "UNREAD"})()
_STRING = r"""
    "(?:[^"\\\n]|\\.)*+" | '(?:[^'\\\n]|\\.)*+' | `(?:[^`\\$]|\\.|\$(?!\{))*+`
"""
_TOKEN = re.compile(
    rf"(?P<skip>\s++|//[^\n]*|/\*.*?\*/) | {_STRING} | \d[\w.]* | [\w$]++ | => | [=!]==? | \.\.\. | \?\. | .",
    re.S | re.X,
)
_EXPRESSION = r"/(?![*/])(?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/\w*"
_OF_CODE = re.compile(rf"//[^\n]*|/\*.*?\*/ | [(,=:]\s*{_EXPRESSION} | {_STRING} | [{{}}`]", re.S | re.X)
_OF_TEMPLATE = re.compile(r"\\.|`|\$\{", re.S)
_REGEX = re.compile(_EXPRESSION)
_BEFORE_REGEX = frozenset(("(", ",", "=", ":", "[", "!", "&", "|", "?", "{", ";", "=>", "return", "==", "===", "!=="))
_CLOSERS = {")": "(", "]": "[", "}": "{"}
_ENDS = frozenset((",", ";", ")", "]", "}", ""))
_ESCAPE = re.compile(r"\\(?:x([\da-fA-F]{2})|u([\da-fA-F]{4})|u\{([\da-fA-F]+)\}|(\r\n|.))", re.S)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "\n": "", "\r\n": ""}
_CONSTANTS = {"true": True, "false": False, "null": None}
_TYPES = {
    "string": "string",
    "email": "string",
    "url": "string",
    "uuid": "string",
    "date": "string",
    "number": "number",
    "int": "integer",
    "integer": "integer",
    "boolean": "boolean",
    "object": "object",
    "strictobject": "object",
    "looseobject": "object",
    "record": "object",
    "array": "array",
    "tuple": "array",
    "any": "",
    "unknown": "",
    "union": "",
    "discriminatedunion": "",
    "enum": "string",
    "nativeenum": "string",
    "literal": "",
}
"""What the functions of zod and TypeBox that make a schema, in small letters, make one of."""
_DEEPEST = 60


@dataclass(frozen=True, slots=True)
class Schema:
    """A parameter as zod or TypeBox describe it."""

    json: dict[str, Any]
    optional: bool = False


class Code:
    """A file as tokens with matched brackets. Names that it does not define are looked up in `elsewhere`."""

    def __init__(self, source: str, elsewhere: Mapping[str, "Code"] | None = None) -> None:
        self.tokens = [*_tokens(source), "", "", ""]
        self.elsewhere = {} if elsewhere is None else elsewhere
        self.closing: dict[int, int] = {}
        self.inside: list[int] = []
        """The bracket that each token stands in, -1 where there is none."""
        self.named: dict[str, int] = {}
        """Where the value of each name begins that is defined once."""
        self._depth = 0
        self._match()
        self._name()

    def _match(self) -> None:
        open_: list[int] = []
        for at, token in enumerate(self.tokens):
            self.inside.append(open_[-1] if open_ else -1)
            if token in {"(", "[", "{"}:
                open_.append(at)
            elif (wanted := _CLOSERS.get(token)) and any(self.tokens[each] == wanted for each in open_[-5:]):
                while self.tokens[opener := open_.pop()] != wanted:
                    pass
                self.closing[opener] = at

    def _name(self) -> None:
        twice = set()
        for at in range(len(self.tokens) - 3):
            name = self.tokens[at]
            if name in {"const", "let", "var"} and self.tokens[at + 2] == ":":
                name = self.tokens[at + 1]
                equals = next((each for each in range(at + 3, at + 40) if self._at(each) in {"=", ";", ""}), -1)
                begins = equals + 1 if self._at(equals) == "=" else -1
            else:
                begins = at + 2 if self.tokens[at + 1] == "=" and self.tokens[at - 1] != "." and _is_word(name) else -1
            if begins > 0:
                if name in self.named:
                    twice.add(name)
                self.named[name] = begins
        for name in twice:
            del self.named[name]

    def _at(self, at: int) -> str:
        return self.tokens[at] if 0 <= at < len(self.tokens) else ""

    def value_at(self, at: int) -> Any:
        """Return the value of the whole expression that begins at a token."""
        value, end = self._sum(at)
        if self._at(end) in {"as", "satisfies", "!"}:
            return value
        return value if self._at(end) in _ENDS else UNREAD

    def arguments(self, opener: int) -> list[Any]:
        """Return the values between brackets."""
        return [self.value_at(at) for at in self._parts(opener)]

    def fields(self, opener: int) -> dict[str, Any]:
        """Return the fields of an object literal; methods are `UNREAD`."""
        found: dict[str, Any] = {}
        for at in self._parts(opener):
            key, after = self._at(at), self._at(at + 1)
            if key == "...":
                more = self.value_at(at + 1)
                found |= more if isinstance(more, dict) else {}
            elif key[0] in "\"'" or _is_word(key):
                name = text_of(key) if key[0] in "\"'" else key
                found[name] = self.value_at(at + 2) if after == ":" else UNREAD
                if after in {",", "}"}:
                    found[name] = self._called(key)
        return found

    def _parts(self, opener: int) -> Iterator[int]:
        """Yield where each part between brackets begins that commas separate."""
        at, end = opener + 1, self.closing.get(opener, -1)
        while at < end:
            yield at
            while at < end and self.tokens[at] != ",":
                at = self.closing.get(at, at) + 1
            at += 1

    def _sum(self, at: int) -> tuple[Any, int]:
        if self._depth > _DEEPEST:
            return UNREAD, at
        self._depth += 1
        value, at = self._operand(at)
        while self._at(at) == "+":
            other, at = self._operand(at + 1)
            value = value + other if isinstance(value, str) and isinstance(other, str) else UNREAD
        self._depth -= 1
        return value, at

    def _operand(self, at: int) -> tuple[Any, int]:
        token, value = self._at(at), UNREAD
        after = at + 1
        if token in {"(", "[", "{"}:
            after = self.closing.get(at, at) + 1
            if token == "[":
                value = self.arguments(at)
            elif token == "{":
                value = self.fields(at)
            elif self._at(after) != "=>":
                value = self.value_at(at + 1)
        elif token[:1] in {'"', "'", "`"} and len(token) > 1:
            value = text_of(token)
        elif token == "-" or token[:1].isdigit():
            after, value = (at + 2, _number(f"-{self._at(at + 1)}")) if token == "-" else (after, _number(token))
        elif token in _CONSTANTS:
            value = _CONSTANTS[token]
        elif _is_word(token) and token not in {"new", "async", "function", "await"}:
            if self._at(after) == "(":
                value, after = self._made(UNREAD, token, after)
            else:
                value = self._called(token)
        return self._followed(value, after)

    def _followed(self, value: Any, at: int) -> tuple[Any, int]:
        """Return a value after the members and calls that follow it."""
        while True:
            if self._at(at) in {".", "?."}:
                name = self._at(at + 1)
                if self._at(at + 2) == "(":
                    value, at = self._made(value, name, at + 2)
                    continue
                if name != "shape":
                    value = value.get(name, UNREAD) if isinstance(value, dict) else UNREAD
                at += 2
            elif self._at(at) in {"(", "["}:
                value, at = UNREAD, self.closing.get(at, at) + 1
            else:
                return value, at

    def _called(self, name: str) -> Any:
        """Return the value of a name."""
        owner = self if name in self.named else self.elsewhere.get(name)
        if owner is None or self._depth > _DEEPEST:
            return UNREAD
        owner._depth, before = self._depth + 5, owner._depth
        value, end = owner._sum(owner.named[name])
        owner._depth = before
        return UNREAD if owner._at(end) in {"?", "|", "&", "=>", "-", "*", "==", "===", "="} else value

    def _made(self, value: Any, name: str, opener: int) -> tuple[Any, int]:
        """Return what a method makes of a value, and where its call ends."""
        return _result(value, name, self.arguments(opener)), self.closing.get(opener, opener) + 1


def _result(value: Any, name: str, given: list[Any]) -> Any:  # noqa: PLR0911 (one for each kind)
    first = given[0] if given else UNREAD
    if isinstance(value, str):
        return value.strip() if name == "trim" else UNREAD
    if isinstance(value, list):
        said = all(isinstance(each, str) for each in [first, *value])
        return first.join(value) if name == "join" and said else UNREAD
    if isinstance(value, Schema):
        return _refined(value, name, given)
    if value is not UNREAD:
        return value if name == "freeze" else UNREAD
    if name.casefold() in {"optional", "nullable", "nullish"} and isinstance(first, Schema):
        return replace(first, optional=True)
    if name.casefold() in _TYPES:
        return _schema(name.casefold(), given)
    if name == "preprocess":
        return given[-1] if given else UNREAD
    return first if re.search(r"json_?schema|freeze|lazy", name, re.I) else UNREAD


def _refined(schema: Schema, name: str, given: list[Any]) -> Any:
    first = given[0] if given else UNREAD
    if name in {"optional", "nullish"}:
        return replace(schema, optional=True)
    if name == "default":
        known = {"default": first} if isinstance(first, str | int | float | list) and plain(first) == first else {}
        return Schema({**schema.json, **known}, optional=True)
    added = {"description": first} if name == "describe" and isinstance(first, str) else {}
    if added or name == "int":
        return replace(schema, json={**schema.json, **(added or {"type": "integer"})})
    if name == "array":
        return Schema({"type": "array", "items": schema.json})
    if name in {"extend", "merge"}:
        more = schema_of(first)
        joined = {**schema.json.get("properties", {}), **more.get("properties", {})}
        required = [*schema.json.get("required", ()), *more.get("required", ())]
        return Schema({**schema.json, "properties": joined, "required": required})
    return schema


def _schema(kind: str, given: list[Any]) -> Schema:
    """Return the schema of a function of zod or TypeBox by its name and arguments."""
    json: dict[str, Any] = {"type": _TYPES[kind]} if _TYPES[kind] else {}
    first = given[0] if given else UNREAD
    if json.get("type") == "object" and kind != "record" and isinstance(first, dict):
        json |= _of_shape(first)
    elif kind == "array" and isinstance(first, Schema):
        json["items"] = first.json
    elif kind in {"enum", "nativeenum"}:
        options = list(first.values()) if isinstance(first, dict) else first if isinstance(first, list) else []
        json |= {"enum": plain(options)} if options else {}
    elif kind == "literal":
        json |= {"const": first} if isinstance(first, str | int | float) else {}
    elif kind in {"union", "discriminatedunion"}:
        options = next((each for each in given if isinstance(each, list)), [])
        json["anyOf"] = [each.json for each in options if isinstance(each, Schema)]
    elif isinstance(first, dict):
        json |= plain(first)
    if len(given) > 1 and isinstance(given[-1], dict) and isinstance(about := given[-1].get("description"), str):
        json["description"] = about
    return Schema(json)


def _of_shape(shape: Mapping[str, Any]) -> dict[str, Any]:
    required = [name for name, each in shape.items() if not (isinstance(each, Schema) and each.optional)]
    properties = {name: each.json if isinstance(each, Schema) else {} for name, each in shape.items()}
    return {"properties": properties, **({"required": required} if required else {})}


def schema_of(value: Any) -> dict[str, Any]:
    """Return the JSON schema that a tool's input schema is, as far as it could be read."""
    if isinstance(value, Schema):
        return value.json if value.json.get("type") == "object" else {"type": "object"}
    if not isinstance(value, dict):
        return {"type": "object"}
    if value.get("type") == "object" or isinstance(value.get("properties"), dict):
        found: dict[str, Any] = plain(value)
        return found
    if any(isinstance(each, Schema) for each in value.values()):
        return {"type": "object", **_of_shape(value)}
    return {"type": "object"}


def plain(value: Any) -> Any:
    """Return a value as JSON without what could not be read; parameters keep their names."""
    if isinstance(value, Schema):
        return value.json
    if isinstance(value, list):
        return [plain(each) for each in value if each is not UNREAD]
    if isinstance(value, dict):
        if isinstance(within := value.get("properties"), dict):
            value = {**value, "properties": {name: {} if each is UNREAD else each for name, each in within.items()}}
        return {name: plain(each) for name, each in value.items() if each is not UNREAD}
    return value


def text_of(token: str) -> str:
    """Return the text of a string literal, its escapes decoded."""
    text = _ESCAPE.sub(_unescaped, token[1:-1]) if "\\" in token else token[1:-1]
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _unescaped(match: re.Match[str]) -> str:
    digits = match[1] or match[2] or match[3]
    if digits:
        number = int(digits, 16)
        return chr(number) if number <= 0x10FFFF else "\ufffd"
    return _ESCAPES.get(match[4], match[4])


def _number(token: str) -> Any:
    try:
        return int(token)
    except ValueError:
        pass
    try:
        return float(token)
    except ValueError:
        return UNREAD


def _is_word(token: str) -> bool:
    return bool(token) and (token[0].isalpha() or token[0] in "_$")


def _tokens(source: str) -> Iterator[str]:
    """Yield tokens; a template with substitutions is one of them, "`", and so is a regular expression, "/"."""
    at, before = 0, ";"
    while match := _TOKEN.match(source, at):
        token, at = match[0], match.end()
        if match["skip"]:
            continue
        if token == "`":
            at = _end_of_template(source, at)
        elif token == "/" and before in _BEFORE_REGEX and (found := _REGEX.match(source, at - 1)):
            at = found.end()
        yield token
        before = token


def _end_of_template(source: str, at: int) -> int:
    while match := _OF_TEMPLATE.search(source, at):
        at = match.end()
        if match[0] == "`":
            return at
        if match[0] == "${":
            at = _end_of_code(source, at)
    return len(source)


def _end_of_code(source: str, at: int) -> int:
    depth = 1
    while match := _OF_CODE.search(source, at):
        at = match.end()
        if match[0] == "`":
            at = _end_of_template(source, at)
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if not depth:
            return at
    return len(source)
