"""The newest message of each node from a bucket."""

from contextlib import suppress
from typing import TypeVar

from bus.subscription import Subscription
from schemas.messages.estimate import Availability
from schemas.messages.facts import NodeFacts
from schemas.messages.placement import Reservations
from schemas.subject import name

OfNode = TypeVar("OfNode", Availability, NodeFacts, Reservations)


async def changes(messages: Subscription[OfNode | None], seconds: float) -> dict[str, OfNode | None]:
    """Return what has arrived by node, all of a backlog; None: its key was deleted.

    Args:
        messages: Messages of a bucket.
        seconds: Time to wait at most for the first.

    Raises:
        BusError: As `Subscription.read`.
    """
    changed: dict[str, OfNode | None] = {}
    while True:
        batch = await messages.read(timeout_seconds=seconds)
        for each in batch.messages:
            if each.message is not None:
                changed[each.message.node] = each.message
                continue
            with suppress(ValueError):  # a key that no node has
                changed[name(each.subject.rpartition(".")[2])] = None
        if not batch.received or batch.pending <= 0:
            return changed
