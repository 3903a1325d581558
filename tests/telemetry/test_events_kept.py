"""What of a text is kept: secrets never, the rest as the settings say."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.config.masking import MASK, redact, redact_json
from shortlist.telemetry.events import TaskReported
from shortlist.telemetry.redaction import Privacy, hash_key
from tests.telemetry.happenings import act, call, kept, search

SECRETS = [
    ("use api_key=sk-live-4242424242424242 now", "4242"),
    ("Authorization: Bearer abcdef0123456789.xyz", "abcdef0123456789"),
    ("my password is hunter22 ok", "hunter22"),
    ("password: correct-horse, then", "correct-horse"),
    ("the token is not-a-word-alone", "not-a-word"),
    ("DB_PASSWORD='s3cr3t!'", "s3cr3t"),
    ("connect to https://ada:lovelace@example.org/db", "lovelace"),
    ("token ghp_0123456789abcdefghijABCDEFGHIJ012345", "ghp_0123456789"),
    ("AKIAIOSFODNN7EXAMPLE is the id", "IOSFODNN7"),
    ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "eyJzdWIiOiIxIn0"),
    ("-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----", "MIIEow"),
    ("https://example.org/?access_token=abc123def&x=1", "abc123def"),
    ("xoxb-123456789012-abcdefghijkl posts it", "123456789012"),
    ("Zm9vYmFyQmF6MTIzNDU2Nzg5MHF3ZXJ0eXVpb3A9 is random", "Zm9vYmFy"),
    ("sha 3b18e512dba79e4c8300dd08aeb37f8e728b8dad", "3b18e512"),
]


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_a_secret_is_masked_wherever_it_stands(text: str, secret: str) -> None:
    assert secret not in redact(text)
    assert MASK in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "create a GitHub issue about the login token refresh",
        "reset the password of a user",
        "list secrets in the vault",
        "find /usr/local/share/some-long-folder-name/with-many-parts/README.md",
        "getUserProfileByAccountIdentifier",
        "sky__get_current_weather_of_a_city",
        "pk_something_with_a_long_name",
        "how do I rotate an api key?",
        "Error: WEB_API_KEY is required",
        "GITHUB_TOKEN is not set, and the password: missing",
    ],
)
def test_words_about_secrets_are_no_secrets(text: str) -> None:
    assert redact(text) == text


def test_all_under_the_name_of_a_secret_is_masked() -> None:
    given = {"apiKey": "x", "user": "ada", "nested": [{"client_secret": 42, "port": 5432}], "password": None}
    assert redact_json(given) == {
        "apiKey": MASK,
        "user": "ada",
        "nested": [{"client_secret": MASK, "port": 5432}],
        "password": None,
    }


@given(st.text())
def test_any_text_can_be_kept(text: str) -> None:
    kept_text = Privacy().query(text)
    assert kept_text is not None
    kept_text.encode()


def content(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir())


QUERY = "deploy kestrel with password=hunter22"
ARGUMENTS = {"text": "hello kestrel", "api_key": "sk-live-4242424242424242"}


@pytest.mark.parametrize("keeping", ["keep", "hash", "omit"])
def test_queries_and_arguments_are_kept_hashed_or_left_out(keeping: str, tmp_path: Path) -> None:
    privacy = Privacy(queries=keeping, arguments=keeping, key=b"k")  # type: ignore[arg-type]
    events = (search(QUERY, "s/a"), call("s/a", arguments=ARGUMENTS), TaskReported(**act(), completed=True, task=QUERY))
    store = kept(tmp_path, *events, privacy=privacy)
    searched, called, reported = store.events()
    arguments = called.data.get("arguments")
    if keeping == "keep":
        assert searched.subject == reported.subject == f"deploy kestrel with password={MASK}"
        assert arguments == {"text": "hello kestrel", "api_key": MASK}
    elif keeping == "hash":
        assert searched.subject == reported.subject == privacy.query(QUERY)
        assert str(searched.subject).startswith("hash:")
        assert str(arguments).startswith("hash:")
    else:
        assert searched.subject is reported.subject is arguments is None
    assert b"hunter22" not in content(tmp_path)
    assert b"4242" not in content(tmp_path)
    assert (b"kestrel" in content(tmp_path)) is (keeping == "keep")


def test_a_workspace_is_a_keyed_hash_and_nothing_else(tmp_path: Path) -> None:
    handle = "handle:local:0123456789abcdef"
    store = kept(tmp_path, call("s/a", workspace=handle), privacy=Privacy(key=b"one"))
    (event,) = store.events()
    assert event.workspace == Privacy(key=b"one").workspace(handle) != Privacy(key=b"two").workspace(handle)
    assert b"0123456789abcdef" not in content(tmp_path)


def test_a_name_that_no_tool_has_may_hold_a_secret_too(tmp_path: Path) -> None:
    store = kept(tmp_path, call("run password=hunter22", "unknown"))
    (event,) = store.events()
    assert event.subject == f"run password={MASK}"


@pytest.mark.parametrize("characters", [10_000, 1_000_000])
def test_arguments_that_are_long_are_cut(characters: int, tmp_path: Path) -> None:
    long = {"text": "token_" * (characters // 6)}
    store = kept(tmp_path, call("s/a", arguments=long), privacy=Privacy(arguments="keep"))
    (event,) = store.events()
    assert 5 < len(json.dumps(event.data["arguments"])) < 3_000


def test_the_key_of_hashes_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "hash.key"
    first = hash_key(path)
    assert hash_key(path) == first
    assert len(first) == 32
    assert path.stat().st_mode & 0o077 == 0


def test_where_no_key_can_be_kept_hashes_last_as_long_as_the_process(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert len(hash_key(tmp_path / "file" / "hash.key")) == 32
