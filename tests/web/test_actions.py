"""Everything that the pages can do: add, switch, restart and call; the worklist of misses; filters and downloads."""

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shortlist.access.principal import Principal
from shortlist.cli.adding import ConfigEditor
from shortlist.cli.controls import ConfigWords, DismissedMisses
from shortlist.cli.editing import ConfigSwitch
from shortlist.config.load import load_settings
from shortlist.errors import InvalidInput
from shortlist.models import Json
from shortlist.text.queries import read_expansions
from shortlist.web.app import CHANGES, DOWNLOADS
from shortlist.web.controls import Controls, NewServer, Proposal
from tests.gateway.support import Fixture
from tests.telemetry.happenings import call, search
from tests.web.support import ORIGIN, TOKENS, Visitor, visiting

pytestmark = pytest.mark.anyio


class Deeds:
    """Every control at once; what was asked of it is noted."""

    def __init__(self) -> None:
        self.done: list[tuple[object, ...]] = []

    def controls(self) -> Controls:
        return Controls(
            restart=lambda server: self.done.append(("restart", server)),
            logins=self,
            call=self.call,
            switch=self,
            editor=self,
            words=self,
            dismissals=self,
        )

    def call(self, principal: Principal, tool: str, arguments: Mapping[str, Json]) -> Mapping[str, Json]:
        self.done.append(("call", principal.name, tool, dict(arguments)))
        if arguments.get("a") == 13:
            raise InvalidInput("no thirteen here")
        return {"content": [{"type": "text", "text": "<b>5</b>"}]}

    def turn(self, name: str, *, on: bool) -> None:
        self.done.append(("turn", name, on))

    def disabled(self) -> Sequence[str]:
        return ("resting", "alpha/echo")

    def propose(self, server: NewServer) -> Proposal:
        return Proposal(name=server.name, shown=f"{server.what} TOKEN=***", file="config.json", digest="d1")

    def add(self, server: NewServer, digest: str) -> str:
        self.done.append(("add", server.what, server.name, dict(server.values), digest))
        return server.name

    def remove(self, name: str) -> None:
        self.done.append(("remove", name))

    def begin(self, server: str, callback: str) -> str:
        return f"https://login.example/{server}?back={callback}&b=2"

    def finish(self, answer: Mapping[str, str]) -> str:
        if answer.get("state") != "secret":
            raise InvalidInput("No login is waiting for this answer.")
        return "alpha"

    def add_keyword(self, tool: str, keyword: str) -> None:
        self.done.append(("keyword", tool, keyword))

    def add_synonym(self, word: str, meaning: str) -> None:
        self.done.append(("synonym", word, meaning))

    def dismiss(self, miss: str) -> None:
        self.done.append(("dismiss", miss))

    def dismissed(self) -> frozenset[str]:
        return frozenset(str(each[1]) for each in self.done if each[0] == "dismiss")


def address(path: str) -> str:
    return path.replace("{server:path}", "alpha").replace("{tool:path}", "alpha%2Fadd")


async def test_no_action_is_done_without_a_session_full_rights_or_the_token_of_the_form() -> None:
    deeds = Deeds()
    async with visiting(Fixture("alpha"), tokens=TOKENS, controls=deeds.controls()) as visitor:
        for path in CHANGES:
            assert (await visitor.post(address(path), csrf="")).status_code == 401
        await visitor.sign_in("bob-secret")
        csrf = await visitor.csrf()
        for path in CHANGES:
            assert (await visitor.post(address(path), csrf=csrf)).status_code == 403
        await visitor.sign_in("ada-secret")
        csrf = await visitor.csrf()
        for path in CHANGES:
            assert (await visitor.post(address(path), csrf="guessed")).status_code == 403
            foreign = {"Origin": "http://127.0.0.1:9999"}
            assert (await visitor.post(address(path), headers=foreign, csrf=csrf)).status_code == 403
            assert (await visitor.http.get(address(path))).status_code in (200, 404)  # a link does nothing
    assert deeds.done == []


async def test_a_dashboard_without_controls_offers_none_and_refuses_them() -> None:
    async with visiting(Fixture("alpha"), events=[call("alpha/add")]) as visitor:
        await visitor.enter()
        csrf = await visitor.csrf()
        for path in CHANGES:
            if path.rpartition("/")[2] != "reconnect":
                assert (await visitor.post(address(path), csrf=csrf, tool="alpha/add")).status_code in (400, 404)
        pages = [await visitor.read(path) for path in ("/servers", "/servers/alpha", "/tools/alpha%2Fadd", "/misses")]
    for page in pages:
        assert not {"Disable", "Restart", "Remove", "Call", "Add a server"} & set(re.findall(r"[\w ]+", page.words))


async def test_adding_a_server_shows_the_exact_command_before_anything_is_written() -> None:
    deeds = Deeds()
    typed: Any = {"what": "npx -y thing", "name": "thing", "values": "TOKEN=abc\n\nREGION = eu "}
    async with visiting(Fixture("alpha"), controls=deeds.controls()) as visitor:
        await visitor.enter()
        csrf = await visitor.csrf()
        assert "Add a server" in (await visitor.read("/servers")).words
        assert "Command, URL or @name" in (await visitor.read("/add")).words
        shown = await visitor.post("/add", csrf=csrf, **typed)
        assert shown.status_code == 200
        assert "npx -y thing TOKEN=***" in shown.text
        assert deeds.done == []
        bad = await visitor.post("/add", csrf=csrf, what="npx", name="x", values="no equals sign")
        confirmed = await visitor.post("/add/confirm", csrf=csrf, digest="d1", **typed)
    assert (bad.status_code, "NAME=VALUE, one per line" in bad.text) == (400, True)
    assert confirmed.headers["location"] == "/servers?did=add"
    assert deeds.done == [("add", "npx -y thing", "thing", {"TOKEN": "abc", "REGION": "eu"}, "d1")]


async def test_a_server_is_restarted_removed_and_logged_in_to_from_its_page() -> None:
    deeds = Deeds()
    async with visiting(Fixture("alpha"), controls=deeds.controls()) as visitor:
        await visitor.enter()
        csrf = await visitor.csrf()
        page = await visitor.read("/servers/alpha")
        for name in ("Reconnect", "Restart", "Disable", "Remove", "Enable alpha__echo"):
            assert name in page.words
        done = await visitor.read("/servers?did=restart")
        assert (await visitor.post("/servers/alpha/restart", csrf=csrf)).status_code == 303
        assert (await visitor.post("/servers/alpha/remove", csrf=csrf)).status_code == 303
        assert (await visitor.post("/servers/alpha%2Fecho/enable", csrf=csrf)).status_code == 303
        login = await visitor.post("/servers/alpha/login", csrf=csrf)
        visitor.http.cookies.clear()  # a browser sends no strict cookie when it comes from the login page
        back = await visitor.http.get("/login/callback?state=secret&code=1")
        guessed = await visitor.http.get("/login/callback?state=guessed&code=1")
    assert "restarts the server within a second" in done.words
    assert deeds.done == [("restart", "alpha"), ("remove", "alpha"), ("turn", "alpha/echo", True)]
    assert f'href="https://login.example/alpha?back={ORIGIN}/login/callback&amp;b=2"' in login.text
    assert (back.status_code, "Signed in to alpha" in back.text) == (200, True)
    assert (guessed.status_code, "No login is waiting" in guessed.text) == (400, True)


async def test_a_tool_is_disabled_and_called_through_a_form_made_of_its_schema() -> None:
    deeds = Deeds()
    async with visiting(Fixture("alpha"), tokens=TOKENS, controls=deeds.controls()) as visitor:
        await visitor.sign_in("ada-secret")
        csrf = await visitor.csrf()
        page = await visitor.read("/tools/alpha%2Fadd")
        fields = [found["name"] for tag, found in page.elements if tag == "input" and found.get("type") == "text"]
        assert fields == ["argument.a", "argument.b"]

        async def called(**arguments: str) -> str:
            form: Any = {f"argument.{name}": value for name, value in arguments.items()}
            return (await visitor.post("/tools/alpha%2Fadd/call", csrf=csrf, **form)).text

        answer, wrong, failed = await called(a="2", b="3"), await called(a="two"), await called(a="13")
        assert (await visitor.post("/tools/alpha%2Fadd/disable", csrf=csrf)).status_code == 303
    assert "&lt;b&gt;5&lt;/b&gt;" in answer
    assert 'name="argument.a" type="text" value="2"' in answer
    assert "&#39;a&#39; takes a number, not &#39;two&#39;." in wrong
    assert "no thirteen here" in failed
    assert deeds.done == [
        ("call", "ada", "alpha/add", {"a": 2, "b": 3}),
        ("call", "ada", "alpha/add", {"a": 13}),
        ("turn", "alpha/add", False),
    ]


def missed() -> list[Any]:
    asked = search("make a sum", "alpha/echo")
    return [asked, call("alpha/add"), asked, call("alpha/add"), call("alpha/sum", "unknown")]


async def test_misses_are_a_worklist_with_actions() -> None:
    deeds = Deeds()
    async with visiting(Fixture("alpha"), events=missed(), controls=deeds.controls()) as visitor:
        await visitor.enter()
        csrf = await visitor.csrf()
        page = await visitor.read("/misses")
        words = " ".join(page.words.split())
        assert "2×, last" in words
        for action in ("Add keyword", "Add synonym", "Copy as case", "Dismiss"):
            assert action in words
        assert json.loads(re.findall(r'\{"id": "miss.*?\}', words)[0])["gold"] == ["alpha/add"]
        key = next(found["value"] for tag, found in page.elements if found.get("name") == "miss")
        forms: dict[str, Any] = {
            "keyword": {"tool": "alpha/add", "keyword": "  sum   up "},
            "synonym": {"word": "sum", "meaning": "add"},
            "dismiss": {"miss": str(key)},
        }
        for path, form in forms.items():
            assert (await visitor.post(f"/misses/{path}", csrf=csrf, **form)).status_code == 303
        unknown = await visitor.post("/misses/keyword", csrf=csrf, tool="alpha/none", keyword="x")
        empty = await visitor.post("/misses/synonym", csrf=csrf, word=" ", meaning="add")
        after = await visitor.read("/misses")
    assert deeds.done == [("keyword", "alpha/add", "sum up"), ("synonym", "sum", "add"), ("dismiss", key)]
    assert [unknown.status_code, empty.status_code] == [400, 400]
    assert "2×, last" not in " ".join(after.words.split())
    assert "alpha/sum" in after.words


async def test_the_playground_shows_the_literal_answer_as_a_chosen_caller() -> None:
    async with visiting(Fixture("alpha"), Fixture("beta"), tokens=TOKENS) as visitor:
        await visitor.sign_in("ada-secret")
        own = await visitor.read("/search?q=add+two+numbers")
        as_bob = await visitor.read("/search?q=add+two+numbers&as=bob")
        await visitor.sign_in("bob-secret")
        as_ada = await visitor.read("/search?q=add+two+numbers&as=ada")
    assert re.search(r"What a model gets\s+\d+ tokens", own.words)
    assert "alpha__add(a: number, b: number)" in own.words
    assert re.search(r"\d+ tokens, as bob", as_bob.words)
    assert "beta__add" in as_bob.words
    for page in (as_bob, as_ada):
        assert "alpha__" not in page.words


async def test_one_time_range_and_caller_hold_on_every_page() -> None:
    events = [replace(call("alpha/add"), caller="ada"), replace(call("alpha/echo"), caller="bob")]
    async with visiting(Fixture("alpha"), events=events) as visitor:
        await visitor.enter()
        page = await visitor.read("/activity?range=24h&caller=ada")
        tool = await visitor.read("/tools/alpha%2Fecho?caller=ada")
    assert "alpha__add" in page.words
    assert "alpha__echo" not in page.words
    assert "Latest calls" not in tool.words
    menu = [link for link in page.links() if link.endswith("?range=24h&caller=ada")]
    assert {link.partition("?")[0] for link in menu} >= {"/", "/servers", "/tools", "/misses", "/activity"}


async def rows(visitor: Visitor, path: str) -> list[list[str]]:
    answer = await visitor.http.get(path)
    assert answer.headers["content-type"].startswith("text/csv"), answer.text
    assert answer.headers["content-disposition"].startswith('attachment; filename="shortlist-')
    return list(csv.reader(io.StringIO(answer.text)))


async def test_every_table_is_downloaded_as_csv_and_no_cell_is_a_formula() -> None:
    events = [*missed(), search("=cmd()", "alpha/add")]
    async with visiting(Fixture("alpha"), events=events, tokens=TOKENS) as visitor:
        await visitor.sign_in("ada-secret")
        tables = {path: await rows(visitor, path) for path in DOWNLOADS}
        await visitor.sign_in("bob-secret")
        limited = await visitor.http.get("/download/activity.csv")
    assert len(tables) == 5
    assert all(len(table) > 1 for table in tables.values())
    assert tables["/download/tools.csv"][1][:2] == ["alpha__add", "2"]
    assert "'=cmd()" in [row[2] for row in tables["/download/activity.csv"]]
    assert limited.status_code == 403


def config(folder: Path) -> Path:
    path = folder / "config.json"
    path.write_text('{\n  // mine\n  "mcpServers": {"one": {"command": "x"}}\n}\n')
    return path


def test_the_editor_writes_what_it_proposed_and_nothing_else(tmp_path: Path) -> None:
    editor = ConfigEditor(config(tmp_path))
    typed = NewServer(what="npx -y 'a b'", name="two", values={"API_KEY": "sk-0123456789abcdefghij"})
    proposal = editor.propose(typed)
    assert proposal.shown.startswith("npx -y 'a b'")
    assert "0123456789" not in proposal.shown
    assert "two" not in editor.path.read_text()
    with pytest.raises(InvalidInput, match="has changed since it was shown"):
        editor.add(NewServer(what="rm -rf", name="two"), proposal.digest)
    assert editor.add(typed, proposal.digest) == "two"
    assert load_settings(editor.path).servers.keys() == {"one", "two"}
    assert "// mine" in editor.path.read_text()
    editor.remove("two")
    assert load_settings(editor.path).servers.keys() == {"one"}
    for what, name in (("", ""), ("npx", ""), ("'", "x"), ("y", "one")):
        with pytest.raises(InvalidInput):
            editor.propose(NewServer(what=what, name=name))
    assert editor.propose(NewServer(what="https://mcp.example.com/mcp")).name == "example"


def test_a_single_tool_is_switched_by_either_spelling_of_its_name(tmp_path: Path) -> None:
    switch = ConfigSwitch(config(tmp_path))
    switch.turn("one/echo", on=False)
    switch.turn("one__add", on=False)
    assert switch.disabled() == ["one/echo", "one/add"]
    switch.turn("one__echo", on=True)
    switch.turn("one/add", on=True)
    assert switch.disabled() == []
    with pytest.raises(InvalidInput, match="The tool 'add' of 'one' is not disabled"):
        switch.turn("one/add", on=True)


def test_words_are_written_where_search_reads_them(tmp_path: Path) -> None:
    words = ConfigWords(config(tmp_path))
    words.add_keyword("one/add", "sum up")
    words.add_keyword("one/add", "total")
    words.add_synonym("sum", "add numbers")
    words.add_synonym("mail", "message")
    settings = load_settings(words.path)
    assert settings.servers["one"].tools["add"].keywords == ("sum up", "total")
    assert settings.expansions == (tmp_path / "expansions.txt",)
    assert read_expansions(*settings.expansions)
    assert (tmp_path / "expansions.txt").read_text().splitlines()[1:] == ["sum => add numbers", "mail => message"]
    with pytest.raises(InvalidInput, match="cannot contain"):
        words.add_synonym("a => b", "c")


def test_dismissed_misses_survive_a_restart_and_a_broken_file(tmp_path: Path) -> None:
    path = tmp_path / "dismissed.json"
    DismissedMisses(path).dismiss("one")
    DismissedMisses(path).dismiss("two")
    assert DismissedMisses(path).dismissed() == {"one", "two"}
    path.write_text("{")
    assert DismissedMisses(path).dismissed() == frozenset()


@pytest.mark.parametrize("page", ["overview", "servers", "tools"])
async def test_figures_are_those_of_the_chosen_caller(page: str) -> None:
    echoed = [replace(call("alpha/echo"), caller="bob", workspace="b")] * 2
    async with visiting(Fixture("alpha"), events=[replace(call("alpha/add"), caller="ada"), *echoed]) as visitor:
        await visitor.enter()
        tables = [
            await rows(visitor, f"/download/{page}.csv{query}") for query in ("", "?caller=ada", "?caller=nobody")
        ]
    assert [sum(float(row[table[0].index("calls")]) for row in table[1:]) for table in tables] == [3, 1, 0]


async def test_a_group_of_misses_shows_several_of_the_queries_before_it() -> None:
    asked = ("sum of two numbers", "SUM of two  numbers", "total them up")
    events = [
        event
        for number, query in enumerate(asked)
        for event in (search(query, "alpha/echo", workspace=f"w{number}"), call("alpha/add", workspace=f"w{number}"))
    ]
    async with visiting(Fixture("alpha"), events=events) as visitor:
        await visitor.enter()
        page = await visitor.read("/misses?kind=unfound")
    assert "3×" in page.words
    assert re.search(r"Other queries before it: “SUM of two  ?numbers”", page.words)
    cases = [json.loads(case) for case in re.findall(r'\{"id": "miss.*?\}', page.words)]
    assert [(case["query"], case["gold"]) for case in cases] == [
        ("total them up", ["alpha/add"]),
        ("SUM of two  numbers", ["alpha/add"]),
    ]


async def test_links_between_pages_keep_the_filter() -> None:
    events = [replace(call("alpha/add"), caller="ada"), search("add numbers", "alpha/add")]
    async with visiting(Fixture("alpha"), events=events) as visitor:
        await visitor.enter()
        for path in ("/", "/servers", "/tools", "/servers/alpha", "/activity"):
            elements = (await visitor.read(f"{path}?range=24h&caller=ada")).elements
            links = [str(attributes["href"]) for tag, attributes in elements if tag == "a"]
            named = [link for link in links if re.match("/(tools|servers)/", link)]
            assert named
            assert [link for link in named if not link.endswith("?range=24h&caller=ada")] == []
