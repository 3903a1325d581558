"""`${VAR}`, `${VAR:-default}`, `${env:VAR}`, `${input:id}` and `${keyring:NAME}` in the texts of a configuration."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shortlist.errors import InvalidConfig

SAFE_VARIABLES = (
    *("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"),
    *("APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROCESSOR_ARCHITECTURE", "PROGRAMFILES"),
    *("SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE"),
)
"""Variables that every child process inherits: enough to find programs and the home folder, no secrets."""

_SECRET = re.compile(r"\$\{keyring:(?P<name>[A-Za-z0-9][\w.@-]*)\}")
_REFERENCE = re.compile(r"\$\{(?:(?P<kind>env|input):)?(?P<name>[A-Za-z_][\w.-]*)(?::-(?P<default>[^}]*))?\}")


class MissingVariable(Exception):
    """A reference that has no value; the message says what to set."""


class MissingSecret(Exception):
    """A secret that is not stored; the message says what to do."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the secret {name!r} is not stored; run `shortlist secret set {name}`")


def has_secrets(text: str) -> bool:
    """Return whether a text refers to a stored secret."""
    return _SECRET.search(text) is not None


def with_secrets(text: str, find: Callable[[str], str | None]) -> str:
    """Put stored secrets in the place of references; raise MissingSecret for one that is not stored."""

    def value(match: re.Match[str]) -> str:
        found = find(match["name"])
        if found is None:
            raise MissingSecret(match["name"])
        return found

    return _SECRET.sub(value, text)


class UnsetVariable(InvalidConfig):
    """A server's entry refers to a variable that has no value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variables:
    """Where references get their values: the environment, and the defaults of declared inputs."""

    environment: Mapping[str, str]
    inputs: Mapping[str, str | None] = field(default_factory=dict)

    def expand(self, text: str) -> str:
        """Put values in the place of references; a value is not expanded again."""
        return _REFERENCE.sub(self._value, text)

    def _value(self, match: re.Match[str]) -> str:
        name, default = match["name"], match["default"]
        found = self._input(name) if match["kind"] == "input" else self.environment.get(name)
        if found is None and match["kind"] is None and name == "userHome":
            found = str(Path.home())
        if found in (None, "") and default is not None:
            return default
        if found is None:
            raise MissingVariable(_remedy(match["kind"], name))
        return found

    def _input(self, name: str) -> str | None:
        for variable in input_variables(name):
            if variable in self.environment:
                return self.environment[variable]
        return self.inputs.get(name)


def input_variables(name: str) -> tuple[str, str]:
    """Name the environment variables that answer `${input:name}`, first the more specific one."""
    upper = re.sub(r"\W", "_", name).upper()
    return f"SHORTLIST_INPUT_{upper}", f"INPUT_{upper}"


def declared_inputs(raw: Any) -> dict[str, str | None]:
    """Read VS Code's `inputs`: ids, with the default where there is one."""
    entries = raw if isinstance(raw, list) else []
    declared = {e["id"]: e.get("default") for e in entries if isinstance(e, dict) and isinstance(e.get("id"), str)}
    return {name: default if isinstance(default, str) else None for name, default in declared.items()}


def _remedy(kind: str | None, name: str) -> str:
    if kind == "input":
        return f"input {name!r} has no value; set the environment variable {input_variables(name)[1]}"
    return f"environment variable {name!r} is not set; set it, or write ${{{name}:-default}}"
