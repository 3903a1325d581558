"""The plan of a chaos run."""

from benchmarks.chaos import plan_of
from benchmarks.stress.upstream import FAULTS, fault_of


def test_a_seed_plans_the_same_calls_faults_and_disturbances_every_time() -> None:
    plan = plan_of(3, 20_000, 64)
    assert plan == plan_of(3, 20_000, 64)
    assert plan.digest == plan_of(3, 20_000, 64).digest
    assert plan.digest != plan_of(4, 20_000, 64).digest


def test_a_large_run_meets_every_fault() -> None:
    assert set(plan_of(1, 20_000, 64).faults) == {fault for kind in FAULTS.values() for fault in kind}


def test_a_server_meets_the_faults_of_the_plan_in_whatever_order_calls_come() -> None:
    calls = [call for calls in plan_of(5, 2_000, 16).clients for call in calls if call.fault]
    assert calls
    for call in reversed(calls):
        assert call.fault in {fault_of(5, call.id, kind)[0] for kind in FAULTS}
