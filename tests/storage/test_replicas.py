"""Two gateways on one PostgreSQL: whatever a client began with one of them goes on with the other."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest

from shortlist.config.settings import hash_token
from shortlist.storage.port import StoredToken
from shortlist.storage.postgres.opening import open_postgres
from tests.cli.test_walls import SERVER
from tests.storage.postgres import is_running, new_database
from tests.storage.replicas import (
    ACCEPT,
    PROGRAM,
    GatewayProcess,
    LegacyClient,
    another,
    answer_of,
    replica,
    wait_until,
)

pytestmark = pytest.mark.skipif(not is_running(), reason="needs PostgreSQL: python -m tests.storage.postgres pytest …")
ASKING = Path(__file__).with_name("asking_server.py")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[GatewayProcess, GatewayProcess]]:
    folder = tmp_path_factory.mktemp("pair")
    (folder / "server.py").write_text(SERVER)
    storage, servers = (
        new_database(),
        {
            "box": {"command": sys.executable, "args": [str(folder / "server.py")]},
            "asking": {"command": sys.executable, "args": [str(ASKING)]},
            "held": {"command": sys.executable, "args": [str(ASKING)], "shortlist": {"trust": "review"}},
        },
    )
    with replica(folder / "one", storage, servers) as one, replica(folder / "two", storage, servers) as two:
        yield one, two


PING = {"id": 1, "method": "ping"}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "tests", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
}


def modern_answer(url: str, name: str, **more: Any) -> dict[str, Any]:
    """Call a tool as a client of the present era and return the whole answer."""
    headers = {**ACCEPT, "Authorization": "Bearer ada", "MCP-Protocol-Version": "2026-07-28"}
    headers |= {"Mcp-Method": "tools/call", "Mcp-Name": name}
    params = {"name": name, "arguments": {}, "_meta": ENVELOPE, **more}
    message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}
    return answer_of(httpx2.post(url, json=message, headers=headers, timeout=60), 7)


def modern_call(url: str, name: str, **more: Any) -> dict[str, Any]:
    result: dict[str, Any] = modern_answer(url, name, **more)["result"]
    return result


def end_listeners(address: str) -> None:
    """Close every connection of gateways on which they hear changes."""
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND query LIKE 'LISTEN%'"
        )


def names(result: dict[str, list[dict[str, str]]]) -> set[str]:
    return {tool["name"] for tool in result["tools"]}


def test_a_legacy_session_goes_on_with_another_gateway(pair: tuple[GatewayProcess, GatewayProcess]) -> None:
    one, two = pair
    client = LegacyClient()
    client.open(one.url)
    for url in (two.url, one.url, two.url):
        assert client.call(url, "call_tool", name="box__echo", arguments={}) == "the bullion"


def test_tools_that_were_loaded_with_one_gateway_are_listed_by_the_other(
    pair: tuple[GatewayProcess, GatewayProcess],
) -> None:
    one, two = pair
    client = LegacyClient()
    client.open(one.url)
    assert "box__echo" not in names(client.ask(two.url, "tools/list"))
    client.call(one.url, "load_tools", names=["box__echo"])
    assert "box__echo" in names(client.ask(two.url, "tools/list"))
    client.call(two.url, "load_tools", names=["box__vault"])
    assert {"box__echo", "box__vault"} <= names(client.ask(one.url, "tools/list"))
    client.call(two.url, "unload_toolset", toolset="box")
    assert "box__echo" not in names(client.ask(one.url, "tools/list"))


def test_a_session_is_served_to_the_token_that_opened_it_and_to_no_other(
    pair: tuple[GatewayProcess, GatewayProcess],
) -> None:
    one, two = pair
    client = LegacyClient()
    client.open(one.url)
    stranger = LegacyClient(token="bob", session=client.session)
    for url in (two.url, one.url):
        assert stranger.post(url, {"id": 1, "method": "tools/list"}).status_code == 404
    assert client.post(two.url, {"id": 1, "method": "tools/list"}).status_code == 200


def test_a_session_that_ended_with_one_gateway_has_ended_with_all(
    pair: tuple[GatewayProcess, GatewayProcess],
) -> None:
    one, two = pair
    client = LegacyClient()
    client.open(one.url)
    client.ask(two.url, "tools/list")
    ended = client.http.delete(one.url, headers={"Authorization": "Bearer ada", "Mcp-Session-Id": client.session})
    assert ended.status_code == 200
    wait_until(lambda: client.is_unknown(one.url) and client.is_unknown(two.url))


def test_a_question_of_a_running_call_is_answered_through_the_other_gateway(
    pair: tuple[GatewayProcess, GatewayProcess],
) -> None:
    one, two = pair
    client = LegacyClient()
    client.open(one.url, elicitation={})
    client.ask(two.url, "tools/list")
    with client.streaming(one.url, "tools/call", name="asking__ask", arguments={}) as messages:
        question = next(message for message in messages if message.get("method") == "elicitation/create")
        answer = {"id": question["id"], "result": {"action": "decline"}}
        assert client.post(two.url, answer).status_code == 202
        result = next(message["result"] for message in messages if "result" in message)
    assert result["content"][0]["text"] == "answered decline"


def test_a_call_is_cancelled_through_the_other_gateway(
    pair: tuple[GatewayProcess, GatewayProcess], tmp_path: Path
) -> None:
    one, two = pair
    client = LegacyClient()
    client.open(one.url)
    arguments = {"file": str(tmp_path / "never")}
    with client.streaming(one.url, "tools/call", name="asking__wait", arguments=arguments) as messages:
        cancel = {"requestId": client.number, "reason": "enough"}
        client.post(two.url, {"method": "notifications/cancelled", "params": cancel})
        assert next(message["error"]["message"] for message in messages if "error" in message) == "Request cancelled"
    wait_until((tmp_path / "never.cancelled").exists)


def test_a_broken_stream_is_resumed_through_the_other_gateway(
    pair: tuple[GatewayProcess, GatewayProcess], tmp_path: Path
) -> None:
    one, two = pair
    client, file = LegacyClient(), tmp_path / "go"
    client.open(one.url)
    with client.streaming(one.url, "tools/call", name="asking__wait", arguments={"file": str(file)}) as messages:
        last = messages.first_event()
    file.touch()
    assert client.resumed(two.url, last)["result"]["content"][0]["text"] == "done"


def test_a_modern_client_answers_the_question_of_a_call_through_the_other_gateway(
    pair: tuple[GatewayProcess, GatewayProcess],
) -> None:
    one, two = pair
    asked = modern_call(one.url, "asking__ask")
    assert asked["resultType"] == "input_required"
    answers = {key: {"action": "accept", "content": {}} for key in asked["inputRequests"]}
    result = modern_call(two.url, "asking__ask", inputResponses=answers, requestState=asked["requestState"])
    assert result["content"][0]["text"] == "answered accept"


def test_what_ran_in_a_gateway_that_was_killed_ends_at_once_and_the_session_goes_on(
    pair: tuple[GatewayProcess, GatewayProcess], tmp_path: Path
) -> None:
    one, _ = pair
    client = LegacyClient()
    with another(one, tmp_path / "three") as three:
        client.open(three.url)
        arguments = {"file": str(tmp_path / "never")}
        with client.streaming(three.url, "tools/call", name="asking__wait", arguments=arguments) as messages:
            last = messages.first_event()
            asked = modern_call(three.url, "asking__ask")
            three.kill()
    assert "has stopped" in client.resumed(one.url, last)["error"]["message"]
    assert client.call(one.url, "call_tool", name="box__echo", arguments={}) == "the bullion"
    refused = modern_answer(one.url, "asking__ask", inputResponses={}, requestState=asked["requestState"])
    assert "requestState" in refused["error"]["message"]


def test_a_server_over_stdio_runs_in_one_gateway_and_its_questions_reach_the_clients_of_the_other(
    pair: tuple[GatewayProcess, GatewayProcess],
) -> None:
    processes = set()
    for gateway in pair:
        client = LegacyClient()
        client.open(gateway.url, elicitation={})
        processes.add(client.call(gateway.url, "asking__who"))
        with client.streaming(gateway.url, "tools/call", name="asking__ask", arguments={}) as messages:
            question = next(message for message in messages if message.get("method") == "elicitation/create")
            client.post(gateway.url, {"id": question["id"], "result": {"action": "decline"}})
            result = next(message["result"] for message in messages if "result" in message)
        assert result["content"][0]["text"] == "answered decline"
    assert len(processes) == 1


def test_when_the_gateway_of_a_server_is_killed_its_call_fails_once_and_another_gateway_starts_the_server(
    pair: tuple[GatewayProcess, GatewayProcess], tmp_path: Path
) -> None:
    servers = {"asking": pair[0].servers["asking"]}
    storage, file = new_database(), tmp_path / "never"
    with replica(tmp_path / "one", storage, servers) as one, replica(tmp_path / "two", storage, servers) as two:
        clients = {gateway.url: LegacyClient() for gateway in (one, two)}
        for url, client in clients.items():
            client.open(url)
        process = clients[one.url].call(one.url, "asking__who")
        assert clients[two.url].call(two.url, "asking__who") == process
        with psycopg.connect(storage) as connection:
            (running,) = connection.execute("SELECT url FROM shortlist.leases").fetchone() or ("",)
        owner, other = (one, two) if one.url.startswith(running) else (two, one)
        client = clients[other.url]
        arguments = {"file": str(file)}
        with client.streaming(other.url, "tools/call", name="asking__wait", arguments=arguments) as messages:
            wait_until(Path(f"{file}.calls").exists)
            owner.kill()
            result = next(message["result"] for message in messages if "result" in message)
        assert "may have received the request" in result["content"][0]["text"]
        assert client.call(other.url, "asking__who") != process
        assert Path(f"{file}.calls").read_text() == "called\n"


def test_a_gateway_that_hangs_loses_its_server_and_uses_that_of_the_other_when_it_goes_on(
    pair: tuple[GatewayProcess, GatewayProcess], tmp_path: Path
) -> None:
    one, two = pair
    file = tmp_path / "never"
    clients = {gateway.url: LegacyClient() for gateway in pair}
    for url, client in clients.items():
        client.open(url)
    before = clients[one.url].call(one.url, "asking__who")
    with psycopg.connect(one.storage) as connection:
        sql = "SELECT url FROM shortlist.leases WHERE key LIKE 'asking %%'"
        (running,) = connection.execute(sql).fetchone() or ("",)
    owner, other = (one, two) if one.url.startswith(running) else (two, one)
    answers: list[str] = []
    waiting = clients[other.url].streaming(other.url, "tools/call", name="asking__wait", arguments={"file": str(file)})
    try:
        with waiting as messages:
            wait_until(Path(f"{file}.calls").exists)
            owner.process.send_signal(signal.SIGSTOP)
            result = next(message["result"] for message in messages if "result" in message)
        assert "may have received the request" in result["content"][0]["text"]
        wait_until(lambda: clients[other.url].call(other.url, "asking__who").isdecimal())
    finally:
        owner.process.send_signal(signal.SIGCONT)

    def use_one_process() -> bool:
        answers.extend(client.call(url, "asking__who") for url, client in clients.items())
        return answers[-1].isdecimal() and answers[-1] == answers[-2]

    wait_until(use_one_process)
    assert before not in answers
    wait_until(lambda: not Path(f"/proc/{before}").exists())
    assert Path(f"{file}.calls").read_text() == "called\n"


def test_a_tool_that_is_approved_with_one_gateway_is_served_by_all(
    pair: tuple[GatewayProcess, GatewayProcess],
) -> None:
    clients = {gateway.url: LegacyClient() for gateway in pair}
    for url, client in clients.items():
        client.open(url)
    assert not any(client.call(url, "held__who").isdecimal() for url, client in clients.items())
    one = pair[0]
    environment = {**os.environ, "HOME": str(one.folder), "XDG_CONFIG_HOME": str(one.folder / "config")}
    (one.folder / "config" / "shortlist").mkdir(parents=True, exist_ok=True)
    (one.folder / "config" / "shortlist" / "config.json").write_text((one.folder / "config.json").read_text())
    listed = subprocess.run([*PROGRAM, "review", "--json"], env=environment, check=True, capture_output=True)
    held = next(each for each in map(json.loads, listed.stdout.splitlines()) if each["name"] == "who")
    subprocess.run([*PROGRAM, "review", "approve", f"held/who@{held['hash']}"], env=environment, check=True)
    for url, client in clients.items():
        wait_until(lambda url=url, client=client: client.call(url, "held__who").isdecimal())  # type: ignore[misc]


@pytest.mark.parametrize("by_polling", [False, True])
def test_a_revoked_token_is_refused_by_every_gateway_within_a_second(
    pair: tuple[GatewayProcess, GatewayProcess], by_polling: bool
) -> None:
    one, two = pair
    with closing(open_postgres(one.storage)) as storage:
        storage.tokens.put(StoredToken(name="temp", hash=hash_token("temp-secret"), created=1.0))
        client = LegacyClient(token="temp-secret")
        wait_until(lambda: client.post(two.url, PING).status_code != 401)
        if by_polling:
            end_listeners(one.storage)
        storage.tokens.remove("temp")
        wait_until(lambda: client.post(one.url, PING).status_code == client.post(two.url, PING).status_code == 401)
