"""State of older formats, brought forward one format at a time.

A checkpoint outlives the program that made it. Each step takes what `snapshot.unpack` returns of one format and gives
what the next would have stored; a format without a step is refused, and replay rebuilds the state.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from processors.estimation import level
from processors.partition.arrival import SPAN
from processors.rows import table
from processors.workload import brief, classes, mix
from processors.workload.capacity import bursts, disk

Header = dict[str, Any]
Arrays = dict[str, NDArray[np.generic]]


def _from_2(header: Header, arrays: Arrays) -> tuple[Header, Arrays]:
    """Counts of late, doubled and missing blocks begin at 0, and clocks are learned from the next block."""
    admission = dict(header["admission"])
    second, far = header["watermark"]
    # Which seconds before the newest were folded is unknown; marked as seen, none of them is folded now.
    seen = (1 << SPAN) - 1
    admission["known"] = {
        node: [[boot, seq, seq, seen, "", 0, 0, 0], None, second]
        for node, (boot, seq) in admission.pop("marks").items()
    }
    return header | {"format": 3, "admission": admission, "watermark": [second, far, second]}, arrays


def _from_3(header: Header, arrays: Arrays) -> tuple[Header, Arrays]:
    """Costs of pods are kept; levels, kinds and starts are learned again, within seconds."""
    nodes, slots = arrays["classes.label"].shape
    squares, products = (np.asarray(arrays.pop(f"classes.{name}"), np.float64) for name in ("squares", "products"))
    cost = np.divide(products, squares, out=np.full(products.shape, np.nan), where=squares > 0)
    weight = np.asarray(arrays.pop("classes.weight"), np.float64)
    arrays = {name: part for name, part in arrays.items() if name not in _GONE_WITH_3}
    for part, levels in {"chain.level": 2, "classes.rest": 2, "classes.drift": 2, "classes.demand": slots}.items():
        arrays |= {f"{part}.{name}": np.zeros((nodes, levels)) for name in level.State._fields}
        arrays[f"{part}.mean"] = np.full((nodes, levels), np.nan)
    arrays |= {
        "chain.running": np.full(nodes, np.nan),
        "chain.assumed": np.full(arrays["chain.cost.usage"].shape, np.nan),
        "chain.full": np.zeros(nodes, dtype=np.bool_),
        "chain.amount": np.ones((nodes, 2)),
        "chain.soaked": np.ones(nodes),
        "chain.queueing": np.zeros(nodes),
        "chain.reserved": np.zeros((nodes, 2)),
        "chain.most": np.zeros(nodes),
        "classes.demand.mean": cost[..., 0],
        "classes.demand.seconds": weight[..., 0],
        "classes.demand.age": weight[..., 0],
        "classes.kind": np.zeros((nodes, slots)),
        "classes.most": np.nan_to_num(cost[..., 1]),
        "classes.held": weight[..., 1],
        "classes.pending": np.zeros(nodes),
    }
    arrays |= {f"classes.starts.{name}": part for name, part in mix.init(nodes, slots)._asdict().items()}
    return header | {"format": 4, "admission": header["admission"] | {"allocatable": {}}}, arrays


def _from_4(header: Header, arrays: Arrays) -> tuple[Header, Arrays]:
    """What pods wait for at disks is learned again within seconds, and how much alone, once few wait."""
    fresh = table.flatten(disk.init(*arrays["classes.label"].shape), "classes.disk.")
    return header | {"format": 5}, arrays | fresh


def _from_5(header: Header, arrays: Arrays) -> tuple[Header, Arrays]:
    """Which classes have brief pods alone is seen again within seconds, and quotas once a machine is not full."""
    nodes, slots = arrays["classes.label"].shape
    fresh = table.flatten(brief.init(nodes, slots), "classes.brief.")
    fresh |= {"classes.quota": np.zeros((nodes, slots)), "classes.starts.turned": np.zeros(nodes)}
    return header | {"format": 6}, arrays | fresh


def _from_6(header: Header, arrays: Arrays) -> tuple[Header, Arrays]:
    """Pods of classes that a node does not tell apart have a slot, the last; what they take is learned in seconds."""
    nodes, slots = arrays["classes.label"].shape
    narrow, wide = (table.flatten(classes.init(nodes, count), "classes.") for count in (slots, slots + 1))
    added = {
        name: np.concatenate((arrays[name], part[:, slots:]), axis=1)
        for name, part in wide.items()
        if part.shape != narrow[name].shape and name in arrays
    }
    for name, nothing in (("told", np.nan), ("known", False)):
        if name in arrays:
            added[name] = np.insert(arrays[name], slots, nothing, axis=1)
    fresh = {"classes.cached": np.zeros(nodes), "classes.ceiling": np.zeros((nodes, slots + 1))}
    return header | {"format": 7}, arrays | added | fresh


def _from_7(header: Header, arrays: Arrays) -> tuple[Header, Arrays]:
    """How much pods of a class differ is seen again within half a minute."""
    fresh = {"classes.between": np.zeros((*arrays["classes.label"].shape, 2))}
    return header | {"format": 8}, arrays | fresh


def _from_8(header: Header, arrays: Arrays) -> tuple[Header, Arrays]:
    """Which classes work in bursts is seen again with their third burst."""
    fresh = table.flatten(bursts.init(*arrays["classes.label"].shape), "classes.bursts.")
    return header | {"format": 9}, arrays | fresh


def _from_9(header: Header, arrays: Arrays) -> tuple[Header, Arrays]:
    """Which young pods stand out is seen with the next block."""
    return header | {"format": 10}, arrays | {"classes.apart": np.zeros(arrays["classes.label"].shape)}


def _from_10(header: Header, arrays: Arrays) -> tuple[Header, Arrays]:
    """What was seen of pods while they started is no evidence any more; it counts for some seconds only."""
    return header | {"format": 11}, arrays | {"classes.started": np.zeros(arrays["classes.label"].shape)}


_GONE_WITH_3 = ("classes.rest", "classes.scatter", "classes.seconds", "classes.errors")
STEPS: Mapping[int, Callable[[Header, Arrays], tuple[Header, Arrays]]] = {
    2: _from_2,
    3: _from_3,
    4: _from_4,
    5: _from_5,
    6: _from_6,
    7: _from_7,
    8: _from_8,
    9: _from_9,
    10: _from_10,
}


def forward(header: Header, arrays: Arrays, wanted: int) -> tuple[Header, Arrays]:
    """Return state of the wanted format.

    Raises:
        ValueError: There is no way there, or the state does not match its format.
    """
    stored = header.get("format")
    try:
        while (step := STEPS.get(header.get("format", 0))) and header["format"] < wanted:
            header, arrays = step(header, arrays)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"state is damaged: it is not of format {stored}: {error!r}") from error
    if header.get("format") != wanted:
        raise ValueError(f"state has format {stored}, this version reads {wanted}; replay rebuilds it")
    return header, arrays
