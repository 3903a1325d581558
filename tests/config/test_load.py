"""Configurations in the shapes of every client, and the one line that each mistake gets."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.config import HttpTransport, SseTransport, StdioTransport, hash_token
from shortlist.config.documents import strip_comments
from shortlist.config.load import load_settings, settings_of
from shortlist.config.settings import NoTransport, OAuthClientSettings, Settings, TelemetrySettings
from shortlist.errors import InvalidConfig
from shortlist.paths import find_config, user_config_path

ENVIRONMENT = {"PATH": "/bin", "HOME": "/home/me", "SECRET": "s3cret", "AWS_KEY": "a", "AWS_REGION": "b"}


def read(tree: dict[str, Any], **environment: str) -> Settings:
    return settings_of(tree, source="config.json", environment={**ENVIRONMENT, **environment})


def one(entry: dict[str, Any], **environment: str) -> Any:
    return read({"mcpServers": {"x": entry}}, **environment).servers["x"]


def mistake(tree: dict[str, Any], **environment: str) -> str:
    with pytest.raises(InvalidConfig) as caught:
        read(tree, **environment)
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith("config.json: ")
    return line.removeprefix("config.json: ")


def test_a_command_gets_its_arguments_and_environment() -> None:
    server = one({"command": "npx", "args": ["-y", "pkg"], "env": {"TOKEN": "${SECRET}", "N": 3, "ON": True}})
    assert isinstance(server.transport, StdioTransport)
    assert (server.transport.command, server.transport.args) == ("npx", ("-y", "pkg"))
    environment = server.transport.environment
    assert environment == {"PATH": "/bin", "HOME": "/home/me", "TOKEN": "s3cret", "N": "3", "ON": "true"}


def test_a_child_inherits_only_safe_and_named_variables() -> None:
    plain = one({"command": "a"}).transport.environment
    assert "SECRET" not in plain
    assert "AWS_KEY" not in plain
    asked = one({"command": "a", "inherit_env": ["SECRET"], "shortlist": {"inherit_env": ["AWS_*"]}})
    assert set(asked.transport.environment) == {"PATH", "HOME", "SECRET", "AWS_KEY", "AWS_REGION"}


@pytest.mark.parametrize(
    ("entry", "transport"),
    [
        ({"url": "https://h/mcp"}, HttpTransport(url="https://h/mcp", sse_fallback=True)),
        ({"type": "http", "url": "https://h/mcp"}, HttpTransport(url="https://h/mcp")),
        ({"type": "streamable-http", "url": "https://h/mcp"}, HttpTransport(url="https://h/mcp")),
        ({"transport": "streamable-http", "url": "https://h/mcp"}, HttpTransport(url="https://h/mcp")),
        ({"httpUrl": "https://h/mcp"}, HttpTransport(url="https://h/mcp")),
        ({"serverUrl": "https://h/mcp"}, HttpTransport(url="https://h/mcp", sse_fallback=True)),
        ({"type": "sse", "url": "https://h/sse"}, SseTransport(url="https://h/sse")),
        ({"transport": "sse", "url": "https://h/sse"}, SseTransport(url="https://h/sse")),
        (
            {"url": "https://h/${P:-mcp}", "headers": {"Authorization": "Bearer ${env:SECRET}"}},
            HttpTransport(url="https://h/mcp", headers={"Authorization": "Bearer s3cret"}, sse_fallback=True),
        ),
        (
            {
                "type": "sse",
                "url": "https://h/sse",
                "shortlist": {"oauth": {"client_id": "c", "client_secret": "${SECRET}"}},
            },
            SseTransport(url="https://h/sse", oauth=OAuthClientSettings(client_id="c", client_secret="s3cret")),
        ),
    ],
)
def test_addresses_are_read_in_every_clients_words(entry: dict[str, Any], transport: object) -> None:
    assert one(entry).transport == transport


def test_vs_codes_servers_and_inputs_are_read() -> None:
    tree = {
        "inputs": [
            {"type": "promptString", "id": "api-key", "password": True},
            {"type": "promptString", "id": "region", "default": "eu"},
        ],
        "servers": {"x": {"type": "stdio", "command": "run", "env": {"K": "${input:api-key}", "R": "${input:region}"}}},
    }
    for variable in ("INPUT_API_KEY", "SHORTLIST_INPUT_API_KEY"):
        transport = read(tree, **{variable: "k1"}).servers["x"].transport
        assert isinstance(transport, StdioTransport)
        assert (transport.environment["K"], transport.environment["R"]) == ("k1", "eu")
    assert mistake(tree) == (
        "servers.x.env.K: input 'api-key' has no value; set the environment variable INPUT_API_KEY"
    )


def test_the_shortlist_key_of_a_server_is_read() -> None:
    ours = {
        "description": "Ours",
        "tags": ["a"],
        "always_load": ["t1"],
        "include": ["get_*"],
        "exclude": ["get_secret"],
        "timeout": 5,
        "max_concurrency": 2,
        "tools": {"get_x": {"description": "Better", "keywords": ["k"]}},
    }
    server = one({"command": "a", "shortlist": ours})
    assert (server.description, server.tags, server.always_load) == ("Ours", ("a",), ("t1",))
    assert (server.include, server.exclude) == (("get_*",), ("get_secret",))
    assert (server.timeout_seconds, server.max_concurrency) == (5.0, 2)
    assert server.tools["get_x"].description == "Better"
    assert server.tools["get_x"].keywords == ("k",)


def test_what_other_clients_say_about_tools_is_kept() -> None:
    gemini = one({"httpUrl": "https://h", "includeTools": ["a"], "excludeTools": ["b"], "trust": True, "timeout": 9})
    assert (gemini.include, gemini.exclude) == (("a",), ("b",))
    assert one({"type": "local", "command": "c", "tools": ["*"]}).include == ("*",)
    assert one({"command": "c", "disabledTools": ["z"], "alwaysAllow": []}).exclude == ("z",)


def test_a_server_that_is_switched_off_is_left_out_with_its_missing_variables() -> None:
    assert read({"mcpServers": {"x": {"command": "${NOPE}", "disabled": True}}}).servers == {}


def test_the_shortlist_key_of_the_document_is_read() -> None:
    ours = {
        "mode": "dynamic",
        "preset": "mine",
        "presets": {"mine": ["git", "web"], "other": {"tools": ["a/*"]}},
        "toolsets": {"web": ["fetch/*"], "safe": {"effects": ["read_only"], "description": "Looks only"}},
        "intents": {"release": ["git"]},
        "always_load": ["a/b"],
        "tokens": {"ci": {"hash": hash_token("secret"), "servers": ["git"]}},
        "limits": {"result_characters": 100},
    }
    settings = read({"mcpServers": {}, "shortlist": ours})
    assert (settings.mode, settings.preset, settings.always_load) == ("dynamic", "mine", ("a/b",))
    assert settings.presets["mine"].toolsets == ("git", "web")
    assert settings.presets["other"].tools == ("a/*",)
    assert settings.toolsets["web"].tools == ("fetch/*",)
    assert settings.toolsets["safe"].effects == ("read_only",)
    assert settings.intents == {"release": ("git",)}
    assert settings.tokens["ci"].hash == hash_token("secret")
    assert settings.tokens["ci"].servers == ("git",)
    assert (settings.limits.result_characters, settings.limits.results) == (100, 200)


@pytest.mark.parametrize(
    ("tree", "line"),
    [
        ({"mcpServer": {}}, "mcpServer: unknown key; did you mean 'mcpServers'?"),
        ({"mcpServers": {"x": {"comand": "a"}}}, "mcpServers.x.comand: unknown key; did you mean 'command'?"),
        ({"mcpServers": {"x": {}}}, "mcpServers.x: it has no 'command'; add one"),
        ({"mcpServers": {"x": {"type": "http"}}}, "mcpServers.x: it has no 'url'; add one"),
        (
            {"mcpServers": {"x": {"command": "a", "args": ["b", 1]}}},
            "mcpServers.x.args[1]: expected text in quotes; correct it",
        ),
        (
            {"mcpServers": {"x": {"command": "a", "url": "https://h"}}},
            "mcpServers.x: it has both 'command' and 'url'; keep the one that is meant",
        ),
        (
            {"mcpServers": {"x": {"command": "a", "args": ["-k", "${NOPE}"]}}},
            "mcpServers.x.args[1]: environment variable 'NOPE' is not set; set it, or write ${NOPE:-default}",
        ),
        (
            {"mcpServers": {"x": {"url": "ftp://h"}}},
            "mcpServers.x.url: it is not an http:// or https:// address; correct it",
        ),
        (
            {"mcpServers": {"a/b": {"command": "a"}}},
            "mcpServers.a/b: a server's name is 1 to 64 printable characters without '/', and neither",
        ),
        (
            {"mcpServers": {"x": {"command": "a"}}, "servers": {"x": {"command": "b"}}},
            "servers.x: there is another server named 'x'; rename one of them",
        ),
        (
            {"mcpServers": {"x": {"command": "a", "shortlist": {"timeout": 0}}}},
            "mcpServers.x.shortlist.timeout: expected a number greater than 0; correct it",
        ),
        ({"shortlist": {"toolsets": {"t": {"server": []}}}}, "shortlist.toolsets.t.server: unknown key; "),
        ({"shortlist": {"tokens": {"t": {"token": "x"}}}}, "shortlist.tokens.t.hash: it is missing; add it"),
        (
            {"shortlist": {"toolsets": {"t": 5}}},
            'shortlist.toolsets.t: expected an object, as in {"key": …} or a list, as in ["a", "b"]; correct it',
        ),
        ({"shortlist": {"toolsets": {"t": [5]}}}, "shortlist.toolsets.t[0]: expected text in quotes; correct it"),
        ({"shortlist": {"smart_select": "yes please"}}, "shortlist.smart_select: expected an object"),
        ({"shortlist": {"dashboard": "maybe"}}, "shortlist.dashboard: expected true or false; correct it"),
        ({"shortlist": {"limits": {"results": 1.5}}}, "shortlist.limits.results: expected a whole number; correct it"),
        ({"shortlist": {"tokens": {"t": {"hash": "x"}}}}, "shortlist.tokens.t.hash: tokens are stored hashed"),
        ({"shortlist": {"mode": "fast"}}, "shortlist.mode: expected one of 'search', 'dynamic', "),
    ],
)
def test_a_mistake_is_one_line_with_its_place_and_remedy(tree: dict[str, Any], line: str) -> None:
    assert mistake(tree).startswith(line)


def test_a_mistake_in_a_file_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{\n  // mine\n  "mcpServers": {\n    "my.web": {\n      "comand": "npx"\n    }\n  }\n}\n')
    with pytest.raises(InvalidConfig) as caught:
        load_settings(path)
    assert str(caught.value) == f"{path}: line 5: mcpServers.my.web.comand: unknown key; did you mean 'command'?"


@pytest.mark.parametrize("wrong", [5, "text", True, ["list"], {"unknown": 1}, {"unknown": {"deep": []}}, None])
def test_no_mistake_names_a_class(wrong: Any) -> None:
    """Every key of the gateway's section, given something wrong, is answered in words of the file."""
    for key in ("presets", "toolsets", "intents", "tokens", "limits", "telemetry", "logs", "smart_select", "mode"):
        for tree in ({"shortlist": {key: wrong}}, {"shortlist": {key: {"name": wrong}}}):
            if not _is_read(tree):
                line = mistake(tree)
                assert "Shape" not in line
                assert "Options" not in line
                assert "dictionary" not in line


def test_no_mistake_repeats_a_value() -> None:
    secret = {"mcpServers": {"x": {"command": "a", "env": {"K": ["hunter2"]}}}}
    assert "hunter2" not in mistake(secret)


def test_a_file_with_comments_and_trailing_commas_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{ // a comment\n "mcpServers": {"x": {"url": "https://h//p", /* two */ },},\n}\n')
    transport = load_settings(path, ENVIRONMENT).servers["x"].transport
    assert isinstance(transport, HttpTransport)
    assert transport.url == "https://h//p"


def test_files_of_words_lie_beside_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"shortlist": {"expansions": ["words.txt", "/etc/words.txt"]}}')
    assert load_settings(path, ENVIRONMENT).expansions == (tmp_path / "words.txt", Path("/etc/words.txt"))


def test_an_unset_variable_affects_its_own_server_alone(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"mcpServers": {"a": {"command": "x"}, "b": {"command": "y", "env": {"KEY": "${NOPE}"}}}}')
    settings = load_settings(path, {}, lenient=True)
    assert isinstance(settings.servers["a"].transport, StdioTransport)
    broken = settings.servers["b"].transport
    assert isinstance(broken, NoTransport)
    assert broken.reason.startswith("mcpServers.b.env.KEY: environment variable 'NOPE' is not set")
    with pytest.raises(InvalidConfig, match=r"line 1: mcpServers\.b\.env\.KEY"):
        load_settings(path, {})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('mode = "x"\n[mcp_servers.a]\ncommand = "y"\ncomand = "z"\n', "line 4: mcp_servers.a.comand: unknown key"),
        ('[mcp_servers.a]\ncommand = "y"\n\n[mcp_servers.b]\nargs = ["z", 1]\n', "line 5: mcp_servers.b.args[1]"),
        ('[mcp_servers.a]\ncommand = "y"\n[shortlist]\nmode = "best"\n', "line 4: shortlist.mode"),
        ("[mcp_servers.a]\ncommand = \n", "line 2"),
    ],
)
def test_a_mistake_in_toml_is_named_with_its_line(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text.replace('mode = "x"\n', "# servers\n"))
    with pytest.raises(InvalidConfig, match=re.escape(problem)):
        load_settings(path, {})


def test_toml_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[mcp_servers.x]\ncommand = "run"\nargs = ["a"]\n[shortlist]\nmode = "static"\n')
    settings = load_settings(path, ENVIRONMENT)
    assert isinstance(settings.servers["x"].transport, StdioTransport)
    assert settings.mode == "static"


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("c.json", '{\n "a": }', "line 2, column 7: not JSON"),
        ("c.json", "[]", "line 1: a configuration is an object"),
        ("c.json", "", "line 1, column 1: not JSON"),
        ("c.json", '{"mcpServers": {"a": {}, "a": {}}}', "the key 'a' appears twice"),
        ("c.toml", "a = \n", "line 1, column 5"),
    ],
)
def test_a_file_that_cannot_be_parsed_names_the_place(tmp_path: Path, name: str, text: str, place: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InvalidConfig) as caught:
        load_settings(path, ENVIRONMENT)
    assert str(caught.value).startswith(f"{path}: ")
    assert place in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_recorded_is_set_key_by_key() -> None:
    given = {"shortlist": {"telemetry": {"queries": "hash", "days": 7}}}
    assert read(given).telemetry == TelemetrySettings(queries="hash", days=7)
    assert read({}).telemetry == TelemetrySettings(enabled=True, queries="keep", arguments="omit", days=30)


@pytest.mark.parametrize(
    ("telemetry", "told"),
    [
        ({"queries": "encrypt"}, "shortlist.telemetry.queries: expected one of 'keep', 'hash', 'omit'; correct it"),
        ({"days": 0}, "shortlist.telemetry.days: expected a number greater than 0; correct it"),
        ({"argument": "keep"}, "shortlist.telemetry.argument: unknown key; did you mean 'arguments'?"),
    ],
)
def test_a_mistake_in_what_is_recorded_is_told_with_its_place(telemetry: dict[str, Any], told: str) -> None:
    assert mistake({"shortlist": {"telemetry": telemetry}}) == told


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="there is no such file"):
        load_settings(tmp_path / "none.json")


def test_an_env_file_is_read_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text('# keys\nA=1\nexport B="two"\n')
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"servers": {"x": {"command": "a", "envFile": ".env", "env": {"A": "own"}}}}))
    transport = load_settings(path, ENVIRONMENT).servers["x"].transport
    assert isinstance(transport, StdioTransport)
    assert (transport.environment["A"], transport.environment["B"]) == ("own", "two")


def test_the_users_own_file_is_found_where_xdg_says(tmp_path: Path) -> None:
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert find_config(None, environment) is None
    own = user_config_path(environment)
    own.parent.mkdir()
    own.write_text("{}")
    assert find_config(None, environment) == own
    assert find_config("other.json", environment) == Path("other.json")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(json_values)
def test_stripping_comments_changes_no_plain_json(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False)
    assert json.loads(strip_comments(text)) == value


@given(st.dictionaries(st.text(max_size=8), json_values, max_size=4))
def test_whatever_a_server_entry_holds_it_is_read_or_refused_in_one_line(entry: dict[str, Any]) -> None:
    tree = {"mcpServers": {"x": entry}}
    if _is_read(tree):
        return
    assert mistake(tree)


def _is_read(tree: dict[str, Any]) -> bool:
    try:
        read(tree)
    except InvalidConfig:
        return False
    return True
