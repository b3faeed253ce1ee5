"""Twelve nodes in three partitions with the aggregate between them, one of which may say anything."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from processors.partition.aggregate import Aggregate
from processors.partition.partition import Partition
from schemas import codec, role
from schemas.messages.base import Message
from schemas.messages.estimate import Availability, Model
from schemas.messages.facts import NodeFacts
from schemas.messages.telemetry import ContainerEvent, EdgeBlock, Size
from schemas.settings import load
from tests.support.processors.mix import pod, sampled
from tests.support.processors.telemetry import METRICS, NAMES, START, event, facts, stored, usage

NODES, PARTITIONS = 12, 3
LIAR = "n0"
WARM, LONG = 45, 14
OTHERS = [f"n{number}" for number in range(1, NODES)]
EMPTY = ("n10", "n11")  # honest nodes that run no pods
_COST = {"a": (0.5, 1e9), "b": (1.2, 5e8)}


@dataclass(frozen=True)
class Lie:
    """What the liar says in a second; fields that are None are honest."""

    cpus: int | None = None
    memory_bytes: int | None = None
    metrics: tuple[tuple[str, float], ...] = ()
    pods: tuple[tuple[str, float, float], ...] | None = None  # class, cores and bytes of each
    seq: int = 0  # added to that of the second
    seconds: int = 0  # added to the time
    boot: str = "boot"
    edge: tuple[float, float, float] | None = None  # usage, cores and moment, in the place of samples
    times: int = 1  # blocks, each a second further
    event: bool = False
    facts: bool = False  # facts of itself, that fit its lie, and of another node


HONEST = Lie()


class Cluster:
    """The nodes' messages in, what is published of them out; second by second, as the streams carry it."""

    def __init__(self) -> None:
        self._partitions = [
            Partition(load({"estimate_report_seconds": "0.5"}, environ={}), n) for n in range(PARTITIONS)
        ]
        self._aggregate = Aggregate(PARTITIONS, silent_seconds=30)
        self._model: bytes | None = None
        self.models: list[Model] = []

    def snapshot(self) -> tuple[list[bytes], bytes, bytes | None]:
        """Return all state."""
        return [each.snapshot() for each in self._partitions], self._aggregate.snapshot(), self._model

    def restore(self, state: tuple[list[bytes], bytes, bytes | None]) -> None:
        """Take over what `snapshot` returned."""
        for each, body in zip(self._partitions, state[0], strict=True):
            each.restore(body)
        self._aggregate.restore(state[1])
        self._model = state[2]

    def second(self, messages: Iterable[tuple[str, bytes]]) -> dict[str, Availability]:
        """Fold one second's messages; return the newest row of each node."""
        parts: list[list[tuple[str, bytes]]] = [[] for _ in self._partitions]
        for subject, payload in messages:
            parts[int(subject.split(".")[2])].append((subject, payload))
        rows: dict[str, Availability] = {}
        sums: list[tuple[str, bytes]] = []
        for partition, part in zip(self._partitions, parts, strict=True):
            if self._model is not None:
                part.insert(0, (NAMES.model, self._model))
            for output in partition.fold(part)[0]:
                if isinstance(output.message, Availability):
                    rows[output.message.node] = output.message
                elif isinstance(output.message, Model):
                    sums.append((output.subject, codec.encode(output.message)))
        for subject, payload in sums:
            if (model := self._aggregate.fold(subject, payload)) is not None:
                self._model = codec.encode(model)
                self.models.append(model)
        return rows


def _put(message: Message) -> tuple[str, bytes]:
    number = int(getattr(message, "node")[1:])  # noqa: B009 # not every message has one
    return stored(message, number % PARTITIONS)


def _running(node: str, second: int) -> dict[str, int]:
    number = int(node[1:])
    if node in EMPTY:
        return {}
    return {"a": 3 + number % 4 + (number == 5 and second >= WARM + 5), "b": 1 + number % 3}


@lru_cache(maxsize=4096)
def honest(node: str, second: int) -> tuple[tuple[str, bytes], ...]:
    """Return what a node says of a second."""
    random = np.random.default_rng([int(node[1:]), second])
    running = _running(node, second)
    listed = [
        pod(f"{name}-{number}", name, _COST[name][0] * random.normal(1, 0.05), _COST[name][1] * random.normal(1, 0.01))
        for name, count in running.items()
        for number in range(count)
    ]
    cores = 1 + sum(each["cpu_cores"] for each in listed)
    memory = 2e9 + sum(each["memory_bytes"] for each in listed)
    block = sampled(node, second, cores, memory, len(listed), noise=random.normal(0, 0.002, 10))
    return _put(block), _put(usage(node, second + 1, listed))


def messages_of(second: int, lie: Lie) -> list[tuple[str, bytes]]:
    """Return what the liar says of a second."""
    if lie == HONEST:
        return list(honest(LIAR, second))
    messages: list[Message] = [_node_facts(LIAR, 1, 16.0, 64e9)] if lie.facts else []
    claimed = _forged(second, lie) if lie.facts else []
    for time in range(lie.times):
        at: dict[str, Any] = {
            "seq": min(1000 + second + lie.seq + time, 2**53 - 1),
            "at_us": min(max((START + second + lie.seconds + time) * 1_000_000, 0), 2**53 - 1 - 60_000_000),
            "boot": lie.boot,
        }
        claimed.append(_edge(lie, at) if lie.edge is not None else _block(second, lie, at))
        if lie.pods is not None:
            listed = [pod(f"l{index}", name, *cost) for index, (name, *cost) in enumerate(lie.pods)]
            claimed.append(usage(LIAR, second + 1, listed).model_copy(update=at))
        if lie.event:
            boottime_us = min(at["seq"] * 1_000_000, 2**53 - 1)
            made = event(LIAR, second).model_dump() | {"boot": lie.boot, "boottime_us": boottime_us}
            claimed.append(ContainerEvent.model_validate(made))
    return [_put(message) for message in (*messages, *filter(_granted, claimed))]


def _granted(message: Message) -> bool:
    """Tell whether the server takes a message with the credential of the liar's agent."""
    kind = next(kind for kind, given in codec.MESSAGES.items() if isinstance(message, given))
    return NAMES.node(kind, getattr(message, "node")) in role.node(NAMES, LIAR).publish  # noqa: B009 # as `_put`


def _forged(second: int, lie: Lie) -> list[Message]:
    """Return facts of the liar's making: it is as large as it says, its pods are others', and another is tiny."""
    own = _node_facts(LIAR, 2 + second, float(lie.cpus or 16), float(lie.memory_bytes or 64e9))
    pods = [facts(LIAR, f"l{index}", "b", 2 + second) for index in range(len(lie.pods or ()))]
    return [own, *pods, _node_facts("n1", 2 + second, 1.0, 1e9), facts("n1", "a-0", "z1", 2 + second)]


def _node_facts(node: str, version: int, cpus: float, memory_bytes: float) -> NodeFacts:
    size = {"cpu": cpus, "memory": memory_bytes}
    return NodeFacts(
        node=node, uid=node, version=version, at_us=START * 1_000_000, created_us=START * 1_000_000, ready=True,
        unschedulable=False, allocatable=size, capacity=size, labels={}, annotations={}, taints=[],
    )  # fmt: skip


def _block(second: int, lie: Lie, at: dict[str, Any]) -> Message:
    block = sampled(LIAR, second, 4.0, 8e9, len(lie.pods or ()))
    values = np.array(block.model_dump()["values"]).reshape(-1, len(METRICS))
    for name, value in lie.metrics:
        values[:, METRICS.index(name)] = value
    sizes = {"cpus": lie.cpus, "memory_bytes": lie.memory_bytes}
    changed = {name: value for name, value in sizes.items() if value is not None}
    return block.model_copy(update={**at, **changed, "values": values.ravel().tolist()})


def _edge(lie: Lie, at: dict[str, Any]) -> Message:
    used, cores, moment = lie.edge or (0.0, 0.0, 0.0)
    return EdgeBlock(
        node=LIAR,
        usage=[used] * 5,
        pods=len(lie.pods or ()),
        waiting=cores,
        cores=cores,
        size=Size(cpus=lie.cpus or 16, memory_bytes=lie.memory_bytes or int(64e9), pressure=True),
        moment=[moment] * 15,
        **at,
    )


@lru_cache(maxsize=2)
def warm(*, liar: bool) -> tuple[list[bytes], bytes, bytes | None]:
    """Return the state of a cluster after `WARM` seconds in which all were honest, with or without the liar."""
    cluster = Cluster()
    for second in range(WARM):
        cluster.second(_all(second, list(honest(LIAR, second)) if liar else []))
    return cluster.snapshot()


def _all(second: int, of_liar: Sequence[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """Return the messages of a second, those of the liar among them."""
    mine = [message for node in OTHERS for message in honest(node, second)]
    return [*mine[:8], *of_liar, *mine[8:]]


def run(
    lies: Sequence[Lie], *, sized: bool = True, seconds: int = LONG
) -> tuple[list[dict[str, Availability]], Cluster]:
    """Return what is published of all nodes in each second in which the liar says these lies in turn.

    Args:
        lies: In force one after another, and again from the first.
        known: Whether the liar was one of the honest nodes until then; else it is new.
        seconds: How long it goes on.
    """
    cluster = Cluster()
    cluster.restore(warm(liar=sized))
    messages = [
        cluster.second(_all(second, messages_of(second, lies[second % len(lies)]) if lies else []))
        for second in range(WARM, WARM + seconds)
    ]
    return messages, cluster


@lru_cache(maxsize=4)
def baseline(*, sized: bool, seconds: int = LONG) -> list[dict[str, Availability]]:
    """Return the same with a twelfth node that is honest, or of eleven nodes."""
    return run([HONEST] if sized else [], sized=sized, seconds=seconds)[0]


def moved(reported: Sequence[dict[str, Availability]], other: Sequence[dict[str, Availability]]) -> list[str]:
    """Return where what fits on another node, in all or of a class, is off by more than 10 % and more than one pod."""
    result = []
    for second, (rows, expected) in enumerate(zip(reported, other, strict=True)):
        for node in OTHERS:
            if node not in rows or node not in expected:
                result.append(f"{node} is silent in second {second}")
                continue
            ours, theirs = _rooms(rows[node]), _rooms(expected[node])
            result += [
                f"{node} in second {second}: {ours.get(name)} for {room} of {name}"
                for name, room in theirs.items()
                if abs(ours.get(name, -1e9) - room) > max(1.0, 0.1 * room)
            ]
    return result


def _rooms(row: Availability) -> dict[str, float]:
    """Return what fits on a node, in all and of each class that honest nodes run."""
    classes = {name: room.available for name, room in (row.classes or {}).items() if name in _COST}
    return {"all": row.available, **classes}
