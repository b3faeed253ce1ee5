"""Results to messages, and the rule when an availability is worth a message."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors import availability, keyed_sum
from processors.chain import RESOURCES, Result, World
from processors.decode import Block
from schemas import metric
from schemas.estimate import Availability, Model
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
    """

    at_us: NDArray[np.int64]
    since_us: NDArray[np.int64]
    available: Array
    pods: Array
    binding: NDArray[np.int64]
    churn: NDArray[np.bool_]


def init(nodes: int) -> State:
    """Return the state of nodes that nothing was said of."""
    whole, real = np.zeros(nodes, dtype=np.int64), np.zeros(nodes)
    return State(whole, whole.copy(), real, real.copy(), whole.copy(), np.zeros(nodes, dtype=np.bool_))


def update(state: State, result: Result, at_us: NDArray[np.int64], params: Estimate) -> tuple[State, NDArray[np.bool_]]:
    """Decide which nodes' availability is published.

    At once on a change of pods, binding, mode or churn, or of `change_pods`; else after `report_seconds`. Binding
    and mode are compared with those of the second before, so a change is told once.

    Returns:
        The state after it, and (nodes,) True where a message is due.
    """
    turned = (state.at_us == 0) | (result.room.binding != state.binding) | (result.churn != state.churn)
    waited = (at_us - state.at_us) / 1e6
    due = (
        turned
        | (result.pods != state.pods)
        | (np.abs(result.room.available - state.available) >= params.change_pods)
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
    ), due


def availability_of(
    index: int, block: Block, at_us: int, since_us: int, result: Result, features: tuple[str, ...]
) -> Availability:
    """Return the message of one node; numbers are rounded to what is meaningful, so that they stay readable."""
    room, leading = result.room, result.direction
    binding, churn = int(room.binding[index]), bool(result.churn[index])
    usage = result.usage[index]
    return Availability(
        node=block.message.node,
        at_us=at_us,
        seq=block.message.seq,
        available=_round(room.available[index]),
        lower=_round(room.lower[index]),
        upper=_round(room.upper[index]),
        signal=_round(result.signal[index]),
        cost=_round(room.cost[index], 9),
        capacity=_round(room.capacity[index], 6),
        pods=int(result.pods[index]),
        binding="pods" if binding == availability.PODS else RESOURCES[binding],
        mode="capacity" if churn else "signal",
        churn=churn,
        prior=_ratio(result.prior[index]),
        usage={name: _ratio(usage[column]) for column, name in enumerate(features) if not np.isnan(usage[column])},
        explained=_ratio(leading.explained[index]),
        gap=_ratio(leading.gap[index]),
        since_us=since_us,
    )


def smoothed_of(index: int, block: Block, result: Result) -> SmoothedBlock | None:
    """Return the smoothed block of one node; None if it has no known metric."""
    message = block.message
    columns = [column for column, name in enumerate(metric.NAMES) if name in set(message.metrics)]
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


def model_of(
    second: int, partition: int, features: tuple[str, ...], total: Array, cost: Array, pods: float, nodes: int
) -> Model:
    """Return a partition's sums; `total` (features, features) and `cost` (features,) are in absolute units."""
    return Model(
        scope="partition",
        partition=partition,
        at_us=second * 1_000_000,
        features=list(features),
        moment=keyed_sum.triangle(total).tolist(),
        cost=cost.tolist(),
        pods=pods,
        nodes=nodes,
    )


def world_of(model: Model, features: tuple[str, ...]) -> World:
    """Return the global model as arrays; nothing if it is empty or of other features than ours."""
    if not model.nodes or tuple(model.features) != features:
        return World()
    moment = keyed_sum.from_triangle(np.asarray(model.moment)) / model.nodes
    return World(moment, np.asarray(model.cost) / model.pods if model.pods >= _EVIDENT_PODS else None)


def _round(value: float, digits: int = 4) -> float:
    return round(float(value), digits)


def _ratio(value: float) -> float:
    return min(1.0, max(0.0, round(float(value), 6)))
