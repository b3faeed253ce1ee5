"""Marks of a Node that autoscalers read: the taint of a full node, and annotations against its removal.

Taints are an atomic list for server-side apply, so a merge patch replaces the list as it was read. The patch names the
version of the node, and the API server refuses it if the node has changed: taints of others are never lost.

Taint and annotation carry their time. An annotation of our own names which of the autoscalers' annotations are ours;
one that somebody else has set stays as it is.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from kube.node import FULL

EFFECT = "NoSchedule"
KEEP = "spazio.io/keep"
OF_AUTOSCALERS = ("cluster-autoscaler.kubernetes.io/scale-down-disabled", "karpenter.sh/do-not-disrupt")
_YES = "true"
_TIME = "%Y%m%dT%H%M%SZ"  # a taint's value has no colons


class Marks(NamedTuple):
    """The marks of a Node as the API server has it; times in seconds since the epoch.

    Attributes:
        taints: All its taints.
        full_at: Time of our taint; None: it has none.
        keep_at: Time of our annotation; None: it has none.
        ours: Annotations of autoscalers that are ours.
        others: Annotations of autoscalers that somebody else has set.
    """

    taints: tuple[Mapping[str, Any], ...] = ()
    full_at: float | None = None
    keep_at: float | None = None
    ours: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    @property
    def any(self) -> bool:
        """Whether it has a mark of ours."""
        return self.full_at is not None or self.keep_at is not None


def read(node: Mapping[str, Any]) -> Marks:
    """Return the marks of a Node; raises what `Objects` expects."""
    notes = node["metadata"].get("annotations") or {}
    taints = tuple((node.get("spec") or {}).get("taints") or ())
    full_at, keep_at, ours = None, None, list[str]()
    for taint in taints:
        if _is_ours(taint):
            full_at = _seconds(str(taint.get("value") or ""))
    if KEEP in notes:
        text, *ours = str(notes[KEEP]).split() or [""]
        keep_at = _seconds(text)
    own = tuple(name for name in OF_AUTOSCALERS if name in ours and notes.get(name) == _YES)
    others = tuple(name for name in OF_AUTOSCALERS if name in notes and name not in own)
    return Marks(taints, full_at, keep_at, own, others)


def patch(version: str, marks: Marks, *, full: bool, keep: bool, now: float) -> dict[str, Any] | None:
    """Return the merge patch that gives a Node the marks; None: it has them.

    Args:
        version: The Node's resourceVersion.
        marks: Its marks.
        full: Whether it should have the taint.
        keep: Whether it should have the annotations.
        now: Seconds since the epoch.
    """
    body: dict[str, Any] = {}
    metadata: dict[str, Any] = {"resourceVersion": version}
    stamp = datetime.fromtimestamp(now, UTC).strftime(_TIME)
    if full != (marks.full_at is not None):
        taints = [dict(taint) for taint in marks.taints if not _is_ours(taint)]
        if full:
            taints.append({"key": FULL, "value": stamp, "effect": EFFECT})
        body["spec"] = {"taints": taints or None}
    if keep != (marks.keep_at is not None):
        names = [name for name in OF_AUTOSCALERS if name not in marks.others]
        put = dict.fromkeys(names, _YES) | {KEEP: " ".join((stamp, *names))}
        metadata["annotations"] = put if keep else dict.fromkeys((KEEP, *marks.ours))
    return body | {"metadata": metadata} if body or "annotations" in metadata else None


def _is_ours(taint: Mapping[str, Any]) -> bool:
    return bool(taint["key"] == FULL and taint["effect"] == EFFECT)


def _seconds(text: str) -> float:
    """Return the time in a mark; 0 if it has none, as where a person has set it: such a mark is old."""
    try:
        return datetime.strptime(text, _TIME).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0
