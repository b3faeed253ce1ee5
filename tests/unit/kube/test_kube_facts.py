"""What the API server's objects say, as facts: golden objects, worked out by hand."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from kube import node, owner, pod, resource
from kube.owner import Owner
from schemas import codec
from schemas.messages.facts import UNBOUND, NodeFacts, PodFacts, Taint

GOLDEN = Path(__file__).parents[1] / "kubernetes"
CREATED_US = 1_772_445_600_000_000  # 2026-03-02T10:00:00Z
MINUTE = CREATED_US // 60_000_000


def golden(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text())
    return content


def containers(*requests: dict[str, str], init: list[dict[str, Any]] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a pod of containers with such requests."""
    main = [{"name": f"c{number}", "resources": {"requests": each}} for number, each in enumerate(requests)]
    return {"spec": {"containers": main, "initContainers": init or [], **spec}}


def starter(cpu: str, *, sidecar: bool = False) -> dict[str, Any]:
    stays = {"restartPolicy": "Always"} if sidecar else {}
    return {"name": f"i{cpu}", "resources": {"requests": {"cpu": cpu}}, **stays}


def test_a_node_has_what_placement_needs() -> None:
    facts = node.facts(golden("node"), at_us=5, price_label="spazio.price")
    assert facts == NodeFacts(
        node="ip-10-0-0-7.eu-west-1.compute.internal",
        uid="6f2b1c1e-0001",
        version=812,
        at_us=5,
        created_us=1_772_359_200_000_000,
        ready=True,
        unschedulable=True,
        allocatable={
            "cpu": 3.92, "ephemeral-storage": 76224326324.0, "hugepages-2Mi": 0.0, "memory": 16106127360.0, "pods": 58.0
        },
        capacity={
            "cpu": 4.0, "ephemeral-storage": 85886742528.0, "hugepages-2Mi": 0.0, "memory": 16502939648.0, "pods": 58.0
        },
        labels=golden("node")["metadata"]["labels"],
        annotations={"spazio.price": "0.192"},
        taints=[
            Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule"),
            Taint(key="team", value="ml", effect="NoExecute"),
        ],
        price=0.192,
        type="m5.xlarge",
        zone="eu-west-1a",
        kubelet="v1.36.3",
    )  # fmt: skip
    assert codec.decode(NodeFacts, codec.encode(facts)) == facts


def test_heartbeats_and_images_are_no_facts() -> None:
    later = golden("node")
    later["metadata"]["managedFields"] = []
    later["status"]["images"] = []
    for condition in later["status"]["conditions"]:
        condition["lastHeartbeatTime"] = "2026-03-02T10:05:00Z"
    same = node.facts(later, at_us=5, price_label="spazio.price")
    assert same == node.facts(golden("node"), at_us=5, price_label="spazio.price")


def test_a_price_is_a_number_in_the_label_that_settings_name(caplog: pytest.LogCaptureFixture) -> None:
    thing = golden("node")
    thing["metadata"]["labels"]["cost"] = "3"
    assert node.facts(thing, at_us=0, price_label="cost").price == 3
    assert node.facts(thing, at_us=0, price_label="none").price is None
    for wrong in ("cheap", "nan", "-1", "inf"):
        thing["metadata"]["labels"]["cost"] = wrong
        assert node.facts(thing, at_us=0, price_label="cost").price is None
    assert node.facts(thing, at_us=1, price_label="cost").price is None
    assert [record.message for record in caplog.records] == ["node.price_unreadable"] * 4


def test_a_node_that_has_just_joined_knows_little() -> None:
    bare = {"metadata": {"name": "n", "uid": "u", "resourceVersion": "1", "creationTimestamp": "2026-03-02T10:00:00Z"}}
    facts = node.facts(bare, at_us=0, price_label="p")
    assert (facts.ready, facts.unschedulable, facts.allocatable, facts.taints) == (False, False, {}, [])


def test_a_pod_has_its_place_its_wants_its_times_and_its_owner() -> None:
    facts = pod.facts(golden("pod"), at_us=7)
    assert facts == PodFacts(
        node="n1",
        pod="6f2b1c1e-0002",
        namespace="shop",
        name="web-7d4b9c6f5-x2x9k",
        version=900,
        at_us=7,
        phase="Running",
        created_us=CREATED_US,
        scheduled_us=CREATED_US + 1_000_000,
        started_us=CREATED_US + 2_000_000,
        ready_us=CREATED_US + 9_000_000,
        initialization_seconds=9.0,
        requests={"cpu": 0.31, "memory": 67108864.0},
        limits={"memory": 134217728.0},
        labels={"app": "web", "pod-template-hash": "7d4b9c6f5"},
        annotations={"spazio.note": "x"},
        owner_kind="Deployment",
        owner="web",
        workload="shop/web",
        priority=1000,
        priority_class="high",
        qos="Burstable",
        scheduler="default-scheduler",
    )
    assert codec.decode(PodFacts, codec.encode(facts)) == facts


def test_a_pod_without_a_node_is_unbound_and_one_that_is_to_go_says_so() -> None:
    thing = golden("pod")
    del thing["spec"]["nodeName"], thing["status"]
    thing["metadata"]["deletionTimestamp"] = "2026-03-02T10:00:00Z"
    facts = pod.facts(thing, at_us=0)
    assert (facts.node, facts.phase, facts.terminating) == (UNBOUND, "Unknown", True)
    assert (facts.scheduled_us, facts.started_us, facts.ready_us, facts.initialization_seconds) == (None,) * 4


def test_the_first_readiness_stays_and_a_restarted_pod_does_not_tell_it() -> None:
    thing = golden("pod")
    ready = thing["status"]["conditions"][1]
    ready["lastTransitionTime"] = "2026-03-02T11:00:00Z"
    assert pod.facts(thing, at_us=0, initialization_seconds=9.0).initialization_seconds == 9
    ready["status"] = "False"
    facts = pod.facts(thing, at_us=0, initialization_seconds=9.0)
    assert (facts.ready_us, facts.initialization_seconds) == (None, 9)
    ready["status"] = "True"
    thing["status"]["containerStatuses"][0]["restartCount"] = 1
    assert pod.facts(thing, at_us=0).initialization_seconds is None


@pytest.mark.parametrize(
    ("thing", "cpu"),
    [
        (containers({"cpu": "1"}, {"cpu": "2"}), 3),
        (containers({"cpu": "1"}, init=[starter("4"), starter("2")]), 4),
        (containers({"cpu": "1"}, init=[starter("500m", sidecar=True)]), 1.5),
        # A sidecar counts for the init containers that come after it, not for those before.
        (containers({"cpu": "1"}, init=[starter("3"), starter("1", sidecar=True)]), 3),
        (containers({"cpu": "1"}, init=[starter("1", sidecar=True), starter("3")]), 4),
        (containers({"cpu": "1"}, init=[starter("1", sidecar=True), starter("2", sidecar=True)]), 4),
        (containers({"cpu": "1"}, overhead={"cpu": "250m"}), 1.25),
        (containers({"cpu": "1"}, resources={"requests": {"cpu": "5"}}, overhead={"cpu": "250m"}), 5.25),
    ],
)
def test_requests_are_what_the_scheduler_counts(thing: dict[str, Any], cpu: float) -> None:
    assert resource.requests(thing) == {"cpu": cpu}


def test_a_resource_that_only_an_init_container_wants_counts_and_devices_are_not_stated_for_the_whole_pod() -> None:
    init = {"name": "i", "resources": {"requests": {"example.com/gpu": "1"}}}
    thing = containers({"cpu": "1"}, init=[init], resources={"requests": {"example.com/gpu": "9", "memory": "1Gi"}})
    assert resource.requests(thing) == {"cpu": 1, "example.com/gpu": 1, "memory": 2**30}


@pytest.mark.parametrize(
    ("reason", "cpu"), [(None, 4.0), ("Deferred", 4.0), ("Infeasible", 3.0)], ids=["running", "deferred", "infeasible"]
)
def test_a_resize_under_way_counts_by_the_larger_amount(reason: str | None, cpu: float) -> None:
    thing = containers({"cpu": "4"})
    state = {"name": "c0", "allocatedResources": {"cpu": "3"}, "resources": {"requests": {"cpu": "2"}}}
    conditions = [{"type": "PodResizePending", "status": "True", "reason": reason}] if reason else []
    thing["status"] = {"containerStatuses": [state], "conditions": conditions}
    assert resource.requests(thing) == {"cpu": cpu}


@pytest.mark.parametrize("field", ["containers", "initContainers"])
def test_a_pod_of_more_resources_than_a_message_holds_is_refused(field: str) -> None:
    def containers(count: int) -> list[dict[str, Any]]:
        return [
            {"name": f"c{index}", "resources": {"requests": {f"example.com/r{index}": "1"}}} for index in range(count)
        ]

    assert len(resource.requests({"spec": {field: containers(256)}})) == 256
    with pytest.raises(ValueError, match="more than 256 resources"):
        resource.requests({"spec": {field: containers(10_000)}})


def test_overhead_adds_to_a_limit_only_where_there_is_one() -> None:
    thing = containers({}, overhead={"cpu": "1", "memory": "1"})
    thing["spec"]["containers"][0]["resources"]["limits"] = {"memory": "10"}
    assert resource.limits(thing) == {"memory": 11}


@pytest.mark.parametrize(
    ("kind", "name", "labels", "result"),
    [
        ("ReplicaSet", "web-7d4b", {"pod-template-hash": "7d4b"}, Owner("Deployment", "web")),
        ("ReplicaSet", "web-7d4b", {}, Owner("ReplicaSet", "web-7d4b")),
        ("ReplicaSet", "web", {"pod-template-hash": "7d4b"}, Owner("ReplicaSet", "web")),
        ("StatefulSet", "db", {}, Owner("StatefulSet", "db")),
        ("Job", f"backup-{MINUTE}", {}, Owner("CronJob", "backup")),
        ("Job", f"backup-{MINUTE - 1000}", {}, Owner("CronJob", "backup")),
        ("Job", "import-20260302", {}, Owner("Job", "import-20260302")),
        ("Job", "once", {}, Owner("Job", "once")),
        ("Node", "n1", {}, Owner(None, None)),
    ],
)
def test_the_owner_is_the_one_that_a_person_wrote(kind: str, name: str, labels: dict[str, str], result: Owner) -> None:
    reference = {"kind": kind, "name": name, "controller": True}
    assert owner.find({"labels": labels, "ownerReferences": [reference]}, CREATED_US) == result


def test_who_is_no_controller_owns_nothing() -> None:
    assert owner.find({"ownerReferences": [{"kind": "Deployment", "name": "x"}]}, CREATED_US) == Owner(None, None)
    assert owner.find({}, CREATED_US) == Owner(None, None)


@pytest.mark.parametrize(
    ("name", "labels", "result", "workload"),
    [
        ("web-7d4b9c6f5-x2x9k", {}, Owner("Deployment", "shop-web"), "s/shop-web"),
        ("web-7d4b9c6f5-x2x9k", {"spazio.class": "front"}, Owner("Deployment", "web"), "front"),
        ("web-7d4b9c6f5-x2x9k", {}, Owner(None, None), "s/web"),
        ("agent-4b7xz", {}, Owner(None, None), "s/agent"),
        ("db-0", {}, Owner(None, None), "s/db"),
        ("pi-28394875-z8k4d", {}, Owner(None, None), "s/pi"),
        ("plain", {}, Owner(None, None), "s/plain"),
    ],
)
def test_the_workload_class_is_the_label_else_the_owner_else_taken_from_the_name(
    name: str, labels: dict[str, str], result: Owner, workload: str
) -> None:
    assert owner.workload({"namespace": "s", "name": name, "labels": labels}, result) == workload


@pytest.mark.parametrize(
    ("labels", "annotations", "kind"),
    [
        ({"spazio.kind": "batch"}, {}, "batch"),
        ({}, {"spazio.kind": "serving"}, "serving"),
        ({}, {"spazio.io/kind": "batch"}, "batch"),
        ({"spazio.io/kind": "serving"}, {"spazio.kind": "batch"}, "serving"),
        ({"spazio.kind": "soaking"}, {"spazio.kind": "batch"}, None),
        ({"kind": "batch"}, {}, None),
    ],
)
def test_a_pod_declares_its_kind_by_label_else_by_annotation(
    labels: dict[str, str], annotations: dict[str, str], kind: str | None
) -> None:
    thing = copy.deepcopy(golden("pod"))
    thing["metadata"] |= {"labels": labels, "annotations": annotations}
    facts = pod.facts(thing, at_us=0)
    assert facts.kind == kind
    assert codec.decode(PodFacts, codec.encode(facts)) == facts


def test_what_the_api_promises_and_does_not_keep_is_refused_not_guessed() -> None:
    for path, value in (("spec.containers", [{"resources": 3}]), ("metadata.resourceVersion", "x"), ("status", [])):
        thing = copy.deepcopy(golden("pod"))
        parent, _, last = path.rpartition(".")
        (thing[parent] if parent else thing)[last] = value
        if path == "status":
            thing["status"] = "wrong"
        with pytest.raises((ValueError, KeyError, TypeError, AttributeError)):
            pod.facts(thing, at_us=0)
