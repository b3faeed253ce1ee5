"""The policies for nodes and autoscalers name every field that a component may not change.

The fields are those of the locked client, which is made from the specification of one release of Kubernetes: a field
that only a newer API server has is missed until the client has it, too.
"""

import re
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]
from kubernetes_asyncio import client

MANIFEST = Path(__file__).parents[4] / "deploy" / "kubernetes" / "admission.yaml"
POLICIES = {
    thing["metadata"]["name"]: thing["spec"]
    for thing in yaml.safe_load_all(MANIFEST.read_text())
    if thing["kind"] == "ValidatingAdmissionPolicy"
}
METADATA = {"labels", "annotations", "finalizers", "ownerReferences"}  # what a patch can change


def expressions(policy: str) -> str:
    """Return what a policy validates, with its variables."""
    parts = (*POLICIES[policy]["variables"], *POLICIES[policy]["validations"])
    return " ".join(each["expression"] for each in parts)


def fields(text: str, part: str) -> set[str]:
    """Return the fields of a part of an object that expressions take from before and from after the change."""
    before, after = (set(re.findall(rf"\b{state}\.\??{part}\.\??(\w+)", text)) for state in ("oldObject", "object"))
    assert before == after
    return after


@pytest.mark.parametrize(
    ("policy", "part", "model", "own"),
    [
        ("spazio-kubernetes-nodes", "status", client.V1NodeStatus, set()),
        ("spazio-kubernetes-marks", "spec", client.V1NodeSpec, set()),
        ("spazio-kubernetes-floors", "spec", client.V2HorizontalPodAutoscalerSpec, {"minReplicas"}),
    ],
)
def test_every_field_that_the_api_has_is_compared_but_for_those_that_are_the_sink_s(
    policy: str, part: str, model: type, own: set[str]
) -> None:
    text = expressions(policy)
    assert fields(text, part) == set(vars(model)["attribute_map"].values()) - own
    assert fields(text, "metadata") == METADATA


def test_the_extender_changes_no_field_of_a_node_s_spec() -> None:
    text = expressions("spazio-extender")
    assert "object.?spec == oldObject.?spec" in text
    assert fields(text, "metadata") == METADATA
