"""Folds messages one of which makes the fold raise: finds it, leaves it out, and folds the others.

Where messages together make the fold raise, each half is folded for itself, down to the single message, and the state
is put back before each new attempt. A message is left out if folding it alone raises, on the state that all earlier
ones have made. That depends on nothing but the stream, since grouping never changes a result; so a replay, another
replica and a process that was killed leave out the same messages and publish the same rows.
"""

import logging
import time
from collections.abc import Sequence

from bus.folding.task import Fold, OutputRow
from bus.reading.progress import Received
from schemas.codec import InvalidMessage

log = logging.getLogger(__name__)

Messages = Sequence[tuple[str, bytes]]
Result = tuple[Sequence[OutputRow], Sequence[InvalidMessage]]

# Exceptions that say something of the machine, and nothing of a message.
NO_FAULT_OF_A_MESSAGE = (MemoryError, OSError)
_CAREFUL_SECONDS = 60.0


class Doubtful(Exception):
    """The fold raised. Its state is undefined: it must be loaded again, and the same messages be folded carefully."""


class Doubt:
    """Which messages of a part are folded carefully: those that made the fold raise, and what comes soon after.

    Nothing is lost without a doubt, and the bytes of the state are not needed before each fold.
    """

    def __init__(self) -> None:
        """Start without a doubt."""
        self._first, self._last, self._until = 0, 0, 0.0

    def fold(self, state: Fold, messages: Sequence[Received]) -> Result:
        """Fold messages in stream order; those that make the fold raise are invalid.

        Raises:
            Doubtful: The fold raised.
            MemoryError: There is too little memory; also OSError. The state is undefined.
        """
        pairs = [(message.subject, message.data) for message in messages]
        first, last = messages[0].sequence, messages[-1].sequence
        doubted = (first <= self._last and last >= self._first) or time.monotonic() < self._until
        try:
            return fold(state, pairs) if doubted else state.fold(pairs)
        except NO_FAULT_OF_A_MESSAGE:
            raise
        except Exception as error:
            # A part that is taken over again passes all earlier doubtful messages since the last checkpoint.
            self._first, self._last = min(self._first or first, first), max(self._last, last)
            self._until = time.monotonic() + _CAREFUL_SECONDS
            raise Doubtful(f"messages {first} to {last}: {type(error).__name__}: {error}") from error


def fold(state: Fold, messages: Messages) -> tuple[list[OutputRow], list[InvalidMessage]]:
    """Fold (stored subject, payload) pairs in stream order; a message that makes the fold raise is invalid.

    Raises:
        MemoryError: There is too little memory; also OSError. The state is undefined.
    """
    return _Careful(state).fold(messages, 0)


def begin(state: Fold, messages: Messages, part: str) -> None:
    """Fold what a new state of a part begins with; what cannot be used is left out and logged.

    Raises:
        MemoryError: There is too little memory; also OSError. The state is undefined.
    """
    _, invalid = fold(state, messages)
    if invalid:
        log.warning("given.refused", extra={"part": part, "left_out": len(invalid), "reason": invalid[0].reason})


class _Careful:
    """One careful fold; holds the state's bytes as they are, or None if a message was folded since."""

    def __init__(self, state: Fold) -> None:
        self._state = state
        self._body: bytes | None = None

    def fold(self, messages: Messages, begin: int) -> tuple[list[OutputRow], list[InvalidMessage]]:
        """Fold messages, the first of which has index `begin`."""
        body = self._body = self._body or self._state.capture()
        try:
            outputs, invalid = self._state.fold(messages)
        except NO_FAULT_OF_A_MESSAGE:
            raise
        except Exception as error:  # noqa: BLE001 # any exception is the fault of that message
            self._state.clear()
            self._state.restore(body)
            if len(messages) == 1:
                return [], [InvalidMessage(begin, f"the fold raised {type(error).__name__}: {error}")]
        else:
            self._body = None
            return (
                [OutputRow(begin + output.index, output.row) for output in outputs],
                [InvalidMessage(begin + refused.index, refused.reason) for refused in invalid],
            )
        half = len(messages) // 2
        rows, refusals = self.fold(messages[:half], begin)
        more_rows, more_refusals = self.fold(messages[half:], begin + half)
        return rows + more_rows, refusals + more_refusals
