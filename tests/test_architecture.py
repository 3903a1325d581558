"""The layers of docs/architecture.md, enforced: imports point down, and third parties have an owner."""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import shortlist

SOURCE = Path(shortlist.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"

WORDS = frozenset({"models", "errors"})
GROUND = WORDS | {"schema", "text", "config", "paths", "version"}
SEARCH = GROUND | {"remote", "catalog", "index", "search"}
GATEWAY = SEARCH | {
    "access",
    "trust",
    "upstream",
    "disclosure",
    "storage",
    "telemetry",
    "observability",
    "fairness",
    "large",
}
LIBRARY = SEARCH | {"upstream", "disclosure", "storage", "selection"}

MAY_IMPORT: Mapping[str, frozenset[str]] = {
    "models": frozenset(),
    "errors": frozenset(),
    "paths": frozenset(),
    "version": frozenset(),
    "config": WORDS | {"paths"},
    "schema": WORDS,
    "text": WORDS | {"schema"},
    "storage": WORDS | {"paths"},
    "catalog": GROUND | {"storage.port"},
    "code": WORDS | {"schema", "text"},
    "trust": GROUND | {"catalog", "storage.port"},
    "access": GROUND | {"catalog", "storage.port"},
    "workers": frozenset(),
    "large": frozenset(),
    "fairness": frozenset(),
    "validation": WORDS | {"text", "workers", "large"},
    "remote": WORDS | {"text"},
    "index": GROUND - {"config"} | {"catalog", "remote", "storage.port"},
    "search": GROUND - {"config"} | {"catalog", "index", "remote"},
    "disclosure": GROUND | {"catalog"},
    "observability": GROUND | {"catalog", "telemetry", "fairness"},
    "telemetry": GROUND | {"catalog", "disclosure", "storage.port", "storage.shared"},
    "upstream": GROUND | {"catalog", "fairness", "large"},
    "selection": GROUND | {"catalog", "disclosure", "remote"},
    "library": LIBRARY | {"code", "validation"},
    "integrations": LIBRARY | {"library", "validation"},
    "evals": SEARCH - {"config"} | {"disclosure"},
    "gateway": GATEWAY | {"code", "selection", "validation", "workers"},
    "front": GATEWAY | {"gateway"},
    "demo": GROUND | {"catalog"},
    "harness": GATEWAY | {"gateway", "front", "evals", "demo"},
    "web": GATEWAY | {"gateway", "front", "demo", "evals.duplicates"},
    "cli": GATEWAY
    | LIBRARY
    | {"gateway", "front", "web", "evals", "harness", "demo", "library", "integrations", "code"},
    "__init__": LIBRARY | {"library", "integrations"},
}
"""What each part of the package, or one module of it, may know of; a new part finds its place here first."""

OWNERS: Mapping[str, frozenset[str]] = {
    "mcp": frozenset({"upstream", "front", "demo", "harness"}),
    "mcp_types": frozenset({"upstream", "front", "demo", "harness"}),
    "starlette": frozenset({"front", "web", "cli", "demo", "harness"}),
    "uvicorn": frozenset({"front", "web", "cli", "demo", "harness"}),
    "onnxruntime": frozenset({"index.embedders", "search.rerank"}),
    "tokenizers": frozenset({"text.word_vectors"}),
    "httpx2": frozenset({"upstream", "remote", "front"}),
    "opentelemetry": frozenset({"observability"}),
    "agents": frozenset({"integrations"}),
    "langchain_core": frozenset({"integrations"}),
    "pydantic_ai": frozenset({"integrations"}),
    "jinja2": frozenset({"web"}),
    "numkong": frozenset({"index.vectors"}),
    "faiss": frozenset({"index.nearest"}),
    "pymilvus": frozenset({"index.milvus"}),
    "grpc": frozenset({"index.milvus"}),
    "obstore": frozenset({"index.bucket"}),
    "sqlite3": frozenset({"storage"}),
    "cryptography": frozenset({"storage.secrets", "storage.spool"}),
    "keyring": frozenset({"storage.secrets"}),
    "pydantic_monty": frozenset({"code.sandbox", "code.values"}),
    "jwt": frozenset({"access.jwt"}),
    "Stemmer": frozenset({"text.tokens", "text.languages.spelling"}),
}
"""Packages and modules that may import a third party; what is not here may be imported anywhere."""


def violations(module: str, source: str) -> list[str]:
    """Return the violations of a module of the package (`search.fusion`)."""
    tree = ast.parse(source)
    found = list(dict.fromkeys(p for name in _imported(tree, module) if (p := _problem(module, name))))
    if _part(module) != "cli":
        found += [f"{module} prints (line {line})" for line in _prints(tree)]
    return found


def _problem(module: str, imported: str) -> str | None:
    package, _, rest = imported.partition(".")
    if package == "shortlist":
        below = MAY_IMPORT.get(module, MAY_IMPORT.get(_part(module)))
        if below is None:
            return f"{module}: {_part(module)!r} has no place among the layers"
        allowed = {_part(module), *below}
        return None if allowed & {_part(rest or "__init__"), rest} else f"{module} imports {imported}"
    owners = OWNERS.get(package)
    return None if owners is None or owners & {module, _part(module)} else f"{module} imports {package}"


def _imported(tree: ast.AST, module: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (named := _named_by_string(node)):
            yield named
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(["shortlist", *module.split(".")][: -node.level]) if node.level else ""
            name = ".".join(filter(None, (base, node.module)))
            yield from (f"{name}.{alias.name}" for alias in node.names) if name == "shortlist" else (name,)


def _named_by_string(call: ast.Call) -> str | None:
    """Return the module that `import_module("...")` or `__import__("...")` names."""
    function = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if function not in ("import_module", "__import__") or not call.args:
        return None
    argument = call.args[0]
    return argument.value if isinstance(argument, ast.Constant) and isinstance(argument.value, str) else None


def _prints(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            yield node.lineno


def _part(module: str) -> str:
    return module.partition(".")[0]


def modules() -> list[tuple[str, Path]]:
    names = [
        (path.relative_to(SOURCE).with_suffix("").as_posix().replace("/", "."), path) for path in SOURCE.rglob("*.py")
    ]
    return sorted((name.removesuffix(".__init__"), path) for name, path in names)


@pytest.mark.parametrize(("module", "path"), modules(), ids=[name for name, _ in modules()])
def test_a_module_imports_only_what_lies_below_it(module: str, path: Path) -> None:
    assert violations(module, path.read_text("utf-8")) == []


def test_the_whole_package_is_looked_at() -> None:
    names = {name for name, _ in modules()}
    assert names >= {"models", "errors", "search.fusion", "front.server", "cli", "__init__"}


@pytest.mark.parametrize(
    ("module", "source", "problem"),
    [
        ("models", "from shortlist.errors import InvalidQuery", "models imports shortlist.errors"),
        ("errors", "import shortlist.models", "errors imports shortlist.models"),
        ("text.tokens", "from shortlist.index.index import Index", "text.tokens imports shortlist.index.index"),
        (
            "index.index",
            "from shortlist.search.searcher import Searcher",
            "index.index imports shortlist.search.searcher",
        ),
        (
            "search.stages",
            "from shortlist.telemetry.store import co_use",
            "search.stages imports shortlist.telemetry.store",
        ),
        ("search.stages", "def f():\n    from shortlist import gateway", "search.stages imports shortlist.gateway"),
        ("search.stages", "from ..gateway import server", "search.stages imports shortlist.gateway"),
        ("search.stages", "from .. import telemetry", "search.stages imports shortlist.telemetry"),
        (
            "evals.runner",
            "from shortlist.gateway.gateway import Gateway",
            "evals.runner imports shortlist.gateway.gateway",
        ),
        ("evals.runner", "import shortlist.telemetry.store", "evals.runner imports shortlist.telemetry.store"),
        ("front.server", "from shortlist.cli import main", "front.server imports shortlist.cli"),
        ("upstream.pool", "from shortlist.gateway.state import State", "upstream.pool imports shortlist.gateway.state"),
        ("catalog.catalog", "from mcp.types import Tool", "catalog.catalog imports mcp"),
        ("search.fusion", "import onnxruntime as ort", "search.fusion imports onnxruntime"),
        ("index.lexical", "from tokenizers import Tokenizer", "index.lexical imports tokenizers"),
        ("telemetry.recorder", "import sqlite3", "telemetry.recorder imports sqlite3"),
        (
            "upstream.transports",
            "from starlette.applications import Starlette",
            "upstream.transports imports starlette",
        ),
        ("search.searcher", "def f():\n    print('found')", "search.searcher prints (line 2)"),
        (
            "newcomer.thing",
            "from shortlist.models import Tool",
            "newcomer.thing: 'newcomer' has no place among the layers",
        ),
    ],
)
def test_a_module_that_reaches_up_or_around_is_caught(module: str, source: str, problem: str) -> None:
    assert violations(module, source) == [problem]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("search.searcher", "from shortlist.index.index import Index\nfrom .fusion import Fuse"),
        ("storage.sqlite", "import sqlite3"),
        ("front.server", "from mcp.server import Server\nfrom shortlist.search.searcher import Searcher"),
        ("index.embedders", "def f():\n    import onnxruntime"),
        ("cli.searching", "print('found')"),
    ],
)
def test_a_module_that_keeps_to_its_layer_is_left_alone(module: str, source: str) -> None:
    assert violations(module, source) == []


# Cycles


def graph() -> dict[str, set[str]]:
    """Return which module of the package imports which, also inside functions and by string."""
    names = {name for name, _ in modules()}
    found: dict[str, set[str]] = {}
    for name, path in modules():
        targets: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            targets |= {target for target in _targets(node, name, names) if target != name}
        found[name] = targets
    return found


def _targets(node: ast.AST, module: str, names: set[str]) -> Iterator[str]:
    if isinstance(node, ast.ImportFrom):
        base = ".".join(["shortlist", *module.split(".")][: -node.level]) if node.level else ""
        whole = ".".join(filter(None, (base, node.module)))
        found = [whole, *(f"{whole}.{alias.name}" for alias in node.names)]
    elif isinstance(node, ast.Import):
        found = [alias.name for alias in node.names]
    elif isinstance(node, ast.Call) and (named := _named_by_string(node)):
        found = [named]
    else:
        return
    for each in found:
        inner = each.removeprefix("shortlist.")
        if each.startswith("shortlist.") and inner in names:
            yield inner


def cycles(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other, by Tarjan's algorithm."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for target in sorted(imports.get(node, ())):
            if target not in order:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], order[target])
        if low[node] == order[node]:
            group = [stack.pop()]
            while group[-1] != node:
                group.append(stack.pop())
            if len(group) > 1:
                found.append(sorted(group))

    for node in sorted(imports):
        if node not in order:
            visit(node)
    return found


def test_no_modules_import_each_other() -> None:
    assert cycles(graph()) == []


def test_a_cycle_that_hides_behind_a_string_is_found() -> None:
    names = {"a", "b"}
    by_string = ast.parse('import_module("shortlist.a")').body[0]
    found = {target for node in ast.walk(by_string) for target in _targets(node, "b", names)}
    assert cycles({"a": {"b"}, "b": found}) == [["a", "b"]]


# Names of types


def public_types() -> dict[str, list[str]]:
    """Return the modules that define each public type: a class or a type alias."""
    found: dict[str, list[str]] = {}
    for module, path in modules():
        for node in ast.parse(path.read_text("utf-8")).body:
            name = node.name if isinstance(node, ast.ClassDef) else _alias(node)
            if name is not None and not name.startswith("_"):
                found.setdefault(name, []).append(module)
    return found


def _alias(node: ast.AST) -> str | None:
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        annotation = node.annotation
        if isinstance(annotation, ast.Name) and annotation.id == "TypeAlias":
            return node.target.id
    return None


def test_each_public_type_name_has_one_meaning() -> None:
    repeated = {name: places for name, places in public_types().items() if len(places) > 1}
    assert repeated == {}


# The page


def named_modules(page: str) -> list[str]:
    """Return the modules that the page's table names."""
    table = page.partition("## Modules")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([\w.]+)` \| (.+) \|$", table, re.MULTILINE)
    return [f"{room}.{name}".removeprefix("shortlist.") for room, cell in rows for name in re.findall(r"`(\w+)`", cell)]


def test_the_page_names_every_module_once() -> None:
    named = Counter(named_modules(PAGE.read_text("utf-8")))
    present = Counter(name for name, path in modules() if path.stem not in ("__init__", "__main__"))
    assert present - named == {}, "name these modules in docs/architecture.md"
    assert named - present == {}, "docs/architecture.md names these, which are gone or named twice"


# Sizes


LONGEST = 500
"""Lines of a module; a longer one tells more than one story."""


def test_no_module_is_longer_than_five_hundred_lines() -> None:
    sizes = {name: len(path.read_text("utf-8").splitlines()) for name, path in modules()}
    assert {name: lines for name, lines in sizes.items() if lines > LONGEST} == {}
