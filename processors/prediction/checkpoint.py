"""What stands in a checkpoint under another name than here, its horizon, and histograms under Koordinator's names."""

import json
from collections.abc import Iterator
from typing import Any

from numpy.typing import NDArray

from processors.prediction import statistic
from processors.prediction.histogram.exchange import Koordinator
from processors.prediction.node import Nodes
from processors.prediction.pod import Pods
from processors.rows import snapshot
from schemas.messages.prediction import GROUPS, PRIORITIES
from schemas.settings import Settings

UIDS = {
    "node": "__node__",
    "system": "__node-sys__",
    **{group: f"__node-koord-{group}__" for group in PRIORITIES if group != "none"},
    "none": "__node-__",
}
# Arrays whose names in checkpoints are older than their names here; programs of both versions read both.
_STORED = {
    "node.report.published_us": "node.report.told_us",
    "node.report.published": "node.report.told",
    "node.rejects.published_us": "node.rejects.told_us",
}
_READ = {stored: name for name, stored in _STORED.items()}
_GROUP_OF = {uid: GROUPS.index(group) for group, uid in UIDS.items()}


def stored(arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return arrays by the names that they have in checkpoints."""
    return {_STORED.get(name, name): values for name, values in arrays.items()}


def read(arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the arrays of a checkpoint by the names that they have here.

    >>> read(stored({"node.report.published": 1, "node.sizes": 2}))
    {'node.report.published': 1, 'node.sizes': 2}
    """
    return {_READ.get(name, name): values for name, values in arrays.items()}


def fingerprint(settings: Settings) -> str:
    """Return the settings that the meaning of a state depends on, as JSON."""
    return settings.model_dump_json(include={"predict": {"horizon_seconds"}})


def horizon_seconds(fingerprint: str) -> float:
    """Return the horizon in a fingerprint.

    Raises:
        ValueError: There is none, or it is not above 0.
    """
    try:
        seconds = float(json.loads(fingerprint)["predict"]["horizon_seconds"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"state is damaged: its settings have no horizon: {error!r}") from error
    if not 0 < seconds < float("inf"):
        raise ValueError(f"state is damaged: its horizon is {seconds} s")
    return seconds


def learned_with(body: bytes) -> tuple[float, tuple[float, float]]:
    """Return the horizon and the half-lives (CPU, memory) of a partition's state, in seconds.

    Raises:
        ValueError: The bytes are damaged.
    """
    header, _ = snapshot.unpack(body)
    try:
        cpu, memory = header["nodes"]["half_lives"]
        return horizon_seconds(header["settings"]), (cpu, memory)
    except (KeyError, TypeError) as error:
        raise ValueError(f"state is damaged: {error!r}") from error


def listed(nodes: Nodes, pods: Pods) -> Iterator[tuple[str, Koordinator]]:
    """Yield the node and the histograms of everything that has any."""
    for node in nodes.names:
        for group, uid in UIDS.items():
            yield from _model(node, uid, nodes.of_group(node, GROUPS.index(group)))
        for uid, pod in pods.of(node).items():
            yield from _model(node, uid, nodes.pod(pod.slot))


def adopt(nodes: Nodes, pods: Pods, node: str, model: Koordinator) -> bool:
    """Put histograms in the place of a node's or pod's own; False: it is not known here."""
    if node not in nodes.names:
        return False
    if (group := _GROUP_OF.get(model.uid)) is not None:
        own = nodes.of_group(node, group)
        nodes.put_group(node, group, statistic.of(model.cpu, model.memory, own.moments))
        return True
    if (pod := pods.of(node).get(model.uid)) is None:
        return False
    pod.settled = True  # it shall not inherit over that
    own = nodes.pod(pod.slot)
    nodes.put_pod(pod.slot, statistic.of(model.cpu, model.memory, own.moments))
    return True


def _model(node: str, uid: str, own: statistic.State) -> Iterator[tuple[str, Koordinator]]:
    if own.cpu.total.any() and own.memory.total.any():
        yield node, Koordinator(uid, own.cpu, own.memory, float(own.moments.at_us[0] // 1_000_000))
