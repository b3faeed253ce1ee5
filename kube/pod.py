"""A Pod of the API as `PodFacts`: where it runs, what it asks for, when it became what it is, whose it is."""

import re
from collections.abc import Mapping
from typing import Any

from kube import clock, owner, resource
from kube.node import own
from schemas import workload as workloads
from schemas.messages.facts import UNBOUND, PodFacts

MIRROR = "kubernetes.io/config.mirror"  # annotation of the mirror of a static pod
_SOON_US = 60_000_000  # after its containers had started, a pod is taken to become ready for the first time
_OF_FILE = re.compile("[0-9a-f]{32}")


def uid(metadata: Mapping[str, Any]) -> str:
    """Return the UID that the kubelet gives to a pod's control group, and the runtime to its containers.

    A static pod has one of its kubelet, a digest of the file that it is from, and of the node. Its object at the API
    server is a mirror, with another UID and with that one as an annotation. The digest of what a kubelet takes from its
    `staticPodURL` (`--manifest-url`) lacks the node: pods of several nodes from one URL have one UID, and nothing
    tells them apart.

    >>> uid({"uid": "0a1b-2c3d"})
    '0a1b-2c3d'
    """
    try:
        mirrored = str(metadata["annotations"][MIRROR])
        is_mirror = of_file(mirrored) and any(each["kind"] == "Node" for each in metadata["ownerReferences"])
    except (KeyError, TypeError):  # there is none, or something else in its place
        is_mirror = False
    return mirrored if is_mirror else str(metadata["uid"])


def of_file(uid: str) -> bool:
    """Tell whether a UID is that of a static pod, which comes again where its mirror is made again."""
    return _OF_FILE.fullmatch(uid) is not None


def belongs_to_node(facts: PodFacts) -> bool:
    """Tell whether a pod ends with its node, and no other node ever takes it: one of a DaemonSet, or a static one."""
    return facts.owner_kind == "DaemonSet" or of_file(facts.pod)


def starts(facts: PodFacts, *, started_before: bool) -> bool:
    """Tell whether a pod has never been ready; `started_before`: whether it had not when it was seen before."""
    return facts.phase == "Pending" or (started_before and facts.ready_us is None)


def facts(
    pod: Mapping[str, Any], *, at_us: int, initialization_seconds: float | None = None, starting: bool = False
) -> PodFacts:
    """Return what is known of a pod.

    Args:
        pod: The object as the API server sends it.
        at_us: When it came.
        initialization_seconds: What was found earlier; readiness comes and goes, but the first time stays.
        starting: It had never been ready when it was seen before. Of others only the last time of readiness is given,
            which counts if it is soon after the start of the containers.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: The object is not what the API promises.
    """
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    created = clock.microseconds(metadata["creationTimestamp"])
    controller, ready = owner.find(metadata, created), _since(status, "Ready")
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    first = not _restarted(status) and (starting or _soon(status, ready))
    if initialization_seconds is None and ready is not None and first:
        initialization_seconds = max(0, ready - created) / 1e6
    return PodFacts(
        node=spec.get("nodeName") or UNBOUND,
        pod=uid(metadata),
        namespace=metadata["namespace"],
        name=metadata["name"],
        version=int(metadata["resourceVersion"]),
        at_us=at_us,
        phase=status.get("phase") or "Unknown",
        terminating=metadata.get("deletionTimestamp") is not None,
        created_us=created,
        scheduled_us=_since(status, "PodScheduled"),
        started_us=None if not status.get("startTime") else clock.microseconds(status["startTime"]),
        ready_us=ready,
        initialization_seconds=initialization_seconds,
        requests=resource.requests(pod),
        limits=resource.limits(pod),
        labels=labels,
        annotations=own(annotations),
        owner_kind=controller.kind,
        owner=controller.name,
        workload=owner.workload(metadata, controller),
        kind=workloads.kind(labels, annotations),
        priority=spec.get("priority"),
        priority_class=spec.get("priorityClassName") or None,
        qos=status.get("qosClass") or None,
        scheduler=spec.get("schedulerName") or None,
    )


def _since(status: Mapping[str, Any], kind: str) -> int | None:
    """Return since when a condition is true; None if it is not, or if the time is not given."""
    for condition in status.get("conditions") or ():
        if condition["type"] == kind and condition["status"] == "True" and condition.get("lastTransitionTime"):
            return clock.microseconds(condition["lastTransitionTime"])
    return None


def _restarted(status: Mapping[str, Any]) -> bool:
    """Tell whether a container has run before, so that it may have been ready before, too."""
    return any(state.get("restartCount") for state in status.get("containerStatuses") or ())


def _soon(status: Mapping[str, Any], ready: int | None) -> bool:
    """Tell whether a pod became ready when its containers had just started."""
    running = [(state.get("state") or {}).get("running") or {} for state in status.get("containerStatuses") or ()]
    started = [clock.microseconds(state["startedAt"]) for state in running if state.get("startedAt")]
    return ready is not None and bool(started) and ready - max(started) <= _SOON_US
