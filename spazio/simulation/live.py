"""A scenario from a live cluster: its nodes, and its pods as they would come again within a minute.

The API knows what pods request, not what they take. So a pod is taken to use what it requests, or kube-scheduler's
stand-ins where it requests nothing; it serves to the end, but if it declares itself a batch pod or belongs to a Job
it computes for a minute. Pods of DaemonSets and static pods belong to their nodes: what they request is reserved
there. The scenario can be written as a file, so that what is known better can be corrected.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

from kube import node, pod
from kube.api import Api
from kube.follow import Follower
from schemas.messages.facts import NodeFacts, PodFacts
from schemas.sections.measurement import Kube
from sinks.extender.state.pods import nonzero
from spazio import count
from spazio.simulation import trace
from spazio.simulation.scenario import Scenario, Unreadable

_ARRIVAL_SECONDS, _BATCH_SECONDS, _SECONDS = 60.0, 60.0, 300.0
_OVER = ("Succeeded", "Failed")
Object = dict[str, Any]
Table = dict[str, Any]


async def read(settings: Kube) -> Scenario:
    """Return the scenario of the cluster that the settings name.

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
        return of(nodes, [pod.facts(each, at_us=0) for each in listed[1]], static)
    except Unreadable:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unreadable(f"the cluster makes no scenario: {error}") from error


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
        nodes: The nodes; those that are not ready or take no pods are left out.
        pods: The pods; those that are over are left out.
        static: UIDs of static pods.

    Raises:
        Unreadable: No node takes pods, or no pod has to be placed.
    """
    own: dict[str, list[PodFacts]] = defaultdict(list)
    placed: list[PodFacts] = []
    for each in pods:
        if each.phase in _OVER or each.terminating:
            continue
        (own[each.node] if each.owner_kind == "DaemonSet" or each.pod in static else placed).append(each)
    usable = [each for each in nodes if each.ready and not each.unschedulable]
    if not usable or not placed:
        raise Unreadable(
            f"the cluster has {count.of(len(usable), 'node')} for pods, and {count.of(len(placed), 'pod')} to place"
        )
    return Scenario.model_validate(
        {
            "name": "live",
            "about": "A live cluster, its pods placed again within a minute",
            "seconds": _SECONDS,
            "nodes": _counted(_node(each, own[each.node]) for each in usable),
            "pods": [
                table | {"per_second": table["count"] / _ARRIVAL_SECONDS}
                for table in _counted(_pod(each) for each in placed)
            ],
        }
    )


def _counted(tables: Iterator[Table]) -> list[Table]:
    """Return equal tables as one, with their number."""
    counted = Counter(tuple(table.items()) for table in tables)
    return [dict(items) | {"count": count} for items, count in sorted(counted.items(), key=str)]


def _node(facts: NodeFacts, own: Sequence[PodFacts]) -> Table:
    taken = {resource: sum(each.requests.get(resource, 0.0) for each in own) for resource in ("cpu", "memory")}
    reserved = {
        resource: max(0.0, facts.capacity[resource] - facts.allocatable[resource]) + taken[resource]
        for resource in taken
    }
    return {
        "cpus": max(1, round(facts.capacity["cpu"])),
        "memory": facts.capacity["memory"],
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
