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
        self._place(subscription)[subscription] = None

    def remove(self, subscription: Subscription) -> None:
        """Take out a subscription."""
        place = self._place(subscription)
        place.pop(subscription, None)
        if not place:
            self._exact.pop(subscription.pattern, None)

    def _place(self, subscription: Subscription) -> dict[Subscription, None]:
        pattern = subscription.pattern
        return self._wide if "*" in pattern or ">" in pattern else self._exact.setdefault(pattern, {})

    def find(self, subject: str) -> list[Subscription]:
        """Return who gets a message: everybody outside of queue groups, and one of each group in turn."""
        found = [*self._exact.get(subject, ()), *(each for each in self._wide if matches(each.pattern, subject))]
        groups: dict[tuple[str, str], list[Subscription]] = {}
        for each in found:
            if each.queue:
                groups.setdefault((each.pattern, each.queue), []).append(each)
        if not groups:
            return found
        self._turn += 1
        chosen = [members[self._turn % len(members)] for members in groups.values()]
        return [each for each in found if not each.queue] + chosen

    def any(self, subject: str) -> bool:
        """Tell whether somebody listens on a subject."""
        return subject in self._exact or any(matches(each.pattern, subject) for each in self._wide)
