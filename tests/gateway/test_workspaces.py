from pathlib import Path

import pytest

from shortlist.access.principal import Principal
from shortlist.errors import InvalidInput
from shortlist.gateway.callers import Caller, Workspace, Workspaces, workspace_key
from shortlist.storage.memory import MemoryWorkspaces
from shortlist.storage.owned import WorkspaceLimits
from tests.storage.both import about_files, open_test_storage

ADA, BOB = Principal(kind="token", name="ada"), Principal(kind="token", name="bob")


def workspaces(seconds: float = 60, most: int = 3, now: list[float] | None = None) -> Workspaces:
    clock = now or [0.0]
    limits = WorkspaceLimits(seconds=seconds, most=most, most_of_owner=most)
    return Workspaces(MemoryWorkspaces(), limits, clock=lambda: clock[0])


@pytest.mark.parametrize(
    ("caller", "begins"),
    [
        (Caller(era="legacy", session="s1"), "session:local:s1"),
        (Caller(era="legacy", session="s1", principal=ADA), "session:ada:s1"),
        (Caller(era="modern", handle="h"), "handle:local:"),
        (Caller(era="modern", handle="h", principal=ADA), "handle:ada:"),
        (Caller(era="modern", principal=ADA), "principal:ada"),
    ],
)
def test_each_kind_of_caller_has_its_key(caller: Caller, begins: str) -> None:
    key = workspace_key(caller)
    assert key is not None
    assert key.startswith(begins)


def test_a_modern_client_that_names_nothing_has_no_workspace() -> None:
    assert workspace_key(Caller(era="modern", session="connection", process="stdio")) is None
    assert workspaces().of(Caller()) is None


def test_a_key_never_holds_the_handle() -> None:
    handle = workspaces().mint(Caller())[0]
    assert handle not in (workspace_key(Caller(handle=handle)) or "")
    assert handle not in repr(Caller(handle=handle))


def test_a_handle_leads_to_its_workspace_for_its_owner_only() -> None:
    found = workspaces()
    handle = found.mint(Caller(principal=ADA))[0]
    workspace = found.of(Caller(principal=ADA, handle=handle))
    assert workspace is not None
    assert found.of(Caller(principal=ADA, handle=handle)) is workspace
    with pytest.raises(InvalidInput, match="No such workspace"):
        found.of(Caller(principal=BOB, handle=handle))


def test_a_handle_that_was_never_minted_is_refused() -> None:
    with pytest.raises(InvalidInput):
        workspaces().of(Caller(handle="guess"))


def test_workspaces_expire_when_they_are_not_used() -> None:
    now = [0.0]
    found = workspaces(seconds=10, now=now)
    handle = found.mint(Caller())[0]
    now[0] = 9
    assert found.of(Caller(handle=handle)) is not None
    now[0] = 18
    assert found.of(Caller(handle=handle)) is not None
    now[0] = 29
    with pytest.raises(InvalidInput):
        found.of(Caller(handle=handle))


def test_workspaces_are_bounded_and_the_longest_unused_goes_first() -> None:
    found = workspaces(most=2)
    first, second = found.mint(Caller())[0], found.mint(Caller())[0]
    found.of(Caller(handle=first))
    third = found.mint(Caller())[0]
    assert len(found) == 2
    assert found.of(Caller(handle=first)) is not None
    assert found.of(Caller(handle=third)) is not None
    with pytest.raises(InvalidInput):
        found.of(Caller(handle=second))


def test_a_closed_session_leaves_nothing_behind() -> None:
    found = workspaces()
    caller = Caller(era="legacy", session="s")
    found.of(caller)
    found.close(caller)
    assert len(found) == 0


def test_loading_appends_and_unloading_keeps_the_order_of_the_rest() -> None:
    workspace = Workspace()
    assert workspace.load(["a", "b", "c"], "letters") == ("a", "b", "c")
    assert workspace.load(["b", "d"]) == ("d",)
    assert workspace.unload(["b", "x"]) == ("b",)
    assert list(workspace.loaded) == ["a", "c", "d"]


def test_the_same_hits_again_and_again_are_a_circle_until_something_is_called() -> None:
    workspace = Workspace()
    found = frozenset({"a", "b"})
    assert [workspace.circles(found, 3) for _ in range(5)] == [False, False, False, True, True]
    workspace.called("a")
    assert not workspace.circles(found, 3)
    assert not any(workspace.circles(frozenset(), 3) for _ in range(9))


@pytest.mark.anyio
@pytest.mark.parametrize("named", [True, False], ids=["a handle", "a token"])
async def test_a_gateway_that_starts_again_knows_what_was_loaded(tmp_path: Path, named: bool) -> None:
    first = saved_in(tmp_path)
    caller = Caller(principal=ADA, handle=first.mint(Caller(principal=ADA))[0] if named else None)
    workspace = first.of(caller)
    assert workspace is not None
    workspace.load(["s/b", "s/a"], "letters")
    await first.save(caller)
    second = saved_in(tmp_path)
    await second.fetch(caller)
    again = second.of(caller)
    assert again is not None
    assert list(again.loaded.items()) == [("s/b", "letters"), ("s/a", "letters")]


@pytest.mark.anyio
async def test_a_saved_workspace_is_brought_back_for_its_owner_alone_and_within_its_time(tmp_path: Path) -> None:
    day = [1_000_000.0]
    first = saved_in(tmp_path, day)
    handle = first.mint(Caller(principal=ADA))[0]
    await first.save(Caller(principal=ADA, handle=handle))
    await (second := saved_in(tmp_path, day)).fetch(Caller(principal=BOB, handle=handle))
    with pytest.raises(InvalidInput, match="No such workspace"):
        second.of(Caller(principal=BOB, handle=handle))
    day[0] += 61
    await second.fetch(Caller(principal=ADA, handle=handle))
    with pytest.raises(InvalidInput, match="No such workspace"):
        second.of(Caller(principal=ADA, handle=handle))


@about_files
@pytest.mark.anyio
async def test_a_file_that_cannot_be_read_is_reported_once_and_stops_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "workspaces.sqlite").write_bytes(b"not a database" * 100)
    found, caller = saved_in(tmp_path), Caller(principal=ADA)
    for _ in range(2):
        await found.fetch(caller)
        workspace = found.of(caller)
        assert workspace is not None
        workspace.load(["s/a"])
        await found.save(caller)
    assert caplog.text.count("workspaces are not saved") == 1
    assert (tmp_path / "workspaces.sqlite").read_bytes() == b"not a database" * 100


def saved_in(folder: Path, day: list[float] | None = None) -> Workspaces:
    today = day or [1_000_000.0]
    limits = WorkspaceLimits(seconds=60, most=3, most_of_owner=3)
    return Workspaces(open_test_storage(folder).workspaces, limits, today=lambda: today[0])
