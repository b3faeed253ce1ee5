"""A node that models itself: the centre says of it what it would have said by its samples."""

import dataclasses
import itertools
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from processors.estimation.state import State
from processors.model import subspace
from processors.partition.edge import Edge, identity
from processors.partition.partition import Partition
from producers.simulated.cluster import Cluster
from producers.simulated.message import Writer
from schemas import codec
from schemas import settings as all_settings
from schemas.boot import DIGITS
from schemas.messages.estimate import Availability, Model
from schemas.messages.telemetry import EdgeBlock
from schemas.settings import Settings
from schemas.subject import Names, token
from tests.support import telemetry
from tests.support.telemetry import METRICS

NAMES = Names()
START_US = 1_795_000_000_000_000
Stored = tuple[str, bytes]


def load(**flags: str) -> Settings:
    """Return settings with which every second of a node is told."""
    return all_settings.load({"smoothing_publish": "false", "estimate_report_seconds": "1", **flags}, environ={})


SETTINGS = load()


def throttled(payload: bytes, random: np.random.Generator) -> bytes:
    """Return a block on which quotas hold pods back, so that its CPU needs more digits than it is told with."""
    block = json.loads(payload)
    columns = len(block["metrics"])
    block["values"][METRICS.index("cpu_throttled") :: columns] = [round(float(random.uniform(0, 0.6)), 4)] * 10
    block["values"][METRICS.index("cpu_pressure") :: columns] = np.round(random.uniform(0, 0.3, 10), 4).tolist()
    return json.dumps(block, separators=(",", ":")).encode()


def short(payload: bytes, boot: str) -> bytes:
    """Return a message as `spazio edge` makes it."""
    return payload.replace(boot.encode(), boot[:DIGITS].encode())


def global_model(second: int) -> bytes:
    """Return a global model of a cluster whose pods take more and more."""
    cost = [0.3 + 0.002 * second, 4e8, 0.002, 0.002, 0.01]
    model = Model(
        scope="global",
        at_us=second,
        features=list(SETTINGS.model.features),
        moment=[0.0] * 15,
        nodes=1,
        pods=1,
        cost=cost,
    )
    return codec.encode(model)


def both(
    settings: Settings, nodes: int, seconds: int, *, hears: bool = False, **cluster: Any
) -> tuple[list[Stored], list[Stored]]:
    """Return the same seconds of simulated nodes as samples, and as the nodes would have modelled them.

    With `hears` there is a global model each second, and nodes hear it every thirty.
    """
    made = Cluster(nodes, seed=7, **{"churn_per_minute": 6.0, "wave_seconds": 60.0, **cluster})
    writer, random = Writer(made, START_US, ("samples", "containers", "pods")), np.random.default_rng(7)
    edges = [Edge(settings, name) for name in made.fleet.name]
    sampled, modelled = [], []
    for second in range(seconds):
        if hears:
            sampled.append((NAMES.model, global_model(second)))
            modelled.append(sampled[-1])
            for edge in edges if second % 30 == 0 else ():
                edge.adopt(global_model(second))
        for message in writer.write(made.step()):
            payload, encoded = message.payload(START_US), token(made.fleet.name[message.node])
            boot = writer.boot[message.node]
            stored = NAMES.part(0, message.kind, encoded)
            if message.kind == "samples":
                payload = throttled(payload, random)
                messages = edges[message.node].block(short(payload, boot))
                assert messages is not None
                modelled.append((NAMES.part(0, "edge", encoded), messages))
            else:
                if message.kind == "containers":
                    edges[message.node].event(short(payload, boot))
                modelled.append((stored, short(payload, boot)))
            sampled.append((stored, payload))
    return sampled, modelled


def folded(settings: Settings, messages: list[Stored]) -> tuple[Partition, dict[tuple[str, int], Availability]]:
    partition = Partition(settings, 0)
    outputs, refusals = partition.fold(messages)
    assert not refusals
    rows = [output.message for output in outputs if isinstance(output.message, Availability)]
    return partition, {(row.node, row.seq): row for row in rows}


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
        ({}, 0.001, 0.2, 6),  # quotas at random make CPU jump each second: the worst for a model told seldom
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


@pytest.mark.slow
def test_with_a_global_model_that_nodes_hear_now_and_then_the_signal_is_that_of_samples_too() -> None:
    sampled, modelled = both(SETTINGS, 5, 90, hears=True)
    (_, wanted), (_, rows) = folded(SETTINGS, sampled), folded(SETTINGS, modelled)
    apart = [abs(rows[key].signal - row.signal) / max(row.signal, 1.0) for key, row in wanted.items()]
    assert np.mean(apart) <= 0.04
    assert np.quantile(apart, 0.99) <= 0.2
    for key, row in wanted.items():
        assert abs(rows[key].available - row.available) <= max(0.05, 0.001 * row.available)


def test_what_is_no_global_model_is_refused() -> None:
    with pytest.raises(codec.Refused, match="scope"):
        Edge(SETTINGS, "n").adopt(global_model(0).replace(b"global", b"local"))


@pytest.mark.slow
def test_the_centres_model_stays_as_near_the_nodes_own_as_the_setting_says() -> None:
    settings = load(edge_model_change="0.05")
    edge, centre, far = Edge(settings, "n"), Partition(settings, 0), 0
    random = np.random.default_rng(3)
    seconds = 300
    for second in range(seconds):
        payload = codec.encode(telemetry.noisy("n", second, 2 + second // 40 % 3, random))
        messages = edge.block(payload)
        assert messages is not None
        centre.fold([(NAMES.part(0, "edge", "n"), messages)])
        ours, theirs = own(edge).moment[0], model_state(centre).moment[0]
        size = max(float(np.linalg.norm(ours)), settings.estimate.max_pods**-2)
        far += bool(np.linalg.norm(ours - theirs) > 0.05 * size)
        assert np.linalg.norm(ours - theirs) <= 0.2 * size
    assert far < seconds / 5  # it is told with the next block, and a block may move it far


def own(edge: Edge) -> State:
    return model_state(edge._partition)


def model_state(partition: Partition) -> State:
    state = partition.state("n")
    assert state is not None
    return state


@pytest.mark.slow
def test_sums_of_models_are_those_of_samples() -> None:
    sampled, modelled = both(load(edge_model_change="0"), 4, 60)
    (samples, _), (edges, _) = folded(SETTINGS, sampled), folded(SETTINGS, modelled)
    for node in samples._state.slots:
        left, right = samples.state(node), edges.state(node)
        assert left is not None
        assert right is not None
        np.testing.assert_allclose(right.moment, left.moment, atol=0.01 * float(np.abs(left.moment).max()))
        np.testing.assert_array_equal(right.sizes, left.sizes)
        np.testing.assert_allclose(right.cost.products, left.cost.products, atol=2e-3)
        np.testing.assert_allclose(right.waiting, left.waiting, atol=1e-3)


@pytest.mark.slow
def test_the_reference_forms_queue_of_models_is_that_of_samples() -> None:
    settings = load(model_variant="carico")
    sums = []
    for messages in both(settings, 4, 40):
        outputs, _ = Partition(settings, 0).fold(messages)
        sums.append([output.message for output in outputs if isinstance(output.message, Model)])
    assert len(sums[0]) == len(sums[1]) > 30
    for left, right in zip(*sums, strict=True):
        np.testing.assert_allclose(right.moment, left.moment, rtol=1e-3)


@given(st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_a_state_made_of_a_moment_stands_for_that_moment(rank: int, seed: int) -> None:
    columns = np.random.default_rng(seed).uniform(0, 1, (3, 4, rank))
    moment = columns @ columns.transpose(0, 2, 1)
    np.testing.assert_allclose(subspace.moment(subspace.of_moment(moment, rank=rank)), moment, atol=1e-9)


def test_a_node_knows_what_the_centre_believes_also_while_containers_come_and_go() -> None:
    edge, centre = Edge(SETTINGS, "n"), Partition(SETTINGS, 0)
    random = np.random.default_rng(11)
    for second in range(60):
        if second % 9 == 4:
            payload = codec.encode(telemetry.event("n", second + 0.3))
            edge.event(payload)
            centre.fold([(NAMES.part(0, "containers", "n"), payload)])
        messages = edge.block(codec.encode(telemetry.noisy("n", second, 2 + second // 20, random))) or b""
        centre.fold([(NAMES.part(0, "edge", "n"), messages)])
        np.testing.assert_array_equal(model_state(edge._centre).moment, model_state(centre).moment)
        np.testing.assert_array_equal(model_state(edge._partition).settling, model_state(centre).settling)


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


@pytest.mark.slow
def test_an_edge_that_was_killed_and_starts_from_its_file_says_what_one_that_lived_says() -> None:
    random = np.random.default_rng(5)
    blocks = [codec.encode(telemetry.noisy("n", second, 2 + second // 20 % 3, random)) for second in range(120)]
    lived, killed = Edge(SETTINGS, "n"), Edge(SETTINGS, "n")
    for payload in blocks[:60]:
        lived.block(payload)
        killed.block(payload)
    again = Edge(SETTINGS, "n")
    again.load(killed.dump())
    first = json.loads(again.block(blocks[60]) or b"")
    assert {"size", "moment", "at_us"} <= first.keys()  # whoever has missed the last hears everything
    lived.block(blocks[60])
    for payload in blocks[61:]:
        left, right = json.loads(lived.block(payload) or b""), json.loads(again.block(payload) or b"")
        for sometimes in ("size", "moment", "at_us"):
            left.pop(sometimes, None), right.pop(sometimes, None)
        assert left == right
    np.testing.assert_array_equal(own(again).moment, own(lived).moment)


@pytest.mark.slow
def test_without_its_file_the_local_model_is_whole_again_after_half_a_minute() -> None:
    random = np.random.default_rng(5)
    blocks = [codec.encode(telemetry.noisy("n", second, 3, random)) for second in range(150)]
    lived, fresh = Edge(SETTINGS, "n"), Edge(SETTINGS, "n")
    for payload in blocks[:60]:
        lived.block(payload)
    for payload in blocks[60:]:
        lived.block(payload)
        fresh.block(payload)
    # The baseline rests on the reference pod until pods come and go; the smoothed usage above it does not.
    assert np.abs(own(lived).usage - own(fresh).usage).max() == 0
    assert np.abs(own(lived).moment - own(fresh).moment).max() < 0.05


@pytest.mark.parametrize(
    ("change", "reason"),
    [(lambda body: body[:-40], "damaged"), (lambda body: b"", "damaged"), (None, "other settings")],
)
def test_a_file_that_cannot_be_used_is_refused_and_nothing_is_taken_from_it(change: Any, reason: str) -> None:
    edge = Edge(SETTINGS, "n")
    edge.block(codec.encode(telemetry.block("n", 0, cpu_util=0.5)))
    body = edge.dump()
    new = Edge(load(model_tau_seconds="7") if change is None else SETTINGS, "n")
    with pytest.raises(ValueError, match=reason):
        new.load(change(body) if change else body)
    with pytest.raises(ValueError, match="not of node m"):
        Edge(SETTINGS, "m").load(body)
    assert new.block(codec.encode(telemetry.block("n", 0, cpu_util=0.5)))


def test_a_block_that_was_modelled_before_or_cannot_be_is_not_sent() -> None:
    edge = Edge(SETTINGS, "n")
    payload = codec.encode(telemetry.block("n", 1, cpu_util=0.5))
    assert edge.block(payload)
    assert edge.block(payload) is None
    assert edge.block(codec.encode(telemetry.block("n", 0, cpu_util=0.5))) is None
    with pytest.raises(codec.Refused, match="cpu_util is 2"):
        edge.block(codec.encode(telemetry.block("n", 2, cpu_util=2.0)))


def test_a_node_is_not_estimated_before_it_has_told_its_size() -> None:
    edge, centre = Edge(SETTINGS, "n"), Partition(SETTINGS, 0)
    messages = [edge.block(codec.encode(telemetry.block("n", second, cpu_util=0.5))) or b"" for second in range(40)]
    subject = NAMES.part(0, "edge", "n")
    outputs, refusals = centre.fold([(subject, payload) for payload in messages[1:30]])
    assert (outputs, refusals, centre.ignored) == ([], [], 29)
    outputs, _ = centre.fold([(subject, payload) for payload in messages[30:]])
    assert any(isinstance(output.message, Availability) for output in outputs)
    assert model_state(centre).cores[0] == 4


def test_the_time_is_told_only_when_the_wall_clock_has_not_run_evenly() -> None:
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
