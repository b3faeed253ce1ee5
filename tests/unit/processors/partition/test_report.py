"""Rows: short numbers, and the same availability whether smoothed rows are published or not."""

import itertools
import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processors.partition import report
from processors.partition.partition import Partition
from schemas import codec
from schemas.messages.estimate import Availability
from schemas.messages.telemetry import SmoothedBlock
from schemas.settings import load
from tests.support.processors import telemetry

DIGITS = {"cost": 9, "capacity": 6, "prior": 6, "explained": 6, "gap": 6}


@given(value=st.floats(0, 1e6), digits=st.sampled_from([4, 6, 9]))
def test_a_rounded_number_is_the_nearest_to_a_short_decimal(value: float, digits: int) -> None:
    (result,) = report._rounded(np.array([value]), digits).tolist()
    assert abs(result - value) <= 0.5 * 10**-digits * (1 + 1e-9) + abs(value) * 1e-15
    assert result == round(result, digits)


def test_no_zero_is_negative_and_what_is_infinite_stays_so() -> None:
    numbers = report._rounded(np.array([-0.0, -1e-12, np.inf, 1e308]), 9).tolist()
    assert [str(number) for number in numbers] == ["0.0", "0.0", "inf", "inf"]


def rows(**flags: str) -> list[tuple[str, bytes]]:
    outputs, _ = Partition(load(flags, environ={}), 0).fold(telemetry.recording(nodes=7, seconds=30))
    return [(output.subject, codec.encode(output.message)) for output in outputs]


@pytest.mark.slow
@pytest.mark.cases
@pytest.mark.parametrize("variant", ["default", "carico"])
@pytest.mark.parametrize("form", ["running_median", "dynamic_ema"])
def test_estimates_are_the_same_bytes_whether_smoothed_rows_are_published_or_not(variant: str, form: str) -> None:
    chosen = {"model_variant": variant, "smoothing_form": form}
    both, alone = rows(**chosen), rows(**chosen, smoothing_publish="false")
    assert alone == [row for row in both if ".smoothed." not in row[0]]
    assert len(both) > len(alone) > 100


def test_the_cpu_in_use_is_distinguished_from_its_saturation() -> None:
    messages = [telemetry.stored(telemetry.block("n", second, cpu_util=1.0, cpu_pressure=0.5)) for second in range(5)]
    outputs, _ = Partition(load({}, environ={}), 0).fold(messages)
    rows = [output.message for output in outputs if isinstance(output.message, Availability)]
    assert {row.cpu_used for row in rows} == {1.0}
    assert rows[-1].usage["cpu"] == pytest.approx(0.75)


def test_the_cpu_in_use_is_absent_in_a_second_that_did_not_measure_it() -> None:
    blocks = [telemetry.block("n", second, cpu_util=None if second == 3 else 0.5) for second in range(4)]
    settings = load({"estimate_report_seconds": "1"}, environ={})
    outputs, _ = Partition(settings, 0).fold([*map(telemetry.stored, blocks)])
    rows = [output.message for output in outputs if isinstance(output.message, Availability)]
    assert [row.cpu_used for row in rows] == [0.5] * 3 + [None]


@pytest.mark.slow
def test_rows_hold_short_numbers_and_read_back_as_they_were_written() -> None:
    decoded: list[dict[str, Any]] = []
    for subject, payload in rows():
        if ".availability." in subject:
            assert codec.encode(codec.decode(Availability, payload)) == payload
            decoded.append(json.loads(payload))
    assert any(row.get("classes") for row in decoded)
    for row in decoded:
        for name in ("available", "lower", "upper", "signal", *DIGITS):
            assert row[name] == round(row[name], DIGITS.get(name, 4))
        assert all(value == round(value, 6) for value in [*row["usage"].values(), *row["free"].values()])


@pytest.mark.parametrize(
    ("before", "after", "due"),
    [
        (0.0, 0.04, False),
        (0.0, 0.06, True),
        (1.0, 0.94, True),
        (40.0, 38.5, False),
        (40.0, 41.9, False),
        (40.0, 37.9, True),
        (40.0, 42.1, True),
    ],
)
def test_a_change_is_reported_at_once_from_five_percent_on(before: float, after: float, due: bool) -> None:
    calm = np.zeros(1, dtype=np.bool_)
    room = SimpleNamespace(available=np.array([after]), binding=np.zeros(1, dtype=np.int64))
    result: Any = SimpleNamespace(room=room, pods=np.array([3.0]), churn=calm, settling=calm)
    now = np.array([1_000_000])
    state = report.init(1)._replace(at_us=now, available=np.array([before]), pods=np.array([3.0]))
    after_it, is_due = report.update(state, result, now + 1_000_000, calm, load({}, environ={}).estimate)
    assert is_due.tolist() == [due]
    assert after_it.available.tolist() == [after if due else before]


def test_smoothed_blocks_are_published_for_the_first_nodes_of_a_partition_only() -> None:
    settings = load({"smoothing_nodes_max": "3", "nats_partitions": "2"}, environ={})
    messages = [telemetry.stored(telemetry.block(f"n{number}", second)) for second in range(3) for number in (2, 0, 1)]
    whole, pieces = Partition(settings, 0), Partition(settings, 0)
    outputs = whole.fold(messages)[0]
    smoothed = [output.message.node for output in outputs if isinstance(output.message, SmoothedBlock)]
    assert set(smoothed) == {"n2", "n0"}
    assert len(smoothed) == 6
    again = [output for message in messages for output in pieces.fold([message])[0]]
    assert [output.message for output in again] == [output.message for output in outputs]


def test_availability_says_since_when_binding_and_mode_are_what_they_are_whatever_starts_and_ends() -> None:
    messages = []
    for second in range(60):
        if 5 <= second < 45:
            event = "started" if second % 2 else "exited"
            sent = telemetry.event("n", second, container=f"c{second}").model_copy(update={"event": event})
            messages.append(telemetry.stored(sent))
        messages.append(telemetry.stored(telemetry.block("n", second, cpu_util=0.2, memory_util=0.3, pods=2.0)))
    outputs, _ = Partition(load({}, environ={}), 0).fold(messages)
    rows = [output.message for output in outputs if isinstance(output.message, Availability)]
    assert len({row.churn for row in rows}) == 2
    for before, after in itertools.pairwise(rows):
        turned = (before.binding, before.mode) != (after.binding, after.mode)
        assert (before.since_us != after.since_us) == turned
