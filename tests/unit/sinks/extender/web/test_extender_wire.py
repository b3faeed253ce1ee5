"""The extender reads what kube-scheduler sends, and answers what Go decodes."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.extender.web import wire
from sinks.extender.web.selector import Filtered

RECORDED = Path(__file__).parents[4] / "golden" / "extender"
NODES = ["lab-0", "lab-1", "lab-2"]
POD: dict[str, Any] = {"metadata": {"name": "web", "uid": "u-1"}}


def recorded(name: str) -> bytes:
    """Return the body of a request that a real kube-scheduler sent."""
    return (RECORDED / f"{name}.http").read_bytes().split(b"\r\n\r\n", 1)[1]


def body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
@pytest.mark.parametrize("form", ["names", "nodes"])
def test_what_a_scheduler_asks_is_a_pod_and_names_in_either_form(verb: str, form: str) -> None:
    asked = wire.question(recorded(f"{verb}-{form}"))
    assert sorted(asked.names) == NODES
    assert asked.named == (form == "names")
    assert asked.pod["metadata"]["name"] == f"web-{form}"
    assert asked.pod["metadata"]["annotations"] == {"example/words": "grüße, 世界 🚀 <&>\u2028"}
    assert asked.pod["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "50m", "memory": "64Mi"}


def test_a_binding_of_a_scheduler_is_read() -> None:
    result = wire.binding(recorded("bind-names"))
    assert (result.namespace, result.name) == ("default", "web-names")
    assert result.node in NODES
    assert result.uid == json.loads(recorded("filter-names"))["Pod"]["metadata"]["uid"]


@pytest.mark.parametrize("form", ["names", "nodes"])
def test_victims_are_read_in_either_form_and_answered_by_uid(form: str) -> None:
    asked = wire.preemption(recorded(f"preempt-{form}"))
    assert asked.pod["metadata"]["name"] == f"urgent-{form}"
    assert sorted(asked.victims) == NODES
    assert all(len(uids) == 1 and len(uids[0]) == 36 for uids in asked.victims.values())
    result = json.loads(wire.preempted(asked, {"lab-1": asked.victims["lab-1"]}))
    assert result == {
        "NodeNameToMetaVictims": {"lab-1": {"Pods": [{"UID": asked.victims["lab-1"][0]}], "NumPDBViolations": 0}}
    }


def test_both_forms_of_victims_name_the_same_pods() -> None:
    by_name, whole = (wire.preemption(recorded(f"preempt-{form}")) for form in ("names", "nodes"))
    assert by_name.victims == whole.victims


def test_violations_of_disruption_budgets_come_back() -> None:
    victims = {"a": {"Pods": [{"UID": "u"}], "NumPDBViolations": 3}}
    asked = wire.preemption(body(Pod=POD, NodeNameToVictims=None, NodeNameToMetaVictims=victims))
    assert json.loads(wire.preempted(asked, asked.victims)) == {"NodeNameToMetaVictims": victims}


def test_nodes_that_pass_are_named_where_names_came() -> None:
    asked = wire.question(recorded("filter-names"))
    result = json.loads(wire.filtered(asked, Filtered(["lab-2"], {"lab-0": "no room"}, {"lab-1": "näh"})))
    assert result == {
        "Nodes": None,
        "NodeNames": ["lab-2"],
        "FailedNodes": {"lab-0": "no room"},
        "FailedAndUnresolvableNodes": {"lab-1": "näh"},
        "Error": "",
    }


def test_nodes_that_pass_come_back_as_they_came_where_whole_nodes_came() -> None:
    content = recorded("filter-nodes")
    asked = wire.question(content)
    result = json.loads(wire.filtered(asked, Filtered(["lab-2", "lab-0"])))
    sent = json.loads(content)["Nodes"]
    assert result["NodeNames"] is None
    assert result["Nodes"]["metadata"] == sent["metadata"]
    assert result["Nodes"]["items"] == [node for node in sent["items"] if node["metadata"]["name"] != "lab-1"]
    assert set(result) == {"Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"}


def test_a_list_is_answered_even_if_no_node_passes() -> None:
    assert json.loads(wire.filtered(wire.question(recorded("filter-names")), Filtered([])))["NodeNames"] == []
    assert json.loads(wire.filtered(wire.question(recorded("filter-nodes")), Filtered([])))["Nodes"]["items"] == []


def test_no_nodes_are_no_fault() -> None:
    assert wire.question(body(Pod=POD, Nodes=None, NodeNames=[])).names == []
    nodes: dict[str, Any]
    for nodes in ({"metadata": {}, "items": None}, {"metadata": {}, "items": []}, {}):
        asked = wire.question(body(Pod=POD, Nodes=nodes, NodeNames=None))
        assert asked.names == []
        assert json.loads(wire.filtered(asked, Filtered([])))["Nodes"]["items"] == []


def test_an_error_stands_alone() -> None:
    asked = wire.question(recorded("filter-names"))
    result = json.loads(wire.filtered(asked, Filtered([], error="the pod has no UID")))
    assert result.pop("Error") == "the pod has no UID"
    assert set(result.values()) == {None}


def test_keys_are_read_in_any_case_as_go_reads_them() -> None:
    asked = wire.question(body(pod=POD, nodenames=["a"], NODES=None))
    assert (asked.pod, asked.names) == (POD, ["a"])
    result = wire.binding(body(podname="p", podNamespace="n", PODUID="u", node="a"))
    assert result == wire.Binding("n", "p", "u", "a")
    victims = {"a": {"pods": [{"uid": "u"}], "numpdbviolations": 2}}
    asked_to_evict = wire.preemption(body(pod=POD, nodeNameToMetaVictims=victims))
    assert (asked_to_evict.victims, asked_to_evict.violations) == ({"a": ["u"]}, {"a": 2})


def test_unknown_keys_are_passed_over() -> None:
    assert wire.question(body(Pod=POD, NodeNames=["a"], NodesOfTomorrow=[1])).names == ["a"]


NAMES = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.dictionaries(NAMES | st.sampled_from(['","', '\\",\\"', '"', "\\", ","]), st.integers(0, 10)))
def test_scores_are_what_a_plain_encoder_writes_whatever_the_names(scores: dict[str, int]) -> None:
    decoded = json.loads(wire.scored(scores))
    assert sorted((entry["Host"], entry["Score"]) for entry in decoded) == sorted(scores.items())
    assert all(list(entry) == ["Host", "Score"] and type(entry["Score"]) is int for entry in decoded)


@pytest.mark.parametrize("score", [-1, 11, 7.5, float("nan")])
def test_a_score_that_the_scheduler_would_misread_is_refused(score: float) -> None:
    with pytest.raises(ValueError, match="integer"):
        wire.scored({"a": score})  # type: ignore[dict-item]


def test_a_whole_number_is_written_without_a_point() -> None:
    assert wire.scored({"a": 7.0}) == b'[{"Host":"a","Score":7}]'  # type: ignore[dict-item]


def test_no_scores_are_an_empty_list() -> None:
    assert wire.scored({}) == b"[]"


def test_a_bound_pod_has_an_empty_error() -> None:
    assert json.loads(wire.bound("")) == {"Error": ""}


DEEP = b'{"Pod":' + b"[" * 100_000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no JSON"),
        (b"\xff\x00\x01", "no JSON"),
        (DEEP, "no JSON"),
        (recorded("filter-names")[:-40], "no JSON"),
        (b'{"Pod":{"a":NaN},"NodeNames":[]}', "no JSON"),
        (b"[]", "list is no object"),
        (b"null", "null is no object"),
        (b"{}", "Pod: null is no object"),
        (body(Pod="web", NodeNames=[]), "Pod: 'web' is no object"),
        (body(Pod=POD, NodeNames=None, Nodes=None), "both null"),
        (body(Pod=POD, NodeNames=["a", 1]), "NodeNames: list is no list of names"),
        (body(Pod=POD, NodeNames="a"), "NodeNames: 'a' is no list of names"),
        (body(Pod=POD, Nodes=["a"]), "Nodes: list is no NodeList"),
        (body(Pod=POD, Nodes={"items": 1}), "metadata.name"),
        (body(Pod=POD, Nodes={"items": [{"metadata": {}}]}), "metadata.name"),
        (body(Pod=POD, Nodes={"items": [{"metadata": {"name": 1}}]}), "metadata.name"),
        (body(Pod=POD, Nodes={"items": [None]}), "metadata.name"),
    ],
)
def test_a_question_that_is_none_is_refused_with_what_is_wrong(content: bytes, message: str) -> None:
    with pytest.raises(wire.Malformed, match="ExtenderArgs") as refused:
        wire.question(content)
    assert message in str(refused.value)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (body(Pod=POD, NodeNameToMetaVictims=[1]), "NodeNameToMetaVictims: list"),
        (body(Pod=POD, NodeNameToMetaVictims={"a": None}), "a: null is no object"),
        (body(Pod=POD, NodeNameToMetaVictims={"a": {"Pods": {"x": 1}}}), "a.Pods: dict is no list"),
        (body(Pod=POD, NodeNameToMetaVictims={"a": {"Pods": [None]}}), "null has no UID"),
        (body(Pod=POD, NodeNameToMetaVictims={"a": {"Pods": [{"UID": 1}]}}), "has no UID"),
        (body(Pod=POD, NodeNameToVictims={"a": {"Pods": [{"UID": "u"}]}}), "has no metadata.uid"),
        (body(Pod=POD, NodeNameToMetaVictims={"a": {"Pods": [], "NumPDBViolations": 1.5}}), "1.5 is no integer"),
        (body(Pod=POD, NodeNameToMetaVictims={"a": {"Pods": [], "NumPDBViolations": 1 << 63}}), "64 bits"),
        (body(NodeNameToMetaVictims={}), "Pod: null"),
    ],
)
def test_victims_that_cannot_be_read_are_refused_with_where_they_are(content: bytes, message: str) -> None:
    with pytest.raises(wire.Malformed) as refused:
        wire.preemption(content)
    assert message in str(refused.value)


def test_a_preemption_without_victims_is_empty() -> None:
    asked = wire.preemption(body(Pod=POD, NodeNameToVictims=None, NodeNameToMetaVictims=None))
    assert json.loads(wire.preempted(asked, {})) == {"NodeNameToMetaVictims": {}}
    assert wire.preemption(body(Pod=POD, NodeNameToMetaVictims={"a": {"Pods": None}})).victims == {"a": []}


@pytest.mark.parametrize("missing", ["PodName", "PodNamespace", "PodUID", "Node"])
@pytest.mark.parametrize("value", [None, "", 5])
def test_a_binding_without_all_its_parts_is_refused(missing: str, value: object) -> None:
    whole = {"PodName": "p", "PodNamespace": "n", "PodUID": "u", "Node": "a"}
    with pytest.raises(wire.Malformed, match="all needed"):
        wire.binding(json.dumps({**whole, missing: value}).encode())


KEYS = st.sampled_from(
    ["Pod", "Nodes", "NodeNames", "items", "metadata", "name", "uid", "UID", "Pods", "NumPDBViolations",
     "NodeNameToVictims", "NodeNameToMetaVictims", "PodName", "PodNamespace", "PodUID", "Node"]
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.slow
@given(st.dictionaries(KEYS, JSON) | JSON | st.dictionaries(KEYS, JSON).map(lambda rest: {"Pod": POD, **rest}))
def test_whatever_json_comes_is_read_or_refused(content: object) -> None:
    encoded = json.dumps(content).encode()
    for read in (wire.question, wire.preemption, wire.binding):
        try:
            result = read(encoded)
        except wire.Malformed:
            continue
        if isinstance(result, wire.Question):
            json.loads(wire.filtered(result, Filtered(result.names)))
        if isinstance(result, wire.Preemption):
            json.loads(wire.preempted(result, result.victims))
