"""What tests of the extender are made of: reports, facts, pods as the scheduler sends them, a bucket in memory."""

from collections.abc import Mapping
from typing import Any

from schemas import settings as all_settings
from schemas.messages.estimate import Availability, ClassRoom
from schemas.messages.facts import UNBOUND, NodeFacts, PodFacts
from schemas.messages.placement import Decision, Held, Reservations
from schemas.settings import Settings
from sinks.extender.placement import PlacementSelector
from sinks.extender.requeue import WaitingPods
from sinks.extender.state.cluster_state import ClusterState
from sinks.extender.state.store import Conflict, ReservationStore, Unavailable

SECOND = 1_000_000
START = 1_800_000_000 * SECOND
GIB = 1 << 30
STATIC = "0123456789abcdef0123456789abcdef"  # UID of a static pod


def given(**flat: str) -> Settings:
    return all_settings.load(flat, environ={})


def report(
    node: str,
    at_us: int,
    available: float,
    *,
    lower: float | None = None,
    prior: float = 0.1,
    classes: Mapping[str, tuple[float, float]] | None = None,
    free: Mapping[str, float] | None = None,
    running: int = 1,
    **changed: Any,
) -> Availability:
    binding = changed.get("binding", "cpu")
    rooms = {
        name: ClassRoom(available=mean, lower=least, binding=binding, pods=running, cpu=0.1, memory=0.1)
        for name, (mean, least) in (classes or {}).items()
    }
    fields: dict[str, Any] = {
        "node": node, "at_us": at_us, "seq": at_us // SECOND, "available": available,
        "lower": available if lower is None else lower, "upper": available, "signal": 1.0, "cost": 0.1,
        "capacity": 1.0, "pods": 1, "binding": binding, "mode": "signal", "churn": False, "prior": prior,
        "usage": {"cpu": 0.5, "memory": 0.25}, "explained": 1.0, "gap": 0.0, "since_us": at_us,
        "classes": rooms or None, "free": dict.fromkeys(free, 0.5) if free else None,
        "limits": {name: 2 * amount for name, amount in free.items()} if free else None,
    }  # fmt: skip
    return Availability(**fields | changed)


def node(name: str, version: int = 1, **changed: Any) -> NodeFacts:
    amounts = {"cpu": 4.0, "memory": 16.0 * GIB, "pods": 110.0, "ephemeral-storage": 100.0 * GIB}
    fields: dict[str, Any] = {
        "node": name, "uid": f"node-{name}", "version": version, "at_us": START, "created_us": START, "ready": True,
        "unschedulable": False, "allocatable": amounts, "capacity": amounts, "labels": {}, "annotations": {},
        "taints": [],
    }  # fmt: skip
    return NodeFacts(**fields | changed)


def pod(uid: str, version: int = 1, **changed: Any) -> PodFacts:
    fields: dict[str, Any] = {
        "node": UNBOUND, "pod": uid, "namespace": "default", "name": uid, "version": version, "at_us": START,
        "phase": "Pending", "created_us": START, "requests": {"cpu": 0.1, "memory": 0.125 * GIB}, "limits": {},
        "labels": {}, "annotations": {}, "workload": "default/web",
    }  # fmt: skip
    return PodFacts(**fields | changed)


def pinned(*nodes: str) -> dict[str, Any]:
    """Return an affinity that names nodes, as the controller of a DaemonSet names one."""
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]} for name in nodes]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def asked(uid: str, *, workload: str = "", cpu: str = "100m", owner: str = "", **metadata: Any) -> dict[str, Any]:
    """Return a pod as the scheduler sends it; one of a DaemonSet is for node a."""
    labels = {"spazio.class": workload} if workload else {}
    owners = [{"kind": owner, "name": "o", "controller": True}] if owner else None
    return {
        "metadata": {
            "name": uid, "namespace": "default", "uid": uid, "creationTimestamp": None, "labels": labels,
            "ownerReferences": owners, **metadata,
        },
        "spec": {
            "schedulerName": "default-scheduler", **({"affinity": pinned("a")} if owner == "DaemonSet" else {}),
            "containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu, "memory": "128Mi"}}}],
        },
        "status": {"phase": "Pending"},
    }  # fmt: skip


class Clock:
    """The time, moved by hand."""

    def __init__(self) -> None:
        self.now_us = START

    def __call__(self) -> int:
        return self.now_us

    def pass_seconds(self, seconds: float) -> None:
        self.now_us += round(seconds * SECOND)


class Bucket:
    """A bucket that compares and swaps, for any number of replicas."""

    def __init__(self) -> None:
        self.sequence = 0
        self.held: dict[str, tuple[int, Reservations]] = {}
        self.away = False


class LocalStore(ReservationStore):
    """A store on such a bucket; a replica takes others' writes in `listen`."""

    def __init__(self, cluster_state: ClusterState, bucket: Bucket) -> None:
        self._cluster_state, self._bucket, self._heard = cluster_state, bucket, 0

    async def hold(self, node: str, uid: str, held: Held, now_us: int) -> None:
        row = self._cluster_state.rows.row(node)
        self._write(node, self._cluster_state.reservations.held(row, now_us, but=uid) | {uid: held})

    async def release(self, node: str, uid: str, now_us: int) -> None:
        self._write(node, self._cluster_state.reservations.held(self._cluster_state.rows.row(node), now_us, but=uid))

    def listen(self) -> None:
        for sequence, message in sorted(self._bucket.held.values(), key=lambda each: each[0]):
            self._cluster_state.reservations.hear(message, sequence)

    def _write(self, node: str, pods: dict[str, Held]) -> None:
        if self._bucket.away:
            raise Unavailable("away")
        sequence = self._cluster_state.reservations.sequence(self._cluster_state.rows.row(node))
        if (stored := self._bucket.held.get(node)) is not None and stored[0] != sequence:
            self._cluster_state.reservations.hear(stored[1], stored[0])
            raise Conflict(node)
        self._bucket.sequence += 1
        message = Reservations(node=node, pods=pods)
        self._bucket.held[node] = (self._bucket.sequence, message)
        self._cluster_state.reservations.hear(message, self._bucket.sequence)


class Replica:
    """An extender without its network."""

    def __init__(self, settings: Settings, clock: Clock, bucket: Bucket | None = None) -> None:
        self.settings, self.clock = settings, clock
        self.cluster_state, self.waiting, self.decisions = ClusterState(settings), WaitingPods(), list[Decision]()
        self.store = LocalStore(self.cluster_state, bucket or Bucket())
        self.selector = PlacementSelector(
            settings.extender,
            self.cluster_state,
            self.store,
            self.waiting,
            self.decisions.append,
            self._bind,
            clock,
            lambda callback: callback(),
        )

    async def place(self, uid: str, nodes: list[str], **about: Any) -> str | None:
        """Ask as kube-scheduler does; returns where the pod would be bound."""
        raw = asked(uid, **about)
        answer = await self.selector.filter(raw, nodes)
        assert not answer.error, answer.error
        if len(answer.passing) < 2:
            return next(iter(answer.passing), None)
        scores = await self.selector.prioritize(raw, list(answer.passing))
        return max(answer.passing, key=lambda name: scores.get(name, 0))

    async def _bind(self, namespace: str, name: str, uid: str, node: str) -> str:
        return ""


def decision(at_us: int) -> Decision:
    """Return the decision on the pod shop/web, which was placed on node-1."""
    return Decision(
        namespace="shop", name="web", pod="uid", workload="shop/web", at_us=at_us, outcome="placed",
        node="node-1", mode="argmax",
        guaranteed=True, strategies={"availability": 1.0}, nodes=5, feasible=4, refused={"full": 1}, ranked=[],
        refusals=[], seconds=0.002,
    )  # fmt: skip
