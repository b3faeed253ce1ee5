"""Which pods of this node belong to a lower tier: their facts, read from the bus by UID.

The node's cgroups name the pods that run here, so only their facts are read, not those of the cluster. Only a mark
makes a pod less important: its label, its priority, or Koordinator's quality of service. That it requests nothing
(BestEffort) is none, and a pod of which the bus knows nothing is production.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import NamedTuple

from bus import errors
from bus.client import Client
from bus.publishing import batch
from processors.prediction.tier import priority
from processors.prediction.tier.priority import Priority
from schemas import codec
from schemas.messages.facts import PodFacts
from schemas.subject import Names, token

_LOWER = (Priority.MID, Priority.BATCH, Priority.FREE)


def tier(facts: PodFacts) -> Priority:
    """Return the tier of a pod."""
    return priority.of(facts.labels, facts.priority, None)


class _Entry(NamedTuple):
    """The facts of a pod, None if the bus has none; when they were read, and how often in vain."""

    facts: PodFacts | None
    at: float
    attempts: int


class Directory:
    """Keeps the facts of the pods that run here.

    Args:
        client: Connection.
        names: Names on the bus.
        node: This node, as Kubernetes names it.
        timeout_seconds: Time limit for a request.
        facts_seconds: Age from which facts are read again.
        clock: Monotonic time in seconds; default: the event loop's.
    """

    def __init__(
        self,
        client: Client,
        names: Names,
        node: str,
        *,
        timeout_seconds: float,
        facts_seconds: float,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._client, self._node, self._timeout, self._age = client, node, timeout_seconds, facts_seconds
        self._bucket = names.pods_bucket
        self._clock = clock or asyncio.get_running_loop().time
        self._entries: dict[str, _Entry] = {}
        self._failing = False

    def lower(self) -> dict[str, PodFacts]:
        """Return the facts of pods of the lower tiers, by UID."""
        return {uid: facts for uid, facts in self._facts().items() if tier(facts) in _LOWER}

    @property
    def settled(self) -> frozenset[str] | None:
        """UIDs that the bus has been asked for; None: it does not answer, so no other will be."""
        return None if self._failing else frozenset(self._entries)

    @property
    def pods(self) -> int:
        """Number of pods of this node whose facts are known."""
        return len(self._facts())

    def _facts(self) -> dict[str, PodFacts]:
        read = {uid: each.facts for uid, each in self._entries.items() if each.facts is not None}
        return {uid: facts for uid, facts in read.items() if facts.node == self._node}

    async def refresh(self, uids: Collection[str]) -> None:
        """Read the facts of new pods, and of those that were read long ago; forget pods that are gone.

        Raises:
            BusError: The bus does not answer; also TimeoutError. What is known stays.
        """
        self._entries = {uid: entry for uid, entry in self._entries.items() if uid in uids}
        for uid in uids:
            entry = self._entries.get(uid)
            if entry is None or self._clock() >= entry.at + self._pause(entry):
                try:
                    facts = await self._read(uid)
                except errors.REQUEST_FAILED:
                    self._failing = True
                    raise
                attempts = 0 if facts else 1 + (entry.attempts if entry else 0)
                self._entries[uid] = _Entry(facts, self._clock(), attempts)
        self._failing = False

    def _pause(self, entry: _Entry) -> float:
        """Return after how many seconds facts are read again: soon for a new pod, which the watch may not know yet."""
        return self._age if entry.facts is not None else min(self._age, 2.0 ** min(entry.attempts, 10))

    async def _read(self, uid: str) -> PodFacts | None:
        subject = f"$KV.{self._bucket}.{token(uid)}"
        stored = await batch.last(self._client, f"KV_{self._bucket}", subject, self._timeout)
        try:
            facts = codec.decode(PodFacts, stored.payload) if stored.payload else None
        except codec.Refused:  # others write the dead letter; here it is a pod of which nothing is known
            return None
        return None if facts is None or facts.deleted or facts.pod != uid else facts
