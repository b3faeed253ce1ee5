"""How large a node can be: what Kubernetes knows of it, and else what machines are.

A node tells its own size, and shares of it become cores and bytes of the cluster's sums. So a size is held against the
capacity that Kubernetes has of the node, where there are facts of it, and against the largest machines that are built.
"""

from typing import NamedTuple

from schemas.messages.telemetry import PodUsageBlock

MOST_CPUS = 4096
MOST_BYTES = 64 << 40
_READING = 1.25
_SLACK = 1.02  # MemTotal and the kubelet's capacity are read at different times, and memory may be plugged in


class Capacity(NamedTuple):
    """What Kubernetes knows of a node's size: CPUs and bytes; 0: not known."""

    cpus: float = 0.0
    memory_bytes: float = 0.0


def bounded(cpus: int, memory_bytes: int, capacity: Capacity | None = None) -> tuple[int, int]:
    """Return the size that is believed of a node that says it has so many CPUs and bytes.

    >>> bounded(65_536, 1 << 30), bounded(64, 1 << 30, Capacity(cpus=4.0))
    ((4096, 1073741824), (4, 1073741824))
    """
    limit = capacity or Capacity()
    return _least(cpus, limit.cpus, MOST_CPUS), _least(memory_bytes, limit.memory_bytes, MOST_BYTES)


def largest(capacity: Capacity | None) -> tuple[int, int]:
    """Return the largest size that a node can have, in CPUs and bytes.

    >>> largest(None), largest(Capacity(cpus=4.0))
    ((4096, 70368744177664), (4, 70368744177664))
    """
    return bounded(MOST_CPUS, MOST_BYTES, capacity)


def within(block: PodUsageBlock, cpus: int, memory_bytes: int) -> PodUsageBlock:
    """Return a block in which pods together take no more than their node has, each by the same factor less.

    What is read at different times adds up to a little more than there is; that is left as it is.
    """
    changed = {}
    for name, most in (("cpu_cores", cpus), ("memory_bytes", memory_bytes)):
        amounts: list[float | None] = getattr(block, name)
        total = sum(filter(None, amounts))
        if total > most * _READING:
            changed[name] = [amount and amount * (most / total) for amount in amounts]
    return block.model_copy(update=changed) if changed else block


def _least(claimed: int, reported: float, most: int) -> int:
    if reported >= 1 and claimed > reported * _SLACK:
        return min(round(reported), most)
    return min(claimed, most)
