"""The newest message of each node from a bucket."""

from typing import TypeVar

from bus.subscription import Subscription
from schemas.messages.estimate import Availability
from schemas.messages.facts import NodeFacts
from schemas.messages.placement import Reservations

OfNode = TypeVar("OfNode", Availability, NodeFacts, Reservations)


async def changes(messages: Subscription[OfNode | None], seconds: float) -> dict[str, OfNode]:
    """Return what has arrived by node, all of a backlog; deleted keys are left out.

    Args:
        messages: Messages of a bucket.
        seconds: Time to wait at most for the first.

    Raises:
        BusError: As `Subscription.read`.
    """
    changed: dict[str, OfNode] = {}
    while True:
        batch = await messages.read(timeout_seconds=seconds)
        changed |= {each.message.node: each.message for each in batch.messages if each.message is not None}
        if not batch.received or batch.pending <= 0:
            return changed
