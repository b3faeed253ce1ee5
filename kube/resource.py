"""What a pod asks for, as the scheduler counts it.

Containers run side by side, so they add up. Init containers run one after the other before them, so only the largest
counts; one with restart policy Always (a sidecar) stays, so it counts from its turn on and beside the containers. An
amount stated for the whole pod displaces the sum. While a resize is under way the larger of the old and the new
counts. Sources: Kubernetes KEP-753 (sidecars), KEP-2837 (pod level), KEP-1287 (resize), and the scheduler's own
`component-helpers/resource`.
"""

from collections.abc import Mapping
from typing import Any, Literal

from kube import quantity
from kube.quantity import Amounts

Side = Literal["requests", "limits"]
Object = Mapping[str, Any]


def requests(pod: Object) -> dict[str, float]:
    """Return the pod's effective requests by resource, in base units.

    A request of 0 is as none, and left out: the API server takes any number of them, of resources that exist nowhere.
    Only for CPU and memory it differs, since kube-scheduler assumes something where none is stated.

    Raises:
        ValueError: A quantity cannot be read, or is less than 0.
    """
    total = quantity.add(_stated(pod, "requests"), _amounts(pod["spec"], "overhead"))
    return quantity.plain({name: amount for name, amount in total.items() if amount or name in ("cpu", "memory")})


def limits(pod: Object) -> dict[str, float]:
    """Return the sums of those limits that are stated; a container without one is bounded by nothing.

    Raises:
        ValueError: As `requests`.
    """
    total = _stated(pod, "limits")
    overhead = _amounts(pod["spec"], "overhead")
    return quantity.plain(quantity.add(total, {name: more for name, more in overhead.items() if total.get(name)}))


def _stated(pod: Object, side: Side) -> Amounts:
    total = _containers(pod, side)
    resources = pod["spec"].get("resources") or {}
    whole = _amounts(resources, side)
    actual = (pod.get("status") or {}).get("resources")
    if whole and actual is not None:
        effective = _effective(pod, side, whole, actual, pod["status"])
        whole = {name: effective.get(name, amount) for name, amount in whole.items()}
    return total | {name: amount for name, amount in whole.items() if _pod_level(name)}


def _pod_level(name: str) -> bool:
    return name in ("cpu", "memory") or name.startswith("hugepages-")


def _containers(pod: Object, side: Side) -> Amounts:
    spec, status = pod["spec"], pod.get("status") or {}
    states = {
        state["name"]: state
        for field in ("containerStatuses", "initContainerStatuses")
        for state in status.get(field) or ()
    }
    total: Amounts = {}
    for container in spec.get("containers") or ():
        quantity.increase(total, _container(pod, side, container, states))
    sidecars: Amounts = {}
    starting: Amounts = {}
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            own = _container(pod, side, container, states)
            quantity.increase(total, own)
            quantity.increase(sidecars, own)
            starting = quantity.larger(starting, sidecars)
        else:
            own = _container(pod, side, container, {})
            starting = quantity.larger(starting, quantity.add(own, sidecars))
    return quantity.larger(total, starting)


def _container(pod: Object, side: Side, container: Object, states: Mapping[str, Object]) -> Amounts:
    wanted = _amounts(container.get("resources") or {}, side)
    state = states.get(container["name"], {})
    if state.get("resources") is None:
        return wanted
    return _effective(pod, side, wanted, state["resources"], state)


def _effective(pod: Object, side: Side, wanted: Amounts, actual: Object, state: Object) -> Amounts:
    """Return what counts while what is wanted, what is allocated and what is in force may differ."""
    present = _amounts(actual, side)
    if side == "requests":
        present = quantity.larger(present, _amounts(state, "allocatedResources"))
    return present if _infeasible(pod) else quantity.larger(wanted, present)


def _amounts(holder: Object, field: str) -> Amounts:
    """Return a field's amounts, which the API server lets be 0 or more."""
    amounts = quantity.parse_all(holder.get(field))
    for name, amount in amounts.items():
        if amount < 0:
            raise ValueError(f"{field}: {name} is {amount}; an amount is 0 or more")
    return amounts


def _infeasible(pod: Object) -> bool:
    """Tell whether the node has refused a resize for good."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "PodResizePending" and each.get("reason") == "Infeasible" for each in conditions)
