"""Results to messages, and the rule when an availability is worth a message."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors import availability, keyed_sum
from processors.chain import RESOURCES, Result
from processors.class_room import Room
from processors.decode import Block
from processors.world import World
from schemas import metric
from schemas.estimate import Availability, ClassRoom, ClassSum, Model
from schemas.section import Estimate
from schemas.telemetry import SmoothedBlock

Array = NDArray[np.float64]

_REPORT_SLACK = 0.5
_EVIDENT_PODS = 0.5  # less evidence than half a pod is no evidence of what a pod costs


class State(NamedTuple):
    """What was last said of each node; leading node axis, `at_us` 0: nothing yet.

    Attributes:
        at_us: (nodes,) time of the last report.
        since_us: (nodes,) since when binding and mode are what they are.
        available, pods: (nodes,) as last reported.
        binding: (nodes,) as last computed.
        churn: (nodes,) as last computed.
        settling: (nodes,) as last computed.
    """

    at_us: NDArray[np.int64]
    since_us: NDArray[np.int64]
    available: Array
    pods: Array
    binding: NDArray[np.int64]
    churn: NDArray[np.bool_]
    settling: NDArray[np.bool_]


def init(nodes: int) -> State:
    """Return the state of nodes that nothing was said of."""
    whole, real = np.zeros(nodes, dtype=np.int64), np.zeros(nodes)
    no = np.zeros(nodes, dtype=np.bool_)
    return State(whole, whole.copy(), real, real.copy(), whole.copy(), no, no.copy())


def update(
    state: State, result: Result, at_us: NDArray[np.int64], moved: NDArray[np.bool_], params: Estimate
) -> tuple[State, NDArray[np.bool_]]:
    """Decide which nodes' availability is published.

    At once on a change of pods, binding, mode or churn, of `change_pods`, or where a class's room has moved; else after
    `report_seconds`. Binding and mode are compared with those of the second before, so a change is told once.

    Returns:
        The state after it, and (nodes,) True where a message is due.
    """
    turned = (
        (state.at_us == 0)
        | (result.room.binding != state.binding)
        | (result.churn != state.churn)
        | (result.settling != state.settling)
    )
    waited = (at_us - state.at_us) / 1e6
    due = (
        turned
        | (result.pods != state.pods)
        | (np.abs(result.room.available - state.available) >= params.change_pods)
        | moved
        | (waited >= params.report_seconds - _REPORT_SLACK)
        | (waited < 0)
    )
    return State(
        at_us=np.where(due, at_us, state.at_us),
        since_us=np.where(turned, at_us, state.since_us),
        available=np.where(due, result.room.available, state.available),
        pods=np.where(due, result.pods, state.pods),
        binding=result.room.binding,
        churn=result.churn,
        settling=result.settling,
    ), due


class Words(NamedTuple):
    """What an availability says of one node beside its result.

    Attributes:
        at_us: Time of the last sample.
        since_us: Since when binding and mode are what they are.
        free: (resources,) share that pods may still take.
        room: Room by class; None: no class is known.
        listed: Names and columns of the node's classes in `room`, in the order of the message.
    """

    at_us: int
    since_us: int
    free: list[float]
    room: Room | None
    listed: list[tuple[str, int]]


def availability_of(index: int, block: Block, words: Words, result: Result, features: tuple[str, ...]) -> Availability:
    """Return the message of one node; numbers are rounded to what is meaningful, so that they stay readable."""
    room, leading = result.room, result.direction
    usage = zip(features, result.usage[index].tolist(), strict=True)
    return Availability(
        node=block.message.node,
        at_us=words.at_us,
        seq=block.message.seq,
        available=_round(room.available[index]),
        lower=_round(room.lower[index]),
        upper=_round(room.upper[index]),
        signal=_round(result.signal[index]),
        cost=_round(room.cost[index], 9),
        capacity=_round(room.capacity[index], 6),
        pods=int(result.pods[index]),
        binding=_binding(room.binding[index]),
        mode="capacity" if result.settling[index] else "signal",
        churn=bool(result.churn[index]),
        prior=_ratio(result.prior[index]),
        usage={name: _ratio(value) for name, value in usage if not math.isnan(value)},
        explained=_ratio(leading.explained[index]),
        gap=_ratio(leading.gap[index]),
        free={name: _ratio(value) for name, value in zip(RESOURCES, words.free, strict=True)},
        classes=None if words.room is None else _classes(index, words.room, words.listed),
        since_us=words.since_us,
    )


def _classes(index: int, room: Room, listed: list[tuple[str, int]]) -> dict[str, ClassRoom] | None:
    return {
        name: ClassRoom(
            available=_round(room.available[index, column]),
            lower=_round(room.lower[index, column]),
            binding=_binding(room.binding[index, column]),
            pods=int(room.pods[index, column]),
            cpu=_round(room.cost[index, column, 0], 9),
            memory=_round(room.cost[index, column, 1], 9),
        )
        for name, column in listed
    } or None


def smoothed_of(index: int, block: Block, result: Result) -> SmoothedBlock | None:
    """Return the smoothed block of one node; None if it has no known metric."""
    message = block.message
    told = set(message.metrics)
    columns = [column for column, name in enumerate(metric.NAMES) if name in told]
    if not columns:
        return None
    values = np.round(result.smoothed[index][:, columns], 4)
    flat: list[float | None] = values.ravel().tolist()
    if np.isnan(values).any():
        flat = [None if value != value else value for value in flat]  # noqa: PLR0124 # only NaN differs from itself
    return SmoothedBlock(
        node=message.node,
        boot=message.boot,
        seq=message.seq,
        at_us=message.at_us,
        step_us=message.step_us,
        metrics=[metric.NAMES[column] for column in columns],
        values=flat,
    )


class Sums(NamedTuple):
    """Sums over nodes in absolute units: `moment` (features, features), `cost` (features,), and by workload class."""

    moment: Array
    cost: Array
    pods: float
    nodes: int
    classes: dict[str, ClassSum] | None


def model_of(second: int, partition: int, features: tuple[str, ...], sums: Sums) -> Model:
    """Return a partition's sums as a message."""
    return Model(
        scope="partition",
        partition=partition,
        at_us=second * 1_000_000,
        features=list(features),
        moment=keyed_sum.triangle(sums.moment).tolist(),
        cost=sums.cost.tolist(),
        pods=sums.pods,
        nodes=sums.nodes,
        classes=sums.classes,
    )


def world_of(model: Model, features: tuple[str, ...]) -> World:
    """Return the global model as arrays; nothing if it is empty or of other features than ours."""
    if not model.nodes or tuple(model.features) != features:
        return World()
    moment = keyed_sum.from_triangle(np.asarray(model.moment)) / model.nodes
    return World(moment, np.asarray(model.cost) / model.pods if model.pods >= _EVIDENT_PODS else None)


def _binding(index: int) -> str:
    return "pods" if index == availability.PODS else RESOURCES[index]


def _round(value: float, digits: int = 4) -> float:
    return round(float(value), digits)


def _ratio(value: float) -> float:
    return min(1.0, max(0.0, round(float(value), 6)))
