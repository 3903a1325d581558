"""Servers over HTTP that all tests here share: starting the SDK takes a second or more."""

from collections.abc import Iterator

import pytest

from tests.upstream.support import http_server


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def open_url() -> Iterator[str]:
    with http_server() as url:
        yield f"{url}/mcp"


@pytest.fixture(scope="session")
def locked_url() -> Iterator[str]:
    """An address that wants the bearer token `sesame`."""
    with http_server("http", "--token", "sesame") as url:
        yield f"{url}/mcp"
