"""Odd, repeated and unreadable telemetry harms no other node's predictions."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st

from processors.prediction.fold import PredictionPartition
from schemas import codec
from tests.support.processors import telemetry
from tests.support.processors.telemetry import NAMES, block, stored
from tests.unit.processors.prediction.fold.recordings import (
    BEGIN,
    FAST,
    Stream,
    calm,
    configured,
    lines,
    node_facts,
    of,
    predictions,
)


def usage(node: str, second: int, cpu: float | None, memory: float | None, **fields: Any) -> tuple[str, bytes]:
    pod = {"pod": "p", "cpu_cores": cpu, "memory_bytes": memory}
    return stored(telemetry.usage(node, BEGIN + second, [pod], **fields))


# A pod takes no more than its node has, whatever its agent says, but may ask for any amount.
_BEFORE: dict[str, Stream] = {
    "beyond": [
        stored(telemetry.facts("odd", f"p{number}", "shop/a", requests={"cpu": 1e18, "memory": 1e18}))
        for number in range(2)
    ]
}


def _odd(kind: str) -> Stream:
    """Return two minutes of node `odd`, in which something is wrong all the time."""
    messages = [*_BEFORE.get(kind, [])]
    for second in range(130):
        if kind == "beyond":
            pods = [{"pod": f"p{number}", "cpu_cores": 1e18, "memory_bytes": 1e18} for number in range(2)]
            messages.append(stored(block("odd", BEGIN + second, cpu_util=1.0)))
            messages.append(stored(telemetry.usage("odd", BEGIN + second + 1, pods)))
        elif kind == "missing":
            made = block("odd", BEGIN + second, cpu_util=None, memory_util=None, cpu_pressure=None)
            messages += [stored(made), usage("odd", second + 1, None, None)]
        elif kind == "few":
            made = block("odd", BEGIN + second, samples=(1, 100)[second % 2], cpu_util=0.5, memory_util=0.5)
            messages += [stored(made), usage("odd", second + 1, 0.5, 1e9)]
        elif kind == "tiny":
            made = block("odd", BEGIN + second, cpu_util=0.5).model_copy(update={"memory_bytes": 1, "cpus": 1})
            messages += [stored(made), usage("odd", second + 1, 0.5, 1e12)]
        elif kind == "sizes":
            made = block("odd", BEGIN + second, cpu_util=0.5, memory_util=0.5)
            large = {"memory_bytes": (1 + second % 3) << 30, "cpus": 1 + second % 5}
            messages += [stored(made.model_copy(update=large)), usage("odd", second + 1, 0.5, 1e9)]
        elif kind == "columns":
            made = block("odd", BEGIN + second).model_copy(update={"metrics": ["gpu_util"], "values": [0.5] * 10})
            messages.append(stored(made))
        elif kind == "classes":
            reports = telemetry.facts(
                "odd", "p", "w", second, priority=-7, labels={"koordinator.sh/priority-class": "?"}
            )
            messages += [stored(block("odd", BEGIN + second)), stored(reports), usage("odd", second + 1, 0.5, 1e9)]
        elif kind == "pods first":
            messages.append(usage("odd", second + 1, 0.5, 1e9))
            messages += [stored(block("odd", BEGIN + second))] if second > 20 else []
        else:  # the clock is set: for a minute nobody believes it
            moved = {"forward": 10**7, "back": -(10**7)}[kind] if second > 20 else 0
            made = block("odd", BEGIN + second, cpu_util=0.5, memory_util=0.5)
            at_us = made.at_us + moved * 1_000_000
            messages += [stored(made.model_copy(update={"at_us": at_us})), usage("odd", second + 1, 0.5, 1e9)]
    return messages


KINDS = ["beyond", "missing", "few", "tiny", "sizes", "columns", "classes", "pods first", "forward", "back"]


@pytest.mark.slow
@pytest.mark.cases
@pytest.mark.parametrize("kind", KINDS)
def test_a_node_with_odd_telemetry_harms_no_other(kind: str) -> None:
    good = calm("good", range(130))
    odd = _odd(kind)
    mixed = [message for pair in itertools.zip_longest(good, odd) for message in pair if message]
    outputs = PredictionPartition(configured(), 0).fold(mixed)
    assert of("good", outputs) == of("good", PredictionPartition(configured(), 0).fold(good))
    predicted = [prediction for prediction in predictions(outputs) if prediction.node == "odd"]
    assert bool(predicted) == (kind not in ("missing", "columns", "beyond"))
    for output in outputs:
        codec.decode(type(output.message), codec.encode(output.message))


def test_what_no_message_can_hold_is_withheld_and_counted() -> None:
    partition = PredictionPartition(configured(), 0)
    assert not predictions(partition.fold(_odd("beyond")))
    assert partition.withheld


@pytest.mark.slow
@given(
    numbers=st.lists(st.one_of(st.none(), st.floats(0, 1e18)), min_size=12, max_size=12),
    requests=st.lists(st.floats(0, 1e18), min_size=4, max_size=4),
    sizes=st.tuples(st.integers(1, 65_536), st.integers(1, 2**53 - 1)),
)
@hypothesis(max_examples=40, deadline=None)
def test_no_telemetry_that_the_schema_takes_stops_a_fold(
    numbers: list[float | None], requests: list[float], sizes: tuple[int, int]
) -> None:
    messages: Stream = []
    for index in range(2):
        amounts = {"cpu": requests[index], "memory": requests[index + 2]}
        messages.append(stored(telemetry.facts("odd", f"p{index}", "w", 1, requests=amounts, priority=9000)))
    messages.append(stored(node_facts("odd", 1, requests[0], requests[1])))
    update = {"cpus": sizes[0], "memory_bytes": sizes[1]}
    for second in range(12):
        made = block("odd", BEGIN + second, cpu_util=0.5, memory_util=0.5).model_copy(update=update)
        pods = [{"pod": f"p{index}", "cpu_cores": numbers[second], "memory_bytes": numbers[-1]} for index in range(2)]
        messages += [stored(made), stored(telemetry.usage("odd", BEGIN + second + 1, pods))]
        messages += calm("good", [second])
    outputs = PredictionPartition(configured(**FAST), 0).fold(messages)
    assert any(prediction.node == "good" for prediction in predictions(outputs))


def test_garbage_is_passed_over() -> None:
    good = calm("good", range(40))
    kinds = ("samples", "pods", "podfacts", "nodefacts", "containers", "edge")
    bad = [(NAMES.part(0, kind, "n"), payload) for kind in kinds for payload in (b"not json", b"{}", b"")]
    once = lines(PredictionPartition(configured(), 0).fold(good))
    assert lines(PredictionPartition(configured(), 0).fold([*good[:30], *bad, *good[30:]])) == once


def test_a_repeated_or_late_block_counts_once() -> None:
    messages = calm("n", range(70))
    again = [message for index in range(0, len(messages), 2) for message in messages[max(0, index - 6) : index + 2]]
    assert len(again) > 3 * len(messages)
    once, often = (
        PredictionPartition(configured(), 0).fold(predicted) for predicted in (messages, [*messages[:2], *again])
    )
    assert lines(often) == lines(once)
