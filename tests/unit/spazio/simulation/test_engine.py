"""What the engine plays of kube-scheduler, and what it measures of a run."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from schemas import codec
from schemas.messages.telemetry import ContainerEvent
from spazio.simulation import engine, outcome
from spazio.simulation.scenario import Scenario

PLAIN = {"start_seconds": 0, "spike_seconds": 0, "loss": 0}


def made(**fields: Any) -> Scenario:
    return Scenario.model_validate({"name": "test", "nodes": [{"count": 8, "cpus": 4}], "physics": PLAIN, **fields})


@pytest.mark.slow
@pytest.mark.parametrize(("kinds", "longest"), [(1, 0.5), (200, 22.0)])
@pytest.mark.parametrize("scheduler", ["kube", "spazio"])
def test_pods_that_fit_nowhere_do_not_keep_later_ones_from_being_tried(
    scheduler: str, kinds: int, longest: float
) -> None:
    """Their backoffs end sooner than the scheduler, at ten a second, has asked about each of them once."""
    pods = [{"name": "huge", "count": 200 // kinds, "cpu_request": 64 + number} for number in range(kinds)]
    small = {"name": "small", "count": 5, "per_second": 1, "at": 20, "work": 3, "cpu_request": "500m"}
    wanted = made(pods=[*pods, small], seconds=60, binds_per_second=10, keep_requests=True)
    run = asyncio.run(engine.run(wanted, scheduler, 1))
    assert (run.bound - run.since)[run.population.group == kinds].max() < longest


@pytest.mark.parametrize("cpus", [2, 4, 8, 16])
@pytest.mark.parametrize(("more", "share"), [(0, 0.0), (1, 1.0)])
def test_what_the_system_itself_takes_does_not_break_the_policy(cpus: int, more: int, share: float) -> None:
    pods = [{"name": "p", "count": 2 * cpus + more, "work": 20, "spread": 0}]
    run = asyncio.run(
        engine.run(made(nodes=[{"count": 1, "cpus": cpus}], pods=pods, binds_per_second=10_000), "kube", 1)
    )
    assert run.over_seconds / run.busy_seconds == pytest.approx(share, abs=0.05)


@pytest.mark.parametrize("work", [10, 100])
def test_the_cpu_in_use_counts_from_the_first_possible_creation(work: int) -> None:
    pods = [{"name": "p", "count": 6, "work": work, "spread": 0, "cpu_request": 1}]
    wanted = made(nodes=[{"count": 3, "cpus": 2, "system_cpu": 0}], pods=pods)
    run = asyncio.run(engine.run(wanted, "kube", 1))
    assert len(run.utilization) == run.seconds
    assert outcome.of(run, wanted)["utilization_mean"] == pytest.approx(work / run.seconds, abs=0.02)


def test_a_run_goes_on_until_every_pod_has_come_and_has_a_node() -> None:
    """The services come one a second after the job has ended, and the last of them waits until one of its kind ends."""
    job = {"name": "job", "count": 6, "work": 10, "cpu_request": 1}
    api = {"name": "api", "kind": "serving", "at": 30, "cores": 0.1, "cpu_request": 1}
    pods = [job, {**api, "count": 1, "seconds": 20}, {**api, "count": 6, "per_second": 1}]
    wanted = made(nodes=[{"count": 3, "cpus": 2}], pods=pods)
    run = asyncio.run(engine.run(wanted, "kube", 1))
    assert outcome.of(run, wanted)["unbound"] == 0
    assert run.seconds == pytest.approx(51, abs=1)
    assert outcome.of(run, wanted)["job_seconds"] < 20


def test_pods_that_wait_at_the_latest_end_are_without_a_node_and_those_not_created_are_not() -> None:
    pods = [
        {"name": "api", "kind": "serving", "count": count, "at": at, "cpu_request": 1}
        for count, at in ((8, 0), (3, 59.95))
    ]
    wanted = made(nodes=[{"count": 3, "cpus": 2}], pods=pods, seconds=60)
    run = asyncio.run(engine.run(wanted, "kube", 1))
    assert outcome.of(run, wanted)["unbound"] == 2


class Hearing:
    """A scheduler that binds every pod to the first node, and keeps what containers do."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    async def place(self, pod: int, nodes: Sequence[str], now: float) -> int | None:
        del pod, nodes, now
        return 0

    def hear(self, facts: object) -> None:
        """Ignore what is bound."""

    def leave(self, node: str) -> None:
        """Ignore nodes that die."""

    def observe(self, now: float, ticks: object, messages: Sequence[tuple[str, bytes]]) -> None:
        del now, ticks
        events = [codec.decode(ContainerEvent, body) for subject, body in messages if ".containers." in subject]
        self.events += [(event.name or "", event.event) for event in events]


def test_a_container_that_is_killed_for_memory_has_exited_before_it_starts_again() -> None:
    pods = [{"name": "p", "count": 3, "work": 4, "spread": 0, "memory": "2Gi"}]
    nodes = [{"count": 1, "cpus": 4, "memory": "5Gi", "system_memory": "512Mi"}]
    hearing = Hearing()
    run = asyncio.run(engine.run(made(nodes=nodes, pods=pods), "spazio", 1, {"spazio": lambda *_: hearing}))
    assert run.kills >= 1
    assert len(hearing.events) == 2 * (3 + run.kills)
    for name in ("p-0", "p-1", "p-2"):
        own = [event for pod, event in hearing.events if pod == name]
        assert own == ["started", "exited"] * (len(own) // 2)
