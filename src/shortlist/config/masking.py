"""A server's configuration as it may be shown: secrets hidden, references to variables kept."""

import re
from collections.abc import Iterable, Iterator, Mapping

from shortlist.models import Json

MASK = "••••"
_REFERENCE = re.compile(r"^(?:\w+ )?\$\{[^}]+\}$")
_SECRET_NAME = re.compile(r"(key|token|secret|password|passwd|auth|credential)s?$", re.IGNORECASE)
_SECRET_LOOKING = re.compile(r"^(?=.*\d)(?=.*[A-Za-z])[\w+=-]{20,}$")
_QUERY_VALUE = re.compile(r"(?<=[?&])([^=&#]+)=([^&#]+)")
_USER = re.compile(r"(?<=://)[^/@\s]+@")


def names_secret(name: str) -> bool:
    """Return whether the name of a variable or option says that its value is a secret."""
    return _SECRET_NAME.search(name) is not None


def masked(entry: Mapping[str, Json]) -> dict[str, Json]:
    """Hide the values of `env`, `headers` and `client_secret`, and what looks secret in arguments and addresses."""
    shown = dict(entry)
    for key in ("env", "headers"):
        if isinstance(entry.get(key), dict):
            shown[key] = {name: _value(value) for name, value in entry[key].items()}
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


def _value(value: Json) -> str:
    return value if isinstance(value, str) and _REFERENCE.match(value) else MASK


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
