"""Hides secrets: in a server's configuration as it may be shown, and in texts that somebody else wrote."""

import re
from collections.abc import Iterable, Iterator, Mapping

from shortlist.models import Json

MASK = "••••"
_REFERENCE = re.compile(r"^(?:\w+ )?\$\{[^}]+\}$")
_SECRET_NAME = re.compile(r"(key|token|secret|password|passwd|auth|credential)s?$", re.IGNORECASE)
_LOADING = re.compile(
    r"(LD|DYLD|NPM_CONFIG)_\w+|PYTHON[A-Z]+|(PERL5|RUBY)(LIB|OPT)|NODE_(OPTIONS|PATH|EXTRA_CA_CERTS|TLS_\w+)|PATH|"
    r"BASH_ENV|GIT_(SSH\w*|EXEC_PATH|CONFIG\w*)|_?(JAVA|JDK)_\w*OPTIONS|(UV|PIP)_\w*(INDEX|URL|CONFIG)\w*|\w+_PROXY",
    re.IGNORECASE,
)
"""Variables that decide which code a program loads and where it sends requests: whoever adds a server must see them."""
_SECRET_LOOKING = re.compile(r"^(?=.*\d)(?=.*[A-Za-z])[\w+=-]{20,}$")
_QUERY_VALUE = re.compile(r"(?<=[?&])([^=&#?]+)=([^&#]+)")
_USER = re.compile(r"(?<=://)[^/@\s]+@")
_KIND = r"(?:api[_-]?key|access[_-]?key|secret|token|passw(?:or)?d|pwd|credentials?|authorization)"
_NOT_COMPLAINT = (
    r"(?!(?:required|missing|not|invalid|unset|undefined|empty|needed|mandatory|expired|wrong|unknown)(?=[\s.,;:!]|$))"
)
"""`API_KEY is required` says what is wrong, and holds no secret."""
_NAME_OF_SECRET = re.compile(rf"^[\w-]{{0,40}}{_KIND}[\w-]{{0,40}}$", re.IGNORECASE)
_PATTERNS: tuple[tuple[tuple[str, ...], re.Pattern[str]], ...] = (
    (
        ("-----begin ",),
        re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    ),
    (("://",), re.compile(r"(?<=://)(?:[^/\s:@]+:[^/\s@]+|[^/\s:@]{16,})(?=@)")),  # https://user:password@host
    (
        ("bearer ", "basic "),
        re.compile(r"(?<=\bbearer )\S{6,}|(?<=\bbasic )[A-Za-z0-9+/=]{12,}", re.IGNORECASE),
    ),
    (
        ("key", "secret", "token", "passw", "pwd", "credential", "authorization"),
        re.compile(
            rf"{_KIND}[\w-]{{0,40}}[\"']?(?:\s*[=:]\s*|\s+is\s+)[\"']?{_NOT_COMPLAINT}([^\s\"'&,;)}}]{{3,}})",
            re.IGNORECASE,
        ),
    ),
    (("eyj",), re.compile(r"(?<![\w-])eyJ[\w-]{5,}\.[\w-]{5,}\.[\w-]*")),  # a JSON web token
    (
        ("sk", "pk", "rk", "slt", "gh", "glpat", "xox", "hf", "npm", "pypi", "akia", "asia", "aiza"),
        re.compile(
            r"\b(?:(?:sk|pk|rk|slt|gh[pousr]|github_pat|glpat|xox[abeprs]|hf|npm|pypi)[-_]|AKIA|ASIA|AIza)"
            r"(?=[\w-]{0,60}\d)[\w-]{12,}"
        ),
    ),  # by the prefixes that services give their keys
    (
        tuple("0123456789"),
        re.compile(
            r"(?<![\w/.+-])(?=[\w+-]{32})(?=[\w+-]*\d)(?=[\w+-]*[a-z])(?=[\w+-]*[A-Z])[\w+-]{32,}={0,2}(?![\w/])"
        ),
    ),  # random
    (tuple("0123456789"), re.compile(r"\b[0-9a-f]{40,}\b")),
)
"""What secrets look like, each behind words that it contains in lower case: nearly all texts have none, and servers
may write a lot of it."""


def names_secret(name: str) -> bool:
    """Return whether the name of a variable or option says that its value is a secret."""
    return _SECRET_NAME.search(name) is not None


def redact(text: str) -> str:
    """Mask keys, tokens and passwords, and what looks like them."""
    lowered = text.lower()
    for hints, pattern in _PATTERNS:
        if any(hint in lowered for hint in hints):
            text = pattern.sub(_hidden, text)
    return text


def redact_json(value: Json, name: str = "") -> Json:
    """Mask secrets in a JSON value: everything under a secret's name, and what looks like a secret elsewhere."""
    if isinstance(value, Mapping):
        return {str(key): redact_json(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [redact_json(item, name) for item in value]
    if value is not None and not isinstance(value, bool) and _NAME_OF_SECRET.match(name):
        return MASK
    return redact(value) if isinstance(value, str) else value


def masked(entry: Mapping[str, Json]) -> dict[str, Json]:
    """Hide the values of `env`, `headers` and `client_secret`, and what looks secret in arguments and addresses.

    Variables that decide what code a program loads, such as LD_PRELOAD, are shown.
    """
    shown = dict(entry)
    for key in ("env", "headers"):
        if isinstance(entry.get(key), dict):
            shown[key] = {name: _setting(name, value) for name, value in entry[key].items()}
    if isinstance(entry.get("args"), list):
        shown["args"] = list(_arguments(entry["args"]))
    for key in ("url", "httpUrl", "serverUrl"):
        if isinstance(entry.get(key), str):
            shown[key] = _address(entry[key])
    ours: Json = entry.get("shortlist")
    oauth: Json = ours.get("oauth") if isinstance(ours, dict) else None
    if isinstance(ours, dict) and isinstance(oauth, dict) and "client_secret" in oauth:
        shown["shortlist"] = {**ours, "oauth": {**oauth, "client_secret": _value(oauth["client_secret"])}}
    return shown


def _hidden(match: re.Match[str]) -> str:
    if not match.lastindex:
        return MASK
    start = match.start(1) - match.start()
    return match.group()[:start] + MASK


def _value(value: Json) -> str:
    return value if isinstance(value, str) and _REFERENCE.match(value) else MASK


def _setting(name: str, value: Json) -> str:
    """Return a variable as it may be shown: one that decides what code is loaded as it is, any other masked."""
    loads = _LOADING.fullmatch(name) and not names_secret(name) and isinstance(value, str)
    return redact(_address(value)) if loads else _value(value)


def _arguments(args: Iterable[Json]) -> Iterator[Json]:
    """Mask what follows a flag with a secret's name, in one argument or the next, and long random texts."""
    follows = False
    for arg in args:
        text = str(arg)
        flag, equals, value = text.partition("=")
        if follows or _SECRET_LOOKING.match(text):
            yield _value(text)
        elif equals and _SECRET_NAME.search(flag):
            yield f"{flag}={_value(value)}"
        else:
            yield _address(text)
        follows = text.startswith("-") and not equals and bool(_SECRET_NAME.search(text))


def _address(url: str) -> str:
    if "://" not in url:
        return url
    return _QUERY_VALUE.sub(lambda m: f"{m[1]}={_value(m[2])}", _USER.sub(f"{MASK}@", url))
