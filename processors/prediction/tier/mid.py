"""Mid-tier resources: what production pods asked for and will not use, lent to pods that matter less.

Three formulas. The two of Koordinator's node prediction proposal (`proposed`, `mixed`), of what production pods were
allocated and their predicted peak; and the one that ships (`shipped`, or `static` in its place), which works in whole
milli-cores and bytes and drops what is behind the point after each product (noderesource/plugins/midresource).
Around them: when a node's Mid resources must be taken back, since nothing new is heard of it (`reset`), and when a new
figure is worth writing to the node (`write`). Everything is (rows, resources) in cores and bytes, cpu first.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.prediction.tier import koordinator, pod_sum, priority
from processors.rows import known

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Times = NDArray[np.int64]

DEGRADE_SECONDS = 900.0
DIFFERENCE = 0.1
FORCE_SECONDS = 300.0
_WHOLE = np.ones(2)


class Node(NamedTuple):
    """What the shipped formula looks at; (rows, resources) each.

    Attributes:
        capacity: What the machine has; NaN: not known, and nothing is lent.
        allocatable: What of it Kubernetes may give to pods; NaN: nothing.
        reserved: What an annotation reserves; NaN: nothing.
        system: Usage outside of pods, with that of host applications above Mid; NaN: none.
        usage: Mean usage of the last five minutes; NaN in one resource: not known, no resource is unused.
        reclaimable: What production pods will not use, as predicted; NaN: nothing.
        requested: What production pods have, see `requested`.
    """

    capacity: Array
    allocatable: Array
    reserved: Array
    system: Array
    usage: Array
    reclaimable: Array
    requested: Array


def proposed(
    allocated: Array, peak: Array, allocatable: Array, *, threshold: float | Array, reclaim: float = 1.0
) -> Array:
    """Return the proposal's first formula: `min(max(reclaim * allocated - peak, 0), allocatable * threshold)`.

    Args:
        allocated: (rows, resources) what production pods were allocated; below 0 counts as 0.
        peak: (rows, resources) predicted for them. It may exceed what they were allocated: then nothing is lent.
        allocatable: (rows, resources) of the node; below 0 counts as 0.
        threshold: Share of the node that may be lent, 0..1; for all, or per resource or row.
        reclaim: Share of what was allocated that may be lent, 0..1.

    Returns:
        (rows, resources), 0 or more; 0 where an argument is NaN: an unknown amount is not lent.
    """
    lent = np.maximum(reclaim * np.maximum(allocated, 0.0) - peak, 0.0)
    return known.or_zero(np.minimum(lent, np.maximum(allocatable, 0.0) * threshold))


def mixed(
    allocated: Array, peak: Array, allocatable: Array, *, threshold: float | Array, reclaim: float = 1.0
) -> Array:
    """Return the proposal's second formula: `proposed`, and all that is not allocated; arguments as there."""
    free = known.or_zero(np.maximum(allocatable - np.maximum(allocated, 0.0), 0.0))
    return proposed(allocated, peak, allocatable, threshold=threshold, reclaim=reclaim) + free


def requested(request: Array, classes: NDArray[np.int8], active: Mask, row: NDArray[np.intp], rows: int) -> Array:
    """Return what production pods have: the requests of those that run or wait to run.

    Args:
        request: (pods, resources); NaN and below 0 count as 0: a pod without a request holds nothing.
        classes: (pods,) as `priority.Priority`.
        active: (pods,) phase Running or Pending.
        row: (pods,) node of each; below 0: of none.
        rows: How many nodes there are.
    """
    counted = (priority.is_prod(classes) & active)[:, np.newaxis]
    whole = koordinator.quantities(request).clip(min=0)
    return koordinator.values(pod_sum.add(np.where(counted, whole, 0), row, rows))


def shipped(node: Node, *, threshold: Array = _WHOLE, unallocated: float | Array = 0.0) -> Array:
    """Return what Koordinator lends: predicted reclaimable, as far as it is unused now, and a share of what is free.

    Args:
        node: What is known of the nodes. Usage above capacity means that nothing is unused.
        threshold: (resources,) or (rows, resources), share of capacity that may be lent, 0..1.
        unallocated: Share of what no production pod has, 0..1; for all, or (rows, 1).

    Returns:
        (rows, resources), whole milli-cores and bytes, 0 or more.
    """
    capacity, allocatable, reserved, system, usage, reclaimable, asked = map(koordinator.quantities, node)
    measured = ~np.isnan(node.usage).any(axis=1, keepdims=True)
    unused = np.where(measured, capacity - usage, 0)
    base = np.maximum(np.minimum(reclaimable, unused), 0)
    held_back = np.maximum(np.maximum(np.maximum(capacity - allocatable, 0), reserved), system)
    free = np.maximum(capacity - held_back - asked, 0)
    lent = base + koordinator.scaled(free, unallocated)
    return koordinator.values(np.maximum(np.minimum(lent, koordinator.scaled(capacity, threshold)), 0))


def static(capacity: Array, *, share: Array, threshold: Array = _WHOLE) -> Array:
    """Return a fixed share of each node, which needs no prediction.

    Args:
        capacity: (rows, resources); NaN and below 0: nothing.
        share: (resources,) or (rows, resources), 0..1.
        threshold: As for `shipped`.
    """
    whole = koordinator.quantities(capacity).clip(min=0)
    return koordinator.values(np.minimum(koordinator.scaled(whole, share), koordinator.scaled(whole, threshold)))


def reset(reported_us: Times, now_us: int, enabled: Mask, *, degrade_seconds: float = DEGRADE_SECONDS) -> Mask:
    """Tell which nodes' Mid resources must be taken off the node: absent, and not 0.

    Args:
        reported_us: (rows,) when the node last reported; 0: never.
        now_us: Now.
        enabled: (rows,) whether the node lends at all.
        degrade_seconds: Age beyond which a report says nothing. One as far in the future is of a wrong clock and says
            nothing, either; Koordinator would believe it for as long as it lies ahead.
    """
    age = np.abs(now_us - reported_us)
    stale: Mask = ~enabled | (reported_us == 0) | (age > degrade_seconds * 1e6)
    return stale


def write(
    old: Array,
    new: Array,
    written_us: Times,
    now_us: int,
    *,
    difference: float = DIFFERENCE,
    force_seconds: float = FORCE_SECONDS,
) -> Mask:
    """Tell which nodes to write to: the figure moved by more than a share of the old one, or it is long ago.

    Koordinator writes at a tenth or after five minutes; its proposal's reports were to go out at 0.05 or after 600 s.

    Args:
        old: (rows, resources) what the node's status has now; NaN: nothing.
        new: (rows, resources) what it should say; NaN: nothing.
        written_us: (rows,) when it was last written; 0: never since the start. In the future counts as its distance.
        now_us: Now.
        difference: Share of the old figure that is too little to write, 0 or more; from 0 any change is enough.
        force_seconds: Time after which it is written anyhow.
    """
    was, will = ~np.isnan(old), ~np.isnan(new)
    # Koordinator compares in thousandths of what is written, which are milli-cores and bytes: the same rounding.
    before, after = koordinator.quantities(old) * 1000, koordinator.quantities(new) * 1000
    moved = np.abs(after - before) > before * difference
    forced = (written_us == 0) | (np.abs(now_us - written_us) > force_seconds * 1e6)
    changed: Mask = ((was != will) | (was & will & moved)).any(axis=1)
    due: Mask = changed | forced
    return due
