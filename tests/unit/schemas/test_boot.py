"""A node that changes between `spazio agent` and `spazio edge`, which tells less of its boot id, or that reboots."""

import json
from typing import Any

import pytest

from processors.partition.edge import Edge
from processors.partition.partition import Partition
from processors.rows import snapshot
from schemas import settings as all_settings
from schemas.boot import DIGITS
from schemas.messages.base import Message
from schemas.messages.estimate import Availability, Blocks
from tests.support.processors import telemetry
from tests.support.processors.telemetry import NAMES, START, event, stored

BOOT = "3f2504e0-4f89-41d3-9a0c-0305e82c3301"
NEXT = "9b2d7c15-0d43-4a5e-9b57-1f7c3d2e8a90"
SETTINGS = all_settings.load({"smoothing_publish": "false", "estimate_report_seconds": "0.5"}, environ={})
SUBJECT = NAMES.part(0, "edge", "n")
Stored = tuple[str, bytes]


def of_boot(message: Message, boot: str = BOOT) -> Stored:
    return stored(message.model_copy(update={"boot": boot}))


def sampled(second: int) -> Stored:
    return of_boot(telemetry.block("n", second, cpu_util=0.5, pods=1.0))


def modelled(edge: Edge, second: int, boot: str = BOOT, **at: Any) -> Stored:
    block = telemetry.block("n", second, cpu_util=0.5, pods=1.0, **at)
    return SUBJECT, edge.block(of_boot(block, boot[:DIGITS])[1]) or b""


def rows(partition: Partition, messages: list[Stored]) -> list[Availability]:
    outputs, refusals = partition.fold(messages)
    assert not refusals
    return [output.message for output in outputs if isinstance(output.message, Availability)]


def times(result: list[Availability]) -> list[float]:
    """Return at which second each row's last sample was taken."""
    return [round(row.at_us / 1e6 - START - 0.9, 6) for row in result]


def test_every_second_counts_of_a_node_that_goes_from_agent_to_edge_and_back() -> None:
    edge, partition = Edge(SETTINGS, "n"), Partition(SETTINGS, 0)
    messages = [sampled(second) for second in range(10)]
    messages += [modelled(edge, second) for second in range(10, 20)]
    messages += [sampled(second) for second in range(20, 30)]
    result = rows(partition, messages)
    assert times(result) == list(range(30))
    assert [row.blocks for row in result] == [None] * 30  # none late, doubled or missing


@pytest.mark.parametrize(("message", "block"), [(BOOT, BOOT[:DIGITS]), (BOOT[:DIGITS], BOOT)])
def test_events_and_usage_of_pods_are_of_the_boot_however_much_each_tells_of_its_id(message: str, block: str) -> None:
    pods = [{"pod": "u", "workloads": "shop/a", "cpu_cores": 0.5, "memory_bytes": 2e8}]
    partition = Partition(SETTINGS, 0)
    result = []
    for second in range(6):
        messages = [
            of_boot(telemetry.block("n", second, cpu_util=0.5, pods=1.0), block),
            of_boot(telemetry.usage("n", second + 1, pods), message),
        ]
        result += rows(partition, [*messages, of_boot(event("n", 2.95), message)] if second == 2 else messages)
    assert partition.ignored == 0
    assert next(row.seq - 1000 for row in result if row.churn) == 3
    assert result[-1].classes


def test_a_window_of_churn_outlives_the_change() -> None:
    edge, partition = Edge(SETTINGS, "n"), Partition(SETTINGS, 0)
    rows(partition, [sampled(0), of_boot(event("n", 0.95))])
    assert rows(partition, [modelled(edge, 1)])[0].churn


@pytest.mark.parametrize("silenced", [False, True])
def test_state_of_a_program_that_compared_whole_ids_is_carried_on(silenced: bool) -> None:
    edge, before, after = Edge(SETTINGS, "n"), Partition(SETTINGS, 0), Partition(SETTINGS, 0)
    rows(before, [sampled(0), modelled(edge, 1)])
    header, arrays = snapshot.unpack(before.snapshot())
    come = header["admission"]["known"]["n"][0]
    # On the way back from the edge, the boot of the samples was the one before; on the way there, the newest.
    come[0], come[4] = (BOOT[:DIGITS], BOOT) if silenced else (BOOT, "")
    header["admission"]["pod_marks"] = {"n": [BOOT, 1001]}
    after.restore(snapshot.pack(header, arrays))
    assert snapshot.unpack(after.snapshot())[0]["admission"]["pod_marks"] == {"n": [BOOT[:DIGITS], 1001]}
    result = rows(after, [sampled(2) if silenced else modelled(edge, 2), sampled(3), sampled(3)])
    assert times(result) == [2, 3]
    assert rows(after, [sampled(4)])[0].blocks == Blocks(doubled=1, late=0, missing=0, jumps=0)


def test_after_a_reboot_of_which_the_first_block_is_lost_nothing_is_reported_until_the_node_says_its_time() -> None:
    partition = Partition(SETTINGS, 0)
    assert times(rows(partition, [modelled(Edge(SETTINGS, "n"), 0, seq=2_600_000)])) == [0]
    again = Edge(SETTINGS, "n")
    blocks = [modelled(again, 120 + second, NEXT, seq=60 + second) for second in range(40)]
    messages = [second for second, (_, payload) in enumerate(blocks) if "at_us" in json.loads(payload)]
    assert messages == [0, 30]
    result = rows(partition, blocks[1:])
    assert times(result) == list(range(150, 160))
    assert all(row.clock is None for row in result)
    assert partition.ignored == 29


def test_an_edge_block_of_the_boot_before_is_late_though_it_does_not_say_its_time() -> None:
    partition, edge = Partition(SETTINGS, 0), Edge(SETTINGS, "n")
    first, left = modelled(edge, 0, seq=90_000), modelled(edge, 1, seq=90_001)
    again = Edge(SETTINGS, "n")
    messages = [first, modelled(again, 30, NEXT, seq=12), left, modelled(again, 31, NEXT, seq=13)]
    result = rows(partition, messages)
    assert times(result) == [0, 30, 31]
    assert result[-1].blocks is not None
    assert result[-1].blocks.late == 1
    assert partition.ignored == 0
