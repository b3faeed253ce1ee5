"""A node of 4 CPUs and 8 GiB as its agent describes it second by second, and what a partition makes of it."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from processors.estimation import slowdown
from processors.partition.aggregate import Aggregate
from processors.partition.partition import Partition
from schemas import codec
from schemas.messages.estimate import Availability, Model
from schemas.settings import load
from tests.support.processors import telemetry
from tests.unit.processors.prediction.fold.recordings import node_facts

Array = NDArray[np.float64]

GIB = 1 << 30
_CPUS = np.array([4.0])
Stream = list[tuple[str, bytes]]


def by_cores(cores: Array) -> Array:
    """Return the shares of 4 CPUs that services of so many cores take by the policy."""
    return np.asarray(cores / slowdown.cores(2.0, _CPUS) * slowdown.weight(cores, slowdown.queueing(2.0, _CPUS)[0]))


def pod(number: int, workload: str, cores: float, memory: float = 0.05 * GIB) -> dict[str, Any]:
    calm = {"cpu_pressure": 0.0, "io_pressure": 0.0, "throttled": 0.0}
    return {"pod": f"p{number}", "workloads": workload, "cpu_cores": cores, "memory_bytes": memory, **calm}


def seconds(
    node: str,
    first: int,
    last: int,
    pods: list[dict[str, Any]],
    step: int = 1,
    ages: list[int] | None = None,
    *,
    gib: int = 8,
    waiting: float = 0.0,
) -> Iterator[Stream]:
    """Yield what a node of 4 CPUs and so much memory sends; its system takes a tenth of a core and half a GiB.

    So many threads wait for a CPU.
    """
    cores = 0.1 + sum(each["cpu_cores"] for each in pods)
    memory = (0.5 * GIB + sum(each["memory_bytes"] for each in pods)) / (gib * GIB)
    usage = {"pods": float(len(pods)), "cpu_util": min(1.0, cores / 4), "memory_util": memory, "memory_used": memory}
    system = {"system_cpu_cores": 0.1, "system_memory_bytes": 0.5 * GIB, "ages": ages or [600] * len(pods)}
    for second in range(first, last, step):
        block = telemetry.block(node, second, procs_running=1 + cores + waiting, **usage)
        block = block.model_copy(update={"memory_bytes": gib * GIB})
        yield [telemetry.stored(block), telemetry.stored(telemetry.usage(node, second + 1, pods, **system))]


def folded(partition: Partition, *streams: Iterator[Stream]) -> dict[str, Availability]:
    """Fold the streams side by side; return the last availability of each node."""
    last: dict[str, Availability] = {}
    for batches in zip(*streams, strict=True):
        outputs, refused = partition.fold([message for batch in batches for message in batch])
        assert not refused
        last |= {each.message.node: each.message for each in outputs if isinstance(each.message, Availability)}
    return last


class Cluster:
    """The nodes of one partition, to which the global model of all of them comes back."""

    def __init__(self) -> None:
        self._partition = self._new()
        self._whole = Aggregate(1, silent_seconds=10)

    @staticmethod
    def _new() -> Partition:
        return Partition(load({"estimate_report_seconds": "0.5"}, environ={}), 0)

    def restart(self) -> None:
        """Go on from a checkpoint."""
        body, self._partition = self._partition.snapshot(), self._new()
        self._partition.restore(body)

    def fold(self, messages: Stream) -> dict[str, Availability]:
        """Fold what nodes send; return the last availability of each node that is reported."""
        outputs, refused = self._partition.fold(messages)
        assert not refused
        for each in outputs:
            if isinstance(each.message, Model):
                merged = self._whole.fold(each.subject, codec.encode(each.message))
                if merged is not None:
                    self._partition.fold([(telemetry.NAMES.model, codec.encode(merged))])
        return {each.message.node: each.message for each in outputs if isinstance(each.message, Availability)}


def described(partition: Partition, cpu: float, memory: float, **more: float) -> None:
    facts = node_facts("n", 1, cpu, memory, capacity={"cpu": 4.0, "memory": 8.0 * GIB})
    facts.allocatable.update(more)
    partition.fold([telemetry.stored(facts)])
