"""The processors' fold of all nodes in one process, without a server: one partition, its global model handed back."""

from collections.abc import Sequence

from processors.partition.aggregate import Aggregate
from processors.partition.partition import Partition
from schemas import codec
from schemas.codec import InvalidMessage
from schemas.messages.estimate import Availability, Model
from schemas.settings import Settings
from schemas.subject import Names


class InProcess:
    """One partition, and the aggregation of its model."""

    def __init__(self, settings: Settings) -> None:
        """Start without any node."""
        self._model = Names(settings.prefix).model
        self._partition = Partition(settings, 0)
        self._aggregate = Aggregate(1, silent_seconds=settings.model.silent_seconds)

    def fold(self, messages: Sequence[tuple[str, bytes]]) -> tuple[list[Availability], list[InvalidMessage]]:
        """Fold messages, (stored subject, payload) in stream order; return the estimates, and what was refused."""
        outputs, refused = self._partition.fold(messages)
        estimates: list[Availability] = []
        for output in outputs:
            if isinstance(output.message, Availability):
                estimates.append(output.message)
            elif isinstance(output.message, Model):
                merged = self._aggregate.fold(output.subject, codec.encode(output.message))
                if merged is not None:
                    self._partition.fold([(self._model, codec.encode(merged))])
        return estimates, refused
