"""Which workload a pod belongs to: the controller that a person wrote, not the one that Kubernetes put in between.

A Deployment's pods are owned by a ReplicaSet, a CronJob's by a Job, and neither owner names the one above. Their names
do: the one ends in the hash that the pod carries as a label, the other in the minute that it was scheduled for.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from schemas import workload as workloads

_HASH = "pod-template-hash"
_SCHEDULED = re.compile(r"(.+)-(\d{8,9})")
_LATE_MINUTES = 400 * 24 * 60  # a suspended Job may start long after it was made
_LONGEST = 512


class Owner(NamedTuple):
    """Kind and name of a workload; None where a pod was made by hand."""

    kind: str | None
    name: str | None


def find(metadata: Mapping[str, Any], created_us: int) -> Owner:
    """Return the workload that a pod belongs to.

    Args:
        metadata: The pod's.
        created_us: When the pod was created, to tell a CronJob's minute from another number.
    """
    reference = next((each for each in metadata.get("ownerReferences") or () if each.get("controller")), None)
    # The mirror of a static pod belongs to its Node, which is no workload.
    if reference is None or reference["kind"] == "Node":
        return Owner(None, None)
    kind, name = reference["kind"], reference["name"]
    ending = "-" + str((metadata.get("labels") or {}).get(_HASH, ""))
    if kind == "ReplicaSet" and len(ending) > 1 and name.endswith(ending) and name != ending:
        return Owner("Deployment", name.removesuffix(ending))
    if kind == "Job" and (match := _SCHEDULED.fullmatch(name)):
        waited = created_us // 60_000_000 - int(match[2])
        if -1 <= waited <= _LATE_MINUTES:
            return Owner("CronJob", match[1])
    return Owner(kind, name)


def workload(metadata: Mapping[str, Any], owner: Owner) -> str:
    """Return a pod's workload class: its label `spazio.class`, else its namespace and owner.

    >>> workload({"namespace": "shop", "name": "web-7d4b9c6f5-x2x9k"}, Owner(None, None))
    'shop/web'
    """
    chosen = (metadata.get("labels") or {}).get(workloads.CLASS)
    name = owner.name or workloads.owner(metadata["name"])
    return str(chosen or f"{metadata['namespace']}/{name}")[:_LONGEST]
