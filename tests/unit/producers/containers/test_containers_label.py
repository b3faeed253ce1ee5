"""Who a container is by its labels, and of which workload class."""

from dataclasses import replace

import pytest

from producers.containers import label
from schemas import codec
from schemas.messages.telemetry import ContainerEvent
from tests.support.processors.telemetry import event

PROJECT, SERVICE = "com.docker.compose.project", "com.docker.compose.service"
KUBERNETES = {
    "io.kubernetes.pod.uid": "u",
    "io.kubernetes.pod.namespace": "n" * 400,
    "io.kubernetes.pod.name": "p" * 400,
}


@pytest.mark.parametrize(
    ("labels", "whole"),
    [
        ({PROJECT: "p" * 400, SERVICE: "s" * 400}, "p" * 400 + "/" + "s" * 400),
        (KUBERNETES, "n" * 400 + "/" + "p" * 400),
        ({"spazio.class": "c" * 800}, "c" * 800),
    ],
    ids=["Compose", "Kubernetes", "label"],
)
def test_a_workload_class_of_long_names_is_cut_to_what_a_message_may_hold(labels: dict[str, str], whole: str) -> None:
    result = label.identity("c", labels)
    assert result.workload == whole[:512]
    codec.decode(ContainerEvent, codec.encode(event("n", 0, workload=result.workload)))


def test_names_that_together_just_fit_are_whole() -> None:
    labels = {PROJECT: "p" * 255, SERVICE: "s" * 256}
    assert label.workload(labels) == "p" * 255 + "/" + "s" * 256


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        ({"spazio.kind": "serving"}, "serving"),
        ({"spazio.io/kind": "batch"}, "batch"),
        ({"spazio.kind": "serving", "spazio.io/kind": "batch"}, "serving"),
        ({"spazio.kind": "Batch"}, None),
        ({"spazio.kind": 7}, None),
        ({}, None),
    ],
)
def test_a_kind_is_one_of_two_words_under_either_key(labels: dict[str, object], kind: str | None) -> None:
    assert label.identity("c", labels).kind == kind


def test_a_container_is_of_the_kind_that_its_sandbox_declares_unless_it_declares_one() -> None:
    classes = label.Classes()
    sandbox = KUBERNETES | {"io.kubernetes.container.name": "POD", "spazio.kind": "batch"}
    classes.apply(label.identity("s", sandbox), sandbox)
    plain = label.identity("c", KUBERNETES)
    assert classes.apply(plain, KUBERNETES) == replace(plain, kind="batch")
    own = KUBERNETES | {"spazio.kind": "serving"}
    assert classes.apply(label.identity("d", own), own).kind == "serving"
