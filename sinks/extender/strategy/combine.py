"""Several strategies at once: a node is refused if one refuses it, and its score is their weighted mean."""

from collections.abc import Sequence

import numpy as np

from sinks.extender.candidate import Array, Candidates, Mask, Pod
from sinks.extender.strategy.protocol import Strategy

Chosen = Sequence[tuple[Strategy, float]]


def refuse(chosen: Chosen, pod: Pod, nodes: Candidates) -> dict[str, Mask]:
    """Return, by reason, the nodes that the pod must not go to; strategies that give one reason are one."""
    found: dict[str, Mask] = {}
    for strategy, _ in chosen:
        for reason, mask in strategy.refuse(pod, nodes).items():
            found[reason] = found[reason] | mask if reason in found else mask
    return found


def score(chosen: Chosen, pod: Pod, nodes: Candidates) -> tuple[Array, dict[str, Array]]:
    """Return (nodes,) the weighted mean from 0 to 100, and (nodes,) scores by strategy.

    Raises:
        ValueError: No strategy is chosen.
    """
    if not chosen:
        raise ValueError("strategies: at least one is needed to rank nodes")
    scores = {strategy.name: strategy.score(pod, nodes) for strategy, _ in chosen}
    total = np.zeros(len(nodes.names))
    for strategy, weight in chosen:
        total += weight * scores[strategy.name]
    return np.clip(total / sum(weight for _, weight in chosen), 0, 100), scores


def needs(chosen: Chosen, pod: Pod, nodes: Candidates, place: int) -> list[str]:
    """Say what would have to change at the node in this place; what several strategies say is said once."""
    return list(dict.fromkeys(said for strategy, _ in chosen for said in strategy.needs(pod, nodes, place)))
