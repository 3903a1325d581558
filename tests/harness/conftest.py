from collections.abc import Iterator

import anyio
import pytest

from shortlist.harness.gateway import Place, warm_up


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="package")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Give gateways over the demo servers a folder of their own, with a saved catalog and nobody's vectors."""
    folder = tmp_path_factory.mktemp("harness")
    with pytest.MonkeyPatch.context() as patch:
        for kind in ("CACHE", "CONFIG"):
            patch.setenv(f"XDG_{kind}_HOME", str(folder / kind.lower()))
        made = Place(folder)
        anyio.run(warm_up, made)
        yield made
