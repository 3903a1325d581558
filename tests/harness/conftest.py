import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from shortlist.harness.gateway import GatewayFolder, warm_up


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="package")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayFolder]:
    """Provide gateways over a demo server with their own folder and a saved catalog, without vectors."""
    folder = tmp_path_factory.mktemp("harness")
    with pytest.MonkeyPatch.context() as patch:
        for kind in ("CACHE", "CONFIG"):
            patch.setenv(f"XDG_{kind}_HOME", str(folder / kind.lower()))
        made = GatewayFolder(folder, _config(folder))
        anyio.run(warm_up, made)
        yield made


def _config(folder: Path) -> Path:
    weather = {
        "command": sys.executable,
        "args": ["-m", "shortlist.demo.server", "weather"],
        "env": {"PYTHONPATH": os.pathsep.join(sys.path)},
    }
    path = folder / "servers.json"
    path.write_text(json.dumps({"mcpServers": {"weather": weather}}))
    return path
