"""One partition: its nodes, and the fold of messages into their state.

A value in the shape of an object: `fold` takes messages in stream order and returns what to publish, `snapshot` and
`restore` turn the state into bytes and back. No clock, no I/O.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from processors import decode
from processors.estimation import availability, chain
from processors.estimation.global_model import assumed, contribution, regressed, units
from processors.model import flat_queue, keyed_sum
from processors.partition import aggregate, intake, output, plan, report
from processors.partition.output import Output
from processors.partition.state import FORMAT, PartitionState, Rows
from processors.rows import table
from processors.rows.quota import NodeQuota
from processors.workload.capacity.class_capacity import Room
from processors.workload.capacity.nodes import Nodes
from processors.workload.pod_class import Tally
from schemas.codec import InvalidMessage
from schemas.messages.base import Message
from schemas.messages.estimate import Availability, Model
from schemas.messages.telemetry import SmoothedBlock
from schemas.settings import Settings
from schemas.subject import Names

__all__ = ["FORMAT", "Partition"]


class Partition:
    """One partition."""

    def __init__(self, settings: Settings, number: int, memo: decode.Memo | None = None) -> None:
        """Start without any node; `memo` gets what is decoded, for its predictions."""
        self.number, self._memo = number, memo
        self._settings = settings
        self._names = Names(settings.prefix)
        self._state = PartitionState(settings)
        self._params = self._state.params
        smoothing = settings.smoothing
        self._smoothed_slots = -(-smoothing.nodes_max // settings.nats.partitions) if smoothing.publish else 0

    @property
    def nodes(self) -> int:
        """Number of nodes known."""
        return len(self._state.slots)

    @property
    def features(self) -> tuple[str, ...]:
        """Rows of the model."""
        return self._params.features

    @property
    def withheld(self) -> int:
        """Number of messages that were due and could not be made."""
        return self._state.withheld

    @property
    def quota(self) -> NodeQuota:
        """Which nodes may have state."""
        return self._state.quota

    @property
    def ignored(self) -> int:
        """Number of container events that could not be laid on their node's clock, and of blocks without the size."""
        return self._state.admission.ignored

    def fold(self, messages: Sequence[tuple[str, bytes]]) -> tuple[list[Output], list[InvalidMessage]]:
        """Fold messages, (stored subject, payload) in stream order.

        Returns:
            What to publish, in the order of the messages that it came of, and what could not be used. Folding the same
            messages in other groups gives the same outputs in the same order.
        """
        items, refused = decode.messages(messages, self._names.model, leave=self._memo)
        return self.fold_decoded(items), [InvalidMessage(index, reason) for index, reason in refused]

    def fold_decoded(self, items: Sequence[decode.Item]) -> list[Output]:
        """Fold valid messages in stream order; return what to publish."""
        outputs: list[Output] = []
        state = self._state
        for step, watermark in plan.steps(items, state.watermark, self._admit):
            if isinstance(step, plan.Fold):
                outputs += self._fold(step.entries)
            elif isinstance(step, plan.Learn):
                self._learn(step.tallies)
            elif isinstance(step, plan.Sum):
                outputs += self._sum(step)
            else:
                state.adopt(step.model)
            state.watermark = watermark
        return outputs

    def _admit(self, item: decode.Item, second: int) -> plan.Entry | Tally | None:
        """Return what is to be folded of a message; nothing of a node that may have no state."""
        return self._state.admission.admit(item, second) if self._state.quota.admits(item, second) else None

    def state(self, node: str) -> chain.State | None:
        """Return the state of a node, as rows of one; None: the node is unknown."""
        slot = self._state.slots.get(node)
        return None if slot is None else table.take(self._state.rows.chain, np.array([slot]))

    def snapshot(self) -> bytes:
        """Return the state as bytes."""
        return self._state.snapshot()

    def restore(self, body: bytes) -> None:
        """Take over a state that `snapshot` made.

        Raises:
            ValueError: The bytes are damaged, or were made by another version or under settings that change the
                state's shape or meaning.
        """
        self._state.restore(body)

    def _fold(self, entries: list[plan.Entry]) -> list[Output]:
        own, workloads = self._state, self._state.workloads
        heads = [entry.block.message for entry in entries]
        rows = np.array([own.slot(head.node) for head in heads], dtype=np.intp)
        before = table.take(own.rows, rows)
        local = intake.update(before.chain, entries, params=self._params)
        state, result = chain.conclude(before.chain, local, own.global_model, params=self._params)
        room = None
        used, moved = result.believed, np.zeros(len(rows), dtype=np.bool_)
        if workloads.any_known(rows):
            room = workloads.room(rows, self._nodes(state))
            used = np.where(room.classed[:, None], room.used, used)
            moved = workloads.moved(rows, room)
            if self._params.variant.estimator.by_class:
                result = _composed(result, room)
        published, due = report.update(before.report, result, local.at_us, moved, self._settings.estimate)
        table.put(own.rows, rows, Rows(state, published))
        own.enqueue(state, rows)
        fields = report.ReportFields(
            heads,
            local.at_us,
            published.since_us,
            used,
            availability.free(used, self._settings.estimate),
            state.amount,
            state.running / state.cores,
            room,
            workloads.listed,
            workloads.mixes,
            [entry.faults for entry in entries],
            workloads.outvoted(rows, [entry.oversized for entry in entries]),
        )
        indices = [entry.block.message_index for entry in entries]
        outputs = self._report(rows, fields, result, due, indices, self._models(heads, state))
        if room is not None:
            workloads.tell(rows, room, due)
        return outputs

    def _report(
        self,
        slots: NDArray[np.intp],
        published: report.ReportFields,
        result: chain.Result,
        due: NDArray[np.bool_],
        indices: Sequence[int],
        models: Sequence[dict[str, Any] | None],
    ) -> list[Output]:
        """Return what is due to be published, node by node; `models` are the nodes' own, None: not to be published."""
        unknown = np.asarray(np.isnan(result.usage[:, self._params.resources]).any(axis=1))
        # Without cpu or memory what fits is unknown; absent is better than wrong.
        self._state.withheld += int(np.count_nonzero(unknown))
        chosen = np.flatnonzero(due & ~unknown)
        availabilities = report.availabilities(chosen, published, result, self._params.features)
        # By slot, which does not depend on how messages are grouped.
        shown = np.flatnonzero(slots < self._smoothed_slots)
        if not shown.size and not self._settings.model.publish_local:
            return [
                output
                for row, fields in zip(chosen.tolist(), availabilities, strict=True)
                for output in self._make("availability", published.heads[row].node, Availability, fields, indices[row])
            ]
        outputs: list[Output] = []
        waiting = set(chosen.tolist())
        smoothed: list[dict[str, Any] | None] = [None] * len(models)
        heads = [published.heads[row] for row in shown.tolist()]
        for row, values in zip(shown.tolist(), report.smoothed(heads, result.smoothed[shown]), strict=True):
            smoothed[row] = values
        blocks = zip(published.heads, indices, smoothed, models, strict=True)
        for row, (head, index, fields, model) in enumerate(blocks):
            if fields is not None:
                outputs += self._make("smoothed", head.node, SmoothedBlock, fields, index)
            if row in waiting:
                outputs += self._make("availability", head.node, Availability, next(availabilities), index)
            if model is not None:
                outputs += self._make("model.local", head.node, Model, model, index)
        return outputs

    def _models(self, heads: list[decode.Head], state: chain.State) -> Sequence[dict[str, Any] | None]:
        """Return the fields of the nodes' local models, as far as they are to be published."""
        if not self._settings.model.publish_local:
            return [None] * len(heads)
        moments = keyed_sum.absolute(state.moment, self._params.variant.units(state.sizes))
        costs = state.taken * state.sizes
        return list(report.local_models(heads, self._params.features, moments, costs, state.counted))

    def _learn(self, tallies: list[Tally]) -> None:
        rows = np.array([self._state.slots[tally.node] for tally in tallies], dtype=np.intp)
        state = table.take(self._state.rows.chain, rows)
        self._state.workloads.learn(rows, tallies, self._nodes(state))

    def _nodes(self, state: chain.State) -> Nodes:
        reference, columns = self._reference(state), self._params.resources
        return Nodes(
            level=state.level,
            amount=state.amount,
            soaked=state.soaked,
            queueing=state.queueing,
            reserved=state.reserved,
            most=state.most,
            reference=reference,
            newcomer=np.maximum(reference, regressed(state.taken * state.sizes, state.counted)[:, columns]),
            averaged=self._state.global_model.cost is not None,
            running=state.running,
            waiting=state.waiting,
            cores=state.cores,
            full=state.full,
            pods=state.pods,
            churn=state.settling,
            at_us=state.at_us,
        )

    def _reference(self, state: chain.State) -> NDArray[np.float64]:
        """Return the cores and bytes (nodes, resources) that are assumed of a pod of an unknown class."""
        columns = self._params.resources
        share = assumed(state.sizes, self._state.global_model, columns, self._settings.estimate)
        return share[:, columns] * state.sizes[:, columns]

    def _make(self, kind: str, node: str, form: type[Message], fields: dict[str, Any], index: int) -> list[Output]:
        """Make a message; one that cannot be made is withheld and counted, and affects no other node."""
        made = output.make(self._names.node(kind, node), form, fields, index)
        self._state.withheld += made is None
        return [] if made is None else [made]

    def _sum(self, step: plan.Sum) -> list[Output]:
        own, second = self._state, step.second
        own.forget(second)
        state = own.rows.chain
        alive = own.live(second, self._settings.model.silent_seconds)
        if own.queue is not None:
            total = flat_queue.moment(own.queue) * int(alive.sum())
        else:
            total = keyed_sum.total(state.moment, self._units(state), alive)
        counted, taken = self._evidence(state)
        share = contribution(counted, taken, own.global_model)
        cost = _sum_in_order(share.amount, alive)
        pods = float(_sum_in_order(counted * share.factor, alive))
        costed = int(np.count_nonzero(alive & (counted > 0)))
        above, below = (part[alive].max(axis=0, initial=0.0) for part in (share.above, share.below))
        try:
            classes = own.workloads.sums(alive, self._reference(state), second * 1_000_000)
            sums = aggregate.Sums(total, cost, above, below, pods, int(alive.sum()), costed, classes)
            model = aggregate.model_of(second, self.number, self._params.variant, sums)
        except ValidationError:
            own.withheld += 1
            return []
        return [Output(self._names.of("model", "partition", str(self.number)), model, step.index)]

    def _evidence(self, state: chain.State) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return of how many pods nodes have evidence, (nodes,), and what these take, (nodes, features), absolute.

        A node's regression has to do where usage by pod is not known.
        """
        counted, taken = state.counted, state.taken * state.sizes
        if not self._params.variant.estimator.by_class:
            return counted, taken
        pods, used, lately = self._state.workloads.evidence(self._reference(state), state.at_us)
        cost = self._state.global_model.cost
        # What else pods take counts as in the mean, as far as the regression has no evidence of it.
        part = np.divide(pods, counted, out=np.ones_like(pods), where=counted > pods)[:, None]
        by_class = taken * part + np.maximum(pods - counted, 0.0)[:, None] * (0.0 if cost is None else cost)
        by_class[:, self._params.resources] = used
        return np.where(lately, pods, counted), np.where(lately[:, None], by_class, taken)

    def _units(self, state: chain.State) -> NDArray[np.float64]:
        """Return what a ratio of 1 counts for in the sum of moments, (nodes, features)."""
        own, columns = self._params.variant.units(state.sizes), self._params.resources
        return units(state.moment, own, self._state.global_model, columns, self._settings.estimate)


def _composed(result: chain.Result, room: Room) -> chain.Result:
    """Return the result with the capacity for the expected mix instead of that for the mean pod, where it is known."""
    composed = table.where(room.estimated, room.total, result.room)
    return result._replace(room=composed, prior=np.where(room.estimated, room.prior, result.prior))


def _sum_in_order(values: NDArray[np.float64], alive: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Sum over the node axis from the first node to the last, whatever the size of the array."""
    kept = values[alive]
    return np.add.accumulate(kept, axis=0)[-1] if len(kept) else np.zeros(values.shape[1:])
