"""The split into two distributions: whole, disjoint, and such that the library stands without the gateway."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from release.distributions import ROOT, SOURCE, Distribution, distributions
from release.sbom import CARRIED, sbom

from shortlist.config.clients.importing import is_gateway
from shortlist.config.clients.registry import offers, read_server

CORE, GATEWAY = distributions()
MODULES = {"google-re2": "re2", "pyjwt": "jwt", "pystemmer": "Stemmer", "toon-format": "toon_format", "pyyaml": "yaml"}
"""What a package is imported as, where that is not its name."""
IMPLIED = {"httptools", "uvloop"}
"""Dependencies that another package imports when they are there."""
DOORS = {("library/sources.py", "shortlist.library.live")}
"""Imports of the gateway by the library that are guarded, and say what to install."""


def test_every_file_is_in_one_distribution() -> None:
    assert set(CORE.files) & set(GATEWAY.files) == set()
    assert {Path("__init__.py"), Path("py.typed"), Path("weights/small/model.onnx")} <= set(CORE.files)
    assert Path("cli/__init__.py") in GATEWAY.files
    package = {path.relative_to(SOURCE) for path in SOURCE.rglob("*.py")}
    assert package - set(CORE.files) - set(GATEWAY.files) == set()


@pytest.mark.parametrize("path", [path for path in CORE.files if path.suffix == ".py"], ids=str)
def test_the_library_imports_nothing_of_the_gateway(path: Path) -> None:
    theirs = {_name(other) for other in GATEWAY.files if other.suffix == ".py"}
    needs = {_module(need) for need in GATEWAY.dependencies}
    for name in _imports(SOURCE / path):
        if (path.as_posix(), name) not in DOORS:
            assert name not in theirs, f"{path} imports {name}"
            assert name.partition(".")[0] not in needs, f"{path} imports {name}"


@pytest.mark.parametrize("distribution", [CORE, GATEWAY], ids=lambda each: each.name)
def test_every_dependency_is_imported_by_the_distribution_that_has_it(distribution: Distribution) -> None:
    sources = [SOURCE / path for path in distribution.files if path.suffix == ".py"]
    imported = {name.partition(".")[0] for path in sources for name in _imports(path)}
    names = {Requirement(need).name for need in distribution.dependencies} - IMPLIED - {CORE.name}
    assert [name for name in names if _module(name) not in imported] == []


def test_the_gateway_depends_on_the_library_of_its_own_version() -> None:
    assert GATEWAY.dependencies[0] == f"shortlist-core=={CORE.version}"
    assert set(GATEWAY.scripts) == {"shortlist", "shortlist-mcp"}
    assert not CORE.scripts


def test_the_bill_names_packages_and_carried_models() -> None:
    bill = sbom(CORE, {"numpy": "2.0.0", CORE.name: CORE.version})
    assert [part["name"] for part in bill["components"] if part["type"] == "library"] == ["numpy"]
    carried = [part for part in bill["components"] if part["type"] != "library"]
    assert len(carried) == len(CARRIED)
    assert [str(path) for path in CORE.files if path.suffix == ".onnx" and str(path) not in CARRIED] == []
    assert all(len(part["hashes"][0]["content"]) == 64 for part in carried)


def test_the_notices_name_what_the_wheels_carry() -> None:
    notices = (ROOT / "THIRD_PARTY_NOTICES").read_text("utf-8")
    weights = {path.parent.as_posix() for path in CORE.files if path.parts[0] == "weights"}
    lexicons = {path.parts[2] for path in CORE.files if path.parts[:2] == ("text", "data")}
    assert [name for name in weights | lexicons if name not in notices] == []


def _name(path: Path) -> str:
    return f"shortlist.{path.with_suffix('').as_posix().replace('/', '.').removesuffix('.__init__')}"


def _module(need: str) -> str:
    name = Requirement(need).name
    return MODULES.get(name, name.replace("-", "_"))


def _imports(path: Path) -> Iterator[str]:
    """Yield what a file imports, also by string."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "import_module":
            yield from (str(each.value) for each in node.args if isinstance(each, ast.Constant))


def test_our_own_entry_for_registries_starts_this_version() -> None:
    described = json.loads((ROOT / "server.json").read_text("utf-8"))
    server = read_server(described, "server.json")
    (offer,) = offers(server)
    assert server.version == offer.version == GATEWAY.version
    assert offer.entry({}) == {"command": "uvx", "args": [f"{GATEWAY.name}@{GATEWAY.version}", "serve"]}
    assert is_gateway(offer.entry({}))
