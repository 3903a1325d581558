"""Finds the servers of MCP clients, compares them with the user's own file, and adds them."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias

from shortlist.config.clients.known import ClientName, Place, ServerEntry, server_entries
from shortlist.config.clients.texts import decoded, format_of, put, read_bytes, replace_file, tree_of
from shortlist.config.documents import read_document
from shortlist.config.load import settings_of
from shortlist.config.shapes import ServerShape
from shortlist.errors import InvalidConfig, InvalidInput
from shortlist.models import Json

Verdict: TypeAlias = Literal["add", "present", "left_out"]

_KNOWN_KEYS = frozenset(shape.alias or name for name, shape in ServerShape.model_fields.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One server of one client, and what importing would do with it."""

    name: str
    client: ClientName
    path: Path
    keys: tuple[str, ...]
    """What leads to it in that file."""
    entry: Mapping[str, Json] = field(repr=False)
    verdict: Verdict = "add"
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that was found, and the file it would go to."""

    target: Path
    candidates: tuple[Candidate, ...] = ()
    problems: tuple[str, ...] = ()
    inputs: tuple[Json, ...] = ()

    @property
    def additions(self) -> tuple[Candidate, ...]:
        return tuple(candidate for candidate in self.candidates if candidate.verdict == "add")


def plan_import(files: Iterable[tuple[ClientName, Path]], target: Path, place: Place) -> Plan:
    """Read the files that are there and decide what each of their servers would become."""
    if target.is_dir() or format_of(target) != "json":
        raise InvalidInput(
            f"Servers can be added only to a JSON file, and {str(target)!r} is not one. Pass one with --to."
        )
    taken: dict[str, Mapping[str, Json]] = {keys[-1]: entry for keys, entry in _own_entries(target, place)}
    candidates: list[Candidate] = []
    problems: list[str] = []
    inputs: dict[str, Json] = {}
    for client, path in dict.fromkeys(files):  # in the home folder, a project's file is the user's own
        try:
            tree = _read(path)
        except InvalidConfig as error:
            problems.append(str(error))
            continue
        inputs |= _inputs(tree)
        for candidate in _candidates(client, path, tree, place):
            judged = _judge(candidate, taken, tuple(inputs.values()), place)
            candidates.append(judged)
            if judged.verdict == "add":
                taken[judged.name] = judged.entry
    plan = Plan(target=target, candidates=tuple(candidates), problems=tuple(problems))
    return replace(plan, inputs=_used(inputs, plan.additions))


def _read(path: Path) -> Mapping[str, Json]:
    if not path.is_file():
        return {}
    if format_of(path) != "yaml":
        return read_document(path)
    try:
        return tree_of(decoded(read_bytes(path), path), "yaml")
    except ValueError as error:
        raise InvalidConfig(f"{path}: not YAML: {error}; correct it there") from None


def _own_entries(target: Path, place: Place) -> Iterator[tuple[tuple[str, ...], ServerEntry]]:
    return server_entries("file", read_document(target), place) if target.is_file() else iter(())


def apply(plan: Plan) -> None:
    """Add what the plan adds to its file, in one step; what it was is kept beside it as `.bak`."""
    before = read_bytes(plan.target)
    text = decoded(before, plan.target)
    for candidate in plan.additions:
        text = put(text, "json", ("mcpServers", candidate.name), dict(candidate.entry))
    inputs = _inputs(tree_of(text, "json")) | {item["id"]: item for item in plan.inputs}
    if plan.inputs:
        text = put(text, "json", ("inputs",), list(inputs.values()))
    if before is not None:
        copy = plan.target.with_suffix(".bak")
        replace_file(copy, before, expected=read_bytes(copy), private=True)
    replace_file(plan.target, text.encode(), expected=before, private=True)  # it holds the secrets of clients now


def _candidates(client: ClientName, path: Path, tree: Mapping[str, Json], place: Place) -> Iterator[Candidate]:
    for keys, raw in server_entries(client, tree, place):
        entry = {key: value for key, value in raw.items() if key in _KNOWN_KEYS}
        yield Candidate(name=keys[-1], client=client, path=path, keys=keys, entry=entry)


def _judge(
    candidate: Candidate, taken: Mapping[str, Mapping[str, Json]], inputs: tuple[Json, ...], place: Place
) -> Candidate:
    entry = candidate.entry
    if is_gateway(entry):
        return replace(candidate, verdict="left_out", reason="it is this gateway itself")
    if entry in taken.values():
        return replace(candidate, verdict="present", reason="it is in the file already")
    name = _free_name(candidate, taken)
    try:
        tree = {"mcpServers": {name: entry}, "inputs": list(inputs)}
        settings_of(tree, source=str(candidate.path), environment=place.environment)
    except InvalidConfig as error:
        reason = str(error).removeprefix(f"{candidate.path}: ")
        return replace(candidate, verdict="left_out", reason=reason)
    plain = candidate.name.replace("/", "-")
    renamed = f"{plain!r} is taken by another server" if name != plain else ""
    return replace(candidate, name=name, reason=renamed)


def _free_name(candidate: Candidate, taken: Mapping[str, Json]) -> str:
    """Keep the name, or add the client's to it, or a number."""
    name = candidate.name.replace("/", "-")
    tries = (name, f"{name}-{candidate.client}", *(f"{name}-{number}" for number in range(2, 100)))
    return next(one for one in tries if one not in taken)


def is_gateway(entry: Mapping[str, Json]) -> bool:
    """Return whether an entry is our own: importing it would make the gateway start itself endlessly."""
    words = [str(entry.get("command", "")), *map(str, _list(entry.get("args")))]
    stems = [Path(re.split("@|==", word.replace("\\", "/"))[0]).stem for word in words]  # shortlist-mcp@0.1.0
    return "shortlist-mcp" in stems or ("shortlist" in stems and "serve" in words)


def _inputs(tree: Mapping[str, Json]) -> dict[str, Json]:
    nested = _object(tree.get("mcp"))
    declared = (*_list(tree.get("inputs")), *_list(nested.get("inputs")))
    return {item["id"]: item for item in declared if isinstance(item, dict) and isinstance(item.get("id"), str)}


def _used(inputs: Mapping[str, Json], additions: Iterable[Candidate]) -> tuple[Json, ...]:
    text = json.dumps([dict(candidate.entry) for candidate in additions])
    return tuple(item for name, item in inputs.items() if f"${{input:{name}}}" in text)


def _object(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []
