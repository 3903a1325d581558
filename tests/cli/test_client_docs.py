"""The entries of docs/clients.md, read as the clients read them."""

import json
import re
from pathlib import Path

import pytest

from shortlist.cli import COMMANDS
from shortlist.config.load import settings_of
from shortlist.config.settings import HttpTransport, StdioTransport

PAGE = (Path(__file__).parent.parent.parent / "docs" / "clients.md").read_text("utf-8")
ENTRIES = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_to_paste_starts_or_reaches_the_gateway(entry: str) -> None:
    transport = (
        settings_of(json.loads(entry), source="docs", environment={"SHORTLIST_TOKEN": "slt_x"})
        .servers["shortlist"]
        .transport
    )
    if isinstance(transport, StdioTransport):
        assert (transport.command, transport.args) == ("shortlist", ("serve",))
        assert "serve" in COMMANDS
    else:
        assert isinstance(transport, HttpTransport)
        assert transport.url == "http://127.0.0.1:8765/mcp"


def test_every_client_that_we_name_has_an_entry() -> None:
    for client in ("Claude Desktop", "Claude Code", "Cursor", "VS Code"):
        assert f"## {client}" in PAGE
    assert len(ENTRIES) == 6
