"""A node that models itself: the centre publishes of it what it would have published by its samples."""

import dataclasses
import itertools
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from processors.partition.edge import Edge, identity
from processors.partition.partition import Partition
from schemas import codec
from schemas.messages.estimate import Availability
from schemas.messages.telemetry import EdgeBlock
from tests.support.processors import telemetry
from tests.unit.processors.partition.edge.both import (
    NAMES,
    SETTINGS,
    Stored,
    both,
    folded,
    load,
    model_state,
    own,
    throttled,
)


def wire(messages: list[Stored], kind: str) -> int:
    """Return the bytes of a kind's blocks: payload, subject, and the header with the message's id."""
    total = 0
    for subject, payload in messages:
        _, node = subject.rsplit(".", 2)[-2:]
        if f".{kind}." in subject:
            block = json.loads(payload)
            reports = f"samples:{block['node']}:{block['boot']}:{block['seq']}"
            id_ = reports if kind == "samples" else identity(block["node"], block["boot"], block["seq"])
            total += len(payload) + len(f"spazio.{kind}.{node}") + len(f"NATS/1.0\r\nNats-Msg-Id: {id_}\r\n\r\n")
    return total


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "share", "signal", "times"),
    [
        ({}, 0.001, 0.2, 6),  # quotas at random make CPU jump each second: the worst for a model sent seldom
        # its model goes along every second, and that of the next, of two features, too
        pytest.param(
            {"estimate_form": "kalman_joint", "model_variant": "carico"}, 0.01, 0.01, 4, marks=pytest.mark.slow
        ),
        pytest.param({"model_variant": "carico"}, 0.01, 0.01, 6, marks=pytest.mark.slow),
    ],
)
def test_availability_is_that_of_samples_with_pods_that_come_and_go_and_load_that_moves(
    flags: dict[str, str], share: float, signal: float, times: float
) -> None:
    settings = load(**flags)
    sampled, modelled = both(settings, 5, 60)
    _, wanted = folded(settings, sampled)
    _, rows = folded(settings, modelled)
    assert rows.keys() == wanted.keys()
    assert len({row.pods for row in wanted.values()}) > 6
    assert any(row.churn for row in wanted.values())
    assert len({round(row.available) for row in wanted.values()}) > 10
    for key, row in wanted.items():
        other = rows[key]
        assert abs(other.available - row.available) <= max(0.05, share * row.available), (row, other)
        assert abs(other.lower - row.lower) <= max(0.05, share * row.available)
        assert (other.pods, other.churn, other.mode) == (row.pods, row.churn, row.mode)
        assert abs(other.at_us - row.at_us) <= 5000
    apart = [abs(rows[key].signal - row.signal) / max(row.signal, 1.0) for key, row in wanted.items()]
    assert np.quantile(apart, 0.99) <= signal
    assert np.mean(apart) <= signal / 5
    assert wire(sampled, "samples") >= times * wire(modelled, "edge")


@pytest.mark.slow
def test_where_cpu_runs_out_first_and_quotas_hold_pods_back_availability_is_that_of_samples() -> None:
    random, edge = np.random.default_rng(4), Edge(SETTINGS, "n")
    sampled, modelled = [], []
    for second in range(120):
        payload = throttled(codec.encode(telemetry.noisy("n", second, 2 + second // 15 % 4, random)), random)
        sampled.append((NAMES.part(0, "samples", "n"), payload))
        modelled.append((NAMES.part(0, "edge", "n"), edge.block(payload) or b""))
    (_, wanted), (_, rows) = folded(SETTINGS, sampled), folded(SETTINGS, modelled)
    assert sum(row.binding == "cpu" for row in wanted.values()) > 40
    apart = [abs(rows[key].available - row.available) for key, row in wanted.items()]
    assert 0 < max(apart) <= 0.01
    assert all(rows[key].binding == row.binding for key, row in wanted.items())


MIXED = both(SETTINGS, 5, 25)


def mixture() -> list[Stored]:
    """Return a stream of nodes of both forms, of which one changes its form."""
    messages = []
    for index, (sampled, modelled) in enumerate(zip(*MIXED, strict=True)):
        node = sampled[0].rsplit(".", 1)[-1]
        late = index > len(MIXED[0]) // 2
        messages.append(modelled if node[-1] in "13" or (node[-1] == "2" and not late) else sampled)
    return messages


@pytest.mark.slow
@effort(max_examples=8, deadline=None)
@given(st.sets(st.integers(0, len(MIXED[0]))))
def test_grouping_changes_nothing_among_nodes_of_both_forms(cuts: set[int]) -> None:
    messages = mixture()
    whole, parts = Partition(SETTINGS, 0), Partition(SETTINGS, 0)
    wanted, _ = whole.fold(messages)
    bounds = [0, *sorted(cuts), len(messages)]
    got = []
    for begin, end in itertools.pairwise(bounds):
        outputs, refusals = parts.fold(messages[begin:end])
        assert not refusals
        got += [dataclasses.replace(output, index=begin + output.index) for output in outputs]
    assert got == wanted
    assert {kind.rsplit(".", 2)[-2] for kind, _ in messages} >= {"samples", "edge"}
    assert parts.snapshot() == whole.snapshot()


def test_a_node_is_not_estimated_before_it_has_reported_its_size() -> None:
    edge, centre = Edge(SETTINGS, "n"), Partition(SETTINGS, 0)
    messages = [edge.block(codec.encode(telemetry.block("n", second, cpu_util=0.5))) or b"" for second in range(40)]
    subject = NAMES.part(0, "edge", "n")
    outputs, refusals = centre.fold([(subject, payload) for payload in messages[1:30]])
    assert (outputs, refusals, centre.ignored) == ([], [], 29)
    outputs, _ = centre.fold([(subject, payload) for payload in messages[30:]])
    assert any(isinstance(output.message, Availability) for output in outputs)
    assert model_state(centre).cores[0] == 4


def test_the_time_is_reported_only_when_the_wall_clock_has_not_run_evenly() -> None:
    edge, centre = Edge(SETTINGS, "n"), Partition(SETTINGS, 0)
    rows: list[Availability] = []
    messages = []
    for second in range(25):
        block = telemetry.block("n", second, cpu_util=0.5)
        if second >= 20:
            block = block.model_copy(update={"at_us": block.at_us + 1_500_000})
        payload = edge.block(codec.encode(block)) or b""
        messages.append("at_us" in json.loads(payload))
        outputs, _ = centre.fold([(NAMES.part(0, "edge", "n"), payload)])
        rows += [output.message for output in outputs if isinstance(output.message, Availability)]
    assert [second for second, reports in enumerate(messages) if reports] == [0, 20]
    start = telemetry.START * 1_000_000 + 900_000
    assert [row.at_us - start for row in rows] == [
        second * 1_000_000 + (1_500_000 if second >= 20 else 0) for second in range(25)
    ]


def test_a_jump_of_the_clock_is_flagged_as_it_is_for_samples() -> None:
    edge, centre, samples = Edge(SETTINGS, "n"), Partition(SETTINGS, 0), Partition(SETTINGS, 0)
    for second in range(30):
        block = telemetry.block("n", second, cpu_util=0.5)
        if second >= 20:
            block = block.model_copy(update={"at_us": block.at_us + 600_000_000})
        payload = codec.encode(block)
        pairs = (
            (centre, NAMES.part(0, "edge", "n"), edge.block(payload)),
            (samples, telemetry.stored(block)[0], payload),
        )
        left, right = (
            [output.message for output in part.fold([(subject, body or b"")])[0]] for part, subject, body in pairs
        )
        assert [row.clock for row in left if isinstance(row, Availability)] == [
            row.clock for row in right if isinstance(row, Availability)
        ]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"usage": [1.5]}, "usage"),
        ({"moment": [0.1, 0.1]}, "triangle"),
        ({"moment": [2.0]}, "moment"),
        ({"size": {"cpus": 1, "memory_bytes": 1, "pressure": True}}, "size goes with"),
        ({"boot": None}, "boot"),
    ],
)
def test_what_no_node_can_say_is_refused(fields: dict[str, Any], reason: str) -> None:
    block = {"v": 1, "node": "n", "boot": "b", "seq": 1, "usage": [0.5, 0.5]} | fields
    _, refusals = Partition(SETTINGS, 0).fold([(NAMES.part(0, "edge", "n"), json.dumps(block).encode())])
    assert reason in refusals[0].reason


def test_features_that_one_side_does_not_model_count_as_unused() -> None:
    few = load(model_features="cpu,disk,memory")
    edge, centre = Edge(few, "n"), Partition(SETTINGS, 0)
    block = telemetry.block("n", 0, cpu_util=0.5, memory_util=0.5, disk_util=0.4, io_pressure=0.3)
    payload = edge.block(codec.encode(block)) or b""
    assert codec.decode(EdgeBlock, payload).usage == [0.25, 0.5, None, None, 0.4]
    centre.fold([(NAMES.part(0, "edge", "n"), payload)])
    names = list(SETTINGS.model.features)
    rows = [names.index(name) for name in few.model.features]
    np.testing.assert_allclose(model_state(centre).moment[0][np.ix_(rows, rows)], own(edge).moment[0], rtol=5e-3)
    others = [row for row in range(len(names)) if row not in rows]
    assert not model_state(centre).moment[0][others].any()


@pytest.mark.parametrize(
    ("reported", "counted"),
    [
        ([0.25, 0.2, 0.16], [0.25, 0.2, 0.16]),
        ([0.25, 0.202, 0.16], [0.25, 0.202, 0.16]),  # rounded
        ([0.25, 1.0, 0.16], [0.25, 0.204, 0.16]),
        ([0.25, -1.0, 0.16], [0.25, -0.204, 0.16]),
        ([0.0, 1.0, 0.0], [0.0, 0.0, 0.0]),
        ([-1.0, 1.0, 0.5], [0.0, 0.0, 0.5]),
    ],
)
def test_a_model_that_no_usage_can_have_counts_as_one_that_some_can(
    reported: list[float], counted: list[float]
) -> None:
    centre = Partition(SETTINGS, 0)
    size = {"cpus": 4, "memory_bytes": 8 << 30, "pressure": True}
    block = {"v": 1, "node": "n", "boot": "b", "seq": 1, "at_us": telemetry.START * 1_000_000, "usage": [0.5, 0.5]}
    payload = json.dumps(block | {"size": size, "moment": reported}).encode()
    _, refusals = centre.fold([(NAMES.part(0, "edge", "n"), payload)])
    assert not refusals
    rows = [list(SETTINGS.model.features).index(name) for name in ("cpu", "memory")]
    moment = model_state(centre).moment[0][np.ix_(rows, rows)]
    assert moment[np.triu_indices(2)] == pytest.approx(counted, abs=1e-12)
