"""Requeueing: when rejected pods are tried again, and when they are left alone."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from prometheus_client import REGISTRY

from bus.health import Health
from sinks.extender import requeue, service
from sinks.extender.shadow import Ledger
from tests.support.extender.placement import START, Clock, Replica, given, node, pod, report


@asynccontextmanager
async def requeueing(replica: Replica, *, fail: int = 0) -> AsyncIterator[list[str]]:
    """Run the requeueing, and yield the nodes that it annotates; the first so many attempts fail."""
    annotated: list[str] = []

    async def annotate(node: str) -> None:
        annotated.append(node)
        if len(annotated) <= fail:
            raise OSError("the API server is away")

    running = asyncio.create_task(replica.waiting.run(replica.settings.extender, replica.cluster_state, annotate))
    try:
        yield annotated
    finally:
        running.cancel()


async def some(annotated: list[str]) -> None:
    """Wait until a node is annotated."""
    async with asyncio.timeout(60):
        while not annotated:  # noqa: ASYNC110 # a list tells nobody
            await asyncio.sleep(0.02)


def replica_with(**rooms: float) -> Replica:
    replica = Replica(given(extender_kick_seconds="0.3"), Clock())
    # Requeueing uses the wall clock; reports of these tests never grow old.
    for name, room in rooms.items():
        replica.cluster_state.report(report(name, START * 2, room))
    replica.clock.now_us = START * 2
    return replica


@pytest.mark.slow
async def test_a_node_is_annotated_once_it_has_room_for_a_pod_that_it_turned_down() -> None:
    replica = replica_with(a=0.5, b=0.25)
    assert await replica.place("p", ["a", "b"]) is None
    async with requeueing(replica) as annotated:
        await asyncio.sleep(0.6)
        assert annotated == []
        replica.cluster_state.report(report("b", START * 2 + 1, 1.5))
        await some(annotated)
        assert set(annotated) == {"b"}
        assert await replica.place("p", ["a", "b"]) == "b"
        messages = len(annotated)
        await asyncio.sleep(0.8)
        assert len(annotated) == messages
    assert len(replica.waiting) == 0


async def test_pods_that_are_bound_or_gone_do_not_wait_any_more() -> None:
    replica = replica_with(a=0.5)
    for uid in ("bound", "gone"):
        await replica.place(uid, ["a"])
    replica.cluster_state.pods.hear(pod("bound", 2, node="elsewhere"))
    replica.cluster_state.pods.hear(pod("gone", 3, deleted=True))
    replica.cluster_state.report(report("a", START * 2 + 1, 5.0))
    async with requeueing(replica) as annotated:
        await asyncio.sleep(0.6)
    assert (annotated, len(replica.waiting)) == ([], 0)


@pytest.mark.slow
async def test_large_pods_that_never_fit_do_not_keep_small_ones_from_their_turn() -> None:
    replica = Replica(given(extender_kick_seconds="0.3"), Clock())
    replica.clock.now_us = START * 2
    rooms = {f"job-{number}": (0.0, 0.0) for number in range(40)}
    replica.cluster_state.report(report("a", START * 2, 0.5, classes=rooms | {"small": (0.5, 0.5)}))
    for number in range(40):
        await replica.place(f"large-{number}", ["a"], workload=f"job-{number}")
    await replica.place("small", ["a"], workload="small")
    replica.cluster_state.report(report("a", START * 2 + 1, 9.0, classes=rooms | {"small": (50.0, 50.0)}))
    async with requeueing(replica) as annotated:
        await some(annotated)


async def test_the_longest_wait_is_that_of_the_pod_that_was_rejected_first() -> None:
    replica = replica_with(a=0.5)
    await replica.place("first", ["a"])
    between = time.monotonic()
    await replica.place("second", ["a"])
    assert replica.waiting.longest_wait(between + 600) >= 600
    replica.waiting.done("first")
    assert 0 < replica.waiting.longest_wait(between + 600) <= 600


async def test_the_metrics_say_how_long_pods_wait_also_where_nothing_is_requeued(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "_COUNT_SECONDS", 0.01)
    replica = replica_with(a=0.5)
    await replica.place("p", ["a"])

    async def metrics() -> list[bool]:
        ledger = Ledger(lambda _: None)
        counting = asyncio.create_task(service._count(replica.cluster_state, replica.waiting, ledger, Health(), 60))
        await asyncio.sleep(0.1)
        counting.cancel()
        names = "spazio_extender_waiting_pods", "spazio_extender_longest_wait_seconds"
        return [bool(REGISTRY.get_sample_value(name)) for name in names]

    assert await metrics() == [True, True]
    replica.cluster_state.pods.hear(pod("p", 2, node="elsewhere"))
    assert await metrics() == [False, False]


async def test_pods_wait_since_their_first_rejection_for_as_long_as_the_scheduler_asks_about_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(requeue, "time", SimpleNamespace(monotonic=lambda: now))
    replica = replica_with(a=0.5)
    for _ in range(8):
        for number in range(20):  # of some only the time is kept
            await replica.place(f"p{number}", ["a"], workload="web")
        now += 600
        replica.waiting.forget(replica.cluster_state)
    assert replica.waiting.longest_wait(now) == 8 * 600
    assert replica.waiting.longest(1)[0].pods == 20
    now += 3600
    replica.waiting.forget(replica.cluster_state)
    assert len(replica.waiting) == 0


async def test_what_fails_is_tried_again() -> None:
    replica = replica_with(a=0.5)
    await replica.place("p", ["a"])
    replica.cluster_state.report(report("a", START * 2 + 1, 5.0))
    async with requeueing(replica, fail=1) as annotated, asyncio.timeout(60):
        while len(annotated) < 2:  # noqa: ASYNC110 # a list tells nobody
            await asyncio.sleep(0.02)


async def test_those_that_nobody_looked_at_are_tried_again_once_the_others_are_placed() -> None:
    replica = replica_with(a=0.5)
    for number in range(40):
        await replica.place(f"p{number}", ["a"], workload="web")
    assert len(replica.waiting) == 40
    for number in range(39):
        replica.cluster_state.pods.hear(pod(f"p{number}", 2, node="elsewhere"))
    replica.cluster_state.report(report("a", START * 2 + 1, 5.0))
    async with requeueing(replica) as annotated:
        await some(annotated)
    assert (annotated, len(replica.waiting)) == (["a"], 1)


@pytest.mark.slow
async def test_of_many_kinds_that_wait_none_is_forgotten() -> None:
    replica = replica_with(a=0.5)
    for number in range(400):
        await replica.place(f"q{number}", ["a"], workload=f"class-{number}")
    assert len(replica.waiting) == 400
    for number in range(400):
        if number != 3:
            replica.cluster_state.pods.hear(pod(f"q{number}", 2, node="elsewhere"))
    replica.cluster_state.report(report("a", START * 2 + 1, 5.0))
    async with requeueing(replica) as annotated:
        await some(annotated)
    assert len(replica.waiting) == 1


async def test_a_kind_that_fits_has_its_turn_however_many_wait_that_never_do() -> None:
    replica = Replica(given(extender_kick_seconds="0.3"), Clock())
    replica.clock.now_us = START * 2
    rooms = {f"job-{number}": (0.0, 0.0) for number in range(20)}
    for name in ("a", "b"):
        replica.cluster_state.report(report(name, START * 2, 0.5, classes=rooms | {"small": (0.5, 0.5)}))
    await replica.place("small", ["b"], workload="small")
    for number in range(20 * 20):
        await replica.place(f"large-{number}", ["a"], workload=f"job-{number % 20}")
    assert len(replica.waiting) == 401
    for name in ("a", "b"):
        replica.cluster_state.report(report(name, START * 2 + 1, 9.0, classes=rooms | {"small": (50.0, 50.0)}))
    async with requeueing(replica) as annotated:
        await some(annotated)
    assert annotated == ["b"]


async def test_a_node_that_the_api_has_reported_only_after_it_refused_is_annotated() -> None:
    replica = replica_with(a=0.5)
    replica.cluster_state.describe(node("a"))
    assert await replica.place("p", ["a", "new"]) is None  # the watch has not reported it yet
    async with requeueing(replica) as annotated:
        await asyncio.sleep(0.6)
        assert annotated == []
        replica.cluster_state.describe(node("new"))
        replica.cluster_state.report(report("new", START * 2, 1.5))
        await some(annotated)
        assert set(annotated) == {"new"}


async def test_a_node_that_is_gone_is_not_annotated() -> None:
    replica = replica_with(a=0.5, b=0.25)
    assert await replica.place("p", ["a", "b"]) is None
    replica.cluster_state.leave("a")
    async with requeueing(replica) as annotated:
        await asyncio.sleep(0.6)
        assert annotated == []
        replica.cluster_state.report(report("b", START * 2 + 1, 1.5))
        await some(annotated)
        assert set(annotated) == {"b"}
