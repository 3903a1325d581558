"""Servers as an MCP registry describes them (API v0.1, `server.json`), turned into entries of a configuration."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from shortlist.errors import InvalidInput
from shortlist.models import Json

RegistryEntry: TypeAlias = dict[str, Json]
OFFICIAL = "https://registry.modelcontextprotocol.io"
"""The public registry; others are given by their URL."""
_META = "io.modelcontextprotocol.registry/official"
_PLACEHOLDER = re.compile(r"\{([\w-]+)\}")
Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[\w.@-]+(/[\w.@-]+)?$")]
Short = Annotated[str, Field(max_length=2_000)]


class _Described(BaseModel):
    """What a registry says; keys that we do not know are those of later versions, and ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Input(_Described):
    """A value that the user may have to give."""

    name: Short = ""
    value: Short | None = None
    default: Any = None
    description: Short = ""
    required: bool = Field(default=False, alias="isRequired")
    secret: bool = Field(default=False, alias="isSecret")
    variables: dict[str, "Input"] = {}


class Argument(Input):
    type: Literal["positional", "named"] = "positional"
    hint: Short = Field("", alias="valueHint")


class _Transport(_Described):
    type: str = "stdio"
    url: Short = ""


class Package(_Described):
    kind: str = Field(alias="registryType")
    identifier: Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\s-][^\s]*$")]
    version: Short = ""
    sha256: Short = Field("", alias="fileSha256")
    runtime: Short = Field("", alias="runtimeHint")
    transport: _Transport = _Transport()
    runtime_arguments: tuple[Argument, ...] = Field((), alias="runtimeArguments")
    arguments: tuple[Argument, ...] = Field((), alias="packageArguments")
    environment: tuple[Input, ...] = Field((), alias="environmentVariables")


class RemoteServer(_Described):
    type: str = "streamable-http"
    url: Annotated[str, Field(pattern=r"^https?://")]
    headers: tuple[Input, ...] = ()
    variables: dict[str, Input] = {}


class RegistryServer(_Described):
    """One version of one server."""

    name: Name
    title: Short = ""
    description: Short = ""
    version: Short = ""
    packages: tuple[Package, ...] = ()
    remotes: tuple[RemoteServer, ...] = ()


@dataclass(frozen=True, slots=True)
class Need:
    """Something the server needs from the user."""

    name: str
    description: str
    secret: bool
    required: bool
    default: str | None


@dataclass(frozen=True, slots=True)
class Offer:
    """One way to run or reach a server: what it needs, and the entry made of the answers."""

    kind: str
    version: str
    asks: tuple[Need, ...]
    source: "Package | RemoteServer"

    def entry(self, answers: Mapping[str, str]) -> RegistryEntry:
        """Return the entry for a configuration; raises InvalidInput for what is needed and missing."""
        given = {ask.name: ask.default for ask in self.asks if ask.default is not None} | dict(answers)
        missing = [ask.name for ask in self.asks if ask.required and not given.get(ask.name)]
        if missing:
            raise InvalidInput(f"The server needs {', '.join(missing)}: add --set {missing[0]}=VALUE.")
        unknown = [name for name in answers if name not in {ask.name for ask in self.asks}]
        if unknown:
            known = ", ".join(ask.name for ask in self.asks) or "nothing"
            raise InvalidInput(f"The server does not ask for {unknown[0]!r}. It asks for {known}.")
        known_values = {name: str(value) for name, value in given.items() if value is not None}
        return (
            _remote(self.source, known_values)
            if isinstance(self.source, RemoteServer)
            else _package(self.source, known_values)
        )


def read_server(raw: Any, source: str) -> RegistryServer:
    """Read a `server.json`, or an item of a registry's list."""
    body = raw.get("server", raw) if isinstance(raw, Mapping) else raw
    try:
        return RegistryServer.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the document"
        raise InvalidInput(f"{source} describes a server that cannot be used: {place}: {first['msg']}.") from None


def is_usable(raw: Any) -> bool:
    """Return whether this is the current version of a server that was not deleted."""
    meta = raw.get("_meta", {}).get(_META, {}) if isinstance(raw, Mapping) else {}
    return meta.get("isLatest", True) is not False and meta.get("status", "active") != "deleted"


def offers(server: RegistryServer) -> tuple[Offer, ...]:
    """Return every way to use a server that we know, the safest first: remotes run nothing on this machine."""
    remotes = [Offer("remote", server.version, tuple(_asks_remote(each)), each) for each in server.remotes]
    packages = [
        Offer(each.kind, each.version, tuple(_asks_package(each)), each)
        for each in server.packages
        if each.kind in (*_RUNNERS, "mcpb") and each.transport.type == "stdio"
    ]
    return (*remotes, *packages)


def short_name(server: RegistryServer) -> str:
    """Return a name for the configuration: the last part of the registry's."""
    return server.name.rpartition("/")[2][:64] or "server"


def _asks_remote(remote: RemoteServer) -> Iterable[Need]:
    yield from (_ask(name, each) for name, each in remote.variables.items())
    for header in remote.headers:
        yield from _asks_input(header, header.name)


def _asks_package(package: Package) -> Iterable[Need]:
    for argument in (*package.runtime_arguments, *package.arguments):
        yield from _asks_input(argument, argument.hint or argument.name.lstrip("-"))
    for variable in package.environment:
        yield from _asks_input(variable, variable.name)


def _asks_input(each: Input, name: str) -> Iterable[Need]:
    """Yield what a value needs: the variables in its template, or the value itself."""
    if each.value is not None:
        for inner in _PLACEHOLDER.findall(each.value):
            yield _ask(inner, each.variables.get(inner, Input(isRequired=True)))
    elif name:
        yield _ask(name, each)


def _ask(name: str, each: Input) -> Need:
    default = None if each.default is None else str(each.default)
    return Need(name, each.description, each.secret, each.required and default is None, default)


def _filled(template: str, answers: Mapping[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda match: answers.get(match[1], match[0]), template)


def _value(each: Input, name: str, answers: Mapping[str, str]) -> str | None:
    return _filled(each.value, answers) if each.value is not None else answers.get(name)


def _remote(remote: RemoteServer, answers: Mapping[str, str]) -> RegistryEntry:
    entry: RegistryEntry = {"type": "sse" if remote.type == "sse" else "http", "url": _filled(remote.url, answers)}
    headers = {each.name: value for each in remote.headers if (value := _value(each, each.name, answers))}
    return entry | ({"headers": headers} if headers else {})


def _package(package: Package, answers: Mapping[str, str]) -> RegistryEntry:
    if package.kind not in _RUNNERS:
        raise InvalidInput(f"A package of the kind {package.kind!r} has to be unpacked first.")
    environment = {each.name: value for each in package.environment if (value := _value(each, each.name, answers))}
    command, args = _RUNNERS[package.kind](package, environment, answers)
    args += _arguments(package.arguments, answers)
    return {"command": command, "args": args, **({"env": environment} if environment else {})}


def _arguments(arguments: Iterable[Argument], answers: Mapping[str, str]) -> list[str]:
    found: list[str] = []
    for each in arguments:
        value = _value(each, each.hint or each.name.lstrip("-"), answers)
        if each.type == "named":
            found += [each.name] if value is None and each.required else [] if value is None else [each.name, value]
        elif value is not None:
            found.append(value)
    return found


def _npm(package: Package, _: Mapping[str, str], answers: Mapping[str, str]) -> tuple[str, list[str]]:
    version = f"@{package.version}" if package.version else ""
    return "npx", ["-y", *_arguments(package.runtime_arguments, answers), f"{package.identifier}{version}"]


def _pypi(package: Package, _: Mapping[str, str], answers: Mapping[str, str]) -> tuple[str, list[str]]:
    version = f"@{package.version}" if package.version else ""
    return "uvx", [*_arguments(package.runtime_arguments, answers), f"{package.identifier}{version}"]


def _nuget(package: Package, _: Mapping[str, str], answers: Mapping[str, str]) -> tuple[str, list[str]]:
    version = f"@{package.version}" if package.version else ""
    return "dnx", [f"{package.identifier}{version}", "--yes", *_arguments(package.runtime_arguments, answers)]


def _oci(package: Package, environment: Mapping[str, str], answers: Mapping[str, str]) -> tuple[str, list[str]]:
    tagged = ":" in package.identifier.rpartition("/")[2] or "@" in package.identifier
    image = package.identifier if tagged or not package.version else f"{package.identifier}:{package.version}"
    passed = [word for name in environment for word in ("-e", name)]
    return "docker", ["run", "-i", "--rm", *passed, *_arguments(package.runtime_arguments, answers), image]


_RUNNERS = {"npm": _npm, "pypi": _pypi, "nuget": _nuget, "oci": _oci}
