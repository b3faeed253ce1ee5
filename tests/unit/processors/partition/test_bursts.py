"""One node sends an hour of blocks within a moment: no other node of its partition is forgotten."""

from collections.abc import Iterator, Sequence
from dataclasses import astuple
from typing import Any

import pytest

from processors.partition.partition import Partition
from processors.partition.plan import Watermark
from processors.prediction.fold import PredictionPartition
from schemas import settings as all_settings
from tests.support.processors import telemetry
from tests.support.processors.telemetry import block, stored

Stream = list[tuple[str, bytes]]
HOUR, LATER = 3600, 40_000_000
HONEST = [f"n{number}" for number in range(5)]
PODS = [{"pod": "p", "workloads": "shop/web", "cpu_cores": 0.5, "memory_bytes": 2e8}]


def made(kind: type[Any]) -> Any:
    return kind(all_settings.load({}, environ={}), 0)


def reported(nodes: Sequence[str], seconds: Sequence[int]) -> Stream:
    """Return what nodes report in turn: a block each, and what a pod uses."""
    return [
        stored(message)
        for second in seconds
        for node in nodes
        for message in (block(node, second, cpu_util=0.3, memory_util=0.4), telemetry.usage(node, second + 1, PODS))
    ]


def burst(begin: int, ahead: int) -> Iterator[tuple[str, bytes]]:
    """Yield blocks of another boot: a minute of seconds that are so far ahead, then more than an hour of minutes."""
    seconds = [begin + ahead + second for second in range(60)]
    for second in [*seconds, *range(seconds[-1] + 60, seconds[-1] + HOUR + 600, 60)]:
        yield stored(block("liar", second, seq=5000 + second).model_copy(update={"boot": "forged"}))


@pytest.mark.parametrize("ahead", [1, LATER], ids=["from here on", "in a far future"])
@pytest.mark.slow
@pytest.mark.parametrize("kind", [Partition, PredictionPartition])
def test_a_burst_of_one_node_makes_no_other_node_forgotten(kind: type[Any], ahead: int) -> None:
    partition = made(kind)
    partition.fold(reported([*HONEST, "liar"], range(60)))
    forged = list(burst(60, ahead))
    for number, begin in enumerate(range(0, len(forged), 60)):
        partition.fold(forged[begin : begin + 60] + reported(["n0"], [60 + number]))  # its clock does not count
    assert partition.nodes == len(HONEST) + 1
    partition.fold(reported(HONEST, range(70, 120)))
    assert partition.nodes == len(HONEST) + 1
    if isinstance(partition, PredictionPartition):
        assert len({name for name, _ in partition.models()} & set(HONEST)) == len(HONEST)
        assert {node: len(partition._pods.of(node)) for node in HONEST} == dict.fromkeys(HONEST, 1)
    else:
        assert len(partition.quota.dump()["heard"]) == len(HONEST) + 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Partition, PredictionPartition])
def test_after_a_burst_nodes_that_stay_silent_are_forgotten_once_others_have_seen_an_hour_of_it(
    kind: type[Any],
) -> None:
    partition = made(kind)
    partition.fold(reported([*HONEST, "liar"], range(60)))
    partition.fold([*burst(60, 1), *reported(HONEST[:2], range(60, HOUR + 60, 20))])
    assert partition.nodes == len(HONEST) + 1
    partition.fold(reported(HONEST[:2], range(HOUR + 60, HOUR + 260, 20)))
    assert partition.nodes == 3  # the liar has been heard in the future


def test_where_one_node_moves_the_second_by_more_than_a_minute_the_hour_begins_again() -> None:
    watermark = Watermark()
    for second in range(1000, 1100):
        watermark = watermark.seen(second, "a").seen(second, "b")
    assert (watermark.begun(2), watermark.begun(3)) == (1000, 1000)
    watermark = watermark.seen(1159, "a")
    assert watermark.begun(3) == 1000
    watermark = watermark.seen(1160, "a")
    assert (watermark.begun(2), watermark.begun(3)) == (1000, 1160)
    watermark = watermark.seen(1160, "b").seen(1200, "a")
    assert watermark.begun(3) == 1160


def test_a_watermark_of_an_older_program_has_its_whole_time_seen() -> None:
    watermark = Watermark()
    for second in range(1000, 1100):
        watermark = watermark.seen(second, "a").seen(second, "b")
    for numbers in (7, 3):
        older = Watermark.of(astuple(watermark)[:numbers])
        assert (older.second, older.begun(3)) == (1099, 1000)
        assert older.seen(1150, "a").begun(3) == 1000
