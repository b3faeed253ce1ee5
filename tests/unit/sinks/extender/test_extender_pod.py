"""A pod as kube-scheduler sends it is read whole, and what is no pod is refused with a reason."""

import contextlib
import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinks.extender import pod
from sinks.extender.candidate import Container, Pod
from tests.support.extender.placement import pinned

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parents[2] / "kubernetes" / "pod.json").read_text())
MIB = 2**20
BARE = {"metadata": {"uid": "u", "namespace": "shop", "name": "web-1"}, "spec": {}}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
often = settings(deadline=None, max_examples=300, derandomize=True)


def made(*containers: dict[str, Any], metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a pod of containers with such resources."""
    main = [{"name": f"c{number}", "resources": each} for number, each in enumerate(containers)]
    return {"metadata": {**BARE["metadata"], **(metadata or {})}, "spec": {"containers": main, **spec}}


def _required(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": list(terms)}}}


def _terms(affinity: dict[str, Any]) -> list[dict[str, Any]]:
    terms: list[dict[str, Any]] = affinity["nodeAffinity"][_REQUIRED]["nodeSelectorTerms"]
    return terms


def test_the_golden_pod_is_read_whole() -> None:
    assert pod.parse(GOLDEN) == Pod(
        uid="6f2b1c1e-0002",
        namespace="shop",
        name="web-7d4b9c6f5-x2x9k",
        workload="shop/web",
        scheduler="default-scheduler",
        owner_kind="ReplicaSet",
        priority=1000,
        labels=GOLDEN["metadata"]["labels"],
        annotations=GOLDEN["metadata"]["annotations"],
        requests={"cpu": 0.31, "memory": 64.0 * MIB},
        limits={"memory": 128.0 * MIB},
        nonzero={"cpu": 0.31, "memory": 264.0 * MIB},
        containers=(Container(0.1, None), Container(0.2, None)),
        overhead_cpu=0.01,
    )


def test_a_pod_that_states_nothing_counts_with_stand_ins_for_each_container() -> None:
    result = pod.parse(made({}, {"requests": None, "limits": {"cpu": "2"}}))
    assert result.requests == {}
    assert result.limits == {"cpu": 2}
    assert result.nonzero == {"cpu": 0.2, "memory": 400 * MIB}
    assert result.containers == (Container(None, None), Container(None, 2))


def test_a_request_of_0_is_a_statement() -> None:
    result = pod.parse(made({"requests": {"cpu": "0", "memory": "1Mi"}}, {"requests": {"memory": "0"}}))
    assert result.nonzero == {"cpu": 0.1, "memory": MIB}
    assert result.containers == (Container(0, None), Container(None, None))


def test_a_request_of_0_of_what_has_no_default_is_none() -> None:
    result = pod.parse(made({"requests": {"cpu": "0", "example.com/x": "0", "example.com/y": "2"}}))
    assert result.requests == {"cpu": 0, "example.com/y": 2}


def test_init_containers_count_with_stand_ins_too() -> None:
    """The init container states 1 core and no memory, the container neither: max(0.1, 1), max(200, 200) MiB."""
    starter = {"name": "i", "resources": {"requests": {"cpu": "1"}}}
    assert pod.parse(made({}, initContainers=[starter])).nonzero == {"cpu": 1, "memory": 200 * MIB}
    sidecar = {"name": "s", "restartPolicy": "Always"}
    assert pod.parse(made({}, initContainers=[sidecar])).nonzero == {"cpu": 0.2, "memory": 400 * MIB}


def test_what_the_api_may_leave_out_or_send_as_null_is_none() -> None:
    nulls = {
        "metadata": {**BARE["metadata"], "creationTimestamp": None, "labels": None, "annotations": None,
                     "ownerReferences": None},
        "spec": {"containers": None, "initContainers": None, "overhead": None, "priority": None, "schedulerName": None,
                 "resources": None},
        "status": None,
    }  # fmt: skip
    assert pod.parse(nulls) == pod.parse(BARE)
    result = pod.parse(BARE)
    assert (result.workload, result.owner_kind, result.priority) == ("shop/web", "", 0)
    assert (result.requests, result.nonzero, result.containers) == ({}, {"cpu": 0, "memory": 0}, ())
    assert result.scheduler == "default-scheduler"
    assert not result.pinned


def test_a_cron_jobs_pod_without_a_time_belongs_to_its_cron_job() -> None:
    job = {"kind": "Job", "name": "report-29000000", "controller": True}
    owned = {"name": "report-29000000-x2x9k", "ownerReferences": [job]}
    result = pod.parse(made({}, metadata={**owned, "creationTimestamp": "2025-02-22T13:20:01Z"}))
    assert (result.workload, result.owner_kind) == ("shop/report", "Job")


@pytest.mark.parametrize(
    ("affinity", "is_pinned"),
    [
        (None, False),
        ({"podAffinity": {}}, False),
        (pinned(), False),
        (pinned("n1"), True),
        (pinned("n1", "n1"), True),
        (pinned("n1", "n2"), False),
        (_required({"matchExpressions": []}), False),
        (_required(*_terms(pinned("n1")), {"matchExpressions": []}), False),
        ({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": _terms(pinned("n1"))}}, False),
    ],
)
def test_a_pod_is_pinned_if_its_required_affinity_names_one_node(affinity: Any, is_pinned: bool) -> None:
    assert pod.parse(made(affinity=affinity)).pinned is is_pinned


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ({}, "pod: metadata is missing"),
        ({"metadata": []}, "pod: metadata is no object"),
        ({"metadata": {}}, "pod: metadata.uid is missing"),
        ({"metadata": {"uid": 7}}, "pod: metadata.uid is no text"),
        ({"metadata": {"uid": "u", "namespace": "shop", "name": ""}}, "pod: metadata.name is missing"),
        ({"metadata": BARE["metadata"]}, "pod shop/web-1: spec is missing"),
        ({**BARE, "spec": {"containers": [{"resources": {"requests": {"cpu": "many"}}, "name": "c"}]}},
         "pod shop/web-1: 'many' is no quantity"),
        (made(metadata={"labels": {"x": 7}}), "pod shop/web-1: metadata.labels: x is no text; put it in quotes"),
        (made(metadata={"annotations": ["x"]}), "pod shop/web-1: metadata.annotations is no object"),
        (made(priority=float("inf")), "pod shop/web-1: "),
        ({**BARE, "spec": {"containers": [{}]}}, r"pod shop/web-1: spec.containers\[0\]: name is missing"),
        ({**BARE, "spec": {"containers": ["c"]}}, r"pod shop/web-1: spec.containers\[0\] is no object"),
        ({**BARE, "spec": {"containers": 3}}, "pod shop/web-1: spec.containers is no list"),
        ({**BARE, "spec": {"initContainers": {}}}, "pod shop/web-1: spec.initContainers is no list"),
        ({**BARE, "spec": {"containers": [{"name": "c", "resources": {"limits": 3}}]}},
         r"pod shop/web-1: spec.containers\[0\]: resources.limits are no object"),
        ({**BARE, "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "-1"}}}]}},
         "pod shop/web-1: requests: cpu is -1; an amount is 0 or more"),
        ({**BARE, "spec": {"overhead": {"memory": "-1Gi"}}}, "pod shop/web-1: overhead: memory is -1073741824"),
        ({**BARE, "spec": {"priority": "high"}}, "pod shop/web-1: "),
        (None, "pod: metadata is missing"),
    ],
)  # fmt: skip
def test_what_is_no_pod_is_refused_with_its_place(raw: Any, reason: str) -> None:
    with pytest.raises(ValueError, match="^" + reason):
        pod.parse(raw)


def test_reading_a_pod_leaves_it_as_it_was() -> None:
    raw = copy.deepcopy(GOLDEN)
    pod.parse(raw)
    assert raw == GOLDEN


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the ways to everything in a decoded object."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(each for key, child in inner for each in paths(child, (*path, key)))]


JSON = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.just([]), st.just({}),
    st.just(["x"]), st.just({"x": "y"}), st.just([None]), st.just([{}]),
)  # fmt: skip


@pytest.mark.slow
@given(st.sampled_from(paths(GOLDEN)[1:]), JSON)
@often
def test_whatever_is_wrong_with_one_piece_is_a_value_error_or_nothing(path: tuple[Any, ...], damage: object) -> None:
    raw = copy.deepcopy(GOLDEN)
    at = raw
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = damage
    with contextlib.suppress(ValueError):
        result = pod.parse(raw)
        assert result.uid
        assert all(isinstance(amount, float) for amount in result.requests.values())
        assert all(isinstance(text, str) for text in (*result.labels.values(), *result.annotations.values()))
