"""Isolation of local servers: the command line that starts one in a bubblewrap sandbox or in a container.

A sandbox has a read-only system, a home folder of its own, the folders that the configuration declares, and a network
only where it is allowed. What cannot be enforced is refused. `guardian.py` sets the limits and ends what exceeds them.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from shortlist.config.settings import IsolationSettings
from shortlist.paths import cache_folder, config_folder, data_folder, private_folder

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/nix/store")
ETC = (
    *("alternatives", "ca-certificates", "ca-certificates.conf", "crypto-policies", "fonts", "group", "gai.conf"),
    *("host.conf", "hosts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types", "nsswitch.conf"),
    *("passwd", "pki", "protocols", "resolv.conf", "services", "ssl", "timezone"),
)
"""What programs need of /etc; the rest may hold secrets."""
PROBE_SECONDS = 10.0
CONTAINER_PROGRAMS = ("podman", "docker")
CONTAINER_HOME = "/home/server"


class CannotIsolate(OSError):
    """A server asks for an isolation that this machine cannot enforce; it is not started."""


@dataclass(frozen=True, slots=True)
class IsolatedCommand:
    """How to start a process: its command line, what ends it for certain, and its limits."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    directory: str | None
    limits: Mapping[str, int]
    cleanup: tuple[str, ...] = ()
    """A command to run when the process has ended, such as the removal of a container."""


def isolated(
    settings: IsolationSettings, command: Sequence[str], environment: Mapping[str, str], directory: str | None
) -> IsolatedCommand:
    """Return how to start a server; raise CannotIsolate where its isolation cannot be enforced."""
    if settings.kind == "none":
        return IsolatedCommand(tuple(command), environment, directory, {})
    problem = problem_with(settings.kind) or link_problem(settings, directory)
    if problem:
        raise CannotIsolate(f"isolation {settings.kind!r} cannot be enforced: {problem}")
    limits = {
        "memory": settings.memory_megabytes * 1024 * 1024,
        "processes": settings.processes,
        "files": settings.open_files,
        **({"cpu": settings.cpu_seconds} if settings.cpu_seconds else {}),
    }
    if settings.kind == "sandbox":
        home = data_folder() / "homes" / settings.server
        if not settings.home_megabytes:
            private_folder(home)
        within = {**environment, "HOME": str(Path.home()), "TMPDIR": "/tmp"}  # noqa: S108 - a tmpfs of its own
        return IsolatedCommand(tuple(sandboxed(settings, command, directory, home)), within, None, limits)
    program = container_program() or ""
    name = f"shortlist-{settings.server}-{os.getpid()}-{os.urandom(4).hex()}"
    contained = tuple(containered(settings, (program, name), command, environment, directory))
    return IsolatedCommand(contained, {**os.environ, **environment}, None, {}, (program, "rm", "--force", name))


def sandboxed(settings: IsolationSettings, command: Sequence[str], directory: str | None, home: Path) -> Iterator[str]:
    """Yield the bubblewrap command line."""
    yield from ("bwrap", "--die-with-parent", "--new-session", "--unshare-all")
    yield from ("--cap-drop", "ALL")  # those of root would undo what is mounted read-only
    if settings.network:
        yield "--share-net"
    for path in SYSTEM:
        yield from ("--ro-bind-try", path, path)
    for name in ETC:
        yield from ("--ro-bind-try", os.path.realpath(f"/etc/{name}"), f"/etc/{name}")
    yield from ("--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev")
    for path in ("/dev/shm", "/tmp"):  # noqa: S108 - they take memory, so that its limit is theirs too
        yield from ("--size", str(settings.memory_megabytes * 1024 * 1024), "--tmpfs", path)
    if settings.home_megabytes:
        yield from ("--size", str(settings.home_megabytes * 1024 * 1024), "--tmpfs", str(Path.home()))
    else:
        yield from ("--bind", str(home), str(Path.home()))
    for path, is_writable in _folders(settings, directory, _program_folders(command[0])):
        yield from ("--bind" if is_writable else "--ro-bind", path, path)
    yield from ("--remount-ro", "/", "--chdir", directory or str(Path.home()), "--", *command)


def _folders(
    settings: IsolationSettings, directory: str | None, programs: Sequence[str] = ()
) -> Iterator[tuple[str, bool]]:
    """Yield the folders of a server and whether it may write to each, the outer ones first: the innermost one counts.

    What lies between a writable folder and one inside of it is mounted too: a mounted folder cannot be renamed, so that
    the inner one cannot be replaced.
    """
    read = (*programs, *settings.read, *((os.path.abspath(directory),) if directory else ()))
    declared = {**dict.fromkeys(read, False), **dict.fromkeys(settings.write, True)}
    found = dict(declared)
    for path in declared:
        between: list[str] = []
        for parent in map(str, Path(path).parents):
            if parent in declared:
                found |= dict.fromkeys(between, True) if declared[parent] else {}
                break
            between.append(parent)
    yield from sorted(found.items(), key=lambda each: (len(Path(each[0]).parts), each[0]))


def link_problem(settings: IsolationSettings, directory: str | None) -> str | None:
    """Return which folder a server could have replaced by a link to somewhere else, or None."""
    for path in (*settings.read, *settings.write, *((os.path.abspath(directory),) if directory else ())):
        for folder in map(Path, settings.write):
            is_inside = folder in Path(path).parents
            if is_inside and not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
                return f"{path} leads out of {folder}, to which the server can write; declare the folder it leads to"
    return None


def _program_folders(command: str) -> list[str]:
    """Return where a program outside of the system is: the folder that holds its `bin`, or the one it is in.

    Of a folder that holds more than programs, such as ~/.local, its `bin` and `lib` alone; of the home folder, or one
    with data of ours, the program alone.
    """
    found: dict[str, None] = {}
    path = os.path.normpath(command)
    for _ in range(8):  # each link on the way to the program: a virtual environment leads to the Python behind it
        if not path.startswith(tuple(f"{folder}/" for folder in SYSTEM)):
            folder = Path(path).parent
            whole = folder.parent if folder.name in ("bin", "Scripts", ".bin") else folder
            if not _holds_more(whole):
                found[str(whole)] = None
            elif whole == folder:
                found[path] = None
            else:
                found[str(folder)] = None
                found |= {str(each): None for name in ("lib", "lib64") if (each := whole / name).is_dir()}
        if not os.path.islink(path):
            break
        path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))
    return list(found)


def _holds_more(folder: Path) -> bool:
    """Return whether a folder holds more than programs: what the user or this gateway keeps."""
    home = Path.home()
    kept = (home / ".local" / "share", home / ".ssh", data_folder(), config_folder(), cache_folder())
    return folder == home / ".cargo" or any(folder in (path, *path.parents) for path in kept)


def containered(
    settings: IsolationSettings,
    container: tuple[str, str],
    command: Sequence[str],
    environment: Mapping[str, str],
    directory: str | None,
) -> Iterator[str]:
    """Yield the command line of a container; values of variables are inherited, so that they are not visible in it."""
    program, name = container
    yield from (program, "run", "--rm", "--interactive", "--init", "--name", name)
    yield from ("--network", "bridge" if settings.network else "none", "--read-only", "--cap-drop", "ALL")
    home = f"{CONTAINER_HOME}:size={settings.home_megabytes}m" if settings.home_megabytes else CONTAINER_HOME
    yield from ("--security-opt", "no-new-privileges", "--tmpfs", "/tmp", "--tmpfs", home)  # noqa: S108
    yield from ("--memory", f"{settings.memory_megabytes}m", "--pids-limit", str(settings.processes))
    yield from ("--ulimit", f"nofile={settings.open_files}", "--env", f"HOME={CONTAINER_HOME}")
    if settings.cpu_seconds:
        yield from ("--ulimit", f"cpu={settings.cpu_seconds}")
    for variable in environment:
        if variable not in ("PATH", "HOME"):
            yield from ("--env", variable)
    for path, is_writable in _folders(settings, directory):
        yield from ("--volume", f"{path}:{path}" if is_writable else f"{path}:{path}:ro")
    yield from (*(("--workdir", directory) if directory else ()), settings.image, *command)


SANDBOX_GAPS = (
    "disk space in folders that a server may write to, and in its home unless 'sandbox.home_megabytes' is set",
    "shared memory of System V that none of its processes has attached",
)
"""What a sandbox does not limit; `shortlist doctor` prints it."""


def problem_with(kind: str) -> str | None:
    """Return why this machine cannot enforce an isolation, or None where it can."""
    return sandbox_problem() if kind == "sandbox" else container_problem()


@cache
def sandbox_problem() -> str | None:
    if sys.platform != "linux":
        return "bubblewrap runs on Linux only; use 'container'"
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed; install it (apt install bubblewrap)"
    try:
        options = ["--unshare-all", "--cap-drop", "ALL", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]
        tried = ["bwrap", *options, "--size", "4096", "--tmpfs", "/tmp", "true"]  # noqa: S108
        done = subprocess.run(tried, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap does not run ({error})"
    return None if done.returncode == 0 else f"bubblewrap does not run ({done.stderr.strip()[:200]})"


@cache
def container_problem() -> str | None:
    program = container_program()
    if program is None:
        return "neither docker nor podman is installed"
    try:
        done = subprocess.run(  # noqa: S603
            [program, "version"], capture_output=True, text=True, timeout=PROBE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{program} does not run ({error})"
    return None if done.returncode == 0 else f"{program} does not run ({done.stderr.strip()[:200]})"


def container_program() -> str | None:
    return next((found for name in CONTAINER_PROGRAMS if (found := shutil.which(name))), None)
