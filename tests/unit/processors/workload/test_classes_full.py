"""What is known of classes outlives a full node, where services and batch fight over the CPUs, as on a kernel."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from processors.partition.partition import Partition
from producers.simulated.mirror import Mirror
from producers.simulated.mirror_text import Published
from schemas import codec
from schemas.messages.estimate import Availability
from schemas.messages.facts import NodeFacts, PodFacts
from schemas.messages.telemetry import ContainerEvent, PodUsageBlock, SampleBlock
from tests.support.processors.mix import configured, rows_of
from tests.support.processors.telemetry import stored

START_US = 1_700_000_000_000_000
CPUS, ALLOWED = 4, 0.835 * 4  # cores that serving pods may demand
NODES = [f"n{number}" for number in range(6)]
FULL_SECOND, LESS_SECOND, END_SECOND = 40, 100, 130
USAGE = {"web": {"spazio.usage-cpu": "100m"}, "batch": {"spazio.usage-threads": "1"}}
KINDS: dict[str, Any] = {"samples": SampleBlock, "pods": PodUsageBlock, "containers": ContainerEvent}


def node(name: str) -> NodeFacts:
    size = {"cpu": float(CPUS), "memory": float(16 << 30)}
    return NodeFacts(
        node=name, uid=f"uid-{name}", version=1, at_us=START_US, created_us=START_US, ready=True, unschedulable=False,
        allocatable=size, capacity=size, labels={}, annotations={}, taints=[],
    )  # fmt: skip


def pod(on: str, name: str, workload: str, second: int, phase: Any = "Running") -> PodFacts:
    return PodFacts(
        node=on, pod=f"{on}-{name}", namespace="s", name=name, version=second, at_us=START_US + second * 1_000_000,
        deleted=False, phase=phase, created_us=START_US, requests={}, limits={}, labels={},
        annotations=USAGE[workload], workload=workload,
    )  # fmt: skip


def life() -> Iterator[tuple[int, PodFacts]]:
    """Yield when what is heard: ten services on each node, then five batch pods one by one, of which two end."""
    for on in NODES:
        yield from ((1, pod(on, f"w{number}", "web", 1)) for number in range(10))
        starts = range(20, FULL_SECOND, 4)
        yield from ((second, pod(on, f"b{second}", "batch", second)) for second in starts)
        yield from ((LESS_SECOND, pod(on, f"b{second}", "batch", LESS_SECOND, "Succeeded")) for second in starts[:2])


@pytest.fixture(scope="module")
def reports() -> list[tuple[int, Availability]]:
    """Return what was published, and in which second."""
    mirror, partition, result = Mirror(1, START_US, pytest.fail), Partition(configured(), 0), []
    heard = defaultdict[int, list[PodFacts]](list)
    for name in NODES:
        mirror.hear_node(node(name))
    for second, facts in life():
        heard[second].append(facts)
    for second in range(1, END_SECOND):
        messages: list[Published] = [each for facts in heard[second] for each in mirror.hear_pod(facts)]
        messages += mirror.tell(START_US + second * 1_000_000)
        outputs, refusals = partition.fold([stored(codec.decode(KINDS[each.kind], each.payload)) for each in messages])
        assert not refusals
        result += [(second, row) for row in rows_of(outputs)]
    return result


@pytest.mark.slow
def test_batch_that_services_beside_it_make_uneven_is_known_as_batch_on_a_full_node(
    reports: list[tuple[int, Availability]],
) -> None:
    kinds = [row.classes["batch"].kind for second, row in reports if second > FULL_SECOND + 20 and row.classes]
    assert len(kinds) > 100
    assert set(kinds) == {"soaking"}


@pytest.mark.slow
def test_what_pods_lack_on_a_full_node_is_no_room_once_some_have_ended(
    reports: list[tuple[int, Availability]],
) -> None:
    rooms = [row.classes["batch"] for second, row in reports if second > LESS_SECOND + 8 and row.classes]
    truth = (1 - 1.0 / ALLOWED - 3 / (2 * CPUS)) * 2 * CPUS  # 2.6, less what the system takes
    assert len(rooms) > 50
    assert max(room.available for room in rooms) <= truth + 0.1
    assert min(room.available for room in rooms) >= truth - 0.8
