"""Nodes that come and go one by one, and bursts of one node among many: what a partition forgets of the silent ones."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from processors.partition.partition import Partition
from processors.prediction.fold import PredictionPartition
from schemas import settings as all_settings
from schemas.messages.facts import NodeFacts
from tests.support.processors import telemetry
from tests.support.processors.telemetry import block, stored

Stream = list[tuple[str, bytes]]
HOUR, STEP, AHEAD = 3600, 50, 3840
MANY = [f"n{number}" for number in range(30)]

pytestmark = pytest.mark.parametrize("kind", [Partition, PredictionPartition])


def made(kind: type[Any]) -> Any:
    return kind(all_settings.load({}, environ={}), 0)


def reported(nodes: Sequence[str], seconds: Sequence[int]) -> Stream:
    made = [block(node, second, samples=1, cpu_util=0.3, memory_util=0.4) for second in seconds for node in nodes]
    return [stored(message) for message in made]


def deleted(node: str) -> tuple[str, bytes]:
    facts = NodeFacts(
        node=node, uid=node, version=1, at_us=1, deleted=True, created_us=1, ready=True, unschedulable=False,
        allocatable={}, capacity={}, labels={}, annotations={}, taints=[],
    )  # fmt: skip
    return stored(facts)


def jobs(node: str, seconds: Sequence[int]) -> Iterator[tuple[str, bytes]]:
    """Yield blocks of a node on which every block shows another pod."""
    for second in seconds:
        yield from reported([node], [second])
        pod = {"pod": f"{node}-{second}", "cpu_cores": 0.5, "memory_bytes": 2e8}
        yield stored(telemetry.usage(node, second + 1, [pod]))


@pytest.mark.slow
def test_where_nodes_come_and_go_one_by_one_few_silent_ones_and_no_old_pods_are_kept(kind: type[Any]) -> None:
    partition = made(kind)
    partition.fold(reported("abc", range(0, 300, STEP)))
    second = 300
    for number in range(24):
        lives = HOUR + 100 if number == 23 else 4 * STEP
        partition.fold(list(jobs(f"job-{number}", range(second, second + lives, STEP))))
        second += lives
    partition.fold(list(jobs("last", range(second, second + HOUR + 700, STEP))))
    heard = partition.quota.dump()["heard"]
    assert partition.nodes == len(heard) == 1 + 16
    assert {"last", "job-23"} <= heard.keys()
    if kind is PredictionPartition:
        assert len(partition._pods.of("last")) <= 1800 // STEP + 3


@pytest.mark.slow
def test_a_silent_node_that_kubernetes_has_deleted_is_forgotten_although_one_node_alone_reports(
    kind: type[Any],
) -> None:
    before, partition = made(kind), made(kind)
    before.fold([*reported("abcde", range(0, 300, STEP)), deleted("b"), *reported("b", [300]), deleted("c")])
    before.fold(reported("ac", [320]))
    partition.restore(before.snapshot())
    partition.fold(reported("a", range(350, HOUR, STEP)))
    assert partition.nodes == 5
    partition.fold(reported("a", range(HOUR, HOUR + 600, STEP)))
    assert partition.nodes == 3
    assert partition.quota.dump()["heard"].keys() == {"a", "d", "e"}
    assert not partition.quota.dump()["deleted"]


def forged(seconds: Sequence[int]) -> Stream:
    messages = [block("liar", second, seq=10_000 + second) for second in seconds]
    return [stored(message.model_copy(update={"boot": "forged"})) for message in messages]


def forward() -> Iterator[Stream]:
    """Yield steps of a minute, and of every node a block that does not count."""
    steps = forged(range(61, 2 * HOUR, 60))
    for number, node in enumerate(MANY):
        yield [*steps[4 * number : 4 * number + 4], *reported([node], [60])]
    yield reported(MANY[:2], range(61, 65))


def there_and_back() -> Iterator[Stream]:
    """Yield a jump to an hour ago, in which every node is heard, and steps back to where others agree."""
    yield forged(range(-HOUR - 300, -HOUR - 240))
    for number, node in enumerate(MANY):
        yield [*reported([node], [60]), *forged([-HOUR - 240 + number])]
    yield forged([*range(-HOUR - 180, 61, 60), 61])
    yield reported(MANY[:2], range(62, 66))


def agreed_with() -> Iterator[Stream]:
    """Yield steps of a minute to where a node whose clock is ahead agrees."""
    yield [*forged(range(61, AHEAD + 61, 60)), *reported(["ahead"], [AHEAD + 60]), *forged([AHEAD + 70, AHEAD + 80])]


def jump_agreed_with() -> Iterator[Stream]:
    """Yield a jump, and then the same."""
    jump = range(130, 190)
    steps = range(jump[-1] + 60, AHEAD + 60, 60)
    yield [*forged([*jump, *steps]), *reported(["ahead"], [AHEAD + 60]), *forged([AHEAD + 70, AHEAD + 80])]


@pytest.mark.parametrize("attack", [forward, there_and_back, agreed_with, jump_agreed_with])
def test_of_many_nodes_a_burst_of_one_makes_none_forgotten(
    kind: type[Any], attack: Callable[[], Iterator[Stream]]
) -> None:
    partition = made(kind)
    for second in range(60):
        partition.fold(reported([*MANY, "liar"], [second]) + reported(["ahead"], [second + AHEAD]))
    for messages in attack():
        partition.fold(messages)
        assert partition.nodes == len(partition.quota.dump()["heard"]) == len(MANY) + 2
