"""Where the shared gateway of this user listens, and how its clients find, start and greet it.

Every client that starts `shortlist serve` runs this module, so it imports only small parts of the standard library.
"""

import json
import os
import re
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from shortlist.errors import InvalidInput, ShortlistError
from shortlist.paths import data_folder, private_folder, private_opener
from shortlist.version import own_version

if sys.platform != "win32":
    import fcntl

FORMAT = 1
"""Of the greeting: one JSON line each way; what follows is MCP, one message per line."""
LONGEST_PATH = 100
"""Unix socket paths have at most 104 bytes on macOS, 108 on Linux."""
START_SECONDS = 60.0
POLL_SECONDS = 0.02
ATTEMPTS = 3
CHUNK_BYTES = 64 * 1024
LOG_LINES = 20
BAD_INPUT = 2


class NoSharing(ShortlistError):
    """This client cannot use a shared gateway, and should run its own."""


class SharingFailed(InvalidInput):
    """The shared gateway did not start, or refused the client."""


class Welcome(NamedTuple):
    """What the gateway answered to a greeting, and the bytes that came after it."""

    connection: socket.socket
    head: dict[str, Any]
    rest: bytes


class Rendezvous(NamedTuple):
    """The files that clients and the gateway of one configuration meet at."""

    folder: Path
    config: Path | None
    """None: the bundled demo servers."""

    @property
    def _key(self) -> str:
        from hashlib import sha256  # noqa: PLC0415

        name = f"{self.config or ''}\0{data_folder()}"
        return sha256(os.fsencode(name)).hexdigest()[:16]

    @property
    def socket(self) -> Path:
        return self.folder / f"{self._key}.sock"

    @property
    def lock(self) -> Path:
        return self.folder / f"{self._key}.lock"

    @property
    def log(self) -> Path:
        return data_folder() / "logs" / f"gateway-{self._key}.log"


def rendezvous(config: Path | None) -> Rendezvous:
    """Return the meeting place for a configuration; raise NoSharing where there cannot be a private one."""
    if sys.platform == "win32":
        raise NoSharing("Unix sockets are not available on Windows")
    folder = Path(os.environ.get("XDG_RUNTIME_DIR") or "") / "shortlist"
    if not folder.is_absolute() or len(os.fsencode(folder)) > LONGEST_PATH - len("/0123456789abcdef.sock"):
        folder = Path(f"/tmp/shortlist-{os.getuid()}")  # noqa: S108 - checked below: private, and this user's own
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise NoSharing(f"{folder} cannot be used ({error.strerror})") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise NoSharing(f"{folder} is not a folder that only you can open; remove it, or run `chmod 700 {folder}`")
    return Rendezvous(folder, config.resolve() if config is not None else None)


def named_variables(config: Path | None) -> dict[str, str]:
    """Return the environment variables that a configuration names, each with a digest of its value here.

    Clients of one gateway share its servers, so they can share it only where these agree.
    """
    from hashlib import sha256  # noqa: PLC0415

    try:
        text = config.read_bytes() if config is not None else b""
    except OSError:
        text = b""
    names = sorted({os.fsdecode(name) for name in re.findall(rb"\$\{(?:env:)?([A-Za-z_]\w*)", text)})
    return {name: sha256(os.environb.get(os.fsencode(name), b"")).hexdigest()[:16] for name in names}


def connect(place: Rendezvous) -> socket.socket | None:
    """Connect to a running gateway; None where there is none, or only the socket of one that died."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(str(place.socket))
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    except OSError as error:
        connection.close()
        raise NoSharing(f"{place.socket} cannot be used ({error.strerror})") from None
    return connection


def greet(connection: socket.socket, wish: Mapping[str, Any]) -> Welcome | None:
    """Send what this client wants and return the answer; None where the gateway ended before it answered."""
    line = json.dumps({"shortlist": FORMAT, "version": own_version(), **wish}).encode() + b"\n"
    came = b""
    try:
        connection.sendall(line)
        while b"\n" not in came:
            chunk = connection.recv(CHUNK_BYTES)
            if not chunk:
                return None
            came += chunk
    except OSError:
        return None
    head, _, rest = came.partition(b"\n")
    return Welcome(connection, json.loads(head), rest)


def ask_running(place: Rendezvous, wish: Mapping[str, Any]) -> Welcome | None:
    """Greet the gateway if one is running; None where there is none."""
    connection = connect(place)
    reply = greet(connection, wish) if connection is not None else None
    if reply is None and connection is not None:
        connection.close()
    return reply


def reach(place: Rendezvous, wish: Mapping[str, Any]) -> Welcome:
    """Greet the gateway, starting it where none is running; raise SharingFailed with what it said."""
    for _ in range(ATTEMPTS):
        started = None
        connection = connect(place)
        if connection is None:
            started = _start(place)
            connection = _wait(place, started)
        reply = greet(connection, wish)
        if reply is not None:
            return reply
        connection.close()  # it ended in this moment, or never got ready
        if started is not None and started.wait(START_SECONDS):
            raise _failed(place, started)
    raise SharingFailed(_last_words(place, f"The shared gateway ended {ATTEMPTS} times before it answered"))


def _start(place: Rendezvous) -> "subprocess.Popen[bytes]":
    config = ["--config", str(place.config)] if place.config is not None else []
    # -P: the working directory is not on the import path, whatever lies in it.
    command = [sys.executable, "-P", "-m", "shortlist.cli", "daemon", "run", *config]
    private_folder(place.log.parent)
    with open(place.log, "ab", opener=private_opener) as log:
        return subprocess.Popen(  # noqa: S603 - this program itself
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # a signal to the client's terminal is not for the gateway of all clients
            cwd=place.config.parent if place.config is not None else Path.home(),
        )


def _wait(place: Rendezvous, started: "subprocess.Popen[bytes]") -> socket.socket:
    """Wait until the gateway listens. The one we started ends with 0 where another was faster."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        connection = connect(place)
        if connection is not None:
            return connection
        if started.poll():
            raise _failed(place, started)
        time.sleep(POLL_SECONDS)
    raise SharingFailed(_last_words(place, f"The shared gateway did not start within {START_SECONDS:g} s"))


def _failed(place: Rendezvous, started: "subprocess.Popen[bytes]") -> InvalidInput:
    if started.returncode == BAD_INPUT:  # what it said is for the user, and complete
        return InvalidInput("\n".join(_log_lines(place)).removeprefix("shortlist: "))
    return SharingFailed(_last_words(place, f"The shared gateway did not start (exit status {started.returncode})"))


def _log_lines(place: Rendezvous) -> list[str]:
    try:
        return place.log.read_text("utf-8", "replace").splitlines()[-LOG_LINES:]
    except OSError:
        return []


def _last_words(place: Rendezvous, what: str) -> str:
    said = "".join(f"\n  {line}" for line in _log_lines(place))
    return f"{what}. `shortlist serve --own` runs without it. The end of {place.log}:{said or ' (empty)'}"


class Listener(NamedTuple):
    """The lock of a configuration's only shared gateway, and the socket it listens on."""

    lock: int
    listening: socket.socket

    def end(self, place: Rendezvous) -> None:
        """Stop listening; clients that come now start another gateway, which waits until this process has ended."""
        place.socket.unlink(missing_ok=True)
        self.listening.close()


def hold(place: Rendezvous, *, wait: bool = False) -> Listener | None:
    """Become the shared gateway of a configuration; None where another one is.

    With `wait`, a gateway that is ending but still has the lock is waited for.
    """
    lock = os.open(place.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + START_SECONDS
    while not _locked(lock):
        other = connect(place)
        if other is not None:
            other.close()
        if other is not None or not wait or time.monotonic() > deadline:
            os.close(lock)
            return None
        time.sleep(POLL_SECONDS)
    place.socket.unlink(missing_ok=True)  # of a gateway that died: whoever has the lock is alone
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listening.bind(str(place.socket))
    finally:
        os.umask(before)
    listening.listen(128)
    listening.setblocking(False)
    return Listener(lock, listening)


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def is_held(place: Rendezvous) -> bool:
    """Return whether a gateway of this configuration is running, also one that does not listen any more."""
    try:
        lock = os.open(place.lock, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _locked(lock)
    finally:
        os.close(lock)


def is_same_user(connection: socket.socket) -> bool:
    """Return whether the process at the other end is this user's. Where the system cannot tell, the folder decides."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[4:8], sys.byteorder) == os.getuid()
