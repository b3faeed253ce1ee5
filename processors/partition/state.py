"""The state of one partition: a row for each of its nodes, what is shared by all, and both as bytes and back."""

from dataclasses import astuple
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.estimation import chain
from processors.estimation.chain import Params
from processors.estimation.global_model import GlobalModel, MeanPod, remember
from processors.estimation.variant import choose
from processors.model import flat_queue, subspace
from processors.partition import aggregate, migrate, plan, report
from processors.partition.admission import Admission
from processors.rows import snapshot, table
from processors.rows.quota import NodeQuota
from processors.rows.silence import silent
from processors.workload.workloads import Workloads
from schemas.messages.estimate import Model
from schemas.settings import Settings

FORMAT = 11


class Rows(NamedTuple):
    """State of nodes; every array has a leading node axis."""

    chain: chain.State
    report: report.State


class PartitionState:
    """State of a partition.

    Attributes:
        params: What the chain reads of the settings.
        rows: State of nodes; those behind the last slot are spare.
        slots: Row of each node.
        quota: Which nodes may have state.
        admission: What has come of each node.
        workloads: Classes of pods.
        watermark: Event second.
        global_model: Global model in force.
        queue: The reference variant's global model of this partition; None in the default variant.
        withheld: Messages that were due and could not be made.
    """

    def __init__(self, settings: Settings) -> None:
        """Start without any node."""
        self.params = Params(settings, choose(settings))
        self.slots: dict[str, int] = {}
        self.admission = Admission(settings.estimate, self.params.variant.smoothing.reach)
        self.quota = NodeQuota(settings.process, settings.nats.partitions)
        self.workloads = Workloads(settings)
        self.rows = self._empty(0)
        self.watermark = plan.Watermark()
        self.global_model = GlobalModel()
        self._mean_pod: MeanPod | None = None
        self.withheld = 0
        self.queue: subspace.State | None = None
        if not self.params.variant.absolute:
            self.queue = subspace.State(*self.params.variant.model.init(1, len(self.params.features)))
        self._model_message: Model | None = None
        self._arrived = 0

    def slot(self, node: str) -> int:
        """Return the row of a node; a new node gets the next."""
        slot = self.slots.get(node)
        if slot is None:
            slot = self.slots[node] = len(self.slots)
            if slot >= len(self.rows.report.at_us):
                self.rows = table.extend(self.rows, self._empty(max(16, slot)))
                self.workloads.extend(max(16, slot))
        return slot

    def forget(self, second: int) -> None:
        """Drop nodes that have been silent for long."""
        passed = self.watermark.passed(second, len(self.slots))
        gone = silent(self.admission.heard(), self.quota.deleted, passed)
        self.quota.forget(passed)
        self.admission.forget(gone, second)
        if not gone:
            return
        kept = [(node, slot) for node, slot in self.slots.items() if node not in gone]
        rows = np.array([slot for _, slot in kept], dtype=np.intp)
        self.rows = table.take(self.rows, rows)
        self.workloads.keep(rows, gone)
        self.slots = {node: slot for slot, (node, _) in enumerate(kept)}

    def live(self, second: int, silent_seconds: float) -> NDArray[np.bool_]:
        """Return which nodes (nodes,) count in the sums of an event second; see `plan.is_live`."""
        seen, away = self.rows.chain.seen, np.abs(self.rows.chain.at_us / 1e6 - second)
        live: NDArray[np.bool_] = seen & (away <= silent_seconds)
        distant = np.flatnonzero(seen & ~live)
        if distant.size:
            nodes, heard = list(self.slots), self.admission.heard()
            live[distant] = [
                plan.is_live(seconds, heard.get(nodes[slot], 0), second, silent_seconds)
                for slot, seconds in zip(distant.tolist(), away[distant].tolist(), strict=True)
            ]
        return live

    def enqueue(self, state: chain.State, rows: NDArray[np.intp]) -> None:
        """Merge local models, one after another, into the queue if there is one; N is the nodes known at each."""
        if self.queue is None:
            return
        for index, slot in enumerate(rows):
            self._arrived = max(self._arrived, int(slot) + 1)
            arrival = subspace.State(*table.take(state.model, np.array([index])))
            self.queue = flat_queue.update(self.queue, arrival, nodes=self._arrived)

    def adopt(self, model: Model) -> None:
        """Take over the global model."""
        self._model_message = model
        heard = aggregate.global_model_of(model, self.params.variant)
        self._mean_pod, self.global_model = remember(self._mean_pod, heard, model.at_us)
        self.workloads.adopt(model)

    def snapshot(self) -> bytes:
        """Return the state as bytes."""
        used = np.arange(len(self.slots))
        names, arrays = self.workloads.dump(used)
        arrays |= table.flatten(table.take(self.rows, used))
        if self.queue is not None:
            arrays |= table.flatten(self.queue, "queue.")
        header = {
            "format": FORMAT,
            "settings": self._fingerprint(),
            "withheld": self.withheld,
            "nodes": list(self.slots),
            "quota": self.quota.dump(),
            "admission": self.admission.dump(),
            "workloads": names,
            "arrived": self._arrived,
            "watermark": list(astuple(self.watermark)),
            "mean_pod": self._mean_pod and self._mean_pod.dump(),
            "world": self._model_message.model_dump(exclude_none=True) if self._model_message else None,
        }
        return snapshot.pack(header, arrays)

    def restore(self, body: bytes) -> None:
        """Take over a state that `snapshot` made.

        Raises:
            ValueError: The bytes are damaged, or were made by another version or under settings that change the
                state's shape or meaning.
        """
        header, arrays = snapshot.unpack(body)
        header, arrays = migrate.forward(header, arrays, FORMAT)
        try:
            if header["settings"] != self._fingerprint():
                raise ValueError("state was made under other settings of smoothing, model or estimate")
            self._load(header, arrays)
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise ValueError(f"state is damaged: {error!r}") from error

    def _load(self, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        self.rows = table.restore(self._empty(0), arrays)
        if any(len(column) != len(header["nodes"]) for column in table.flatten(self.rows).values()):
            raise ValueError(f"state has not one row for each of {len(header['nodes'])} nodes")
        if self.queue is not None:
            self.queue = table.restore(self.queue, arrays, "queue.")
        self.slots = {node: slot for slot, node in enumerate(header["nodes"])}
        self.admission.load(header["admission"])
        self._arrived, self.withheld = header["arrived"], header["withheld"]
        self.watermark = plan.Watermark.of(header["watermark"])
        allocatable = header["admission"]["allocatable"]
        self.quota.load(header.get("quota"), header["admission"]["known"], allocatable, self.watermark.second)
        mean_pod = header.get("mean_pod")  # earlier versions remembered none
        self._mean_pod = None if mean_pod is None else MeanPod.load(mean_pod)
        model = None if header["world"] is None else Model.model_validate(header["world"])
        self.workloads.load(header["workloads"], arrays)
        if model is not None:
            self.adopt(model)

    def _empty(self, nodes: int) -> Rows:
        return Rows(chain.init(nodes, self.params), report.init(nodes))

    def _fingerprint(self) -> str:
        # Defaults are left out, so that a new setting does not invalidate states from before there was one.
        model = self.params.settings.model.model_copy(update={"publish_local": False})
        settings = self.params.settings.model_copy(update={"model": model})
        return settings.model_dump_json(include={"smoothing", "model", "policy", "estimate"}, exclude_defaults=True)
