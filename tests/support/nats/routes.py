"""Who listens on what: subjects to subscriptions."""

from tests.support.nats.session import Subscription
from tests.support.nats.subject import matches


class Routes:
    """All subscriptions of a server."""

    def __init__(self) -> None:
        self._exact: dict[str, dict[Subscription, None]] = {}
        self._wide: dict[Subscription, None] = {}
        self._turn = 0

    def add(self, subscription: Subscription) -> None:
        """Take in a subscription."""
        self._members(subscription)[subscription] = None

    def remove(self, subscription: Subscription) -> None:
        """Take out a subscription."""
        members = self._members(subscription)
        members.pop(subscription, None)
        if not members:
            self._exact.pop(subscription.pattern, None)

    def _members(self, subscription: Subscription) -> dict[Subscription, None]:
        pattern = subscription.pattern
        return self._wide if "*" in pattern or ">" in pattern else self._exact.setdefault(pattern, {})

    def find(self, subject: str) -> list[Subscription]:
        """Return the receivers of a message: all outside of queue groups, and one of each group in turn."""
        receivers = [*self._exact.get(subject, ()), *(each for each in self._wide if matches(each.pattern, subject))]
        groups: dict[tuple[str, str], list[Subscription]] = {}
        for each in receivers:
            if each.queue:
                groups.setdefault((each.pattern, each.queue), []).append(each)
        if not groups:
            return receivers
        self._turn += 1
        chosen = [members[self._turn % len(members)] for members in groups.values()]
        return [each for each in receivers if not each.queue] + chosen

    def any(self, subject: str) -> bool:
        """Tell whether somebody listens on a subject."""
        return subject in self._exact or any(matches(each.pattern, subject) for each in self._wide)
