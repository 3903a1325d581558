"""From a file to settings; every mistake is one line of text: file, line, key, remedy."""

import difflib
import os
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from shortlist.config import shapes
from shortlist.config.documents import read_document, with_line
from shortlist.config.issuers import resource_server
from shortlist.config.settings import (
    CALL_SECONDS,
    CONCURRENT_CALLS,
    START_SECONDS,
    AuditSettings,
    CodeSettings,
    HttpTransport,
    IsolationSettings,
    Limits,
    LogSettings,
    NoTransport,
    OAuthClientSettings,
    PresetSettings,
    SearchSettings,
    SelectionSettings,
    ServerSettings,
    Settings,
    SseTransport,
    StdioTransport,
    TelemetrySettings,
    TokenSettings,
    ToolOverride,
    ToolsetSettings,
    Transport,
)
from shortlist.config.shapes import (
    CodeShape,
    ConfigDocument,
    Options,
    PresetShape,
    SearchModelShape,
    SearchShape,
    SelectionShape,
    ServerOptions,
    ServerShape,
    ToolsetShape,
)
from shortlist.config.variables import (
    SAFE_VARIABLES,
    MissingVariable,
    UnsetVariable,
    Variables,
    declared_inputs,
    has_secrets,
)
from shortlist.errors import InvalidConfig

REFERENCE = "docs/configuration.md"
ShapeT = TypeVar("ShapeT", bound=BaseModel)


def load_settings(path: str | Path, environment: Mapping[str, str] = os.environ, *, lenient: bool = False) -> Settings:
    """Read a file; raise InvalidConfig with the line. With `lenient`, an unset variable affects only its own server."""
    source = Path(path).expanduser()
    tree = read_document(source)
    try:
        return settings_of(tree, source=str(source), environment=environment, lenient=lenient)
    except InvalidConfig as error:
        raise InvalidConfig(with_line(str(error), source)) from None


def settings_of(
    tree: Mapping[str, Any], *, source: str, environment: Mapping[str, str] = os.environ, lenient: bool = False
) -> Settings:
    """Build settings from a parsed document, as `load_settings` does from a file."""
    document = _checked(ConfigDocument, tree, source, "")
    variables = Variables(environment=environment, inputs=declared_inputs(document.inputs))
    servers: dict[str, ServerSettings] = {}
    for place, name, raw in _server_entries(document):
        _check_name(name, source, place)
        if name in servers:
            raise InvalidConfig(f"{source}: {place}: there is another server named {name!r}; rename one of them")
        settings = _Entry(name, raw, source, place, variables).settings(lenient=lenient)
        if settings is not None:
            servers[name] = settings
    for name, server in servers.items():
        if server.same_as and server.same_as not in servers:
            raise InvalidConfig(
                f"{source}: same_as of server {name!r}: no server {server.same_as!r}; use the name of another entry"
            )
    return _settings(document.shortlist, servers, source, variables)


def _server_entries(document: ConfigDocument) -> Iterator[tuple[str, str, Any]]:
    groups = (
        ("mcpServers", document.mcp_servers),
        ("mcp_servers", document.mcp_servers_toml),
        ("servers", document.servers),
    )
    for key, group in groups:
        for name, raw in group.items():
            yield f"{key}.{_shown(name)}", name, raw


def _check_name(name: str, source: str, place: str) -> None:
    if not name.strip() or "/" in name or not name.isprintable() or len(name) > 64 or name in (".", ".."):
        raise InvalidConfig(
            f"{source}: {place}: a server's name is 1 to 64 printable characters without '/', "
            "and neither '.' nor '..'; rename it"
        )


class _Entry:
    """One server of a document on its way to settings."""

    def __init__(self, name: str, raw: Any, source: str, place: str, variables: Variables) -> None:
        self._name, self._source, self._place, self._variables = name, source, place, variables
        self._shape = _checked(ServerShape, raw, source, place)

    def settings(self, *, lenient: bool = False) -> ServerSettings | None:
        """Return the settings, or None for a disabled server."""
        shape, ours = self._shape, self._shape.shortlist
        if shape.disabled or not shape.enabled:
            return None
        include = shape.include_tools if shape.include_tools is not None else shape.tools
        return ServerSettings(
            name=self._name,
            transport=self._reached(lenient),
            description=ours.description or shape.description,
            title=ours.title,
            categories=ours.categories,
            tags=ours.tags,
            always_load=_always_load(ours),
            include=include if include is not None and ours.include == ("*",) else ours.include,
            exclude=(*ours.exclude, *shape.exclude_tools, *shape.disabled_tools),
            timeout_seconds=ours.timeout or CALL_SECONDS,
            start_seconds=ours.start_timeout or START_SECONDS,
            max_concurrency=ours.max_concurrency or CONCURRENT_CALLS,
            identity=ours.identity,
            sessions=ours.sessions,
            confirm=ours.confirm,
            may_ask=ours.may_ask,
            trust=ours.trust,
            results=ours.results,
            same_as=ours.same_as,
            start=ours.start,
            tools={name: ToolOverride(**dict(tool)) for name, tool in ours.tools.items()},
        )

    def _reached(self, lenient: bool) -> Transport:
        try:
            return self._transport()
        except UnsetVariable as error:
            if not lenient:
                raise
            return NoTransport(reason=str(error).removeprefix(f"{self._source}: "))

    def _transport(self) -> Transport:
        shape = self._shape
        kind = shape.type or shape.transport
        local = kind in (None, "stdio", "local")
        addresses = {"httpUrl": shape.http_url, "url": shape.url, "serverUrl": shape.server_url}
        key = next((key for key, address in addresses.items() if address is not None), None)
        if shape.command is not None and key is not None:
            raise self._wrong("", f"it has both 'command' and {key!r}; keep the one that is meant")
        if shape.command is not None and local:
            return self._stdio(shape.command)
        if key is None or (local and kind is not None):
            raise self._wrong("", f"it has no {'command' if local else 'url'!r}; add one")
        return self._web(key, addresses[key] or "", kind)

    def _web(self, key: str, url: str, kind: str | None) -> Transport:
        if self._shape.shortlist.isolation != "none":
            raise self._wrong("shortlist.isolation", "only local servers can be isolated; remove it")
        address = self._expand(url, key)
        if not address.startswith(("http://", "https://")):
            raise self._wrong(key, "it is not an http:// or https:// address; correct it")
        headers = {name: self._expand(text, f"headers.{name}") for name, text in self._shape.headers.items()}
        oauth = self._oauth()
        if kind == "sse":
            return SseTransport(url=address, headers=headers, oauth=oauth)
        return HttpTransport(url=address, headers=headers, oauth=oauth, sse_fallback=kind is None and key != "httpUrl")

    def _oauth(self) -> OAuthClientSettings:
        given = self._shape.shortlist.oauth

        def text(key: str) -> str | None:
            value = getattr(given, key)
            return None if value is None else self._expand(value, f"shortlist.oauth.{key}")

        return OAuthClientSettings(
            client_id=text("client_id"),
            client_secret=text("client_secret"),
            client_metadata_url=text("client_metadata_url"),
            scopes=given.scopes,
            allow_private_addresses=given.allow_private_addresses,
        )

    def _stdio(self, command: str) -> StdioTransport:
        shape = self._shape
        directory = self._expand(shape.cwd, "cwd") if shape.cwd else None
        return StdioTransport(
            command=os.path.expanduser(self._shown(command, "command")),
            args=tuple(self._shown(arg, f"args[{i}]") for i, arg in enumerate(shape.args)),
            environment=self._environment(),
            directory=os.path.expanduser(directory) if directory else None,
            isolation=self._isolation(),
        )

    def _isolation(self) -> IsolationSettings:
        kind, given = self._shape.shortlist.isolation, self._shape.shortlist.sandbox
        if kind == "container" and not given.image:
            raise self._wrong("shortlist.isolation", "a container needs 'sandbox.image'; add one")

        def paths(key: str, texts: tuple[str, ...]) -> tuple[str, ...]:
            expanded = (self._expand(text, f"shortlist.sandbox.{key}[{i}]") for i, text in enumerate(texts))
            return tuple(os.path.abspath(os.path.expanduser(path)) for path in expanded)

        return IsolationSettings(
            kind=kind,
            server=self._name,
            read=paths("read", given.read),
            write=paths("write", given.write),
            network=given.network,
            image=given.image,
            memory_megabytes=given.memory_megabytes,
            home_megabytes=given.home_megabytes,
            processes=given.processes,
            open_files=given.open_files,
            cpu_seconds=given.cpu_seconds,
        )

    def _environment(self) -> dict[str, str]:
        """Return what a child process gets: safe variables, those asked for by name, and what the entry sets."""
        shape = self._shape
        asked = (*SAFE_VARIABLES, *shape.inherit_env, *shape.shortlist.inherit_env)
        inherited = {
            name: value
            for name, value in self._variables.environment.items()
            if any(fnmatchcase(name, glob) for glob in asked) and not value.startswith("()")
        }
        own = {k: self._expand(_text(v), f"env.{k}") for k, v in shape.env.items() if v is not None}
        return inherited | self._env_file() | own

    def _env_file(self) -> dict[str, str]:
        if self._shape.env_file is None:
            return {}
        path = Path(self._source).parent / Path(self._expand(self._shape.env_file, "envFile")).expanduser()
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise self._wrong("envFile", f"{str(path)!r} cannot be read ({error.strerror}); correct it") from None
        pairs = (line.partition("=") for line in lines if "=" in line and not line.lstrip().startswith("#"))
        return {key.strip().removeprefix("export "): value.strip().strip("\"'") for key, _, value in pairs}

    def _shown(self, text: str, key: str) -> str:
        """Expand a part of the command line, which every user of the machine can see."""
        if has_secrets(text):
            raise self._wrong(key, "a command line is visible to other users; put the secret into 'env'")
        return self._expand(text, key)

    def _expand(self, text: str, key: str) -> str:
        try:
            return self._variables.expand(text)
        except MissingVariable as missing:
            raise UnsetVariable(str(self._wrong(key, str(missing)))) from None

    def _wrong(self, key: str, problem: str) -> InvalidConfig:
        place = f"{self._place}.{key}" if key else self._place
        return InvalidConfig(f"{self._source}: {place}: {problem}")


def _always_load(ours: ServerOptions) -> tuple[str, ...]:
    if isinstance(ours.always_load, bool):
        return ("*",) if ours.always_load else ()
    return ours.always_load


def _text(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _settings(ours: Options, servers: Mapping[str, ServerSettings], source: str, variables: Variables) -> Settings:
    return Settings(
        servers=servers,
        mode=ours.mode,
        preset=ours.preset,
        presets={name: _preset(name, shape) for name, shape in ours.presets.items()},
        toolsets={name: _toolset(name, shape) for name, shape in ours.toolsets.items()},
        intents=ours.intents,
        always_load=ours.always_load,
        expansions=tuple(Path(source).parent / Path(file).expanduser() for file in ours.expansions),
        search=_search(ours.search, variables, source),
        tokens={name: TokenSettings(name=name, **dict(shape)) for name, shape in ours.tokens.items()},
        oauth=resource_server(ours.oauth, ours.tokens, variables, source),
        limits=Limits(**{key: value for key, value in ours.limits if value is not None}),
        telemetry=TelemetrySettings(**ours.telemetry.model_dump(exclude_none=True)),
        audit=AuditSettings(**dict(ours.audit)),
        storage=_storage(ours.storage or "", variables, source),
        dashboard=ours.dashboard,
        logs=LogSettings(level=ours.logs.level, json=ours.logs.json_lines),
        code=CodeSettings(**dict(ours.code if isinstance(ours.code, CodeShape) else {"enabled": ours.code})),
        smart_select=_selection(ours.smart_select, variables, source),
        source=source,
    )


def _storage(address: str, variables: Variables, source: str) -> str:
    try:
        expanded = variables.expand(address)
    except MissingVariable as missing:
        raise InvalidConfig(f"{source}: shortlist.storage: {missing}") from None
    if expanded and not expanded.startswith(("postgresql://", "postgres://", "${keyring:")):
        scheme = expanded.partition(":")[0]
        raise InvalidConfig(
            f"{source}: shortlist.storage: {scheme!r} is not a database that can be used; write postgresql://…, "
            "or remove the key to keep everything in files"
        )
    return expanded


def _search(shape: SearchShape, variables: Variables, source: str) -> SearchSettings:
    """Read which model searches; a key may be named in a variable, a folder is relative to the file."""
    chosen: dict[str, Any] = {"embedder": shape.embedder, "reranker": shape.reranker}
    for name, choice in chosen.items():
        if not isinstance(choice, SearchModelShape):
            continue
        chosen[name] = given = choice.model_dump(exclude_none=True)
        try:
            given |= {"api_key": variables.expand(choice.api_key)} if choice.api_key else {}
        except MissingVariable as missing:
            raise InvalidConfig(f"{source}: shortlist.search.{name}.api_key: {missing}") from None
        if choice.path:
            given["path"] = str(Path(source).parent / Path(choice.path).expanduser())
    saved = shape.saved_index
    if isinstance(saved, str) and "://" not in saved:
        saved = str(Path(source).parent / Path(saved).expanduser())
    return SearchSettings(
        **chosen,
        dimensions=shape.dimensions,
        pipeline=shape.pipeline,
        index=shape.index,
        saved_index=saved,
    )


def _selection(shape: SelectionShape | bool, variables: Variables, source: str) -> SelectionSettings | None:
    """Read the object or its short form, `true`; the key may refer to a variable."""
    if isinstance(shape, bool):
        return SelectionSettings() if shape else None
    try:
        key = variables.expand(shape.api_key) if shape.api_key else None
    except MissingVariable as missing:
        raise InvalidConfig(f"{source}: shortlist.smart_select.api_key: {missing}") from None
    return SelectionSettings(**{**dict(shape), "api_key": key})


def _preset(name: str, shape: PresetShape | tuple[str, ...]) -> PresetSettings:
    """Read the object or its short form, a list of toolsets."""
    fields = {"toolsets": shape} if isinstance(shape, tuple) else dict(shape)
    return PresetSettings(name=name, **fields)


def _toolset(name: str, shape: ToolsetShape | tuple[str, ...]) -> ToolsetSettings:
    """Read the object or its short form, a list of globs over tool ids."""
    fields = {"tools": shape} if isinstance(shape, tuple) else dict(shape)
    return ToolsetSettings(name=name, **fields)


def _checked(shape: type[ShapeT], raw: Any, source: str, place: str) -> ShapeT:
    try:
        return shape.model_validate(raw)
    except ValidationError as error:
        raise InvalidConfig(f"{source}: {_first_mistake(error, place)}") from None


_HASH_REMEDY = "tokens are stored hashed; write 'hash' with the SHA-256 of the token, as 'sha256:<hex>'"
_BRANCHES = ("model_type", "tuple_type", "bool_type", "bool_parsing", "dict_type")
_EXPECTED = {
    "string_type": "text in quotes",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "tuple_type": 'a list, as in ["a", "b"]',
    "list_type": "a list",
    "dict_type": 'an object, as in {"name": …}',
    "model_type": 'an object, as in {"key": …}',
}
"""What a value should have been, by pydantic's kind of error, in words of the file."""


def _first_mistake(error: ValidationError, place: str) -> str:
    """Describe the first of what pydantic found, without the values: they may be secrets."""
    found = error.errors(include_input=False, include_url=False)
    first = found[0]
    # The alternatives of a union each have errors of their own: the deepest is the one that was meant.
    same = [each for each in found if _path("", each["loc"][:1]) == _path("", first["loc"][:1])]
    deepest = max(same, key=lambda each: (each["type"] not in _BRANCHES, len(_keys(each["loc"]))))
    kinds = [each["type"] for each in same if _keys(each["loc"]) == _keys(deepest["loc"])]
    where = _path(place, deepest["loc"]) or "the top level"
    return f"{where}: {_problem(deepest, kinds)}"


def _problem(found: ErrorDetails, kinds: Sequence[str]) -> str:
    """Word one error; `kinds` are those of every alternative at the same key."""
    kind, facts = found["type"], found.get("ctx", {})
    wanted = " or ".join(dict.fromkeys(_EXPECTED[each] for each in kinds if each in _EXPECTED))
    if kind in _EXPECTED:
        return f"expected {wanted}; correct it"
    if kind == "extra_forbidden":
        return f"unknown key; {_suggestion(str(found['loc'][-1]))}"
    if kind == "literal_error":
        return f"expected one of {str(facts['expected']).replace(' or ', ', ')}; correct it"
    if kind == "greater_than":
        return f"expected a number greater than {facts['gt']:g}; correct it"
    plain = {"missing": "it is missing; add it", "string_pattern_mismatch": _HASH_REMEDY}
    return plain.get(kind) or f"{found['msg'][:1].lower()}{found['msg'][1:]}; correct it"


def _keys(parts: tuple[int | str, ...]) -> tuple[int | str, ...]:
    return tuple(part for part in parts if isinstance(part, int) or not _is_branch(part))


def _suggestion(key: str) -> str:
    if key == "token":
        return _HASH_REMEDY
    close = difflib.get_close_matches(key, _known_keys(), n=1)
    return f"did you mean {close[0]!r}?" if close else f"remove it, or see {REFERENCE} for the keys there are"


def _known_keys() -> list[str]:
    kinds = [kind for kind in vars(shapes).values() if isinstance(kind, type) and issubclass(kind, BaseModel)]
    return sorted({field.alias or name for shape in kinds for name, field in shape.model_fields.items()})


def _path(place: str, parts: tuple[int | str, ...]) -> str:
    for part in parts:
        if isinstance(part, int):
            place += f"[{part}]"
        elif not _is_branch(part):
            place += f".{_shown(part)}" if place else _shown(part)
    return place


def _shown(key: str) -> str:
    """Keep a key from breaking the line it is shown in."""
    return (key if key.isprintable() and key else ascii(key))[:80]


def _is_branch(part: str) -> bool:
    """Return whether a part of a location is an alternative of a union, which pydantic includes, and not a key."""
    return part.endswith("Shape") or part.startswith("tuple[") or part in ("str", "int", "float", "bool")
