"""Short runs of the fuzzers, of chaos and of the soak; the long ones are commands (docs/limits.md)."""

from tests.fuzz.targets import TARGETS

from tests_all.support import run_module


def test_the_fuzzers_find_nothing_in_a_short_run() -> None:
    said = run_module("tests.fuzz", "--inputs", "35000", "--gateway", "1000", "--seed", "11")
    assert said.count("| longest") == 2 * len(TARGETS)
    assert "gateway over HTTP" in said
    assert "gateway over stdio" in said


def test_no_call_is_wrong_lost_or_done_twice_while_servers_misbehave() -> None:
    said = run_module("benchmarks.chaos", "--calls", "1600", "--clients", "16", "--seed", "11")
    assert "| received twice | 0 |" in said


def test_a_gateway_under_steady_calls_is_sampled() -> None:
    said = run_module("benchmarks.soak", "--minutes", "0.1", "--rate", "20", "--sessions", "20")
    assert "memory_megabytes" in said


def test_clients_lose_nothing_while_replicas_behind_a_balancer_are_killed() -> None:
    said = run_module("benchmarks.replicas", "--seconds", "15", "--clients", "12", "--seed", "11")
    assert "| ids that the server received twice | 0 | 0 | yes |" in said
    assert "| NO |" not in said
