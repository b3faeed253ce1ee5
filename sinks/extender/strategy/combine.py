"""Combine strategies: one strategy suffices to refuse a node, and its score is the weighted mean."""

from collections.abc import Sequence

import numpy as np

from sinks.extender.candidate import Array, Candidates, Mask, Pod
from sinks.extender.strategy.protocol import Strategy

Chosen = Sequence[tuple[Strategy, float]]


def refuse(chosen: Chosen, pod: Pod, nodes: Candidates) -> dict[str, Mask]:
    """Return, by reason, a mask of the nodes that must not take the pod; equal reasons of strategies are merged."""
    masks: dict[str, Mask] = {}
    for strategy, _ in chosen:
        for reason, mask in strategy.refuse(pod, nodes).items():
            masks[reason] = masks[reason] | mask if reason in masks else mask
    return masks


def score(chosen: Chosen, pod: Pod, nodes: Candidates) -> tuple[Array, dict[str, Array]]:
    """Return (nodes,) the weighted mean from 0 to 100, and (nodes,) scores by strategy.

    Raises:
        ValueError: `chosen` is empty.
    """
    if not chosen:
        raise ValueError("strategies: at least one is needed to rank nodes")
    scores = {strategy.name: strategy.score(pod, nodes) for strategy, _ in chosen}
    total = np.zeros(len(nodes.names))
    for strategy, weight in chosen:
        total += weight * scores[strategy.name]
    return np.clip(total / sum(weight for _, weight in chosen), 0, 100), scores


def needs(chosen: Chosen, pod: Pod, nodes: Candidates, index: int) -> list[str]:
    """Return what must change on the node at this index; each sentence appears once."""
    return list(dict.fromkeys(need for strategy, _ in chosen for need in strategy.needs(pod, nodes, index)))
