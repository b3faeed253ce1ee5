"""Simulated nodes: the same seed gives the same bytes, and what a node shows follows from what runs on it."""

import json
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from processors import decode
from producers.simulated import sample, text
from producers.simulated.cluster import Cluster, Second
from producers.simulated.message import Timed, Writer
from schemas import codec, metric
from schemas.boot import cut
from schemas.messages.telemetry import ContainerEvent, PodUsageBlock, SampleBlock
from schemas.sections.generator import SIMULATED_KINDS
from schemas.subject import Names

START_US = 1_700_000_000_000_000
COLUMN = {name: index for index, name in enumerate(metric.NAMES)}


def simulated(nodes: int = 50, seed: int = 1, churn: float = 20.0) -> Cluster:
    return Cluster(nodes, seed=seed, churn_per_minute=churn, wave_seconds=3600)


def written(seconds: int, *, seed: int = 1, start_us: int = START_US, churn: float = 20.0) -> list[tuple[Timed, bytes]]:
    made = simulated(seed=seed, churn=churn)
    writer = Writer(made, start_us, SIMULATED_KINDS)
    messages = list(writer.begin())
    for _ in range(seconds):
        messages += writer.write(made.step())
    return [(message, message.payload(start_us)) for message in messages]


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    assert written(5) == written(5)
    assert written(5) != written(5, seed=2)


def test_another_beginning_moves_times_and_boots_and_nothing_else() -> None:
    def without_time(payload: bytes) -> dict[str, object]:
        return {
            name: value
            for name, value in json.loads(payload).items()
            if not name.endswith("_us") and name not in ("boot", "uid", "version")
        }

    def boots(messages: list[tuple[Timed, bytes]]) -> set[str]:
        return {cut(boot) for _, payload in messages if (boot := json.loads(payload).get("boot"))}

    first, later = written(3), written(3, start_us=START_US + 10**6)
    assert [without_time(payload) for _, payload in first] == [without_time(payload) for _, payload in later]
    assert boots(first)
    assert boots(first).isdisjoint(boots(later))


def test_every_message_passes_the_contract_and_the_processors_believe_every_block() -> None:
    names, kinds = Names(), Counter[str]()
    stored = []
    for message, payload in written(4):
        decoded = codec.decode(codec.MESSAGES[message.kind], payload)
        node = getattr(decoded, "node", "")
        stored.append((names.part(0, message.kind, node), payload))
        kinds[message.kind] += 1
    assert set(kinds) == set(SIMULATED_KINDS)
    assert kinds["samples"] == kinds["pods"] == 200
    believed, refused = decode.messages([item for item in stored if ".nodefacts." not in item[0]], names.model)
    assert not refused
    assert sum(isinstance(item, decode.Block) for item in believed) == 200


def test_times_of_a_node_are_its_own_and_events_come_at_once() -> None:
    offsets = set()
    for message, payload in written(4):
        decoded = codec.decode(codec.MESSAGES[message.kind], payload)
        if isinstance(decoded, SampleBlock):
            assert decoded.at_us + 1_000_000 == START_US + message.due_us
            offsets.add(message.due_us % 1_000_000)
        elif isinstance(decoded, ContainerEvent | PodUsageBlock):
            assert decoded.at_us == START_US + message.due_us
    assert len(offsets) > 45
    assert max(offsets) - min(offsets) > 900_000


def test_a_node_uses_its_baseline_and_what_its_pods_take() -> None:
    made = simulated(200, churn=0)
    for _ in range(3):
        second = made.step()
    fleet = made.fleet
    util = second.samples[..., COLUMN["cpu_util"]].mean(axis=1)
    pods = np.bincount(second.node, second.cores, 200)
    free = util < 0.8
    assert free.sum() > 100
    used = util * fleet.cores
    assert used[free] == pytest.approx((fleet.idle_cores + pods)[free], rel=0.1, abs=0.1)
    memory = second.samples[:, -1, COLUMN["memory_util"]] * fleet.memory
    taken = fleet.idle_memory + np.bincount(second.node, second.memory, 200)
    assert memory == pytest.approx(taken, rel=0.02, abs=0.003 * float(fleet.memory.max()))
    assert np.array_equal(second.samples[:, -1, COLUMN["pods"]], np.bincount(second.node, minlength=200))


def test_pods_and_what_is_in_none_add_up_to_the_node() -> None:
    made = simulated(100)
    for _ in range(5):
        second = made.step()
    whole = second.samples[..., COLUMN["cpu_util"]].mean(axis=1) * made.fleet.cores
    parts = second.system_cores + np.bincount(second.node, second.cores, 100)
    assert parts == pytest.approx(whole, rel=0.05, abs=0.2)


def test_cpu_that_is_wanted_beyond_the_cores_becomes_pressure() -> None:
    shares = np.array([0.1, 0.5, 0.9, 1.0, 1.5, 2.0, 5.0])
    waited = sample.pressure(shares)
    assert np.all(np.diff(waited[:6]) > 0)
    assert waited[0] < 1e-6
    assert waited[-2:].tolist() == [1.0, 1.0]


def test_pods_come_with_a_spike_and_go_and_their_events_say_so() -> None:
    made = simulated(100, churn=60)
    seconds: list[Second] = [made.step() for _ in range(20)]
    arrived = [change for second in seconds for change in second.changes if change.arrived]
    gone = [change for second in seconds for change in second.changes if not change.arrived]
    assert len(arrived) > 500
    assert len(gone) > 300
    pods = {(change.node, change.serial) for change in arrived}
    assert len(pods) == len(arrived)
    writer = Writer(made, START_US, SIMULATED_KINDS)
    lives: dict[str, list[str]] = {}
    for second in seconds:
        for message in writer.write(second):
            if message.kind == "containers":
                event = codec.decode(ContainerEvent, message.payload(START_US))
                lives.setdefault(event.container, []).append(event.event)
    whole = ["created", "started", "exited", "deleted"]
    assert all(life in (whole, whole[:2], whole[2:]) for life in lives.values())
    assert sum(life == whole for life in lives.values()) > 50


def test_a_second_sent_again_later_is_the_same_but_for_its_times() -> None:
    made = simulated(3, churn=0)
    message = next(item for item in Writer(made, START_US, ("samples",)).write(made.step()))
    first, later = (codec.decode(SampleBlock, message.payload(START_US, seconds)) for seconds in (0, 7))
    assert later.seq == first.seq + 7
    assert later.at_us == first.at_us + 7_000_000
    assert later.values == first.values


def test_blocks_have_the_metrics_that_were_asked_for_and_the_values_that_they_had_among_all() -> None:
    asked = ("pods", "cpu_util")
    blocks = []
    for metrics in (metric.NAMES, asked):
        made = simulated()
        message = Writer(made, START_US, ("samples",), metrics).write(made.step())[0]
        blocks.append(codec.decode(SampleBlock, message.payload(START_US)))
    whole, part = blocks
    assert tuple(part.metrics) == asked
    columns = np.array(whole.values).reshape(whole.samples, -1)[:, [COLUMN[name] for name in asked]]
    assert part.values == columns.ravel().tolist()


def test_numbers_become_the_text_that_they_would_become_one_by_one() -> None:
    samples = np.zeros((1, 4, len(metric.NAMES)))
    samples[0, :, COLUMN["cpu_util"]] = [0.0, 1.0, 0.12345, 0.99996]
    samples[0, :, COLUMN["net_bytes"]] = [0.0, 7.0, 1234567.891, 9e8]
    (made,) = text.values(samples)
    rows = np.array(json.loads(f"[{made.decode()}]")).reshape(samples.shape[1:])
    assert rows[:, COLUMN["cpu_util"]].tolist() == [0.0, 1.0, 0.1234, 1.0]
    assert rows[:, COLUMN["net_bytes"]].tolist() == [0.0, 7.0, 1234567.89, 9e8]


@pytest.mark.parametrize(
    ("write", "values", "expected"),
    [
        (text.cores, [0.0, 1e-4, 0.00004, 0.99996, 3.14159, 99.9999], [0.0, 1e-4, 0.0, 1.0, 3.1416, 99.9999]),
        (
            text.sizes,
            [0.0, 7.4, 9999.6, 1e4, 10_007, 99_999_999, 1e8, 5e10 + 3],
            [0, 7, 10_000, 10_000, 10_007, 99_999_999, 10**8, 5 * 10**10 + 3],
        ),
        (lambda values: text.counts(values.astype(np.int64)), [0, 9, 10, 600, 999], [0, 9, 10, 600, 999]),
    ],
)
def test_numbers_of_pods_become_lists_of_json(
    write: Callable[[NDArray[np.float64]], text.Column], values: list[float], expected: list[float]
) -> None:
    column = write(np.array(values))
    assert json.loads(b"[%b]" % column[0 : len(values)]) == expected
    assert json.loads(b"[%b]" % column[1:3]) == expected[1:3]
    assert column[2:2] == b""
