"""Collect the tool definitions of MCP servers on PyPI by reading their source, which is not run.

    python -m training.poison.collect --names 5000 --out training/poison/collected_sources.jsonl.gz

Packages with `mcp` in their name and a permissive licence are read in a fixed random order: functions that are
registered as tools, with their docstring and parameters, and definitions that are written out. Tools whose
description is (nearly) one of `eval/` or of the development servers are left out, and packages about attacks.
"""

import argparse
import ast
import inspect
import io
import json
import random
import re
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urljoin
from urllib.request import Request, urlopen

from training.bench import data_folder, read_lines, write_lines

INDEX = "https://pypi.org"
PERMISSIVE = re.compile(r"\b(MIT|Apache|ISC|BSD)\b", re.I)
OTHERWISE = re.compile(r"GPL|Commons|Proprietary|Business|Elastic|SSPL", re.I)
NOT_SERVERS = re.compile(
    r"^iflow-mcp|red.?team|poison|inject|malicious|vulnerab|attack|evil|exploit|damn|pentest|jailbreak|mcp-?scan|honeypot"
)
LARGEST = 4_000_000
"""Bytes of a package that is read; larger ones bundle what is not source."""
PER_PACKAGE = 15
AT_ONCE = 8
GRAM, NEAR = 8, 0.5
"""Two descriptions that share half of their eight-word sequences are nearly the same."""
TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "list": "array", "dict": "object"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", type=int, default=5000, help="how many packages are looked at")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    names = [name for name in _package_names() if not NOT_SERVERS.search(name)]
    random.Random(18).shuffle(names)
    with ProcessPoolExecutor(AT_ONCE) as pool:
        write_lines(options.out, new_tools(pool.map(_collected, names[: options.names], chunksize=4)))


def new_tools(found: Iterable[list[dict[str, Any]]], before: Iterable[str] = ()) -> Iterator[dict[str, Any]]:
    """Yield the tools of packages that nothing is measured on, each text once and none of those before."""
    measured, known, kept = Known(_measured_texts()), Known(before), 0
    for number, rows in enumerate(found, 1):
        for row in rows:
            text = str(row["tool"]["description"])
            if not measured.has(text) and not known.has(text):
                known.add(text)
                kept += 1
                yield row
        if number % 100 == 0:
            print(f"{number} packages, {kept} tools", flush=True)


class Known:
    """Texts that are not wanted again, by their words in sequence."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._grams: set[int] = set()
        self._whole: set[int] = set()
        for text in texts:
            self.add(text)

    def add(self, text: str) -> None:
        words = _words(text)
        self._whole.add(hash(words))
        self._grams.update(_grams(words))

    def has(self, text: str) -> bool:
        words = _words(text)
        grams = _grams(words)
        return hash(words) in self._whole or (
            bool(grams) and sum(gram in self._grams for gram in grams) > NEAR * len(grams)
        )


def _words(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\w+", text.casefold()))


def _grams(words: tuple[str, ...]) -> list[int]:
    return [hash(words[start : start + GRAM]) for start in range(len(words) - GRAM + 1)]


def _measured_texts() -> Iterator[str]:
    """Yield the descriptions of tools that something is measured on."""
    for path in sorted((data_folder() / "eval").glob("**/*.jsonl*")):
        for row in read_lines(path):
            if description := row.get("description"):
                yield str(description)
    servers = Path(__file__).parents[2] / "benchmarks" / "understanding" / "data" / "servers.jsonl.gz"
    for row in read_lines(servers):
        for tool in row.get("tools", [row]):
            yield str(tool.get("description", ""))


def _fetched(address: str) -> bytes:
    with urlopen(Request(address, headers={"User-Agent": "shortlist-training"}), timeout=60) as answer:
        found: bytes = answer.read()
    return found


def _package_names() -> list[str]:
    page = _fetched(f"{INDEX}/simple/").decode()
    return sorted(name for name in re.findall(r'<a href="([^"/]+)/">', page) if "mcp" in name)


def _collected(name: str) -> list[dict[str, Any]]:
    """Return the tools of a package; none where it can't be had or its licence is not permissive."""
    try:
        page = f"{INDEX}/pypi/{name}/json"
        about = json.loads(_fetched(page))
        info, files = about["info"], about["urls"]
        licence = _licence(info)
        file = min(files, key=lambda each: each["packagetype"] != "bdist_wheel", default=None)
        if not licence or file is None or file["size"] > LARGEST:
            return []
        sources = list(_sources(file["filename"], _fetched(urljoin(page, file["url"]))))
    except (OSError, ValueError, KeyError, tarfile.TarError, zipfile.BadZipFile, EOFError):
        return []
    tools = [tool for source in sources for tool in read_source(source)]
    said = next((words for source in sources if (words := instructions_of(source))), "")
    about_it = {"server": name, "version": info["version"], "registry": "pypi", "licence": licence}
    if len(tools) > PER_PACKAGE:
        tools = random.Random(name).sample(tools, PER_PACKAGE)
    return [{**about_it, "tool": tool, "server_instructions": said} for tool in tools]


def _licence(info: dict[str, Any]) -> str:
    """Return the licence of a package if it is permissive."""
    said = [info.get("license_expression") or "", (info.get("license") or "")[:60]]
    said += [each for each in info.get("classifiers") or () if each.startswith("License")]
    together = " ".join(said)
    found = PERMISSIVE.search(together)
    return found[0] if found and not OTHERWISE.search(together) else ""


def _sources(name: str, content: bytes) -> Iterator[str]:
    """Yield the Python files of a wheel or a source archive."""
    if name.endswith((".whl", ".zip")):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for entry in archive.namelist():
                if _is_wanted(entry):
                    yield archive.read(entry).decode("utf-8", "replace")
    else:
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            for member in archive:
                if member.isfile() and _is_wanted(member.name) and (file := archive.extractfile(member)):
                    yield file.read().decode("utf-8", "replace")


def _is_wanted(path: str) -> bool:
    return path.endswith(".py") and not re.search(r"(^|/)(tests?|examples?|_vendor|site-packages)/|/?test_", path)


def read_source(source: str) -> Iterator[dict[str, Any]]:
    """Yield the tools that a Python file registers or writes out."""
    for node in _nodes(source) if "tool" in source or "Tool" in source else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found = _registered(node)
        elif isinstance(node, ast.Call) and _last_name(node.func) == "Tool":
            found = _written_out({each.arg: each.value for each in node.keywords if each.arg})
        elif isinstance(node, ast.Dict):
            keys = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
            found = _written_out({str(key): value for key, value in zip(keys, node.values, strict=True) if key})
        else:
            continue
        if found and len(found["description"]) > 10:
            yield found


def instructions_of(source: str) -> str:
    """Return the instructions that a Python file gives its server."""
    for node in _nodes(source) if "instructions=" in source else ():
        if isinstance(node, ast.Call) and _last_name(node.func) in {"FastMCP", "Server"}:
            given = {each.arg: _value(each.value) for each in node.keywords if each.arg}
            if isinstance(said := given.get("instructions"), str):
                return inspect.cleandoc(said)
    return ""


def _nodes(source: str) -> Iterator[ast.AST]:
    """Yield the nodes of a Python file; none if it can't be parsed."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    yield from ast.walk(tree)


def _registered(function: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, Any] | None:
    """Return the tool that a decorated function is, as FastMCP would list it."""
    for decorator in function.decorator_list:
        call = decorator if isinstance(decorator, ast.Call) else None
        target = call.func if call else decorator
        if not isinstance(target, ast.Attribute) or target.attr != "tool":
            continue
        given = {each.arg: _value(each.value) for each in call.keywords if each.arg} if call else {}
        about = given.get("description") or ast.get_docstring(function) or ""
        if not isinstance(about, str):
            return None
        named = given.get("name")
        tool: dict[str, Any] = {
            "name": named if isinstance(named, str) else function.name,
            "description": inspect.cleandoc(about),
        }
        if isinstance(title := given.get("title"), str):
            tool["title"] = title
        return {**tool, "inputSchema": _schema(function.args)}
    return None


def _schema(arguments: ast.arguments) -> dict[str, Any]:
    every = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(every) - len(arguments.defaults)) + list(arguments.defaults)
    both = [*zip(every, defaults, strict=True), *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    properties, required = {}, []
    for argument, default in both:
        kind = argument.annotation
        if argument.arg in {"self", "cls", "ctx", "context"} or (kind and "Context" in ast.unparse(kind)):
            continue
        properties[argument.arg] = _property(kind, default)
        if default is None:
            required.append(argument.arg)
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def _property(kind: ast.expr | None, default: ast.expr | None) -> dict[str, Any]:
    """Return the schema of a parameter, by its annotation and default."""
    words = ast.unparse(kind) if kind else ""
    first = re.search(r"\b(str|int|float|bool|list|dict)\b", words.casefold())
    found: dict[str, Any] = {"type": TYPES[first[0]] if first else "string"}
    for node in [*(ast.walk(kind) if kind else ()), *(ast.walk(default) if default else ())]:
        if isinstance(node, ast.Subscript) and _last_name(node.value) == "Literal":
            found["enum"] = [each for each in _constants(node.slice) if isinstance(each, str)]
        if isinstance(node, ast.Call) and _last_name(node.func) == "Field":
            said = {each.arg: _value(each.value) for each in node.keywords if each.arg}
            found |= {key: said[key] for key in ("description", "title") if isinstance(said.get(key), str)}
    if isinstance(default, ast.Constant) and isinstance(default.value, str | int | float):
        found["default"] = default.value
    return found


def _written_out(given: dict[str, ast.expr]) -> dict[str, Any] | None:
    """Return the tool that an expression with a name, a description and a schema is."""
    schema = next((given[key] for key in ("inputSchema", "input_schema", "parameters") if key in given), None)
    if schema is None or not {"name", "description"} <= given.keys():
        return None
    name, about, wanted = _value(given["name"]), _value(given["description"]), _value(schema)
    if not (isinstance(name, str) and isinstance(about, str)):
        return None
    return {
        "name": name,
        "description": about,
        "inputSchema": wanted if isinstance(wanted, dict) else {"type": "object"},
    }


def _value(node: ast.expr) -> Any:
    try:
        found = ast.literal_eval(node)
        json.dumps(found)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    return found


def _constants(node: ast.expr) -> Iterator[Any]:
    return (each.value for each in ast.walk(node) if isinstance(each, ast.Constant))


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


if __name__ == "__main__":
    main()
