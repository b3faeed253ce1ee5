"""The kick: when rejected pods are to be tried again, and when they are left alone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.placement import START, Clock, Replica, given, pod, report


@asynccontextmanager
async def kicking(one: Replica, *, fail: int = 0) -> AsyncIterator[list[str]]:
    """Run the kick, and hand out the nodes that it annotates; the first so many attempts fail."""
    annotated: list[str] = []

    async def annotate(node: str) -> None:
        annotated.append(node)
        if len(annotated) <= fail:
            raise OSError("the API server is away")

    running = asyncio.create_task(one.waiting.run(one.settings.extender, one.board, annotate))
    try:
        yield annotated
    finally:
        running.cancel()


async def some(annotated: list[str]) -> None:
    """Wait until a node is annotated."""
    async with asyncio.timeout(10):
        while not annotated:  # noqa: ASYNC110 # a list tells nobody
            await asyncio.sleep(0.02)


def replica(**rooms: float) -> Replica:
    one = Replica(given(extender_kick_seconds="0.3"), Clock())
    # The kick looks at the wall clock; reports of these tests never grow old.
    for name, room in rooms.items():
        one.board.report(report(name, START * 2, room))
    one.clock.now_us = START * 2
    return one


async def test_a_node_is_annotated_once_it_has_room_for_a_pod_that_it_turned_down() -> None:
    one = replica(a=0.5, b=0.25)
    assert await one.place("p", ["a", "b"]) is None
    async with kicking(one) as annotated:
        await asyncio.sleep(0.6)
        assert annotated == []
        one.board.report(report("b", START * 2 + 1, 1.5))
        await some(annotated)
        assert set(annotated) == {"b"}
        assert await one.place("p", ["a", "b"]) == "b"
        told = len(annotated)
        await asyncio.sleep(0.8)
        assert len(annotated) == told
    assert len(one.waiting) == 0


async def test_pods_that_are_bound_or_gone_do_not_wait_any_more() -> None:
    one = replica(a=0.5)
    for uid in ("bound", "gone"):
        await one.place(uid, ["a"])
    one.board.pods.hear(pod("bound", 2, node="elsewhere"))
    one.board.pods.hear(pod("gone", 3, deleted=True))
    one.board.report(report("a", START * 2 + 1, 5.0))
    async with kicking(one) as annotated:
        await asyncio.sleep(0.6)
    assert (annotated, len(one.waiting)) == ([], 0)


async def test_large_pods_that_never_fit_do_not_keep_small_ones_from_their_turn() -> None:
    one = Replica(given(extender_kick_seconds="0.3"), Clock())
    one.clock.now_us = START * 2
    rooms = {f"job-{number}": (0.0, 0.0) for number in range(40)}
    one.board.report(report("a", START * 2, 0.5, classes=rooms | {"small": (0.5, 0.5)}))
    for number in range(40):
        await one.place(f"large-{number}", ["a"], workload=f"job-{number}")
    await one.place("small", ["a"], workload="small")
    one.board.report(report("a", START * 2 + 1, 9.0, classes=rooms | {"small": (50.0, 50.0)}))
    async with kicking(one) as annotated:
        await some(annotated)


async def test_what_fails_is_tried_again() -> None:
    one = replica(a=0.5)
    await one.place("p", ["a"])
    one.board.report(report("a", START * 2 + 1, 5.0))
    async with kicking(one, fail=1) as annotated, asyncio.timeout(10):
        while len(annotated) < 2:  # noqa: ASYNC110 # a list tells nobody
            await asyncio.sleep(0.02)


async def test_those_that_nobody_looked_at_are_tried_again_once_the_others_are_placed() -> None:
    one = replica(a=0.5)
    for number in range(40):
        await one.place(f"p{number}", ["a"], workload="web")
    assert len(one.waiting) == 40
    for number in range(39):
        one.board.pods.hear(pod(f"p{number}", 2, node="elsewhere"))
    one.board.report(report("a", START * 2 + 1, 5.0))
    async with kicking(one) as annotated:
        await some(annotated)
    assert (annotated, len(one.waiting)) == (["a"], 1)


async def test_of_many_kinds_that_wait_none_is_forgotten() -> None:
    one = replica(a=0.5)
    for number in range(400):
        await one.place(f"q{number}", ["a"], workload=f"class-{number}")
    assert len(one.waiting) == 400
    for number in range(400):
        if number != 3:
            one.board.pods.hear(pod(f"q{number}", 2, node="elsewhere"))
    one.board.report(report("a", START * 2 + 1, 5.0))
    async with kicking(one) as annotated:
        await some(annotated)
    assert len(one.waiting) == 1


async def test_a_kind_that_fits_has_its_turn_however_many_wait_that_never_do() -> None:
    one = Replica(given(extender_kick_seconds="0.3"), Clock())
    one.clock.now_us = START * 2
    rooms = {f"job-{number}": (0.0, 0.0) for number in range(20)}
    for node in ("a", "b"):
        one.board.report(report(node, START * 2, 0.5, classes=rooms | {"small": (0.5, 0.5)}))
    await one.place("small", ["b"], workload="small")
    for number in range(20 * 20):
        await one.place(f"large-{number}", ["a"], workload=f"job-{number % 20}")
    assert len(one.waiting) == 401
    for node in ("a", "b"):
        one.board.report(report(node, START * 2 + 1, 9.0, classes=rooms | {"small": (50.0, 50.0)}))
    async with kicking(one) as annotated:
        await some(annotated)
    assert annotated == ["b"]


async def test_a_node_that_is_gone_is_not_annotated() -> None:
    one = replica(a=0.5, b=0.25)
    assert await one.place("p", ["a", "b"]) is None
    one.board.leave("a")
    async with kicking(one) as annotated:
        await asyncio.sleep(0.6)
        assert annotated == []
        one.board.report(report("b", START * 2 + 1, 1.5))
        await some(annotated)
        assert set(annotated) == {"b"}
