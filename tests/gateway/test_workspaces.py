import pytest

from shortlist.access.principal import Principal
from shortlist.errors import InvalidInput
from shortlist.gateway.callers import Caller, Workspace, Workspaces, workspace_key

ADA, BOB = Principal(kind="token", name="ada"), Principal(kind="token", name="bob")


def workspaces(seconds: float = 60, most: int = 3, now: list[float] | None = None) -> Workspaces:
    clock = now or [0.0]
    return Workspaces(seconds=seconds, most=most, clock=lambda: clock[0])


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
