"""A list of tools that is read again, and lists that are longer than anybody needs."""

from typing import Any

import pytest

from shortlist.config.settings import ServerSettings, StdioTransport
from shortlist.upstream import normalise, rest
from shortlist.upstream.normalise import Listing

SETTINGS = ServerSettings(name="s", transport=StdioTransport(command="true"), tags=("mail",))


def raw(name: str, description: str = "") -> dict[str, object]:
    return {"name": name, "description": description, "inputSchema": {"type": "object"}}


def test_tools_that_are_listed_again_unchanged_stay_the_same_objects() -> None:
    first = Listing(SETTINGS, "modern")
    first.extend([raw("send"), raw("read", "Read a mail.")])
    again = Listing(SETTINGS, "modern", first.tools)
    again.extend([raw("send"), raw("read", "Read mails.")])

    assert again.tools["send"] is first.tools["send"]
    assert again.tools["read"].description == "Read mails."


def test_tools_beyond_the_size_of_a_list_are_left_out_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normalise, "MAX_LISTED_CHARACTERS", 1_000)
    listing = Listing(SETTINGS, "modern")
    listing.extend([raw(f"tool_{number}", "x" * 300) for number in range(5)])
    assert list(listing.tools) == ["tool_0", "tool_1"]
    assert "longer than 1,000 characters in all" in listing.problems[0]


class _Endless:
    """A server whose list of prompts never ends."""

    pages = 0

    async def request(self, *_: Any, **__: Any) -> dict[str, Any]:
        self.pages += 1
        return {"prompts": [{"name": "x" * 1_000}], "nextCursor": str(self.pages)}


@pytest.mark.anyio
async def test_a_list_of_prompts_ends_at_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "MOST_BYTES", 5_000)
    endless: Any = _Endless()
    assert len(await rest._items(endless, "prompts/list", "prompts")) == 4
    assert endless.pages == 5
