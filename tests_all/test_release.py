"""What users install: the built wheels, and the library beside the frameworks that they already have."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from release.distributions import CORE, GATEWAY, build, distributions
from release.resolving import resolve
from release.trying import LIBRARY

FRAMEWORKS = (
    "autogen-ext[mcp]",
    "crewai",
    "google-adk",
    "haystack-ai",
    "langchain-mcp-adapters",
    "langgraph",
    "llama-index-core",
    "mcp-use",
    "openai-agents",
    "pydantic-ai",
    "semantic-kernel",
    "smolagents",
    "strands-agents",
)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build both distributions."""
    work, out = tmp_path_factory.mktemp("work"), tmp_path_factory.mktemp("dist")
    for distribution in distributions():
        build(distribution, work, out)
    return out


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_library_installs_beside_a_framework(framework: str, wheels: Path) -> None:
    version = distributions()[0].version
    alone = resolve([framework], wheels, "--python-version", "3.11")
    beside = resolve([framework, f"{CORE}=={version}"], wheels, "--python-version", "3.11")
    name = framework.partition("[")[0]
    assert beside[name] == alone[name], "the library makes the resolver take an older version"
    assert beside.get("mcp") == alone.get("mcp")


def test_the_wheels_have_no_file_in_common_and_carry_the_notices(wheels: Path) -> None:
    contents = {}
    for name in (CORE, GATEWAY):
        (wheel,) = wheels.glob(f"{name.replace('-', '_')}-*.whl")
        contents[name] = set(zipfile.ZipFile(wheel).namelist())
        assert any(entry.endswith("/licenses/THIRD_PARTY_NOTICES") for entry in contents[name])
    assert contents[CORE] & contents[GATEWAY] == set()
    assert "shortlist/__init__.py" in contents[CORE]


def test_the_library_works_without_the_gateway(wheels: Path, tmp_path: Path) -> None:
    uv, home = [sys.executable, "-m", "uv"], tmp_path / "venv"
    subprocess.run([*uv, "venv", "--quiet", "--python", sys.executable, str(home)], check=True)
    python = str(home / "bin" / "python")
    install = [*uv, "pip", "install", "--quiet", "--python", python, "--find-links", str(wheels), CORE]
    subprocess.run(install, check=True)
    subprocess.run([python, "-c", LIBRARY], check=True, cwd=tmp_path)
