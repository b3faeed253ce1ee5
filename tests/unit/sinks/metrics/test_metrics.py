"""What Prometheus gets: gauges of live nodes, of a bounded number of classes, and none of what nobody knows."""

import time
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from schemas.messages.estimate import MAXIMUM_CLASSES, Availability, Blocks, ClassRoom
from sinks.metrics.heard import Heard
from sinks.metrics.service import Nodes
from tests.support.processors import estimate


def room(pods: int = 3, available: float = 2.7) -> ClassRoom:
    return ClassRoom(available=available, lower=1.5, binding="cpu", pods=pods, cpu=0.1, memory=0.02)


def row(node: str, *, age: float = 0.0, **changed: Any) -> Availability:
    fields: dict[str, Any] = {
        "node": node,
        "at_us": int((time.time() - age) * 1e6),
        "available": 12.5,
        "lower": 10.0,
        "upper": 14.0,
        "pods": 22,
        "binding": "memory",
        "churn": True,
    }
    return estimate.availability(**{**fields, **changed})


def page(*rows: Availability) -> list[str]:
    registry, nodes = CollectorRegistry(), Nodes(30)
    for each in rows:
        nodes.put(each)
    registry.register(nodes)
    return [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]


FREE = {"cpu": 0.5, "memory": 0.27}


def test_a_node_and_its_classes_have_gauges() -> None:
    lines = page(row("a", free=FREE, classes={"shop/web": room()}, usage={"cpu": 0.75}, cpu_used=1.0))
    for line in (
        'spazio_available_pods{node="a"} 12.5',
        'spazio_churn{node="a"} 1.0',
        'spazio_cpu_used_ratio{node="a"} 1.0',
        'spazio_cpu_saturation_ratio{node="a"} 0.75',
        'spazio_usage_ratio{feature="cpu",node="a"} 0.75',
        'spazio_free_ratio{node="a",resource="memory"} 0.27',
        'spazio_class_available_pods{class="shop/web",node="a"} 2.7',
        'spazio_class_available_pods_lower{class="shop/web",node="a"} 1.5',
        'spazio_class_pods{class="shop/web",node="a"} 3.0',
    ):
        assert line in lines


def test_classes_are_added_up_over_live_nodes() -> None:
    rows = [row(node, free=FREE, classes={"shop/web": room()}) for node in ("a", "b")]
    gone = row("gone", age=40, free=FREE, classes={"shop/web": room()})
    lines = page(*rows, gone, row("silent"))
    for line in (
        "spazio_cluster_classes 1.0",
        'spazio_cluster_nodes{class="shop/web"} 2.0',
        'spazio_cluster_available_pods{class="shop/web"} 4.0',
        'spazio_cluster_available_pods_lower{class="shop/web"} 2.0',
        'spazio_cluster_fluid_pods{class="shop/web"} 10.0',
        'spazio_cluster_bound_ratio{class="shop/web",resource="cpu"} 1.0',
    ):
        assert line in lines
    assert any(line.startswith('spazio_cluster_fragmentation_ratio{class="shop/web"} 0.6') for line in lines)
    assert not any("gone" in line for line in lines)


def test_what_is_not_known_has_no_gauge() -> None:
    lines = page(row("a", free={"cpu": 0.0, "memory": 0.0}, classes={"shop/web": room(available=0)}))
    assert not any(line.startswith(("spazio_cluster_fragmentation", "spazio_cluster_stranded")) for line in lines)
    assert not any("class=" in line for line in page(row("a")))


def test_only_the_classes_with_most_pods_have_gauges() -> None:
    nodes = [
        row(f"n{node}", free=FREE, classes={f"c{node}-{number}": room(pods=node) for number in range(50)})
        for node in range(3)
    ]
    lines = page(*nodes)
    assert "spazio_cluster_classes 150.0" in lines
    assert sum(line.startswith("spazio_cluster_pods{") for line in lines) == MAXIMUM_CLASSES
    assert sum(line.startswith("spazio_class_available_pods{") for line in lines) == MAXIMUM_CLASSES
    assert 'spazio_class_pods{class="c2-7",node="n2"} 2.0' in lines


def test_what_is_silent_is_freed_by_time_although_nobody_scrapes_and_it_says_it_is_of_tomorrow() -> None:
    now = [0.0]
    heard: Heard[str] = Heard(30, lambda: now[0])
    for node in ("a", "b"):
        heard.note(node)
    now[0] = 20
    heard.note("a")
    assert heard.silent() == []
    now[0] = 31
    assert heard.silent() == ["b"]
    now[0] = 51
    assert heard.silent() == ["a"]
    assert heard.silent() == []
    nodes = Nodes(0)
    nodes.put(row("ahead", age=-86_400))
    assert len(nodes) == 1
    nodes.free()
    assert len(nodes) == 0


def test_names_that_two_hosts_share_and_nodes_that_are_outvoted_are_named() -> None:
    counts = Blocks(doubled=0, late=2, missing=0, jumps=0, shared=True)
    lines = page(row("good"), row("both", blocks=counts), row("liar", outvoted=["size", "class shop/web"]))
    for line in (
        "spazio_shared_names 1.0",
        'spazio_name_shared{node="both"} 1.0',
        "spazio_outvoted_nodes 1.0",
        'spazio_outvoted_claims{node="liar"} 2.0',
        'spazio_block_faults_total{fault="late",node="both"} 2.0',
        'spazio_faulty_blocks{fault="late",node="both"} 2.0',
    ):
        assert line in lines
    assert not any('fault="shared"' in line for line in lines)


def test_only_nodes_with_faults_have_gauges_of_them_and_of_those_a_bounded_number() -> None:
    counts = Blocks(doubled=1, late=2, missing=3, jumps=0)
    lines = page(row("good"), row("gaps", blocks=counts), row("clock", clock=-7.5))
    assert "spazio_faulty_nodes 2.0" in lines
    assert 'spazio_faulty_blocks{fault="missing",node="gaps"} 3.0' in lines
    assert 'spazio_clock_error_seconds{node="clock"} -7.5' in lines
    assert not any("faulty_blocks" in line and 'node="good"' in line for line in lines)
    many = [row(f"n{number}", blocks=counts.model_copy(update={"missing": number})) for number in range(150)]
    lines = page(*many, row("clock", clock=1.0))
    assert "spazio_faulty_nodes 151.0" in lines
    assert sum(line.startswith("spazio_faulty_blocks{") for line in lines) == 99 * 4
    assert any('node="n149"' in line for line in lines if line.startswith("spazio_faulty_blocks{"))
    assert not any('node="n50"' in line for line in lines if line.startswith("spazio_faulty_blocks{"))
    assert any(line.startswith("spazio_clock_error_seconds{") for line in lines)


def test_a_clock_that_is_behind_is_reported_although_its_numbers_look_old() -> None:
    lines = page(row("behind", age=90, clock=-90.0), row("ahead", age=-90, clock=90.0))
    assert 'spazio_clock_error_seconds{node="behind"} -90.0' in lines
    assert "spazio_faulty_nodes 2.0" in lines
    assert not any(line.startswith('spazio_available_pods{node="behind"}') for line in lines)
    nodes = Nodes(0)
    nodes.put(row("behind", age=90, clock=-90.0))
    nodes.free()
    assert len(nodes) == 0
