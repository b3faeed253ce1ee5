"""Telemetry made up for pods that only the API knows: it follows from the facts and the seed, and from nothing else."""

import json
from collections import defaultdict
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from producers.simulated import guest, noise
from producers.simulated.mirror import Mirror
from producers.simulated.mirror_text import Published
from schemas import codec, metric
from schemas.messages.facts import NodeFacts, PodFacts
from schemas.messages.telemetry import ContainerEvent, PodUsageBlock, SampleBlock

START_US = 1_700_000_000_000_000
SECOND_US = 1_000_000
MIB = 1 << 20
KINDS: dict[str, Any] = {"samples": SampleBlock, "pods": PodUsageBlock, "containers": ContainerEvent}


def node(name: str = "n1", *, uid: str = "", version: int = 1, deleted: bool = False, cpu: float = 4.0) -> NodeFacts:
    size = {"cpu": cpu, "memory": float(16 << 30)}
    return NodeFacts(
        node=name, uid=uid or f"uid-{name}", version=version, at_us=START_US, deleted=deleted, created_us=START_US,
        ready=True, unschedulable=False, allocatable=size, capacity=size, labels={}, annotations={}, taints=[],
    )  # fmt: skip


def pod(
    name: str, seconds: float, phase: Any = "Running", *, on: str = "n1", version: int = 2, deleted: bool = False,
    **more: Any,
) -> PodFacts:  # fmt: skip
    """Return what the watch says of a pod so many seconds behind the start."""
    given: dict[str, Any] = {"requests": {}, "annotations": {}, "workload": "s/w"} | more
    return PodFacts(
        node=on, pod=f"uid-{name}", namespace="s", name=name, version=version, at_us=START_US + round(seconds * 1e6),
        deleted=deleted, phase=phase, created_us=START_US, limits={}, labels={}, **given,
    )  # fmt: skip


def mirror(*names: str, seed: int = 1) -> Mirror:
    made = Mirror(seed, START_US, pytest.fail)
    for name in names or ("n1",):
        made.hear_node(node(name))
    return made


def published(made: Mirror, seconds: float) -> list[Published]:
    """Return everything that is to be sent up to a time."""
    messages = list[Published]()
    for tick in range(round(seconds * 20) + 1):
        messages += made.tell(START_US + tick * SECOND_US // 20)
    return messages


def read(messages: list[Published], kind: str) -> list[Any]:
    return [codec.decode(KINDS[kind], each.payload) for each in messages if each.kind == kind]


def column(block: SampleBlock, name: str) -> list[float]:
    values = np.array(block.values, dtype=np.float64).reshape(-1, len(block.metrics))
    return [float(value) for value in values[:, block.metrics.index(name)]]


def test_every_node_tells_of_every_second_once_and_the_seconds_join() -> None:
    messages = published(mirror("n1", "n2.eu"), 10.5)
    for kind in ("samples", "pods"):
        blocks = defaultdict[str, list[Any]](list)
        for block in read(messages, kind):
            blocks[block.node].append(block)
        assert blocks.keys() == {"n1", "n2.eu"}
        for each in blocks.values():
            assert len(each) in (9, 10)
            assert {later.seq - before.seq for before, later in pairwise(each)} == {1}
            assert {later.at_us - before.at_us for before, later in pairwise(each)} == {SECOND_US}
    assert len({each.identity for each in messages if each.kind == "samples"}) == len(read(messages, "samples"))
    assert tuple(read(messages, "samples")[0].metrics) == metric.NAMES


def test_a_pod_takes_what_it_says_from_the_tenth_of_a_second_in_which_it_runs_until_it_ends() -> None:
    made = mirror()
    published(made, 3)
    usage = {"spazio.usage-cpu": "1500m", "spazio.usage-memory": "4Gi"}
    started = list(made.hear_pod(pod("a", 5.25, annotations=usage)))
    messages = published(made, 8)
    ended = list(made.hear_pod(pod("a", 9.25, "Succeeded", version=3, annotations=usage)))
    messages += published(made, 12)
    assert [event.event for event in read(started + ended, "containers")] == ["created", "started", "exited", "deleted"]
    for block in read(messages, "samples"):
        for tenth, (pods, cpu, memory) in enumerate(
            zip(column(block, "pods"), column(block, "cpu_util"), column(block, "memory_util"), strict=True)
        ):
            at = (block.at_us - START_US) / 1e6 + tenth / 10
            runs = 5.25 <= at < 9.25
            assert pods == runs
            assert cpu == pytest.approx((1.5 if runs else 0.0) / 4 + 0.025, abs=0.06)
            assert memory == pytest.approx((4 if runs else 0) / 16 + 0.067, abs=0.015)
    used = [block for block in read(messages, "pods") if block.pods]
    assert {tuple(block.pods) for block in used} == {("uid-a",)}
    assert used[1].cpu_cores[0] == pytest.approx(1.5, rel=0.2)
    assert used[1].memory_bytes[0] == 4 << 30
    assert used[1].cpu_cores[0] + used[1].system_cpu_cores == pytest.approx(1.6, rel=0.15)
    assert not read(published(made, 13), "pods")[-1].pods


@pytest.mark.parametrize(
    ("annotations", "requests", "cores", "memory"),
    [
        ({"spazio.usage-cpu": "250m", "spazio.usage-memory": "1Gi"}, {"cpu": 3.0}, 0.25, 1 << 30),
        ({}, {"cpu": 3.0, "memory": 5.0 * MIB}, 3.0, 5 * MIB),
        ({}, {}, 0.1, 200 * MIB),
        ({"spazio.usage-cpu": "a lot", "spazio.usage-memory": "-1"}, {"cpu": 3.0}, 3.0, 200 * MIB),
        ({"spazio.usage-cpu": "0"}, {"cpu": 3.0}, 0.0, 200 * MIB),
        ({"spazio.usage-threads": "1"}, {"cpu": 3.0}, 0.0, 200 * MIB),
        ({"spazio.usage-threads": "1", "spazio.usage-cpu": "1"}, {"cpu": 3.0}, 1.0, 200 * MIB),
    ],
    ids=["annotated", "requested", "neither", "unreadable", "nought", "threads", "both"],
)
def test_what_a_pod_takes_is_annotated_or_requested_or_assumed(
    annotations: dict[str, str], requests: dict[str, float], cores: float, memory: float
) -> None:
    doubts: list[str] = []
    made = guest.of(pod("a", 0, annotations=annotations, requests=requests), 1, doubts.append)
    assert (made.cores, made.memory) == (cores, memory)
    assert [doubt.split(":")[0] for doubt in doubts] == [
        f"annotation {name}" for name, text in annotations.items() if text in ("a lot", "-1")
    ]
    assert made.threads == int(annotations.get("spazio.usage-threads", 0))


def test_the_same_facts_and_seed_give_the_same_bytes_however_nodes_are_grouped() -> None:
    def life(names: tuple[str, ...], seed: int, step: int) -> dict[str, list[bytes]]:
        made, blocks = mirror(*names, seed=seed), defaultdict[str, list[bytes]](list)
        for name in names:
            for number in range(7):
                list(made.hear_pod(pod(f"{name}-{number}", number / 3, on=name)))
        for tick in range(0, 6_000, step):
            for each in made.tell(START_US + tick * 1000):
                blocks[each.node + each.kind].append(each.payload)
        return blocks

    both, alone = life(("n1", "n2"), 1, 20), life(("n2",), 1, 500)
    for key, payloads in alone.items():
        assert both[key][: len(payloads)] == payloads
    assert life(("n1", "n2"), 2, 20)["n2samples"] != both["n2samples"]


def test_more_than_there_is_becomes_pressure_and_every_pod_gets_less() -> None:
    made = mirror()
    for number in range(8):
        list(made.hear_pod(pod(f"p{number}", 0, requests={"cpu": 1.0, "memory": 1e9})))
    messages = published(made, 3)
    block, usage = read(messages, "samples")[-1], read(messages, "pods")[-1]
    assert min(column(block, "cpu_util")) == 1.0
    assert np.mean(column(block, "cpu_pressure")) > 0.9
    assert sum(usage.cpu_cores) == pytest.approx(4.0, rel=0.05)


@pytest.mark.parametrize("pods", [1, 3, 6])
def test_a_pod_whose_threads_never_sleep_takes_what_its_node_has_left(pods: int) -> None:
    made = mirror()
    for number in range(pods):
        list(made.hear_pod(pod(f"p{number}", 0, annotations={"spazio.usage-threads": "2"}, requests={"cpu": 0.1})))
    list(made.hear_pod(pod("small", 0, annotations={"spazio.usage-cpu": "100m"})))
    messages = published(made, 3)
    block, usage = read(messages, "samples")[-1], read(messages, "pods")[-1]
    threads, by_name = (
        2 * pods,
        dict(zip(usage.names, zip(usage.cpu_cores, usage.cpu_pressure, strict=True), strict=True)),
    )
    assert np.mean(column(block, "procs_running")) == pytest.approx(1 + threads, abs=1)
    assert np.mean(column(block, "cpu_pressure")) == pytest.approx(min(max(0, threads - 4) / 4, 1), abs=0.1)
    cores, waited = by_name["p0"]
    assert cores == pytest.approx(2 * min(1.0, 4 / threads), rel=0.05)
    assert waited == pytest.approx(min(1.0, 2 * max(0.0, 1 - 4 / threads)), abs=0.08)
    assert by_name["small"][0] == pytest.approx(0.1, rel=0.2)


def test_a_pod_that_is_older_or_newer_than_known_is_judged_by_its_version() -> None:
    made = mirror()
    published(made, 2)
    assert len(list(made.hear_pod(pod("a", 3, version=5)))) == 2
    assert list(made.hear_pod(pod("a", 4, "Succeeded", version=4))) == []
    assert list(made.hear_pod(pod("a", 4, version=6))) == []
    assert len(list(made.hear_pod(pod("a", 5, "Running", version=7, deleted=True)))) == 2
    assert read(published(made, 8), "pods")[-1].pods == []


def test_pods_that_are_bound_to_nothing_or_do_not_run_take_nothing() -> None:
    made = mirror()
    assert list(made.hear_pod(pod("a", 1, on="-"))) == []
    assert list(made.hear_pod(pod("b", 1, "Pending"))) == []
    assert column(read(published(made, 3), "samples")[-1], "pods") == [0.0] * 10


def test_what_ran_before_its_node_was_followed_is_there_without_an_event() -> None:
    made = Mirror(1, START_US, pytest.fail)
    assert list(made.hear_pod(pod("a", -100))) == []
    made.hear_node(node())
    assert column(read(published(made, 3), "samples")[0], "pods") == [1.0] * 10


def test_nodes_come_and_go_and_one_of_the_same_name_has_booted_again() -> None:
    made = mirror()
    boots = {block.boot for block in read(published(made, 3), "samples")}
    made.hear_node(node(version=2, deleted=True))
    assert published(made, 5) == []
    made.hear_node(node(uid="another", version=3))
    boots |= {block.boot for block in read(published(made, 8), "samples")}
    assert len(boots) == 2
    again = Mirror(1, START_US + SECOND_US, pytest.fail)
    again.hear_node(node())
    assert again.machines["n1"].boot not in boots


def test_a_node_that_does_not_say_how_large_it_is_is_left_out_until_it_does() -> None:
    made = Mirror(1, START_US, pytest.fail)
    made.hear_node(node(cpu=0.0))
    assert published(made, 3) == []
    made.hear_node(node(version=2))
    assert {block.cpus for block in read(published(made, 3), "samples")} == {4}


def test_seconds_that_are_long_past_are_left_out() -> None:
    made = mirror()
    [first, *_] = read(published(made, 2), "samples")
    late = read(list(made.tell(START_US + 100 * SECOND_US)), "samples")
    assert len(late) == 1
    assert (late[0].at_us - first.at_us) // SECOND_US == late[0].seq - first.seq
    assert 100 - (late[0].at_us - START_US) / 1e6 <= 11


def test_noise_has_mean_nought_and_variance_one_and_does_not_repeat() -> None:
    keys = np.arange(200, dtype=np.uint64)
    values = np.concatenate([noise.normal(keys, np.full(200, second), 10) for second in range(50)])
    assert values.mean() == pytest.approx(0, abs=0.01)
    assert values.std() == pytest.approx(1, abs=0.01)
    assert np.abs(values).max() < 3.5
    words = np.concatenate([noise.words(keys, np.full(200, second), 10) for second in range(50)])
    assert len(np.unique(words)) == words.size
    uniform = noise.uniform(keys, np.zeros(200, dtype=np.int64), 100)
    assert (uniform.min() >= 0, uniform.max() < 1, round(float(uniform.mean()), 1)) == (True, True, 0.5)


def test_names_with_quotes_stay_json() -> None:
    made = mirror()
    list(made.hear_pod(pod("a", 0, workload='odd"\\class')))
    assert json.loads([each for each in published(made, 2) if each.kind == "pods"][-1].payload)["workloads"] == [
        'odd"\\class'
    ]
