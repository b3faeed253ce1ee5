"""How many messages a patient task folds at once: as many as take a moment.

There is one thread for the folds of a process. After a pause a patient task has a backlog, and a fold of all of it
would keep the others waiting for as long as it takes: availability would be late, and so would the global model, for
which a replay waits. What a message costs is very different, so it is taken from the folds before. That changes from
fold to fold, since events cost little, so a portion has a limit in any case.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")

_SECONDS = 0.25
_FIRST, _LEAST, _MOST = 500, 20, 1000


class Portion:
    """The size of a task's next fold."""

    def __init__(self, *, patient: bool) -> None:
        """Start without knowing what a message costs; a task that is not patient folds all that it has."""
        self._patient, self._most = patient, _FIRST

    @contextmanager
    def timed(self, messages: int) -> Iterator[None]:
        """Learn from the fold of so many messages in the block."""
        began = time.monotonic()
        yield
        self.learn(messages, time.monotonic() - began)

    def learn(self, messages: int, seconds: float) -> None:
        """Learn that a fold of so many messages, at least one, took so long."""
        self._most = min(max(_LEAST, int(messages * _SECONDS / max(seconds, 1e-9))), _MOST)

    def split(self, messages: Sequence[Item]) -> Iterator[Sequence[Item]]:
        """Yield the messages in portions, each as large as what was learned until then allows."""
        begin = 0
        while begin < len(messages):
            end = begin + self._most if self._patient else len(messages)
            yield messages[begin:end]
            begin = end
