"""Encodes and decodes the messages of kube-scheduler's extender protocol, without I/O.

The scheduler encodes Go structures without tags (`k8s.io/kube-scheduler/extender/v1`, types.go): keys are the names of
Go fields, and unset fields are null. Go matches keys case-insensitively, and so does this module. The scheduler sends
names and UIDs to an extender with its own node cache (`nodeCacheCapable: true`), and whole Node and Pod objects to any
other; the reply then returns the passing objects unchanged.

A list of names, which is most of a body, is left as it is (`name_list`), and returned as it is if all nodes pass.

Two errors are easy to make, because the scheduler does not report them. A filter reply without a list means that no
node passes, so replies always have a list. If a score is not an integer, the scheduler drops the whole reply to
prioritize.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic_core import from_json, to_json

from sinks.extender import name_list
from sinks.extender.name_list import NameList
from sinks.extender.web.selector import Filtered

MOST_SCORE = 10  # MaxExtenderPriority

_LISTING = b'"NodeNames":'
_NO_FAILURES = b',"FailedNodes":{},"FailedAndUnresolvableNodes":{},"Error":""}'
_INT64 = 1 << 63
_SHOWN = 80


class Malformed(ValueError):
    """A body that does not follow the protocol; the message names the field."""


@dataclass(frozen=True, slots=True)
class Question:
    """ExtenderArgs: one pod, and the nodes that passed the scheduler's own filters.

    Attributes:
        pod: The v1.Pod.
        names: Names of the nodes.
        named: The request has names of nodes, so the reply must have names.
        nodes: The v1.NodeList, if the request has whole nodes; the reply must have one, too.
    """

    pod: Mapping[str, Any]
    names: Sequence[str]
    named: bool
    nodes: Mapping[str, Any] | None


class Binding(NamedTuple):
    """ExtenderBindingArgs: a pod and its node."""

    namespace: str
    name: str
    uid: str
    node: str


@dataclass(frozen=True, slots=True)
class Preemption:
    """ExtenderPreemptionArgs: the pods that the scheduler would evict to make room for a pod.

    Attributes:
        pod: The v1.Pod that needs room.
        victims: UIDs of the pods to evict, by node.
        violations: Number of disruption budgets that the eviction would violate, by node.
    """

    pod: Mapping[str, Any]
    victims: dict[str, list[str]]
    violations: dict[str, int]


def question(body: bytes) -> Question:
    """Decode the body of filter and of prioritize.

    Raises:
        Malformed: The body is invalid.
    """
    if (asked := _listed(body)) is not None:
        return asked
    content = _content(body, "ExtenderArgs")
    pod = _object(content, "Pod", "ExtenderArgs")
    names: Any = _field(content, "NodeNames")
    nodes = _field(content, "Nodes")
    if names is None and nodes is None:
        raise Malformed("ExtenderArgs: NodeNames and Nodes are both null; one of them lists the nodes to choose from")
    if names is not None and not (isinstance(names, list) and _texts(names)):
        raise Malformed(f"ExtenderArgs.NodeNames: {_shown(names)} is no list of names")
    if nodes is not None and not isinstance(nodes, dict):
        raise Malformed(f"ExtenderArgs.Nodes: {_shown(nodes)} is no NodeList")
    whole = [] if nodes is None else _names(nodes)
    return Question(pod, whole if names is None else names, named=names is not None, nodes=nodes)


def filtered(asked: Question, answer: Filtered) -> bytes:
    """Return an ExtenderFilterResult in the form of the request."""
    if answer.error:
        return unanswered(answer.error)
    names, all_pass = asked.names, answer.passing is asked.names and not answer.failed and not answer.unresolvable
    if isinstance(names, NameList) and all_pass:
        return b'{"Nodes":null,"NodeNames":%b%b' % (names.sent, _NO_FAILURES)
    nodes = None
    if asked.nodes is not None:
        passing = set(answer.passing)
        items = _field(asked.nodes, "items") or ()
        nodes = {key: value for key, value in asked.nodes.items() if key.lower() != "items"}
        nodes["items"] = [node for node in items if node["metadata"]["name"] in passing]
    return to_json(
        {
            "Nodes": nodes,
            "NodeNames": list(answer.passing) if asked.named else None,
            "FailedNodes": answer.failed,
            "FailedAndUnresolvableNodes": answer.unresolvable,
            "Error": "",
        }
    )


def unanswered(reason: str) -> bytes:
    """Return an ExtenderFilterResult that makes the scheduler retry the pod later, and show the reason."""
    unset = {"Nodes": None, "NodeNames": None, "FailedNodes": None, "FailedAndUnresolvableNodes": None}
    return to_json({**unset, "Error": reason})


def scored(scores: Mapping[str, int]) -> bytes:
    """Return a HostPriorityList; the scheduler gives 0 to absent nodes.

    Nodes of one score are encoded together as a list of names, and the score is inserted between the names: within a
    JSON string every quote is escaped, so the bytes `","` always separate two names. This takes half the time of a dict
    for each node.

    Raises:
        ValueError: A score is not an integer from 0 to 10.

    >>> scored({"a": 10, "b": 0})
    b'[{"Host":"a","Score":10},{"Host":"b","Score":0}]'
    """
    groups: dict[int, list[str]] = {}
    for name, score in scores.items():
        if score in groups:
            groups[score].append(name)
        else:
            groups[score] = [name]
    parts = []
    for score, names in groups.items():
        if score != int(score) or not 0 <= score <= MOST_SCORE:
            raise ValueError(f"score {score!r} of {names[0]} is no integer from 0 to {MOST_SCORE}")
        between = b'","Score":%d},{"Host":"' % score
        hosts = to_json(names)[2:-2].replace(b'","', between)
        parts.append(b'{"Host":"%b","Score":%d}' % (hosts, score))
    return b"[%b]" % b",".join(parts)


def binding(body: bytes) -> Binding:
    """Decode the body of bind.

    Raises:
        Malformed: The body is invalid.
    """
    content = _content(body, "ExtenderBindingArgs")
    values = [_field(content, key) for key in ("PodNamespace", "PodName", "PodUID", "Node")]
    if not all(isinstance(value, str) and value for value in values):
        raise Malformed("ExtenderBindingArgs: PodNamespace, PodName, PodUID and Node are all needed, as texts")
    return Binding(*values)


def bound(error: str) -> bytes:
    """Return an ExtenderBindingResult; an empty error means that the pod is bound."""
    return to_json({"Error": error})


def preemption(body: bytes) -> Preemption:
    """Decode the body of preempt.

    Raises:
        Malformed: The body is invalid.
    """
    content = _content(body, "ExtenderPreemptionArgs")
    pod = _object(content, "Pod", "ExtenderPreemptionArgs")
    victims: dict[str, list[str]] = {}
    violations: dict[str, int] = {}
    for key, uid in (("NodeNameToMetaVictims", _uid), ("NodeNameToVictims", _pod_uid)):
        nodes = _field(content, key)
        if nodes is not None and not isinstance(nodes, dict):
            raise Malformed(f"ExtenderPreemptionArgs.{key}: {_shown(nodes)} is no object")
        for node, evicted in (nodes or {}).items():
            where = f"ExtenderPreemptionArgs.{key}.{node}"
            if not isinstance(evicted, dict):
                raise Malformed(f"{where}: {_shown(evicted)} is no object")
            pods = _field(evicted, "Pods") or []
            if not isinstance(pods, list):
                raise Malformed(f"{where}.Pods: {_shown(pods)} is no list")
            victims[node] = [uid(victim, where) for victim in pods]
            violations[node] = _count(_field(evicted, "NumPDBViolations"), where)
    return Preemption(pod, victims, violations)


def preempted(asked: Preemption, victims: Mapping[str, Sequence[str]]) -> bytes:
    """Return an ExtenderPreemptionResult; it has UIDs even if the request has whole pods."""
    return to_json(
        {
            "NodeNameToMetaVictims": {
                node: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": asked.violations.get(node, 0)}
                for node, uids in victims.items()
            }
        }
    )


def _listed(body: bytes) -> Question | None:
    """Decode a body that ends with a list of names; None: it is another, has keys in another case, or is invalid."""
    try:
        rest, names = name_list.split(body, _LISTING)
        content = from_json(rest, allow_inf_nan=False, cache_strings="keys")
    except ValueError:
        return None
    pod, nodes, listing = (content.get(key, content) for key in ("Pod", "Nodes", "NodeNames"))
    if listing is not None or nodes is not None or not isinstance(pod, dict) or pod is content:
        return None
    return Question(pod, names, named=True, nodes=None)


def _content(body: bytes, kind: str) -> dict[str, Any]:
    try:
        # Names of nodes rarely repeat within a body; only keys profit from the cache.
        content = from_json(body, allow_inf_nan=False, cache_strings="keys")
    except ValueError as error:
        raise Malformed(f"{kind}: the body is no JSON: {error}") from error
    if not isinstance(content, dict):
        raise Malformed(f"{kind}: {_shown(content)} is no object")
    return content


def _field(content: Mapping[str, Any], name: str) -> Any:
    """Return a Go field; None if it is null or absent."""
    if name in content:
        return content[name]
    lower = name.lower()
    return next((value for key, value in content.items() if key.lower() == lower), None)


def _object(content: Mapping[str, Any], name: str, kind: str) -> dict[str, Any]:
    value = _field(content, name)
    if not isinstance(value, dict):
        raise Malformed(f"{kind}.{name}: {_shown(value)} is no object")
    return value


def _names(nodes: Mapping[str, Any]) -> list[str]:
    items = _field(nodes, "items")
    if items is None:
        return []
    try:
        names = [node["metadata"]["name"] for node in items]
    except (TypeError, KeyError, IndexError) as error:
        raise Malformed(f"ExtenderArgs.Nodes.items: a node has no metadata.name: {error!r}") from None
    if not _texts(names):
        raise Malformed("ExtenderArgs.Nodes.items: the metadata.name of a node is no text")
    return names


def _texts(values: list[Any]) -> bool:
    """Tell whether all values are strings; joining them takes half the time of checking each type."""
    try:
        "".join(values)
    except TypeError:
        return False
    return True


def _uid(victim: Any, where: str) -> str:
    uid = _field(victim, "UID") if isinstance(victim, dict) else None
    if not isinstance(uid, str):
        raise Malformed(f"{where}.Pods: {_shown(victim)} has no UID")
    return uid


def _pod_uid(victim: Any, where: str) -> str:
    metadata = victim.get("metadata") if isinstance(victim, dict) else None
    uid = metadata.get("uid") if isinstance(metadata, dict) else None
    if not isinstance(uid, str):
        raise Malformed(f"{where}.Pods: {_shown(victim)} has no metadata.uid")
    return uid


def _count(value: Any, where: str) -> int:
    count = 0 if value is None else value
    if type(count) is not int or not -_INT64 <= count < _INT64:
        raise Malformed(f"{where}.NumPDBViolations: {_shown(value)} is no integer of 64 bits")
    return count


def _shown(value: Any) -> str:
    text = f"{value!r:.{_SHOWN}}" if isinstance(value, str | int | float | None) else type(value).__name__
    return "null" if value is None else text
