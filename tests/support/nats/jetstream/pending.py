"""What a consumer has delivered and nobody has acknowledged: floors, counts, and what is due again."""

from collections import deque
from typing import NamedTuple


class _Delivery(NamedTuple):
    number: int
    at: float


class Pending:
    """Deliveries that wait for an acknowledgement; `number` counts deliveries, `sequence` is the stream's."""

    def __init__(self, policy: str, wait_seconds: float) -> None:
        self._policy, self._wait = policy, wait_seconds
        self._open: dict[int, _Delivery] = {}
        self._again: dict[int, int] = {}
        self._due: deque[int] = deque()
        self.floor_number = self.floor_sequence = 0
        self._delivered_number = self._delivered_sequence = 0

    def __len__(self) -> int:
        return len(self._open)

    @property
    def redelivered(self) -> int:
        """Messages delivered more than once and still open."""
        return len(self._again)

    @property
    def due(self) -> int:
        """Messages that are to be delivered again."""
        return len(self._due)

    def reset(self, sequence: int) -> None:
        """Forget everything; the next delivery is number 1, of a sequence from this one on."""
        self._open.clear()
        self._again.clear()
        self._due.clear()
        self.floor_number = self._delivered_number = 0
        self.floor_sequence = self._delivered_sequence = sequence - 1

    def deliver(self, sequence: int, number: int, now: float) -> None:
        """Note a delivery."""
        self._delivered_number, self._delivered_sequence = number, max(sequence, self._delivered_sequence)
        if self._policy == "none":
            self.floor_number, self.floor_sequence = number, sequence
        else:
            previous = self._open.get(sequence)
            self._open[sequence] = _Delivery(previous.number if previous else number, now)

    def acknowledge(self, sequence: int, number: int) -> None:
        """Take an acknowledgement: of one message, or of all up to it."""
        if sequence > self._delivered_sequence or self._policy == "none":
            return
        if self._policy == "all":
            if sequence <= self.floor_sequence or number <= self.floor_number:
                return
            for each in [each for each in self._open if each <= sequence]:
                self.close(each)
            self.floor_number, self.floor_sequence = number, sequence
        elif sequence in self._open:
            self.close(sequence)
            self._raise_floor()

    def close(self, sequence: int) -> None:
        """Stop waiting for a message, because it is acknowledged or gone."""
        self._open.pop(sequence, None)
        self._again.pop(sequence, None)
        if sequence in self._due:
            self._due.remove(sequence)

    def _raise_floor(self) -> None:
        if not self._open:
            self.floor_number, self.floor_sequence = self._delivered_number, self._delivered_sequence
            return
        oldest = min(self._open)
        self.floor_sequence = max(self.floor_sequence, oldest - 1)
        self.floor_number = max(self.floor_number, self._open[oldest].number - 1)

    def refuse(self, sequence: int) -> None:
        """Deliver a message again at once."""
        if sequence in self._open and sequence not in self._due:
            self._due.append(sequence)

    def extend(self, sequence: int, now: float) -> None:
        """Wait for a message as if it had been delivered now."""
        if previous := self._open.get(sequence):
            self._open[sequence] = previous._replace(at=now)

    def collect(self, now: float) -> bool:
        """Queue what has waited too long, in stream order; True: there is something to deliver."""
        late = sorted(
            sequence
            for sequence, delivery in self._open.items()
            if now >= delivery.at + self._wait and sequence not in self._due
        )
        self._due.extend(late)
        return bool(self._due)

    @property
    def next_due(self) -> float | None:
        """When the next message will have waited too long."""
        waiting = (delivery.at for sequence, delivery in self._open.items() if sequence not in self._due)
        first = min(waiting, default=None)
        return None if first is None else first + self._wait

    def pop(self) -> tuple[int, int] | None:
        """Take the next message to deliver again: its sequence, and which delivery of it that will be."""
        if not self._due:
            return None
        sequence = self._due.popleft()
        self._again[sequence] = self._again.get(sequence, 0) + 1
        return sequence, self._again[sequence] + 1

    def put_back(self, sequence: int) -> None:
        """Undo `pop`."""
        self._due.appendleft(sequence)
        self._again[sequence] -= 1
        if not self._again[sequence]:
            del self._again[sequence]
