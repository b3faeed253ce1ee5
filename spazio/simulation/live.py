"""A scenario from a live cluster: its nodes, and its pods as they would come again within a minute.

The API knows what pods request, not what they take. So a pod is taken to use what it requests, or kube-scheduler's
stand-ins where it requests nothing. It serves to the end; one that declares itself a batch pod or belongs to a Job
computes as many core-seconds as its request allows in a minute, 6 for 100m. Pods of DaemonSets and static pods belong
to their nodes: what they request is reserved there. Nodes with taints keep the pods that tolerate them, so both are
left out. The scenario can be written as a file, so that what is known better can be corrected.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, NamedTuple

from kube import node, pod
from kube.api import Api
from kube.follow import Follower
from schemas.messages.facts import NodeFacts, PodFacts, Taint
from schemas.sections.measurement import Kube
from sinks.extender.state.pod_sums import nonzero
from spazio import count
from spazio.simulation import trace
from spazio.simulation.scenario import Scenario, Unreadable
from spazio.terminal import clean

_ARRIVAL_SECONDS, _BATCH_SECONDS, _SECONDS = 60.0, 60.0, 300.0
_OVER = ("Succeeded", "Failed")
_CONSTRAINTS = ("nodeSelector", "affinity", "topologySpreadConstraints")
Object = dict[str, Any]
Table = dict[str, Any]


class _Division(NamedTuple):
    """What is taken of a cluster, and what is left out.

    Attributes:
        usable: Nodes that take pods.
        own: Pods of DaemonSets and static pods, by node.
        placed: Pods to place.
        tainted: Names of nodes that would take pods but for their taints.
        staying: How many pods are on those.
    """

    usable: Sequence[NodeFacts]
    own: Mapping[str, Sequence[PodFacts]]
    placed: Sequence[PodFacts]
    tainted: Collection[str]
    staying: int


async def read(settings: Kube) -> Scenario:
    """Return the scenario of the cluster that the settings name, and print what it leaves out.

    Raises:
        Unreadable: The API server cannot be reached, or what it has makes no scenario.
        SettingsError: No API server is configured.
    """
    client = Api(settings)
    try:
        listed = [await _objects(client, resource, settings) for resource in ("nodes", "pods")]
    finally:
        await client.close()
    try:
        nodes = [node.facts(each, at_us=0, price_label=settings.price_label) for each in listed[0]]
        static = {
            pod.uid(each["metadata"]) for each in listed[1] if pod.MIRROR in (each["metadata"].get("annotations") or {})
        }
        pods = [pod.facts(each, at_us=0) for each in listed[1]]
        constrained = {
            pod.uid(each["metadata"]) for each in listed[1] if any(each["spec"].get(name) for name in _CONSTRAINTS)
        }
        made, omission = of(nodes, pods, static), left_out(nodes, pods, static, constrained)
    except Unreadable:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unreadable(f"the cluster makes no scenario: {error}") from error
    if omission:
        clean.complain(omission)
    return made


async def _objects(client: Api, resource: str, settings: Kube) -> list[Object]:
    """List a resource once; a server that stays away for three attempts ends it."""
    objects: list[Object] = []
    follower = Follower(client, resource, settings, partial(_give_up, resource))
    async with aclosing(follower.news(0)) as news:
        async for each in news:
            if each.what == "listing":
                objects.clear()
            elif each.what == "present":
                objects.append(each.object)
            elif each.what == "listed":
                break
    return objects


def _give_up(resource: str, trouble: str | None) -> None:
    if trouble is not None:
        raise Unreadable(f"the cluster's {resource} cannot be listed: {trouble}")


def of(nodes: Sequence[NodeFacts], pods: Sequence[PodFacts], static: Collection[str] = ()) -> Scenario:
    """Return the scenario of these nodes and pods.

    Args:
        nodes: The nodes; those that are not ready, or cordoned, or have taints that keep pods away are left out.
        pods: The pods; those that are over or on a node with such taints are left out.
        static: UIDs of static pods.

    Raises:
        Unreadable: No node takes pods, or no pod has to be placed.
    """
    usable, own, placed, tainted, _ = _divide(nodes, pods, static)
    if not usable or not placed:
        raise Unreadable(
            f"the cluster has {count.of(len(usable), 'node')} for pods, and {count.of(len(placed), 'pod')} to place"
            + (f", beside {count.of(len(tainted), 'node')} with taints" if tainted else "")
        )
    return Scenario.model_validate(
        {
            "name": "live",
            "about": "A live cluster, its pods placed again within a minute",
            "seconds": _SECONDS,
            "nodes": _counted(_node(each, own.get(each.node, ())) for each in usable),
            "pods": [
                table | {"per_second": table["count"] / _ARRIVAL_SECONDS}
                for table in _counted(_pod(each) for each in placed)
            ],
        }
    )


def left_out(
    nodes: Sequence[NodeFacts], pods: Sequence[PodFacts], static: Collection[str], constrained: Collection[str]
) -> str:
    """Return what the scenario of these nodes and pods leaves out, as a sentence; empty: nothing.

    Args:
        nodes: As for `of`.
        pods: As for `of`.
        static: As for `of`.
        constrained: UIDs of pods with a node selector, affinity, or constraints of topology spread.
    """
    usable, _, placed, tainted, staying = _divide(nodes, pods, static)
    bound = sum(each.pod in constrained for each in placed)
    others = sum(bool(each.requests.keys() - {"cpu", "memory"}) for each in placed)
    avoided = sum(any(taint.effect == "PreferNoSchedule" for taint in each.taints) for each in usable)
    parts = {
        f"{count.of(len(tainted), 'node')} with taints and {count.of(staying, 'pod')} there": len(tainted),
        f"PreferNoSchedule taints of {count.of(avoided, 'node')}": avoided,
        f"selectors, affinity and topology spread of {count.of(bound, 'pod')}": bound,
        f"requests of {count.of(others, 'pod')} for more than CPU and memory": others,
    }
    named = [part for part, number in parts.items() if number]
    return f"the scenario leaves out: {'; '.join(named)}" if named else ""


def _divide(nodes: Sequence[NodeFacts], pods: Sequence[PodFacts], static: Collection[str]) -> _Division:
    ready = [each for each in nodes if each.ready and not each.unschedulable]
    tainted = {each.node for each in ready if any(map(_keeps_away, each.taints))}
    own: dict[str, list[PodFacts]] = defaultdict(list)
    placed: list[PodFacts] = []
    for each in pods:
        if each.phase in _OVER or each.terminating:
            continue
        (own[each.node] if each.owner_kind == "DaemonSet" or each.pod in static else placed).append(each)
    moving = [each for each in placed if each.node not in tainted]
    return _Division(
        [each for each in ready if each.node not in tainted], own, moving, tainted, len(placed) - len(moving)
    )


def _keeps_away(taint: Taint) -> bool:
    """Tell whether a taint keeps pods away; that of a full node does not, since its pods are placed again."""
    return taint.effect != "PreferNoSchedule" and taint.key != node.FULL


def _counted(tables: Iterator[Table]) -> list[Table]:
    """Return equal tables as one, with their number."""
    counted = Counter(tuple(table.items()) for table in tables)
    return [dict(items) | {"count": count} for items, count in sorted(counted.items(), key=str)]


def _node(facts: NodeFacts, own: Sequence[PodFacts]) -> Table:
    amounts = {"cpu": float(max(1, round(facts.capacity["cpu"]))), "memory": facts.capacity["memory"]}
    reserved = {}
    for resource, amount in amounts.items():
        taken = sum(each.requests.get(resource, 0.0) for each in own)
        kept = max(0.0, facts.capacity[resource] - facts.allocatable[resource])
        reserved[resource] = min(amount, kept + taken)
    return {
        "cpus": int(amounts["cpu"]),
        "memory": amounts["memory"],
        "reserved_cpu": round(reserved["cpu"], 6),
        "reserved_memory": reserved["memory"],
        "pods": max(1, round(facts.allocatable.get("pods", 110.0)) - len(own)),
    }


def _pod(facts: PodFacts) -> Table:
    used = nonzero(facts.requests)
    requested = {f"{name}_request": facts.requests[name] for name in ("cpu", "memory") if facts.requests.get(name)}
    kind = facts.kind or ("batch" if facts.owner_kind in ("Job", "CronJob") else "serving")
    table = trace.use(kind, max(used["cpu"], 0.001), _BATCH_SECONDS if kind == "batch" else 0.0)
    return {"name": trace.named(facts.workload), "memory": used["memory"], **requested, **table}
