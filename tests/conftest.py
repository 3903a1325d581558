"""What every test starts with: the same examples on each run, folders of its own, a plain log.

`--hypothesis-profile=fuzz` looks for further examples.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fuzz", deadline=None, max_examples=2_000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("same")


@contextmanager
def short_folder() -> Iterator[str]:
    """A private folder for Unix sockets, whose paths have at most 104 bytes; a test's own folder may lie too deep."""
    with TemporaryDirectory(
        prefix="sl-", dir="/tmp" if Path("/tmp").is_dir() else None, ignore_cleanup_errors=True
    ) as folder:
        yield folder


@pytest.fixture(scope="session", autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what the user of this machine has stored (pins, tokens, events) apart from the tests."""
    with short_folder() as runtime, pytest.MonkeyPatch.context() as environment:
        for kind in ("DATA", "CONFIG"):
            environment.setenv(f"XDG_{kind}_HOME", str(tmp_path_factory.mktemp(kind.lower())))
        environment.setenv("XDG_RUNTIME_DIR", runtime)
        environment.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
        yield


@pytest.fixture(autouse=True)
def plain_log() -> None:
    """Start without what commands, servers and benchmarks that ran in this process have configured."""
    root = logging.getLogger()
    logging.disable(logging.NOTSET)
    root.setLevel(logging.WARNING)
    for name, logger in tuple(logging.root.manager.loggerDict.items()):
        if name.startswith("shortlist") and isinstance(logger, logging.Logger):
            logger.disabled, logger.propagate = False, True
            logger.setLevel(logging.NOTSET)
    for handler in root.handlers[:]:
        if type(handler).__name__ == "StderrHandler":
            root.removeHandler(handler)
