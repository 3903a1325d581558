"""The built wheels in empty environments: what a user gets, not what the source tree has."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from release.distributions import CORE, GATEWAY
from release.resolving import NoResolution, resolve

INTERPRETERS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = {
    "Linux x86-64": "x86_64-manylinux_2_28",
    "Linux aarch64": "aarch64-manylinux_2_28",
    "macOS 14 arm64": "aarch64-apple-darwin",
    "macOS 14 x86-64": "x86_64-apple-darwin",
    "Windows x86-64": "x86_64-pc-windows-msvc",
}
LIBRARY = """
import importlib.util, shortlist
from shortlist import ToolFilter
from shortlist.demo import CATALOG
assert "site-packages" in shortlist.__file__
for name in ("mcp", "starlette", "uvicorn"):
    assert importlib.util.find_spec(name) is None, name
assert ToolFilter(CATALOG).filter("do I need an umbrella tomorrow?", limit=1).tools[0].name == "weather__get_forecast"
try:
    ToolFilter({"mcpServers": {"a": {"command": "true"}}})
except shortlist.errors.InvalidInput as error:
    assert "pip install shortlist-mcp" in str(error), error
else:
    raise SystemExit("a live server needs the gateway, and nothing said so")
"""


@dataclass(frozen=True, slots=True)
class Trial:
    """One environment, what was done in it, and what went wrong."""

    what: str
    done: str
    problem: str = ""

    @property
    def line(self) -> str:
        return f"{self.what:<40} {self.done}" + (f": FAILED\n{self.problem}" if self.problem else "")


def try_interpreters(wheels: Path, version: str, work: Path) -> list[Trial]:
    """Install and run both wheels with every interpreter that is on this machine."""
    trials = []
    for number in INTERPRETERS:
        python = _find(number)
        if python is None:
            trials.append(_resolved(f"Python {number}", wheels, version, "--python-version", number))
            continue
        trials += [_run(name, python, number, wheels, version, work) for name in (CORE, GATEWAY)]
    return trials


def try_platforms(wheels: Path, version: str) -> list[Trial]:
    """Check for other platforms that every dependency has a wheel; nothing is run there."""
    return [
        _resolved(
            f"{label}, Python {number}", wheels, version, "--python-platform", platform, "--python-version", number
        )
        for label, platform in PLATFORMS.items()
        for number in (INTERPRETERS[0], INTERPRETERS[-1])
    ]


def _find(number: str) -> Path | None:
    """Return an interpreter of this version that starts: this one, one on PATH, or one that pyenv has installed."""
    if f"{sys.version_info.major}.{sys.version_info.minor}" == number:
        return Path(sys.executable)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    on_path = shutil.which(f"python{number}")
    for python in [*([Path(on_path)] if on_path else []), *pyenv.glob(f"versions/{number}.*/bin/python")]:
        if subprocess.run([str(python), "-c", ""], capture_output=True, check=False).returncode == 0:
            return python
    return None


def _resolved(what: str, wheels: Path, version: str, *options: str) -> Trial:
    try:
        resolve([f"{GATEWAY}=={version}"], wheels, "--only-binary", ":all:", *options)
    except NoResolution as error:
        return Trial(what, "resolved only", str(error))
    return Trial(what, "resolved only (every dependency has a wheel)")


def _run(name: str, python: Path, number: str, wheels: Path, version: str, work: Path) -> Trial:
    home = work / f"{name}-{number}"
    what = f"{name}, Python {number}, {sys.platform}"
    try:
        _quietly([sys.executable, "-m", "uv", "venv", "--quiet", "--python", str(python), str(home)])
        own = home / ("Scripts" if os.name == "nt" else "bin")
        install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", str(own / "python")]
        _quietly([*install, "--find-links", str(wheels), f"{name}=={version}"])
        if name == CORE:
            _quietly([str(own / "python"), "-c", LIBRARY], work)
        else:
            _try_commands(own, version, work)
    except subprocess.CalledProcessError as error:
        return Trial(what, "run", (error.stderr or error.stdout or str(error)).strip())
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return Trial(what, "run")


def _try_commands(own: Path, version: str, work: Path) -> None:
    """Use the installed commands as a user would, with nothing of the user's own in reach."""
    said = _quietly([str(own / "shortlist"), "--version"], work)
    if said.strip() != f"shortlist {version}":
        raise subprocess.CalledProcessError(1, "shortlist --version", stderr=f"it says {said!r}")
    _quietly([str(own / "shortlist-mcp"), "--help"], work)
    _quietly([str(own / "shortlist"), "search", "rain tomorrow", "--embedder", "static"], work)
    _quietly([str(own / "shortlist"), "call", "weather__get_forecast", '{"location": "Oslo"}'], work)


def _quietly(command: list[str], home: Path | None = None) -> str:
    places = {f"XDG_{kind}_HOME": str(home / "home" / kind) for kind in ("DATA", "CACHE", "CONFIG")} if home else {}
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | places
    return subprocess.run(
        command, check=True, capture_output=True, text=True, env=environment, cwd=home, timeout=600
    ).stdout
