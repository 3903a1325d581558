"""A real PostgreSQL for tests: `python -m tests.storage.postgres COMMAND…` starts one and runs a command beside it.

What it needs is installed when it is missing. Tests find it by an environment variable and are skipped without it.
"""

import os
import pwd
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "SHORTLIST_TEST_POSTGRES"
ACCOUNT = "postgres"
"""PostgreSQL refuses to run as root."""


def is_running() -> bool:
    return VARIABLE in os.environ


def new_database() -> str:
    """Create an empty database and return its address."""
    import psycopg

    address, name = os.environ[VARIABLE], f"test_{secrets.token_hex(6)}"
    with psycopg.connect(f"{address}&dbname=postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return address.replace("/?", f"/{name}?")


def programs() -> Path:
    """Return the folder of the server's programs; install them where there are none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    if (path := shutil.which("initdb")) is not None:
        return Path(path).parent
    print("installing postgresql", flush=True)
    quiet = {"DEBIAN_FRONTEND": "noninteractive", **os.environ}
    subprocess.run(["apt-get", "update", "-qq"], check=True, env=quiet)
    subprocess.run(["apt-get", "install", "-qq", "--no-install-recommends", "postgresql"], check=True, env=quiet)
    return sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))[-1].parent


@dataclass(frozen=True, slots=True)
class Cluster:
    """A server that only a socket in its folder reaches."""

    place: Path
    folder: Path

    @property
    def address(self) -> str:
        return f"postgresql://tests@/?host={self.folder}"

    def start(self) -> None:
        options = (
            f"-c listen_addresses='' -c unix_socket_directories='{self.folder}' -c fsync=off -c max_connections=200"
        )
        log = self.folder / "log"
        _run([self.place / "pg_ctl", "-D", self.folder / "data", "-w", "-l", log, "-o", options, "start"])

    def stop(self) -> None:
        """Stop at once, as if the machine had failed."""
        _run([self.place / "pg_ctl", "-D", self.folder / "data", "-m", "immediate", "stop"])


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Yield a new server that has not been started."""
    with tempfile.TemporaryDirectory() as name:
        made = Cluster(programs(), Path(name))
        if os.geteuid() == 0:
            os.chown(made.folder, pwd.getpwnam(ACCOUNT).pw_uid, -1)
        _run(
            [made.place / "initdb", "-D", made.folder / "data", "-U", "tests", "-A", "trust", "--no-sync", "-E", "UTF8"]
        )
        yield made


@contextmanager
def server() -> Iterator[str]:
    """Start a server; yield its address."""
    with cluster() as made:
        made.start()
        try:
            yield made.address
        finally:
            made.stop()


def _run(command: list[str | Path]) -> None:
    account = ["runuser", "-u", ACCOUNT, "--"] if os.geteuid() == 0 else []
    done = subprocess.run(
        [*account, *map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed with status {done.returncode}")


if __name__ == "__main__":
    with server() as address:
        sys.exit(subprocess.run(sys.argv[1:], env={**os.environ, VARIABLE: address}, check=False).returncode)
