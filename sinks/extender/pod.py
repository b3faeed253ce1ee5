"""Parses a pod as kube-scheduler sends it into the form that strategies use.

Every request carries a pod, so parsing must be fast: each pod is parsed once, and amounts are cached (`kube.quantity`).
"""

import time
from collections.abc import Mapping
from typing import Any

from kube import clock, owner, quantity, resource
from sinks.extender.candidate import Container, Pod

STAND_INS = {"cpu": "100m", "memory": "200Mi"}  # kube-scheduler's defaults for a container without requests
_DEFAULT_SCHEDULER = "default-scheduler"
_LONGEST = 253  # longest name in Kubernetes

Object = Mapping[str, Any]


def parse(raw: Object) -> Pod:
    """Return the pod.

    Args:
        raw: A decoded v1.Pod. Optional fields and creationTimestamp may be missing or null.

    Raises:
        ValueError: It is not a valid pod; the message names the field.
    """
    metadata = _object(raw, "metadata", "pod")
    uid, namespace, name = (_text(metadata, field) for field in ("uid", "namespace", "name"))
    spec = _object(raw, "spec", f"pod {namespace}/{name}")
    try:
        return _pod(raw, metadata, spec, (uid, namespace, name))
    except KeyError as error:
        raise ValueError(f"pod {namespace}/{name}: {error} is missing") from error
    except (ValueError, TypeError, AttributeError, ArithmeticError) as error:
        raise ValueError(f"pod {namespace}/{name}: {error}") from error


def _pod(raw: Object, metadata: Object, spec: Object, identity: tuple[str, str, str]) -> Pod:
    for field in ("containers", "initContainers"):
        _check_containers(spec, field)
    labels, annotations = _texts(metadata, "labels"), _texts(metadata, "annotations")
    stamp = metadata.get("creationTimestamp")
    # A pod without a creation time comes from a file (`spazio explain`) and is new.
    created = clock.microseconds(stamp) if stamp else time.time_ns() // 1000
    controllers = (each for each in metadata.get("ownerReferences") or () if each.get("controller"))
    kind = next((str(each["kind"]) for each in controllers), "")
    requests = resource.requests(raw)
    return Pod(
        *identity,
        workload=owner.workload(metadata, owner.find(metadata, created)),
        scheduler=spec.get("schedulerName") or _DEFAULT_SCHEDULER,
        owner_kind=kind,
        priority=int(spec.get("priority") or 0),
        labels=labels,
        annotations=annotations,
        requests=requests,
        limits=resource.limits(raw),
        nonzero=_nonzero(raw, spec, requests),
        containers=tuple(_container(each) for each in spec.get("containers") or ()),
        overhead_cpu=_amount((spec.get("overhead") or {}).get("cpu")) or 0.0,
        pinned=_is_pinned(spec),
        nominated=str((raw.get("status") or {}).get("nominatedNodeName") or ""),
    )


def _is_pinned(spec: Object) -> bool:
    """Tell whether the required affinity names one node, as the controller of DaemonSets has it for each pod."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or ()
    named = [{name for each in term.get("matchFields") or () for name in _names(each)} for term in terms]
    return all(named) and len(set[str]().union(*named)) == 1


def _names(requirement: Object) -> list[str]:
    """Return the nodes that a requirement names."""
    by_name = requirement.get("key") == "metadata.name" and requirement.get("operator") == "In"
    return list(requirement.get("values") or ()) if by_name else []


def _nonzero(raw: Object, spec: Object, requests: Mapping[str, float]) -> dict[str, float]:
    """Return CPU and memory with the default for each container without a request; an explicit 0 stays 0."""
    every = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    if not all(STAND_INS.keys() <= _requests(each).keys() for each in every):
        filled = {
            field: [_filled(each) for each in spec.get(field) or ()] for field in ("containers", "initContainers")
        }
        requests = resource.requests({**raw, "spec": {**spec, **filled}})
    return {name: requests.get(name, 0.0) for name in STAND_INS}


def _filled(container: Object) -> dict[str, Any]:
    resources = container.get("resources") or {}
    return {**container, "resources": {**resources, "requests": {**STAND_INS, **_requests(container)}}}


def _container(container: Object) -> Container:
    limits = (container.get("resources") or {}).get("limits") or {}
    return Container(_amount(_requests(container).get("cpu")), _amount(limits.get("cpu")))


def _requests(container: Object) -> Object:
    value: Object = (container.get("resources") or {}).get("requests") or {}
    return value


def _amount(text: object) -> float | None:
    return None if text is None else float(quantity.parse(text))


def _object(raw: object, field: str, where: str) -> Object:
    value = raw.get(field) if isinstance(raw, Mapping) else None
    if not isinstance(value, Mapping):
        raise ValueError(f"{where}: {field} is {'missing' if value is None else 'no object'}")  # noqa: TRY004 # as for every invalid pod
    return value


def _check_containers(spec: Object, field: str) -> None:
    containers = spec.get(field)
    if containers is None:
        return
    if not isinstance(containers, list):
        raise ValueError(f"spec.{field} is no list")  # noqa: TRY004 # as for every invalid pod
    for index, container in enumerate(containers):
        where = f"spec.{field}[{index}]"
        if not isinstance(container, Mapping):
            raise ValueError(f"{where} is no object")  # noqa: TRY004
        if not isinstance(container.get("name"), str):
            raise ValueError(f"{where}: name is {'no text' if container.get('name') else 'missing'}")  # noqa: TRY004
        resources = container.get("resources") or {}
        for side in ("requests", "limits"):
            if not isinstance(resources, Mapping) or not isinstance(resources.get(side) or {}, Mapping):
                raise ValueError(f"{where}: resources.{side} are no object, such as {{cpu: 500m}}")  # noqa: TRY004


def _texts(metadata: Object, field: str) -> Mapping[str, str]:
    texts = metadata.get(field) or {}
    if not isinstance(texts, Mapping):
        raise ValueError(f"metadata.{field} is no object")  # noqa: TRY004
    for key, value in texts.items():
        if not isinstance(value, str):
            raise ValueError(f"metadata.{field}: {key} is no text; put it in quotes")  # noqa: TRY004
    return texts


def _text(metadata: Object, field: str) -> str:
    value = metadata.get(field)
    if not (isinstance(value, str) and value):
        raise ValueError(f"pod: metadata.{field} is {'missing' if not value else 'no text'}")
    if len(value) > _LONGEST or not value.isprintable():
        raise ValueError(f"pod: metadata.{field} has more than {_LONGEST} characters, or some that cannot be shown")
    return value
