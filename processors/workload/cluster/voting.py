"""What the nodes of a cluster say of classes together, with one voice for each.

What a pod of a class takes is a mean of the nodes that run it, within the bounds of `fair_share`. The mix that
comes next is a mean, too, from three nodes with starts on: each says how likely each class is by its own starts
(`mix`), and none counts for more than another, however many pods it says it has started. A node whose mix costs more
than the cluster's counts for as much less, so that no single one makes the mean pod of the mix more expensive than
by its own share. A class that one node alone has evidence of is in that node's mix alone; for all others its votes are
for the mean pod of the cluster (ADR 61). With fewer nodes it is impossible to tell which one is wrong, and starts are
added up.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from processors.model import fair_share
from processors.model.fair_share import Share
from processors.workload import classes, mix, usage
from processors.workload.capacity.nodes import Cluster
from processors.workload.cluster.attested import ATTESTED, Attested
from schemas.messages.estimate import MAXIMUM_CLASSES, ClassSum, Model

Array = NDArray[np.float64]

SIZE, CLASS = "size", "class"

_FAR = 4.0  # times the mean cost of a class: the node is reported, as where it is beyond the wide bound below it
_EVIDENT_SECONDS = 10.0
_VOICES, FEW_VOICES = 10.0, 3.0  # nodes without which the next pod is not known; for a bound
_MOST_SCALED, _LITTLE = 2.0, 1e-12
_WHOLE_VOTE = 0.25  # of a node, from which on it counts as a node that votes


def cluster_of(evident: Mapping[str, ClassSum], attested: Attested, number: Callable[[str], int]) -> Cluster:
    """Return what the cluster knows of classes, as far as it has evidence, or had some.

    Args:
        evident: Sums of the classes that it has evidence of.
        attested: Those of which it had.
        number: Gives the label of a name.
    """
    earlier = [(name, each.item) for name, each in attested.items() if name not in evident]
    present = {name: item.pods for name, item in evident.items()}
    both = sorted([*evident.items(), *earlier[max(len(evident) + len(earlier) - MAXIMUM_CLASSES, 0) :]])
    return Cluster(
        np.array([number(name) for name, _ in both], dtype=np.int64),
        np.array([present.get(name, 0.0) for name, _ in both]),
        np.array([(item.soaking or 0.0) / item.pods for _, item in both]),
        np.array([1 - min(item.pods / (item.running or item.pods), 1.0) for _, item in both]),
        np.array([(item.cpu / item.pods, item.memory / item.pods) for _, item in both]).reshape(-1, 2),
        np.array([fair(item) if name in present else math.nan for name, item in both]),
    )


def fair(item: ClassSum) -> float:
    """Return how many pods of a class a node has evidence of, in the mean; NaN: too few nodes have any."""
    nodes = item.nodes or 0
    return item.pods / nodes if nodes >= fair_share.LEAST_VOTERS else math.nan


def contribution(pods: Array, taken: Array, mean: Array, fair: Array) -> Share:
    """Bound what nodes contribute to the mean costs of classes; see `fair_share`.

    Args:
        pods: (nodes, slots) pods that each has evidence of.
        taken: (nodes, slots, resources) what they take.
        mean: (nodes, slots, resources) mean cost of the class; NaN: not known.
        fair: (nodes, slots) mean pods that a node has evidence of; NaN: too few nodes have any.
    """
    valid = np.where(np.isnan(fair)[..., None] | (mean <= 0), np.nan, mean)
    return fair_share.bounded(pods, taken, valid, fair)


def votes(likely: Array, cost: Array, mixed: NDArray[np.bool_], mean: Array) -> Array:
    """Return the votes of nodes for classes (nodes, slots), at most 1 of each node in all.

    Args:
        likely: (nodes, slots) how likely the next pod is of each class by each node's own starts.
        cost: (nodes, slots, resources) cost of the class of each slot.
        mixed: (nodes, slots) True: the class is in the cluster's mix; a vote for another costs no more than the mean
            pod of the cluster.
        mean: (nodes, resources) cost of a pod of the cluster's mix; NaN: not known.
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        own = usage.over_slots(np.where(mixed, likely, 0.0)[..., None] * cost)
        factor = np.where(own > mean, mean / own, 1.0).min(axis=1)
    weighed: Array = likely * np.where(mixed, factor[:, None], 1.0)
    return weighed


def mix_of(model: Model, least: float = _VOICES) -> dict[str, float]:
    """Return how likely the next pod is of each class, by the cluster's starts; empty: it knows of none.

    What is missing to 1 is how likely it is of a class that no two nodes have evidence of. One node alone, which has a
    vote and a voice at most, adds nothing to that. What nodes that start pods say comes first; as far as these are
    fewer than `least`, all nodes fill up, each with a vote.
    """
    sums = model.classes or {}
    if (model.voting or 0) >= fair_share.LEAST_VOTERS:
        attested = {name: item.votes for name, item in sums.items() if item.votes and (item.nodes or 0) >= ATTESTED}
        agreed = sum(attested.values())
        others = _of_others(model)
        everything = agreed + _confirmed(others, 1.0, model.voting or 0)
        voices = max(model.voiced or 0.0, sum(item.coming or 0.0 for item in sums.values()))
        coming = {name: _confirmed(sums[name].coming or 0.0, sums[name].largest or 0.0, voices) for name in attested}
        alone = voices - sum(sums[name].coming or 0.0 for name in attested)
        starting = sum(coming.values()) + _confirmed(alone, 1.0, voices)
        part = min(max((least - starting) / everything, 0.0), 1.0) if everything > 0 else 0.0
        whole = starting + part * everything
        # Above 0, since it is the cluster that says so, and not the nodes that run the class.
        return {name: max((coming[name] + part * weight) / whole, _LITTLE) for name, weight in attested.items()}
    started = {name: item for name, item in sums.items() if item.started}
    if not started:
        return {}
    rows = np.array([[(item.started or 0.0, item.recent or 0.0, item.pods) for item in started.values()]])
    sticky = np.array([model.repeats or 0.0]), np.array([model.transitions or 0.0])
    likely = mix.weights(rows[..., 0], rows[..., 1], rows[..., 2], *sticky)
    return dict(zip(started, likely[0].tolist(), strict=True))


def others(votes: Array, mixed: NDArray[np.bool_]) -> float:
    """Return how many nodes vote for classes that the cluster's mix lacks; a few votes of one count as a part of it.

    Args:
        votes: (nodes, slots), at most 1 of each node in all.
        mixed: (nodes, slots) True: the class is in the mix.
    """
    cast = usage.over_slots(np.where(mixed, 0.0, votes)[..., None])[:, 0]
    return math.fsum(np.minimum(cast / _WHOLE_VOTE, 1.0).tolist())


def weight_of_mixed(model: Model) -> float:
    """Return by how much classes of the mix count (0..1) in what a pod takes that is of no class of the mix.

    Where three nodes start pods of others, it takes what those do. Fewer nodes may be wrong together, so then all
    classes count.
    """
    return float(np.clip(fair_share.LEAST_VOTERS - (model.others or 0.0), 0.0, 1.0))


def _of_others(model: Model) -> float:
    """Return the votes for classes that no two nodes have evidence of."""
    items = (model.classes or {}).values()
    agreed = sum(item.votes or 0.0 for item in items if (item.nodes or 0) >= ATTESTED)
    return max(model.voted or 0.0, sum(item.votes or 0.0 for item in items)) - agreed


def _confirmed(total: float, largest: float, voices: float) -> float:
    """Return what so many nodes say together as far as they would say it without the one that says most."""
    scale = voices / (voices - 1.0) if voices > _MOST_SCALED else _MOST_SCALED
    return min(total, scale * max(total - largest, 0.0))


def likely(starts: mix.State, pods: Array, here: Array, elsewhere: Array) -> Array:
    """Return how likely the next pod of each node is of each class, (nodes, slots and the cluster's classes).

    Of classes of its own that are not in the cluster's mix, a node's own starts say so; of the others, the cluster.

    Args:
        starts: Starts.
        pods: (nodes, slots) running pods.
        here: (nodes, slots) how likely the class of each slot is by the cluster's mix; all 0: it has none. What that
            lacks to 1 counts as the mean pod.
        elsewhere: (classes,) the same for the classes that the cluster knows.
    """
    if not np.any((here <= 0) & (starts.started > 0)):
        return np.concatenate((here, np.broadcast_to(elsewhere, (len(here), len(elsewhere)))), axis=1)
    own = mix.weights(starts.started, starts.recent, pods, starts.repeats, starts.transitions)
    alone = np.where(here > 0, 0.0, own)
    others = 1.0 - usage.over_slots(alone[..., None])
    return np.concatenate((alone + here * others, elsewhere * others), axis=1)


def returning(starts: mix.State, pods: Array, absent: NDArray[np.bool_], likely: Array) -> Array | None:
    """Return how likely the next pod is of each class (nodes, classes) if classes come back whose pods have ended.

    Each node weighs them by its own starts alone, so that no node makes others expect them.

    Args:
        starts: Starts.
        pods: (nodes, slots) running pods.
        absent: (nodes, slots) True: the class has come back before, and none of its pods runs here.
        likely: (nodes, classes) what is likely without them.

    Returns:
        None: No node has such a class.
    """
    if not (absent & (starts.started > 0)).any():
        return None
    present = np.where(absent, 1.0, pods)
    own = mix.weights(starts.started, starts.recent, present, starts.repeats, starts.transitions)
    back, slots = np.where(absent, own, 0.0), pods.shape[1]
    others = likely * (1.0 - usage.over_slots(back[..., None]))
    others[:, :slots] += back
    return others


def by_label(mixed: Mapping[str, float], find: Callable[[str], int | None], labels: int) -> Array:
    """Return a mix by label, (labels + 1,); the last one is that of no class, as for what has no label."""
    weights = np.zeros(labels + 1)
    for name, weight in mixed.items():
        if (number := find(name)) is not None:
            weights[number] = weight
    return weights


def cost_of_mix(likely: Mapping[str, float], sums: Mapping[str, ClassSum]) -> tuple[Array, float]:
    """Return what classes that are known add to the cost of a pod of the mix, and how likely a pod of another is.

    The first is in cores and bytes, (resources,); NaN: none is known.
    """
    shares = [(likely[name], item) for name, item in sums.items() if likely.get(name) and item.pods > 0]
    if not shares:
        return np.full(2, np.nan), 1.0
    totals = [sum(share * getattr(item, name) / item.pods for share, item in shares) for name in ("cpu", "memory")]
    return np.array(totals), max(1.0 - sum(share for share, _ in shares), 0.0)


def far(state: classes.State, mean: Array) -> NDArray[np.bool_]:
    """Return where (nodes, slots) a node's own evidence of a class is far from the mean cost.

    Args:
        state: The nodes.
        mean: (nodes, slots, resources) mean cost of the class; NaN: not known, or of too few nodes.
    """
    seconds = np.stack((state.demand.age, state.held), axis=-1)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        ratio = classes.slope(state) / mean
        apart = (seconds > _EVIDENT_SECONDS) & ((ratio > _FAR) | (ratio < 1 / fair_share.WIDE))
    return np.asarray(apart.any(axis=-1) & (state.label >= 0) & (state.pods > 0))
