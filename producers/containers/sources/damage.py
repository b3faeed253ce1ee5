"""What a runtime says and nobody can read: counted, said once, and no reason to end."""

import logging

from prometheus_client import Counter

log = logging.getLogger(__name__)

DAMAGED = Counter(
    "spazio_container_damaged_total", "events and files of container runtimes that are unreadable", ["source"]
)


class Damage:
    """The damage that one source has met."""

    def __init__(self, source: str) -> None:
        self._source, self._said = source, False

    def tell(self, reason: str) -> None:
        """Count one thing that was skipped, and say the first of them."""
        DAMAGED.labels(self._source).inc()
        if not self._said:
            self._said = True
            log.warning("containers.damaged", extra={"source": self._source, "reason": reason})
