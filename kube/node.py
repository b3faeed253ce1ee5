"""A Node of the API as `NodeFacts`: what placement needs, and none of the heartbeats."""

import logging
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from kube import clock, quantity
from schemas.messages.facts import NodeFacts, Taint

log = logging.getLogger(__name__)

OURS = "spazio"
FULL = "spazio.io/full"  # key of the taint of nodes without room
_MOST, _LONGEST = 256, 4096  # no message holds more; all else of the object counts nevertheless
_TYPE, _ZONE = "node.kubernetes.io/instance-type", "topology.kubernetes.io/zone"


def facts(node: Mapping[str, Any], *, at_us: int, price_label: str) -> NodeFacts:
    """Return what is known of a node.

    Args:
        node: The object as the API server sends it.
        at_us: When it came.
        price_label: Label or annotation that holds the price per hour; the label wins.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: The object is not what the API promises.
    """
    metadata, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    labels, notes = metadata.get("labels") or {}, metadata.get("annotations") or {}
    price = labels.get(price_label, notes.get(price_label))
    return NodeFacts(
        node=metadata["name"],
        uid=metadata["uid"],
        version=int(metadata["resourceVersion"]),
        at_us=at_us,
        created_us=clock.microseconds(metadata["creationTimestamp"]),
        ready=any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions") or ()),
        unschedulable=bool(spec.get("unschedulable")),
        allocatable=quantity.plain(quantity.parse_all(status.get("allocatable"))),
        capacity=quantity.plain(quantity.parse_all(status.get("capacity"))),
        labels=labels,
        annotations=own(notes),
        taints=[
            Taint(key=each["key"], value=each.get("value") or "", effect=each["effect"])
            for each in spec.get("taints") or ()
        ],
        price=None if price is None else _price(metadata["name"], price),
        type=labels.get(_TYPE) or None,
        zone=labels.get(_ZONE) or None,
        kubelet=(status.get("nodeInfo") or {}).get("kubeletVersion") or None,
    )


def own(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the annotations that are meant for us; others may be large and change often."""
    ours = {key: value for key, value in annotations.items() if key.startswith(OURS) and len(value) <= _LONGEST}
    return dict(sorted(ours.items())[:_MOST])


@lru_cache(maxsize=4096)  # an unreadable price is logged once, not with every change of its node
def _price(node: str, text: str) -> float | None:
    try:
        price = float(text)
    except ValueError:
        price = math.nan
    if not (math.isfinite(price) and price >= 0):
        log.warning(
            "node.price_unreadable", extra={"node": node, "price": text[:64], "wanted": "a number such as 0.12"}
        )
        return None
    return price
