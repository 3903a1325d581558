"""A search, a call and an event pass few files, so that each can be read from end to end."""

from tests_all.support import run_module


def test_the_main_flows_pass_no_more_files_than_their_limits_allow() -> None:
    said = run_module("benchmarks.flows", "--check")
    assert said.count("| yes |") == 3
