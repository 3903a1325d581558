"""A real gateway process whose state cannot be written serves all the same, and says what it could not save."""

import asyncio
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from benchmarks.stress.client import RawClient

from shortlist.cli import main
from tests.cli.test_shutdown import SECONDS, admitted, serving, slow_server

FILE_BYTES = 20_000
"""Less than any of the gateway's databases takes."""
LIMITED = (
    f"import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, ({FILE_BYTES}, {FILE_BYTES})); "
    "from shortlist.cli import main; sys.exit(main())"
)


def test_tools_are_served_while_nothing_can_be_saved_and_the_metrics_say_so(tmp_path: Path) -> None:
    async def call(port: int) -> dict[str, Any]:
        await admitted(port)
        client = RawClient(port, "modern")
        await client.open()
        return await client.call("call_tool", {"name": "slow__late", "arguments": {}})

    (tmp_path / "now").touch()
    with serving(tmp_path, [sys.executable, "-c", LIMITED]) as (_, port):
        answer = asyncio.run(asyncio.wait_for(call(port), SECONDS))
        with urlopen(f"http://127.0.0.1:{port}/metrics") as response:
            metrics = response.read().decode()
    assert answer["result"]["content"][0]["text"] == "at last"
    assert 'shortlist_storage_unsaved{what="approvals"} 1' in metrics
    said = (tmp_path / "log").read_text()
    assert "approvals of 'slow' are kept in memory, since they cannot be saved" in said
    assert "Free some disk space" in said


def test_status_and_doctor_say_that_nothing_can_be_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config, environment = slow_server(tmp_path)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "data").write_text("a file where the folder should be")
    assert main(["status", "--config", str(config)]) == 0
    assert "approvals of slow are in memory only, since they cannot be saved" in capsys.readouterr().err
    assert main(["doctor", "--config", str(config)]) == 1
    assert "✗ State: nothing can be saved in" in capsys.readouterr().out


def test_status_and_doctor_say_that_approvals_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config, environment = slow_server(tmp_path)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    damaged = tmp_path / "data" / "shortlist" / "trust.sqlite"
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"no database at all" * 1_000)
    main(["status", "--config", str(config)])
    assert "approvals cannot be read, so a server that connects serves nothing" in capsys.readouterr().err
    assert main(["doctor", "--config", str(config)]) == 1
    assert "✗ State: approvals cannot be read, so a server that connects serves nothing" in capsys.readouterr().out
    assert damaged.read_bytes() == b"no database at all" * 1_000
