"""Results to messages, and the rule when an availability is worth a message."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.decode import Head
from processors.estimation import availability
from processors.estimation.chain import RESOURCES, Result
from processors.model import keyed_sum
from processors.partition.plan import Faults
from processors.workload.capacity.class_capacity import Room
from processors.workload.reported import CHANGE_SHARE
from schemas import metric
from schemas.messages.estimate import Blocks, ClassRoom
from schemas.sections.estimation import Estimate

Array = NDArray[np.float64]

_REPORT_SLACK = 0.5
_BINDING = {availability.PODS: "pods", availability.DISK: "disk"} | dict(enumerate(RESOURCES))


class State(NamedTuple):
    """What was last published of each node; leading node axis, `at_us` 0: nothing yet.

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
    """Return the state of nodes of which nothing was published."""
    whole, real = np.zeros(nodes, dtype=np.int64), np.zeros(nodes)
    no = np.zeros(nodes, dtype=np.bool_)
    return State(whole, whole.copy(), real, real.copy(), whole.copy(), no, no.copy())


def update(
    state: State, result: Result, at_us: NDArray[np.int64], moved: NDArray[np.bool_], params: Estimate
) -> tuple[State, NDArray[np.bool_]]:
    """Decide which nodes' availability is published.

    At once on a change of pods, binding, mode or churn, of `change_pods` and 5 %, or where a class's room has moved or
    its cost has become known; else after `report_seconds`. Binding and mode are compared with those of the second
    before, so a change is published once.

    Returns:
        The state after it, and (nodes,) True where a message is due.
    """
    turned = (state.at_us == 0) | (result.room.binding != state.binding) | (result.settling != state.settling)
    least = np.maximum(params.change_pods, CHANGE_SHARE * state.available)
    waited = (at_us - state.at_us) / 1e6
    due = (
        turned
        | (result.churn != state.churn)
        | (result.pods != state.pods)
        | (np.abs(result.room.available - state.available) >= least)
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


class ReportFields(NamedTuple):
    """Fields of availabilities beside the result; each has a leading node axis.

    Attributes:
        heads: Heads of the nodes' blocks.
        at_us: (nodes,) time of the last sample.
        since_us: (nodes,) since when binding and mode are what they are.
        used: (nodes, resources) share of what pods may have that they take.
        free: (nodes, resources) share that they may still take.
        limits: (nodes, resources) cores and bytes of which it is a share.
        cpu_used: (nodes,) share of the CPUs in use, mean of the second; NaN: not known.
        room: Room by class; None: no class is known.
        listed: Names and columns of a node's classes in `room`, by its index, in the order of the message.
        mixes: Weights of the mixes in `room` of some nodes, by their indices.
        faults: What was wrong with each node's blocks; None: with none of them.
        outvoted: What each node says that its facts or other nodes contradict, by its index.
    """

    heads: list[Head]
    at_us: NDArray[np.int64]
    since_us: NDArray[np.int64]
    used: Array
    free: Array
    limits: Array
    cpu_used: Array
    room: Room | None
    listed: Callable[[int, Room], list[tuple[str, int]]]
    mixes: Callable[[NDArray[np.intp], Room], list[dict[str, float]]]
    faults: Sequence[Faults | None] | None = None
    outvoted: Mapping[int, list[str]] | None = None


def availabilities(
    rows: NDArray[np.intp], published: ReportFields, result: Result, features: tuple[str, ...]
) -> Iterator[dict[str, Any]]:
    """Yield the fields of the `Availability` of some nodes, (rows,) of the node axis.

    Numbers are rounded to what is meaningful, so that they stay readable. All of a field's are rounded and made
    Python numbers together: one by one, that takes longer than the computation of them.
    """
    if not rows.size:
        return
    room, leading = result.room, result.direction
    at_us, since_us = published.at_us[rows], published.since_us[rows]
    whole = {"at_us": at_us, "since_us": since_us, "pods": result.pods[rows].astype(np.int64)}
    fields: dict[str, list[Any]] = {name: values.tolist() for name, values in whole.items()}
    for digits, columns in (
        (4, {"available": room.available, "lower": room.lower, "upper": room.upper, "signal": result.signal}),
        (9, {"cost": room.cost}),
        (6, {"capacity": room.capacity}),
    ):
        fields |= zip(columns, _rounded(np.stack([*columns.values()])[:, rows], digits).tolist(), strict=True)
    ratios = {"prior": result.prior, "explained": leading.explained, "gap": leading.gap}
    fields |= zip(ratios, _ratios(np.stack([*ratios.values()])[:, rows]).tolist(), strict=True)
    fields["binding"] = [_BINDING[index] for index in room.binding[rows].tolist()]
    fields["mode"] = ["capacity" if settling else "signal" for settling in result.settling[rows].tolist()]
    fields["churn"] = result.churn[rows].tolist()
    fields["usage"] = _named(features, _ratios(result.usage[rows]))
    fields["free"] = _named(RESOURCES, _ratios(published.free[rows]))
    fields["limits"] = _named(RESOURCES, _rounded(published.limits[rows], 4))
    fields["excess"] = _rounded(np.maximum(np.nan_to_num(published.used[rows]).max(axis=1) - 1.0, 0.0), 4).tolist()
    used = _ratios(published.cpu_used[rows])
    fields["cpu_used"] = [None if math.isnan(share) else share for share in used.tolist()]
    mixes = [{}] * len(rows) if published.room is None else published.mixes(rows, published.room)
    classes = [None] * len(rows) if published.room is None else _classes(rows, published.room, published.listed)
    names = tuple(fields)
    for index, mix, by_class, *values in zip(rows.tolist(), mixes, classes, *fields.values(), strict=True):
        fields_of_node = dict(zip(names, values, strict=True))
        head = published.heads[index]
        fields_of_node["node"], fields_of_node["seq"] = head.node, head.seq
        if published.faults is not None and (faults := published.faults[index]) is not None:
            fields_of_node |= _faulty(faults)
        if published.outvoted and (claims := published.outvoted.get(index)):
            fields_of_node["outvoted"] = claims
        if published.room is not None:
            fields_of_node["classes"] = by_class
            fields_of_node["mix"] = {name: round(weight, 4) for name, weight in mix.items()} or None
        yield fields_of_node


def _faulty(faults: Faults) -> dict[str, Any]:
    counts = Blocks(
        doubled=faults.doubled,
        late=faults.late,
        missing=faults.missing,
        jumps=faults.jumps,
        shared=faults.shared or None,
    )
    return {"blocks": counts, "clock": None if faults.error_us is None else faults.error_us / 1e6}


def _named(names: tuple[str, ...], values: Array) -> list[dict[str, float]]:
    """Return each row (nodes, names) as a dictionary, without what is missing."""
    rows = [dict(zip(names, row, strict=True)) for row in values.tolist()]
    if np.isnan(values).any():
        return [{name: value for name, value in row.items() if not math.isnan(value)} for row in rows]
    return rows


def _classes(
    rows: NDArray[np.intp], room: Room, listed: Callable[[int, Room], list[tuple[str, int]]]
) -> Sequence[dict[str, ClassRoom] | None]:
    """Return the room of each class of some nodes."""
    nodes, columns = rows.tolist(), list[int]()
    names: list[list[str]] = []
    for index in nodes:
        of_node = listed(index, room)
        names.append([name for name, _ in of_node])
        columns += [column for _, column in of_node]
    at = np.repeat(rows, [len(of_node) for of_node in names]), np.array(columns, dtype=np.intp)
    values = zip(
        _rounded(room.available[at], 4).tolist(),
        _rounded(room.lower[at], 4).tolist(),
        room.binding[at].tolist(),
        room.pods[at].astype(np.int64).tolist(),
        _rounded(np.minimum(room.assumed[at], 1.0), 4).tolist(),
        room.soaking[at].tolist(),
        *_rounded(room.cost[at], 9).T.tolist(),
        strict=True,
    )
    rooms = (
        ClassRoom(
            available=available,
            lower=lower,
            binding=_BINDING[binding],
            pods=pods,
            prior=prior,
            kind="soaking" if soaking else "serving",
            cpu=cpu,
            memory=memory,
        )
        for available, lower, binding, pods, prior, soaking, cpu, memory in values
    )
    return [{name: next(rooms) for name in of_node} or None for of_node in names]


def smoothed(heads: Sequence[Head], values: Array) -> Iterator[dict[str, Any] | None]:
    """Yield the fields of each node's `SmoothedBlock`, of smoothed (nodes, samples, metrics); None: no known metric."""
    rounded = _rounded(values, 4)
    missing = np.asarray(np.isnan(rounded).any(axis=1))
    for head, row, absent in zip(heads, rounded, missing, strict=True):
        columns = _columns(head.metrics)
        if not columns:
            yield None
            continue
        selected = row if len(columns) == len(metric.NAMES) else row[:, columns]
        flat: list[float | None] = selected.ravel().tolist()
        if absent[columns].any():
            flat = [None if value != value else value for value in flat]  # noqa: PLR0124 # only NaN differs from itself
        yield {
            "node": head.node,
            "boot": head.boot,
            "seq": head.seq,
            "at_us": head.at_us,
            "step_us": head.step_us,
            "metrics": [metric.NAMES[column] for column in columns],
            "values": flat,
        }


@lru_cache(maxsize=256)
def _columns(metrics: tuple[str, ...]) -> list[int]:
    return [column for column, name in enumerate(metric.NAMES) if name in metrics]


def local_models(
    heads: Sequence[Head], features: tuple[str, ...], moments: Array, costs: Array, pods: Array
) -> Iterator[dict[str, Any]]:
    """Yield the fields of each node's local `Model`.

    Args:
        heads: What the nodes' blocks say.
        features: Rows of the model.
        moments: (nodes, features, features) in absolute units.
        costs: (nodes, features) usage that pods take, in absolute units.
        pods: (nodes,) those pods.
    """
    triangles = keyed_sum.triangle(moments).tolist()
    for head, moment, cost, counted in zip(heads, triangles, costs.tolist(), pods.tolist(), strict=True):
        yield {
            "scope": "local",
            "node": head.node,
            "at_us": head.at_us // 1_000_000 * 1_000_000,
            "features": list(features),
            "moment": moment,
            "cost": cost,
            "pods": counted,
            "nodes": 1,
        }


def _rounded(values: Array, digits: int) -> Array:
    """Round; the quotient of two whole numbers is the number nearest to the decimal, and no zero is negative."""
    with np.errstate(over="ignore"):  # what is infinite is in no message
        return values.round(digits) + 0.0


def _ratios(values: Array) -> Array:
    clipped: Array = np.minimum(np.maximum(_rounded(values, 6), 0.0), 1.0)
    return clipped
