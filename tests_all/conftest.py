"""What the slow tests stand on: foreign programs in an environment of their own, installed once."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import own_folders

from tests_all.support import Foreign, Gateway, install, reference_servers

__all__ = ["own_folders"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def foreign() -> Foreign:
    """Return the foreign programs, installed if they are not there yet."""
    return install()


@pytest.fixture
def config(foreign: Foreign, tmp_path: Path) -> Path:
    """Write a configuration with every reference server."""
    return reference_servers(foreign, tmp_path)


@pytest.fixture
def gateway(config: Path) -> Iterator[Gateway]:
    """Serve the reference servers over HTTP, in the default mode."""
    with Gateway.serving(config) as running:
        running.wait_for_servers()
        yield running


@pytest.fixture
def dynamic_gateway(config: Path) -> Iterator[Gateway]:
    with Gateway.serving(config, "--mode", "dynamic") as running:
        running.wait_for_servers()
        yield running
