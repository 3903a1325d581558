"""A list of tools that is read again."""

from shortlist.config.settings import ServerSettings, StdioTransport
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
