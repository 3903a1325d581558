"""The audit log of a gateway: every request to a server, allowed or refused, in both eras."""

from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError

from shortlist.access.principal import Principal
from shortlist.config.settings import AuditSettings, TokenSettings, hash_token
from shortlist.errors import StoreError
from shortlist.gateway.state import Seams
from shortlist.gateway.view import ServeOptions
from shortlist.storage.audit import AuditRecord
from shortlist.storage.audit_files import AuditFiles
from shortlist.storage.spool import SpoolFile
from tests.gateway.support import MODES, NOTE, Era, Fixture, serve, words
from tests.gateway.test_doors import Recognised
from tests.storage.both import open_test_storage

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]

ENABLED = AuditSettings(enabled=True)
READER = TokenSettings(name="reader", hash=hash_token("x"), can=("read", "prompts", "resources"))


class FullDisk:
    """An audit log that can keep nothing."""

    def record(self, record: AuditRecord) -> None:  # noqa: ARG002 - whatever it is
        raise StoreError("the disk is full")

    def close(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_what_is_asked_of_a_server_is_recorded_with_the_decision_and_its_end(era: Era, tmp_path: Path) -> None:
    fixture = Fixture("alpha")
    fixture.effects = {"echo": "read_only"}
    storage = open_test_storage(tmp_path)
    log = storage.audit.log(lambda: SpoolFile(tmp_path / "spool", bytes(32)))
    seams = Seams(audit=log)
    async with serve(
        fixture, seams=seams, options=ServeOptions(mode="search"), audit=ENABLED, tokens={"reader": READER}
    ) as served:
        front = Recognised(served.gateway)
        front.principal = Principal(kind="token", name="reader", credential=READER.hash)
        async with Client(front.server, mode=MODES[era]) as client:
            for name, arguments in (("alpha__echo", {"text": "my secret"}), ("alpha__touch", {}), ("alpha__gone", {})):
                await client.call_tool("call_tool", {"name": name, "arguments": arguments})
            await client.get_prompt("alpha__brief", {"topic": "x"})
            await client.read_resource(f"shortlist://alpha/{NOTE}")
            with pytest.raises(MCPError):
                await client.read_resource("shortlist://vault/x")
    log.close()
    rows = [(r["action"], r["tool"], r["decision"], r.get("outcome", "")) for r in storage.audit.records()]
    assert rows == [
        ("tools/call", "echo", "allowed", ""),
        ("tools/call", "echo", "allowed", "ok"),
        ("tools/call", "touch", "refused", ""),
        ("tools/call", "alpha__gone", "refused", ""),
        ("prompts/get", "brief", "allowed", ""),
        ("prompts/get", "brief", "allowed", "ok"),
        ("resources/read", NOTE, "allowed", ""),
        ("resources/read", NOTE, "allowed", "ok"),
        ("resources/read", "shortlist://vault/x", "refused", ""),
    ]
    first = next(iter(storage.audit.records()))
    assert first["principal"] == "token:reader"
    assert first["definition"]
    assert first["arguments_hash"]
    assert "my secret" not in str(list(storage.audit.records()))
    assert [check.problem for check in storage.audit.checks()] == [""]


@pytest.mark.parametrize(("required", "calls"), [(True, 0), (False, 1)])
async def test_a_call_that_cannot_be_recorded_is_refused_only_where_that_is_required(
    required: bool, calls: int
) -> None:
    settings = AuditSettings(enabled=True, required=required)
    async with serve(Fixture("alpha"), seams=Seams(audit=FullDisk()), audit=settings) as served:
        async with Client(served.front.server) as client:
            result: Any = await client.call_tool("call_tool", {"name": "alpha__echo", "arguments": {"text": "x"}})
        assert len(served.fixtures["alpha"].calls) == calls
        assert served.gateway.state.audit.lost > 0
    assert ("NOT sent" in words(result)) is required


@pytest.mark.parametrize("enabled", [True, False])
async def test_arguments_are_kept_by_choice_and_nothing_is_recorded_by_default(enabled: bool, tmp_path: Path) -> None:
    settings = AuditSettings(enabled=True, arguments=True) if enabled else AuditSettings()
    log = AuditFiles(tmp_path)
    async with (
        serve(Fixture("alpha"), seams=Seams(audit=log), audit=settings) as served,
        Client(served.front.server) as client,
    ):
        await client.call_tool("call_tool", {"name": "alpha__echo", "arguments": {"text": "x"}})
    log.close()
    kept = [record.get("arguments") for record in AuditFiles(tmp_path).records()]
    assert kept == (['{"text":"x"}', None] if enabled else [])
