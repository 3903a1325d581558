"""The servers people already have in their clients: found, compared with the user's own file, added to it."""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias

from shortlist.config.documents import read_document
from shortlist.config.load import settings_of
from shortlist.config.shapes import ServerShape
from shortlist.errors import InvalidConfig, InvalidInput
from shortlist.models import Json

ClientName: TypeAlias = Literal[
    "claude-desktop", "claude-code", "cursor", "vscode", "gemini", "windsurf", "copilot", "file"
]
Verdict: TypeAlias = Literal["add", "present", "left_out"]

_KNOWN_KEYS = frozenset(shape.alias or name for name, shape in ServerShape.model_fields.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the files of clients may lie."""

    home: Path = field(default_factory=Path.home)
    project: Path = field(default_factory=Path.cwd)
    platform: str = sys.platform
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    @property
    def applications(self) -> Path:
        """Give the folder in which desktop programs keep their settings on this system."""
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        if self.platform == "win32":
            return Path(self.environment.get("APPDATA") or self.home / "AppData" / "Roaming")
        return Path(self.environment.get("XDG_CONFIG_HOME") or self.home / ".config")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One server of one client, and what importing would do with it."""

    name: str
    client: ClientName
    path: Path
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


def well_known_files(place: Place) -> tuple[tuple[ClientName, Path], ...]:
    """Name every file a client may keep its servers in, whether it is there or not."""
    home, project, applications = place.home, place.project, place.applications
    return (
        ("claude-desktop", applications / "Claude" / "claude_desktop_config.json"),
        ("claude-code", home / ".claude.json"),
        ("claude-code", project / ".mcp.json"),
        ("cursor", home / ".cursor" / "mcp.json"),
        ("cursor", project / ".cursor" / "mcp.json"),
        ("vscode", applications / "Code" / "User" / "mcp.json"),
        ("vscode", applications / "Code" / "User" / "settings.json"),
        ("vscode", project / ".vscode" / "mcp.json"),
        ("gemini", home / ".gemini" / "settings.json"),
        ("gemini", project / ".gemini" / "settings.json"),
        ("windsurf", home / ".codeium" / "windsurf" / "mcp_config.json"),
        ("copilot", home / ".copilot" / "mcp-config.json"),
    )


def plan_import(files: Iterable[tuple[ClientName, Path]], target: Path, place: Place) -> Plan:
    """Read the files that are there and say what each of their servers would become."""
    if target.is_dir() or target.suffix == ".toml":
        raise InvalidInput(f"Servers are added to a JSON file, and {str(target)!r} is none; name one with --to.")
    taken: dict[str, Mapping[str, Json]] = dict(_entries(_existing(target)))
    candidates: list[Candidate] = []
    problems: list[str] = []
    inputs: dict[str, Json] = {}
    for client, path in dict.fromkeys(files):  # in the home folder, a project's file is the user's own
        try:
            tree = read_document(path) if path.is_file() else {}
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


def apply(plan: Plan) -> None:
    """Add what the plan adds to its file, in one step; what the file was stays beside it as `.bak`."""
    tree = _existing(plan.target)
    added = {candidate.name: dict(candidate.entry) for candidate in plan.additions}
    tree["mcpServers"] = {**_object(tree.get("mcpServers")), **added}
    inputs = _inputs(tree) | {item["id"]: item for item in plan.inputs}
    if inputs:
        tree["inputs"] = list(inputs.values())
    try:
        _replace(plan.target, json.dumps(tree, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise InvalidInput(
            f"{str(plan.target)!r} cannot be written: {error.strerror}. Name another file with --to."
        ) from error


def _replace(target: Path, text: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_suffix(".new")
    _write_private(fresh, text)
    if target.exists():
        target.replace(target.with_suffix(".bak"))
    fresh.replace(target)


def _candidates(client: ClientName, path: Path, tree: Mapping[str, Json], place: Place) -> Iterator[Candidate]:
    projects = _object(tree.get("projects"))
    here = _object(projects.get(str(place.project)))
    for name, raw in (*_entries(tree), *_entries(here)):
        entry = {key: value for key, value in raw.items() if key in _KNOWN_KEYS}
        yield Candidate(name=name, client=client, path=path, entry=entry)


def _judge(
    candidate: Candidate, taken: Mapping[str, Mapping[str, Json]], inputs: tuple[Json, ...], place: Place
) -> Candidate:
    entry = candidate.entry
    if _is_gateway(entry):
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
    renamed = f"{candidate.name!r} is taken by another server" if name != candidate.name else ""
    return replace(candidate, name=name, reason=renamed)


def _free_name(candidate: Candidate, taken: Mapping[str, Json]) -> str:
    """Keep the name, or add the client's to it, or a number."""
    name = candidate.name.replace("/", "-")
    tries = (name, f"{name}-{candidate.client}", *(f"{name}-{number}" for number in range(2, 100)))
    return next(one for one in tries if one not in taken)


def _is_gateway(entry: Mapping[str, Json]) -> bool:
    """Tell our own entry in a client: importing it would make the gateway start itself without end."""
    words = [str(entry.get("command", "")), *map(str, _list(entry.get("args")))]
    stems = [Path(word.replace("\\", "/")).stem for word in words]
    return any(stem in ("shortlist", "shortlist-mcp") for stem in stems) and "serve" in words


def _entries(tree: Mapping[str, Json]) -> Iterator[tuple[str, dict[str, Json]]]:
    """Give the servers of a client's file, wherever that client keeps them."""
    nested = _object(tree.get("mcp"))
    for group in (tree.get("mcpServers"), tree.get("servers"), nested.get("servers")):
        yield from ((name, raw) for name, raw in _object(group).items() if isinstance(raw, dict))


def _inputs(tree: Mapping[str, Json]) -> dict[str, Json]:
    nested = _object(tree.get("mcp"))
    declared = (*_list(tree.get("inputs")), *_list(nested.get("inputs")))
    return {item["id"]: item for item in declared if isinstance(item, dict) and isinstance(item.get("id"), str)}


def _used(inputs: Mapping[str, Json], additions: Iterable[Candidate]) -> tuple[Json, ...]:
    text = json.dumps([dict(candidate.entry) for candidate in additions])
    return tuple(item for name, item in inputs.items() if f"${{input:{name}}}" in text)


def _existing(target: Path) -> dict[str, Json]:
    return read_document(target) if target.is_file() else {}


def _write_private(path: Path, text: str) -> None:
    # Secrets of the clients are copied: nobody else may read the file, from its first byte on.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def _object(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []
