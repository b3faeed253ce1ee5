"""Names that somebody invents: a partition keeps state of so many nodes, and of those that Kubernetes knows."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import pytest

from processors.partition.partition import Partition
from processors.prediction.fold import PredictionPartition
from processors.rows.quota import LEAST, NodeQuota
from schemas import codec
from schemas import settings as all_settings
from schemas.messages.facts import NodeFacts
from schemas.sections.service import Process
from schemas.settings import Settings
from schemas.subject import PARTITIONS
from tests.support.processors import telemetry

LIMIT = 20


class Processor(Protocol):
    quota: NodeQuota

    @property
    def nodes(self) -> int: ...
    def fold(self, messages: Sequence[tuple[str, bytes]]) -> Any: ...
    def snapshot(self) -> bytes: ...
    def restore(self, body: bytes) -> None: ...


def settings(**given: str) -> Settings:
    return all_settings.load({"process_nodes_max": str(LIMIT), **given}, environ={})


@pytest.fixture(params=["partition", "prediction"])
def part(request: pytest.FixtureRequest) -> type[Partition] | type[PredictionPartition]:
    kinds: dict[str, type[Partition | PredictionPartition]] = {
        "partition": Partition, "prediction": PredictionPartition,
    }  # fmt: skip
    return kinds[request.param]


def blocks(nodes: Iterable[str], seconds: Iterable[int]) -> Iterator[tuple[str, bytes]]:
    nodes = list(nodes)
    for second in seconds:
        for node in nodes:
            yield telemetry.stored(telemetry.block(node, second, cpu_util=0.5, memory_util=0.5))


def facts(node: str, *, deleted: bool = False) -> tuple[str, bytes]:
    amounts = {"cpu": 4.0, "memory": 8e9, "pods": 110.0}
    message = NodeFacts(
        node=node, uid=node, version=1, at_us=1, deleted=deleted, created_us=1, ready=True, unschedulable=False,
        allocatable=amounts, capacity=amounts, labels={}, annotations={}, taints=[],
    )  # fmt: skip
    return telemetry.stored(message)


def invented(count: int) -> list[str]:
    return [f"invented-{number}" for number in range(count)]


def rows(outputs: Any) -> list[tuple[str, bytes]]:
    made = outputs[0] if isinstance(outputs, tuple) else outputs
    return [(row.subject, codec.encode(row.message)) for row in made]


def test_invented_nodes_have_state_up_to_the_limit_and_nodes_that_kubernetes_knows_always(part: type[Any]) -> None:
    made: Processor = part(settings(), 0)
    made.fold(list(blocks(invented(50 * LIMIT), [0])))
    assert made.nodes == LIMIT
    assert made.quota.refused == 49 * LIMIT
    assert made.quota.newest == f"invented-{50 * LIMIT - 1}"
    made.fold([facts("real"), *blocks(["real"], [1])])
    assert made.nodes == LIMIT + 1
    assert made.quota.refused == 49 * LIMIT


def test_usage_facts_and_events_of_invented_nodes_take_no_more_than_their_blocks(part: type[Any]) -> None:
    made: Processor = part(settings(), 0)
    made.fold(list(blocks(invented(LIMIT), [0])))
    empty = len(made.snapshot())
    for node in invented(20 * LIMIT)[LIMIT:]:
        usage = telemetry.usage(node, 1, [{"pod": "p", "cpu_cores": 1.0, "memory_bytes": 1.0}])
        fact = telemetry.facts(node, "p", "shop/web", owner_kind="Deployment", owner="web")
        made.fold([telemetry.stored(usage), telemetry.stored(fact)])
        made.fold([telemetry.stored(telemetry.event(node, 1))])
    assert len(made.snapshot()) < empty + 100
    assert made.quota.refused == 3 * 19 * LIMIT


@pytest.mark.slow
def test_a_node_that_is_silent_for_an_hour_gives_its_place_to_another(part: type[Any]) -> None:
    made: Processor = part(settings(), 0)
    made.fold(list(blocks(invented(LIMIT), [0])))
    made.fold(list(blocks(invented(LIMIT)[:5], range(60, 3900, 60))))
    made.fold(list(blocks(["late"], [3842])))
    made.fold(list(blocks(["late"], range(3843, 3846))))
    assert made.nodes == 6
    assert made.quota.refused == 0


@pytest.mark.slow
@pytest.mark.cases
@pytest.mark.parametrize("group", [1, 7, 1000])
def test_what_is_refused_does_not_depend_on_how_messages_are_grouped_or_on_a_restart(
    part: type[Any], group: int
) -> None:
    stream = [*blocks(invented(LIMIT + 5), range(3)), facts("invented-22"), *blocks(invented(LIMIT + 5), range(3, 6))]
    whole: Processor = part(settings(), 0)
    expected = rows(whole.fold(stream))
    published: list[tuple[str, bytes]] = []
    made: Processor = part(settings(), 0)
    for begin in range(0, len(stream), group):
        published += rows(made.fold(stream[begin : begin + group]))
        if begin // group % 3 == 0:
            body = made.snapshot()
            made = part(settings(), 0)
            made.restore(body)
    assert published == expected
    assert (made.nodes, made.quota.refused) == (whole.nodes, whole.quota.refused) == (LIMIT + 1, 5 * 3 + 4 * 3)


def test_without_a_setting_the_limit_is_four_times_the_known_nodes_and_at_least_a_share_of_8000() -> None:
    assert NodeQuota(Process(), partitions=2).limit == LEAST // 2
    quota = NodeQuota(Process())
    assert quota.limit == LEAST // PARTITIONS == 1000
    for number in range(300):
        message = codec.decode(NodeFacts, facts(f"n{number}")[1])
        assert quota.admits(message, 1)
    assert quota.limit == 1200


def test_state_of_an_older_program_keeps_its_nodes() -> None:
    quota = NodeQuota(Process(nodes_max=2))
    quota.load(None, ["a", "b", "c"], ["d"], 7)
    admitted = {name: quota.admits(telemetry.block(name, 8), 8) for name in "abcde"}
    assert admitted == {"a": True, "b": True, "c": True, "d": True, "e": False}


def test_a_node_whose_pods_have_new_names_all_the_time_takes_a_bounded_number_of_rows() -> None:
    made = PredictionPartition(settings(process_pods_max="3000"), 0)
    made.fold(list(blocks(["n", "m"], [0])))
    for second in range(1, 5):
        listed = [{"pod": f"{second}-{number}", "cpu_cores": 0.1, "memory_bytes": 1.0} for number in range(1500)]
        made.fold([telemetry.stored(telemetry.usage("n", second, listed))])
    assert made._pods.slots == 2048
    listed = [{"pod": f"m-{number}", "cpu_cores": 0.1, "memory_bytes": 1.0} for number in range(1500)]
    made.fold([telemetry.stored(telemetry.usage("m", 5, listed))])
    assert made._pods.slots == 3000
    assert made.quota.refused_pods > 0
