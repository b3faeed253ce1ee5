"""How many pods of a workload class the cluster can take, and what keeps it from taking more.

A node takes whole pods, and a pod wants all resources in one place. So the sum over nodes of what fits is less than
what the same free resources would hold as one large machine (`fluid`); the lost share is `fragmentation`. What is
free but has no use for the class, since another resource is gone, is `stranded`. Definitions as of multi-resource
packing: with y the share of node n's resource i that is free, and W the share that one pod takes,

    available = sum_n floor(a_n),  a_n the pods that fit on node n
    fluid = min_i sum_n y_ni / W_ni
    fragmentation = 1 - available / fluid
    stranded_i = sum_n (y_ni / W_ni - a_n) / sum_n y_ni / W_ni

Amounts are counted in pods of the class, which adds up over nodes of different sizes; where all nodes are alike, the
stranded share is that of the free cores and bytes. On a node whose pod limit or disks come first, fluid counts the pods
that are left to it: no repacking makes it take more. Its free resources are stranded all the same.
"""

from collections.abc import Iterable
from typing import NamedTuple

from schemas.messages.estimate import Availability

UNSHARED = (
    "disk",
    "pods",
)  # what a pod takes of them is in no message, so nothing tells what would fit if nodes were one
# A class that takes less of a node is bound by the pod limit alone; keeps y / W finite.
LEAST = 1e-9


class Total(NamedTuple):
    """One workload class over all nodes that report it.

    Attributes:
        workload: Name of the class.
        nodes: Nodes that say how many of its pods fit.
        pods: Running pods.
        available: More pods that fit, whole pods on each node.
        lower: The same of the nodes' one-sided 90 % lower bounds; lower than a 90 % bound of the sum.
        fluid: More pods that would fit if all nodes were one.
        fragmentation: Share of those that is lost between nodes; None: nothing is free.
        stranded_cpu: Share of the free CPU that the class cannot use; None: no CPU is free.
        stranded_memory: Share of the free memory that the class cannot use; None: no memory is free.
        bound_cpu: Share of nodes whose CPU runs out first.
        bound_memory: Share of nodes whose memory runs out first.
        bound_disk: Share of nodes whose disks come first.
        bound_pods: Share of nodes whose pod limit comes first.
    """

    workload: str
    nodes: int
    pods: int
    available: float
    lower: float
    fluid: float
    fragmentation: float | None
    stranded_cpu: float | None
    stranded_memory: float | None
    bound_cpu: float
    bound_memory: float
    bound_disk: float
    bound_pods: float

    @property
    def bound(self) -> dict[str, float]:
        """Share of nodes by what runs out first."""
        return {"cpu": self.bound_cpu, "memory": self.bound_memory, "disk": self.bound_disk, "pods": self.bound_pods}

    @property
    def binding(self) -> str:
        """What runs out first on most nodes."""
        bound = self.bound
        return max(bound, key=lambda name: bound[name])


class Stranded(NamedTuple):
    """What is free on the full nodes, whose lower bound leaves no room for a pod, by the resource that has run out.

    Attributes:
        binding: What has run out: `cpu`, `memory`, `disk` or `pods`.
        nodes: Number of nodes.
        cpu: Free cores on them; 0 where CPU has run out.
        memory: Free bytes on them; 0 where memory has run out.
    """

    binding: str
    nodes: int
    cpu: float
    memory: float


class _Room(NamedTuple):
    """What one node says of one class; `cpu` and `memory` are pods that would fit by that resource alone."""

    pods: int
    available: float
    lower: float
    binding: str
    cpu: float
    memory: float


def totals(rows: Iterable[Availability]) -> list[Total]:
    """Add up nodes; classes with most running pods first. A node that does not say what is free is left out."""
    rooms: dict[str, list[_Room]] = {}
    for row in rows:
        free = row.free or {}
        if "cpu" not in free or "memory" not in free:
            continue
        for workload, room in (row.classes or {}).items():
            cpu, memory = free["cpu"] / max(room.cpu, LEAST), free["memory"] / max(room.memory, LEAST)
            rooms.setdefault(workload, []).append(
                _Room(room.pods, room.available, room.lower, room.binding, cpu, memory)
            )
    return sorted(
        (_total(workload, listed) for workload, listed in rooms.items()), key=lambda each: (-each.pods, each[0])
    )


def stranded(rows: Iterable[Availability]) -> list[Stranded]:
    """Add up what full nodes cannot use, in cores and bytes, by what has run out on them; most nodes first.

    A node that does not say what is free, and of how much, is left out.
    """
    by_binding: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        free, limits = row.free or {}, row.limits or {}
        if row.lower >= 1 or not {"cpu", "memory"} <= free.keys() & limits.keys():
            continue
        left = {name: 0.0 if row.binding == name else free[name] * limits[name] for name in ("cpu", "memory")}
        by_binding.setdefault(row.binding, []).append((left["cpu"], left["memory"]))
    sums = [
        Stranded(binding, len(left), sum(cpu for cpu, _ in left), sum(memory for _, memory in left))
        for binding, left in by_binding.items()
    ]
    return sorted(sums, key=lambda each: (-each.nodes, each.binding))


def _total(workload: str, rooms: list[_Room]) -> Total:
    available = float(sum(room.available // 1 for room in rooms))
    fluid = min(sum(_unlimited(room, room.cpu) for room in rooms), sum(_unlimited(room, room.memory) for room in rooms))
    fitting = sum(room.available for room in rooms)
    return Total(
        workload=workload,
        nodes=len(rooms),
        pods=sum(room.pods for room in rooms),
        available=available,
        lower=float(sum(room.lower // 1 for room in rooms)),
        fluid=fluid,
        fragmentation=_lost(available, fluid),
        stranded_cpu=_lost(fitting, sum(room.cpu for room in rooms)),
        stranded_memory=_lost(fitting, sum(room.memory for room in rooms)),
        bound_cpu=_bound(rooms, "cpu"),
        bound_memory=_bound(rooms, "memory"),
        bound_disk=_bound(rooms, "disk"),
        bound_pods=_bound(rooms, "pods"),
    )


def _unlimited(room: _Room, fits: float) -> float:
    return min(fits, room.available) if room.binding in UNSHARED else fits


def _lost(used: float, whole: float) -> float | None:
    """Return the unused share; rounding on the wire may let the two differ by a hair, hence the bound."""
    return max(0.0, 1 - used / whole) if whole > 0 else None


def _bound(rooms: list[_Room], binding: str) -> float:
    return sum(room.binding == binding for room in rooms) / len(rooms)
