"""Scenarios from lists of pods and nodes, and back to a file."""

from pathlib import Path
from typing import Any

import pytest

from kube.node import FULL
from schemas.messages.facts import NodeFacts, PodFacts
from spazio.simulation import live, scenario, source, trace
from spazio.simulation.scenario import Scenario, Unreadable

PODS = "pod,arrival,duration,cpu_request,memory_request,cpu_usage,memory_usage,workload,kind\n"
NODES = "node,cpus,memory,allocatable_cpu,allocatable_memory,pods\n"


def loaded(folder: Path, pods: str, nodes: str | None = None, speed: float = 1.0) -> Scenario:
    """Return the scenario of two lists; without nodes it has one of its own."""
    (folder / "pods.csv").write_text(pods, errors="surrogateescape")
    text = f"[trace]\npods = 'pods.csv'\nspeed = {speed}\n"
    if nodes is None:
        text = f"[[nodes]]\ncount = 1\n{text}"
    else:
        (folder / "nodes.csv").write_text(nodes)
        text += "nodes = 'nodes.csv'\n"
    (folder / "mine.toml").write_text(text)
    return scenario.load(str(folder / "mine.toml"))


def test_a_pod_of_a_list_requests_and_uses_what_the_list_says(tmp_path: Path) -> None:
    rows = "web-7d4b9c6f5-x2x9k,4,60,500m,1Gi,250m,512Mi,,\nsum-1,8,20,,,2,64Mi,shop/Sum,batch\nfree-0,0,,,,,,,\n"
    web, batch, free = loaded(tmp_path, PODS + rows, speed=2).pods
    assert (web.name, web.kind, web.at, web.seconds, web.cores) == ("web", "serving", 2, 30, 0.25)
    assert (web.requests, web.memory) == ({"cpu": 0.5, "memory": 2.0**30}, 2.0**29)
    assert (batch.name, batch.kind, batch.at, batch.work, batch.threads) == ("shop-sum", "batch", 4, 20, 2)
    assert batch.requests == {}
    assert (free.seconds, free.cores, free.memory) == (0, 0.1, 200 * 2.0**20)


@pytest.mark.parametrize(("duration", "seconds"), [("0", 0.5), ("0.4", 0.2), ("", 0.0)])
def test_a_pod_of_no_duration_lives_for_a_second_and_without_a_duration_to_the_end(
    tmp_path: Path, duration: str, seconds: float
) -> None:
    (pod,) = loaded(tmp_path, f"{PODS}p,0,{duration},,,1,1Mi,,\n", speed=2).pods
    assert pod.seconds == seconds


def test_equal_nodes_of_a_list_are_one_group(tmp_path: Path) -> None:
    nodes = NODES + "a,4,8Gi,3500m,7Gi,50\nb,4,8Gi,3500m,7Gi,50\nc,2,4Gi,,,\n"
    large, small = loaded(tmp_path, PODS + "p,0,9,,,1,1Mi,,\n", nodes).nodes
    assert (large.count, large.cpus, large.reserved_cpu, large.reserved_memory, large.pods) == (2, 4, 0.5, 2.0**30, 50)
    assert (small.count, small.cpus, small.memory, small.reserved_cpu, small.pods) == (1, 2, 4 * 2.0**30, 0, 110)


def test_the_openb_lists_are_read_as_they_are(tmp_path: Path) -> None:
    pods = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
        "openb-pod-0000,12000,16384,1,1000,,LS,Running,100,400,100\n"
    )
    read = loaded(tmp_path, pods, "sn,cpu_milli,memory_mib,gpu,model\nopenb-node-0000,32000,262144,0,\n", speed=10)
    (task,), (node,) = read.pods, read.nodes
    assert (task.at, task.seconds, task.cores, task.requests["cpu"]) == (10, 30, 12, 12)
    assert (node.cpus, node.memory) == (32, 262144 * 2.0**20)


@pytest.mark.parametrize(
    ("pods", "reason"),
    [
        ("a,b\n1,2\n", r"pods.csv: line 1: the columns have to be pod,arrival"),
        ("", r"pods.csv: line 1: the columns have to be pod,arrival"),
        (f"{PODS}{'x' * (1 << 18)},0,9,,,1,1Mi,,\n", r"pods.csv: line 1: field larger than"),
        (f"{PODS}p,0,9,,,1,1Mi,\udcff,\n", r"pods.csv: line \d: 'utf-8' codec can't decode"),
        (PODS, "pods.csv: it lists nothing"),
        (PODS + "p,soon,1,,,1,1Mi,,\n", "pods.csv: line 2: could not convert"),
        (PODS + "p,0,1,,,much,1Mi,,\n", "pods.csv: line 2: 'much' is no quantity"),
        (PODS + "p,0,1,,,1,1Mi,,odd\n", "line 2: kind 'odd' is neither serving nor batch"),
        (PODS + "p,0,,,,1,1Mi,,batch\n", "line 2: a batch pod needs a duration"),
    ],
)
def test_what_is_wrong_with_a_list_is_reported_with_its_line(tmp_path: Path, pods: str, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        loaded(tmp_path, pods)


def test_a_list_and_tables_of_pods_exclude_each_other_and_a_list_has_to_exist(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[[pods]]\nname = 'a'\ncount = 1\n[trace]\npods = 'pods.csv'\n")
    with pytest.raises(Unreadable, match=r"pods\.csv: No such file"):
        scenario.load(str(file))
    (tmp_path / "pods.csv").write_text(PODS + "p,0,9,,,1,1Mi,,\n")
    with pytest.raises(Unreadable, match=r"\[trace\] and \[\[pods\]\] exclude each other"):
        scenario.load(str(file))


@pytest.mark.parametrize("name", scenario.packaged())
def test_a_scenario_that_is_written_is_the_same_when_it_is_read(tmp_path: Path, name: str) -> None:
    before = scenario.load(name)
    (tmp_path / "again.toml").write_text(scenario.text(before))
    assert scenario.load(str(tmp_path / "again.toml")) == before


def test_a_name_of_a_class_is_one_that_a_scenario_may_have() -> None:
    for text in ("Shop/Web", "x" * 80, "-", "a" * 41 + "-b", "ümläut"):
        pods = [{"name": trace.named(text), "count": 1}]
        made = Scenario.model_validate({"name": trace.named(text), "nodes": [{"count": 1}], "pods": pods})
        assert made.pods[0].name == made.name


def node(name: str, **fields: Any) -> NodeFacts:
    amounts = {"cpu": 4.0, "memory": 8 * 2.0**30, "pods": 110.0}
    return NodeFacts.model_validate(
        {"node": name, "uid": name, "version": 1, "at_us": 0, "created_us": 0, "ready": True, "unschedulable": False,
         "allocatable": amounts | {"cpu": 3.5}, "capacity": amounts, "labels": {}, "annotations": {}, "taints": [],
         **fields}
    )  # fmt: skip


def pod(name: str, **fields: Any) -> PodFacts:
    return PodFacts.model_validate(
        {"node": "a", "pod": name, "namespace": "shop", "name": name, "version": 1, "at_us": 0, "created_us": 0,
         "phase": "Running", "requests": {}, "limits": {}, "labels": {}, "annotations": {}, "workload": "shop/web",
         **fields}
    )  # fmt: skip


def test_a_live_cluster_is_taken_with_what_has_to_be_placed() -> None:
    asks = {"cpu": 0.5, "memory": 2.0**30}
    pods = [
        *(pod(f"w{number}", requests=asks) for number in range(3)),
        pod("j", owner_kind="Job", workload="shop/sum", requests={"cpu": 2.0}),
        pod("d", owner_kind="DaemonSet", requests={"cpu": 0.2, "memory": 2.0**20}),
        pod("s", requests={"cpu": 0.3}),
        pod("over", phase="Succeeded"),
        pod("going", terminating=True),
    ]
    made = live.of([node("a"), node("b"), node("c", ready=False)], pods, {"s"})
    assert sorted((group.count, group.reserved_cpu, group.pods) for group in made.nodes) == [
        (1, 0.5, 110),
        (1, 1.0, 108),
    ]
    web, job = sorted(made.pods, key=lambda group: group.count, reverse=True)
    assert (web.name, web.count, web.kind, web.cores, web.seconds) == ("shop-web", 3, "serving", 0.5, 0)
    assert web.requests == asks
    assert (job.name, job.count, job.kind, job.work, job.threads) == ("shop-sum", 1, "batch", 120, 2)


def taint(key: str, effect: str) -> list[dict[str, str]]:
    return [{"key": key, "effect": effect}]


def test_nodes_with_taints_are_left_out_with_their_pods_and_what_is_not_simulated_is_counted() -> None:
    nodes = [
        node("a", taints=taint("slow", "PreferNoSchedule")),
        node("b", taints=taint(FULL, "NoSchedule")),
        node("control-plane", taints=taint("node-role.kubernetes.io/control-plane", "NoSchedule")),
        node("gpus", taints=taint("gpu", "NoExecute")),
    ]
    pods = [
        *(pod(f"w{number}", node="a") for number in range(2)),
        pod("trained", node="b", requests={"example.com/gpu": 1.0}),
        pod("dns", node="control-plane"),
        pod("d", node="control-plane", owner_kind="DaemonSet"),
    ]
    made = live.of(nodes, pods)
    assert sum(group.count for group in made.nodes) == 2
    assert sum(group.count for group in made.pods) == 3
    assert live.left_out(nodes, pods, (), {"w1", "dns"}) == (
        "the scenario leaves out: 2 nodes with taints and 1 pod there; PreferNoSchedule taints of 1 node; "
        "selectors, affinity and topology spread of 1 pod; requests of 1 pod for more than CPU and memory"
    )
    assert live.left_out([node("a")], [pod("w")], (), ()) == ""
    with pytest.raises(Unreadable, match=r"0 nodes for pods, and 0 pods to place, beside 1 node with taints"):
        live.of(nodes[2:3], pods[3:])


def test_a_node_has_no_less_than_nothing_for_pods() -> None:
    asks = {"cpu": 4.0, "memory": 9 * 2.0**30}  # of a static pod, which no scheduler refuses
    (group,) = live.of([node("a")], [pod("s", requests=asks), pod("w")], {"s"}).nodes
    assert (group.reserved_cpu, group.reserved_memory) == (group.cpus, group.memory)


@pytest.mark.parametrize(
    ("nodes", "pods"), [([], [pod("w")]), ([node("a", unschedulable=True)], [pod("w")]), ([node("a")], [])]
)
def test_a_cluster_without_nodes_or_pods_is_no_scenario(nodes: list[NodeFacts], pods: list[PodFacts]) -> None:
    with pytest.raises(Unreadable, match=r"the cluster has [01] nodes? for pods, and [01] pods? to place"):
        live.of(nodes, pods)


def test_a_scenario_or_a_cluster_has_to_be_named() -> None:
    with pytest.raises(Unreadable, match="or give --from-cluster alone"):
        source.of(None, None)()
