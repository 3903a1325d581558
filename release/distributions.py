"""Two distributions from one source tree: the library, and the gateway with its command line."""

import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomlkit
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "shortlist"
CORE, GATEWAY = "shortlist-core", "shortlist-mcp"
SHARED_FILES = ("README.md", "LICENSE", "THIRD_PARTY_NOTICES", "CHANGELOG.md")
CORE_DESCRIPTION = "Find the right tool out of thousands: the search library of Shortlist, for any agent framework."


@dataclass(frozen=True, slots=True)
class Distribution:
    """What one wheel is made of."""

    name: str
    version: str
    description: str
    files: tuple[Path, ...]
    """Paths below `src/shortlist`."""
    dependencies: tuple[str, ...]
    extras: Mapping[str, Sequence[str]] = field(default_factory=dict)
    scripts: Mapping[str, str] = field(default_factory=dict)


def distributions() -> tuple[Distribution, Distribution]:
    """Split the project by `[tool.shortlist.gateway]`: what is named there is the gateway's, the rest the library's."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    project, split = document["project"], document["tool"]["shortlist"]["gateway"]
    files = _tracked_files()
    own = {path for path in files if any(_is_within(path, place) for place in split["modules"])}
    gateway_needs = [need for need in project["dependencies"] if Requirement(need).name in split["dependencies"]]
    version, extras = project["version"], project["optional-dependencies"]
    core = Distribution(
        name=CORE,
        version=version,
        description=CORE_DESCRIPTION,
        files=tuple(path for path in files if path not in own),
        dependencies=tuple(need for need in project["dependencies"] if need not in gateway_needs),
        extras={name: needs for name, needs in extras.items() if name not in split["extras"]},
    )
    gateway = Distribution(
        name=GATEWAY,
        version=version,
        description=project["description"],
        files=tuple(path for path in files if path in own),
        dependencies=(f"{CORE}=={version}", *gateway_needs),
        extras={name: extras[name] for name in (*split["extras"], *split["shared_extras"])},
        scripts=project["scripts"],
    )
    return core, gateway


def _tracked_files() -> tuple[Path, ...]:
    """List what belongs to the package; caches and what lies around beside it do not."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", "src/shortlist"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    paths = (ROOT / name for name in listed.stdout.split("\0") if name)
    return tuple(sorted(path.relative_to(SOURCE) for path in paths if path.is_file()))


def _is_within(path: Path, place: str) -> bool:
    return path == Path(place) or Path(place) in path.parents


def stage(distribution: Distribution, folder: Path) -> None:
    """Lay out a source tree that builds this distribution alone."""
    for name in SHARED_FILES:
        shutil.copy(ROOT / name, folder / name)
    for path in distribution.files:
        target = folder / "src" / "shortlist" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(SOURCE / path, target)
    (folder / "pyproject.toml").write_text(tomlkit.dumps(_project(distribution)), "utf-8")


def _project(distribution: Distribution) -> dict[str, Any]:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    project = {
        **document["project"],
        "name": distribution.name,
        "description": distribution.description,
        "dependencies": list(distribution.dependencies),
        "optional-dependencies": {name: list(needs) for name, needs in distribution.extras.items()},
        "scripts": dict(distribution.scripts),
    }
    # The package may lack an `__init__.py` here: the other distribution brings it.
    targets = {"wheel": {"packages": ["src/shortlist"]}, "sdist": {"include": ["src", *SHARED_FILES]}}
    return {
        "build-system": document["build-system"],
        "project": project,
        "tool": {"hatch": {"build": {"targets": targets}}},
    }


def build(distribution: Distribution, work: Path, out: Path) -> tuple[Path, Path]:
    """Build the sdist, and the wheel from that sdist; return both paths."""
    tree = work / distribution.name
    tree.mkdir(parents=True)
    stage(distribution, tree)
    command = [sys.executable, "-m", "uv", "build", "--quiet", "--no-build-isolation", "--python", sys.executable]
    subprocess.run([*command, "--out-dir", str(out), str(tree)], check=True)
    stem = f"{distribution.name.replace('-', '_')}-{distribution.version}"
    return out / f"{stem}.tar.gz", out / f"{stem}-py3-none-any.whl"
