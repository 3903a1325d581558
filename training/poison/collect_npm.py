"""Collect the tool definitions of MCP servers on npm by reading their source, which is not run.

    nice python -m training.poison.collect_npm --names 70000 --out training/poison/collected_npm.jsonl.gz

As `collect` does for PyPI: packages with `mcp` as a word of their name and a permissive licence are read in a fixed
random order. `javascript` reads what they write out; a tool whose description is put together while the server runs is
left out, and so are packages and texts that were collected before.
"""

import argparse
import functools
import io
import itertools
import json
import random
import re
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import httpx2

from training.bench import data_folder, read_lines, write_lines
from training.poison.collect import NOT_SERVERS, PER_PACKAGE, new_tools
from training.poison.javascript import UNREAD, Code, Schema, schema_of

NAMES = "all-the-package-names"
"""The package with the names of all others, for registries without a search."""
SERVER = re.compile(r"(?:^|[-_/@.])mcp(?:$|[-_/.])", re.I)
COPIES = re.compile(
    r"^@(?:iflow-mcp|mseep)/|(?:darwin|linux|win32|windows)-?(?:arm|x64|x86|amd)|-(?:darwin|linux|win32)$"
)
"""Packages that are others again: by those who publish other people's servers, or for one platform."""
LEFT_OUT_BY_HAND = frozenset(("finprodata-mcp",))
"""Left out by hand: texts that resemble what the scanner looks for, and are no examples of the opposite."""
PERMISSIVE = re.compile(r"MIT|ISC|Apache(?:[- ]2(?:\.0)?)?|BSD(?:-[23]-Clause)?", re.I)
LARGEST = 20_000_000
LARGEST_FILE, LARGEST_SOURCE = 1_000_000, 3_000_000
"""Bytes of JavaScript that are read; larger ones bundle other packages."""
AT_ONCE = 16
WAIT = 25
NOT_SOURCE = re.compile(
    r"(?:^|/)(?:tests?|__tests__|__mocks__|examples?|fixtures|node_modules|vendor|public|static|assets)/"
    r"|\.(?:test|spec|d)\.\w+$"
)
REGISTERS = re.compile(r"[tT]ool\(|inputSchema|input_schema|parameters\s*:")
DESCRIBES = re.compile(r"\.describe\(|inputSchema|description")
SCHEMAS = (
    "inputSchema",
    "input_schema",
    "parameters",
    "schema",
    "zodSchema",
    "inputShape",
    "paramsSchema",
    "argsSchema",
)
ROLES = frozenset(
    ("config", "def", "default", "definition", "function", "info", "meta", "options", "schema", "spec", "tool")
)
"""What an object with a description and a schema is called where that is not the tool's name."""
NAME = re.compile(r"[\w./:-]{1,128}")
FOLDER = Path(__file__).parent
MEASURED = FOLDER.parents[1] / "benchmarks" / "understanding" / "data"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", type=int, default=70_000, help="how many packages are looked at")
    parser.add_argument("--tools", type=int, default=20_000, help="after how many tools to stop")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    said = subprocess.run(["npm", "config", "get", "registry"], check=True, capture_output=True, text=True).stdout
    registry = said.strip().rstrip("/")
    before = [*read_lines(FOLDER / "collected.jsonl.gz"), *read_lines(FOLDER / "collected_sources.jsonl.gz")]
    names = _package_names(registry, {str(row["server"]) for row in before} | _measured_packages())
    random.Random(18).shuffle(names)
    print(f"{len(names)} names", flush=True)
    with ProcessPoolExecutor(AT_ONCE) as pool:
        wanted = [name for name in names[: options.names] if name not in LEFT_OUT_BY_HAND]
        found = pool.map(_collected, itertools.repeat(registry, len(wanted)), wanted, chunksize=4)
        texts = (str(row["tool"].get("description", "")) for row in before)
        new = new_tools(found, itertools.chain(texts, _unseen_texts()))
        write_lines(options.out, itertools.islice(new, options.tools))
        pool.shutdown(cancel_futures=True)


def _package_names(registry: str, but: set[str]) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(_fetched(_about(registry, NAMES)["dist"]["tarball"], 2 * LARGEST))) as archive:
        file = archive.extractfile("package/names.json")
        names = json.load(file) if file else []
    wanted = (name for name in names if SERVER.search(name) and name not in but)
    return sorted(name for name in wanted if not NOT_SERVERS.search(name) and not COPIES.search(name))


def _measured_packages() -> set[str]:
    packages = {str(row["package"]) for row in read_lines(MEASURED / "servers.jsonl.gz")}
    return packages | {server for _, server in _unseen_servers()}


def _unseen_servers() -> set[tuple[str, str]]:
    """Return the catalogs and names of servers of `catalogs/` that `benchmarks/understanding` measures with."""
    unseen = json.loads((MEASURED / "unseen_servers.json").read_text(encoding="utf-8"))
    return {(str(each["catalog"]), str(each["server"])) for each in unseen.values()}


def _unseen_texts() -> Iterator[str]:
    servers = _unseen_servers()
    for catalog in sorted({catalog for catalog, _ in servers}):
        for row in read_lines(data_folder() / "catalogs" / catalog / "tools.jsonl.gz"):
            if (catalog, row.get("server")) in servers:
                yield str(row.get("description", ""))


@functools.cache
def _client() -> httpx2.Client:
    """Return the client of this process, which keeps its connection: most names are quickly told not to exist."""
    return httpx2.Client(headers={"User-Agent": "shortlist-training"}, timeout=WAIT, follow_redirects=True)


def _fetched(address: str, most: int = LARGEST) -> bytes:
    with _client().stream("GET", address) as answer:
        if answer.is_error:
            answer.read()  # else the connection is closed
        answer.raise_for_status()
        if int(answer.headers.get("Content-Length", 0)) > most:
            raise ValueError(f"{address} is too large")
        return answer.read()


def _about(registry: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_fetched(f"{registry}/{name.replace('/', '%2f')}/latest"))
    return found


def _collected(registry: str, name: str) -> list[dict[str, Any]]:
    """Return the tools of a package; none where it can't be had or its licence is not permissive."""
    try:
        about = _about(registry, name)
        licence = licence_of(about)
        if not licence:
            return []
        files = dict(_sources(_fetched(about["dist"]["tarball"])))
    except (httpx2.HTTPError, OSError, ValueError, KeyError, tarfile.TarError, EOFError):
        return []
    tools, said = read_package(files)
    about_it = {"server": name, "version": about["version"], "registry": "npm", "licence": licence}
    if len(tools) > PER_PACKAGE:
        tools = random.Random(name).sample(tools, PER_PACKAGE)
    return [{**about_it, "tool": tool, "server_instructions": said} for tool in tools]


def licence_of(about: Mapping[str, Any]) -> str:
    """Return the licence of a package if each that it offers is permissive."""
    said = about.get("license") or ""
    said = said.get("type") or "" if isinstance(said, dict) else said
    parts = re.split(r"\s+(?:OR|AND)\s+", said.strip("() ")) if isinstance(said, str) else []
    return said if parts and all(PERMISSIVE.fullmatch(part) for part in parts) else ""


def _sources(content: bytes) -> Iterator[tuple[str, str]]:
    """Yield the paths and texts of JavaScript and TypeScript in a package."""
    left = LARGEST_SOURCE
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            path = member.name.partition("/")[2]
            if not re.search(r"\.[cm]?[jt]s$", path) or NOT_SOURCE.search(path) or not member.isfile():
                continue
            if member.size < min(left, LARGEST_FILE) and (file := archive.extractfile(member)):
                text = file.read().decode("utf-8", "replace")
                if DESCRIBES.search(text):
                    left -= member.size
                    yield path, text


def read_package(files: Mapping[str, str]) -> tuple[list[dict[str, Any]], str]:
    """Return the tools of a package's files by path, each name once, and the server's instructions.

    They are read from the source or from what was built of it, whichever has more.
    """
    if not any(REGISTERS.search(text) for text in files.values()):
        return [], ""
    source = {path: text for path, text in files.items() if re.match(r"(?:.*/)?src/|.*ts$", path)}
    built = {path: text for path, text in files.items() if path not in source}
    return max((_read_files(each) for each in (source, built)), key=lambda found: (len(found[0]), found[1] != ""))


def _read_files(files: Mapping[str, str]) -> tuple[list[dict[str, Any]], str]:
    elsewhere: dict[str, Code] = {}
    codes = []
    for path in sorted(files):
        try:
            codes.append(Code(files[path], elsewhere))
        except RecursionError:
            continue
    owners = [(name, code) for code in codes for name in code.named if len(name) > 3]
    counts: dict[str, int] = {}
    for name, _ in owners:
        counts[name] = counts.get(name, 0) + 1
    elsewhere |= {name: code for name, code in owners if counts[name] == 1}
    tools: dict[str, dict[str, Any]] = {}
    said = ""
    for code in codes:
        for tool in read_source(code):
            tools.setdefault(tool["name"], tool)
        said = said or _instructions(code)
    return list(tools.values()), said


def read_source(code: Code) -> Iterator[dict[str, Any]]:
    """Yield the tools that a file registers or writes out."""
    tokens = code.tokens
    for at in range(len(tokens) - 3):
        given: dict[str, Any] = {}
        if tokens[at] == "tool" and tokens[at - 1] == "." and tokens[at + 1] == "(":
            given = _in_a_row(code.arguments(at + 1))
        elif tokens[at] in {"registerTool", "registerAppTool"} and tokens[at + 1] == "(":
            given = _configured(code.arguments(at + 1))
        elif tokens[at] in {"name", '"name"', "'name'"} and tokens[at + 1] in {":", ","}:
            opener = code.inside[at]
            if opener >= 0 and tokens[opener] == "{":
                given = code.fields(opener)
        elif tokens[at] == "inputSchema" and tokens[at + 1] in {":", ","}:
            given = _under_its_name(code, code.inside[at])
        if found := _tool(given):
            yield found


def _in_a_row(given: list[Any]) -> dict[str, Any]:
    """Return the fields of a tool by the arguments of `server.tool`."""
    if len(given) < 2:
        return {}
    return {"name": given[0], "description": given[1], "inputSchema": given[2] if len(given) > 3 else {}}


def _configured(given: list[Any]) -> dict[str, Any]:
    """Return the fields of a tool by the arguments of `server.registerTool`; the server may be the first."""
    name = next((each for each in given[:2] if isinstance(each, str)), None)
    config = next((each for each in given[1:3] if isinstance(each, dict)), None)
    return {"inputSchema": {}, **config, "name": name} if config and name else {}


def _under_its_name(code: Code, opener: int) -> dict[str, Any]:
    """Return the fields of a tool in an object whose key is its name, or which is one of the fields beside the name."""
    if opener < 2 or code.tokens[opener] != "{" or code.tokens[opener - 1] != ":":
        return {}
    given, key, around = code.fields(opener), code.tokens[opener - 2], code.inside[opener]
    if "name" in given or around < 0 or code.tokens[around] != "{":
        return {}
    beside = code.fields(around).get("name")
    if beside is not None:
        return {**given, "name": beside}
    name = key.strip("\"'")
    return {} if name in ROLES else {**given, "name": name}


def _tool(given: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the tool that fields are if its name and description could be read whole."""
    key = next((key for key in SCHEMAS if key in given), None)
    name, about = given.get("name"), given.get("description")
    if key is None or not isinstance(name, str) or not isinstance(about, str):
        return None
    schema = given[key]
    if not NAME.fullmatch(name) or len(about) <= 10 or not (schema is UNREAD or isinstance(schema, dict | Schema)):
        return None
    tool = {"name": name, "description": about}
    if isinstance(title := given.get("title"), str):
        tool["title"] = title
    return {**tool, "inputSchema": schema_of(schema)}


def _instructions(code: Code) -> str:
    """Return the instructions that a file gives its server."""
    for at, token in enumerate(code.tokens[:-3]):
        if token == "new" and code.tokens[at + 1].endswith(("Server", "FastMCP")) and code.tokens[at + 2] == "(":
            for given in code.arguments(at + 2):
                said = given.get("instructions") if isinstance(given, dict) else None
                if isinstance(said, str):
                    return said
    return ""


if __name__ == "__main__":
    main()
