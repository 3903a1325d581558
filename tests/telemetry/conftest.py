from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from tests.telemetry.support import SECRETS, config_in, environment_in, serving, use_everything


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return environment_in(tmp_path)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return config_in(tmp_path)


@pytest.fixture(scope="session")
def used_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a gateway that has been used in every way that is counted."""
    with serving(tmp_path_factory.mktemp("gateway")) as base:
        anyio.run(use_everything, base, SECRETS["ada"])
        yield base
