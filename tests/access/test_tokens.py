"""Tokens of our own, as a running gateway follows them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from shortlist.access.scope import scope_of
from shortlist.access.tokens import PREFIX, USE_SECONDS, OwnTokens, mint, token_settings
from shortlist.config.settings import (
    ServerSettings,
    Settings,
    StdioTransport,
    TokenSettings,
    ToolOverride,
    ToolsetSettings,
    hash_token,
)
from shortlist.errors import StoreError
from shortlist.storage.port import StoredToken
from shortlist.storage.tokens import TokenFile

WIKI = ServerSettings(
    name="wiki",
    transport=StdioTransport(command="wiki"),
    tools={"get": ToolOverride(effect="read_only"), "put": ToolOverride(effect="write")},
)
SETTINGS = Settings(
    servers={"wiki": WIKI},
    toolsets={"friends": ToolsetSettings(name="friends", used_with=("wiki/get",))},
)


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def stored(name: str, secret: str = "x", **more: object) -> StoredToken:
    return StoredToken(name=name, hash=hash_token(secret), created=0.0, **more)  # type: ignore[arg-type]


@pytest.fixture
def file(tmp_path: Path) -> TokenFile:
    return TokenFile(tmp_path / "tokens.json")


def test_a_token_has_256_bits_and_a_prefix_and_is_never_the_same() -> None:
    assert len({mint() for _ in range(100)}) == 100
    assert mint().startswith(PREFIX)
    assert len(mint()) == len(PREFIX) + 43


def test_a_token_that_is_created_revoked_or_rotated_is_noticed_once(file: TokenFile) -> None:
    tokens = OwnTokens(file)
    assert not tokens.follow()
    file.put(stored("ci"))
    assert tokens.follow()
    assert not tokens.follow()
    assert list(tokens.added_to(SETTINGS).tokens) == ["ci"]
    file.put(stored("ci", "another"))
    assert tokens.follow()
    assert tokens.added_to(SETTINGS).tokens["ci"].hash == hash_token("another")
    file.remove("ci")
    assert tokens.follow()
    assert tokens.added_to(SETTINGS).tokens == {}


def test_a_token_ends_when_it_expires(file: TokenFile) -> None:
    clock = Clock()
    file.put(stored("ci", expires=1_010.0))
    tokens = OwnTokens(file, clock)
    assert list(tokens.added_to(SETTINGS).tokens) == ["ci"]
    clock.now = 1_010.0
    assert tokens.follow()
    assert tokens.added_to(SETTINGS).tokens == {}


def test_the_configuration_keeps_its_own_token_of_the_same_name(file: TokenFile) -> None:
    file.put(stored("ci", "created"))
    configured = replace(SETTINGS, tokens={"ci": TokenSettings(name="ci", hash=hash_token("configured"))})
    assert OwnTokens(file).added_to(configured).tokens["ci"].hash == hash_token("configured")


@pytest.mark.parametrize("broken", [stored("bad", toolsets=("friends",)), stored("bad", can=("fly",))])
def test_a_token_that_cannot_be_served_never_keeps_others_from_being_revoked(
    file: TokenFile, broken: StoredToken
) -> None:
    file.put(broken)
    file.put(stored("good"))
    tokens = OwnTokens(file)
    assert list(tokens.added_to(SETTINGS).tokens) == ["good"]
    file.remove("good")
    assert tokens.follow()
    assert tokens.added_to(SETTINGS).tokens == {}


def test_the_last_use_is_written_once_a_minute_and_is_no_change(file: TokenFile) -> None:
    clock = Clock()
    file.put(stored("ci"))
    tokens = OwnTokens(file, clock)
    tokens.used("ci")
    tokens.used("nobody")
    assert not tokens.follow()
    assert file.load()["ci"].last_used == 1_000.0
    clock.now += USE_SECONDS - 1
    tokens.used("ci")
    tokens.follow()
    assert file.load()["ci"].last_used == 1_000.0
    clock.now += 1
    tokens.used("ci")
    tokens.follow()
    assert file.load()["ci"].last_used == clock.now


def test_a_use_does_not_bring_back_a_token_that_was_revoked(file: TokenFile) -> None:
    file.put(stored("ci"))
    tokens = OwnTokens(file)
    tokens.used("ci")
    file.remove("ci")
    assert tokens.follow()
    assert file.load() == {}


def test_tokens_are_followed_while_their_use_cannot_be_noted(tmp_path: Path) -> None:
    class ReadOnly(TokenFile):
        def note_use(self, used: object) -> None:
            raise StoreError(f"{used} cannot be saved: read-only")

    file = ReadOnly(tmp_path / "tokens.json")
    file.put(stored("ci"))
    tokens = OwnTokens(file)
    tokens.used("ci")
    file.remove("ci")
    assert tokens.follow()
    assert tokens.added_to(SETTINGS).tokens == {}


def test_a_folder_that_cannot_be_written_is_an_error_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    file = TokenFile(tmp_path / "file" / "tokens.json")
    for change in (lambda: file.put(stored("ci")), lambda: file.note_use({"ci": 1.0}), lambda: file.remove("ci")):
        with pytest.raises(StoreError, match="cannot be saved"):
            change()


def test_a_token_that_could_not_be_saved_is_valid_in_its_process(file: TokenFile) -> None:
    tokens = OwnTokens(file, unsaved=stored("local"))
    assert not tokens.follow()
    assert list(tokens.added_to(SETTINGS).tokens) == ["local"]
    file.put(stored("ci"))
    assert tokens.follow()
    assert sorted(tokens.added_to(SETTINGS).tokens) == ["ci", "local"]


@pytest.mark.parametrize("content", ["{", "[]", '{"tokens": {"ci": 1}}', '{"tokens": {"ci": {}}}', "\x00"])
def test_a_damaged_file_is_an_error_at_the_start_and_keeps_the_tokens_of_a_running_gateway(
    tmp_path: Path, content: str
) -> None:
    path = tmp_path / "tokens.json"
    file = TokenFile(path)
    file.put(stored("ci"))
    tokens = OwnTokens(file)
    path.write_text(content)
    assert not tokens.follow()
    assert list(tokens.added_to(SETTINGS).tokens) == ["ci"]
    with pytest.raises(StoreError, match=r"tokens\.json cannot be read"):
        OwnTokens(file)


def test_the_file_is_private_and_holds_hashes_alone(tmp_path: Path) -> None:
    path = tmp_path / "data" / "tokens.json"
    secret = mint()
    TokenFile(path).put(stored("ci", secret, tools=("wiki/*",)))
    assert path.stat().st_mode & 0o777 == 0o600
    assert secret not in path.read_text()
    assert json.loads(path.read_text())["tokens"]["ci"]["tools"] == ["wiki/*"]
    assert TokenFile(path).load()["ci"].tools == ("wiki/*",)


@pytest.mark.parametrize(
    ("can", "callable_tools"),
    [
        (None, {"wiki/get", "wiki/put", "wiki/other"}),
        (("call",), {"wiki/get", "wiki/put", "wiki/other"}),
        (("read",), {"wiki/get"}),
        (("see",), set()),
        (("admin", "resources"), set()),
    ],
)
def test_what_a_token_may_call_depends_on_its_actions_and_the_configured_effect(
    can: tuple[str, ...] | None, callable_tools: set[str]
) -> None:
    scope = scope_of(token_settings(stored("ci", can=can)), SETTINGS)
    assert {i for i in ("wiki/get", "wiki/put", "wiki/other") if scope.may_call(i)} == callable_tools
    assert ("see" in scope.actions) == (can is None or bool({"see", "read", "call"} & set(can)))
