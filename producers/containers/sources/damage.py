"""Count unreadable data of a runtime, and log it once; the source continues."""

import logging

from prometheus_client import Counter

log = logging.getLogger(__name__)

DAMAGED = Counter(
    "spazio_container_damaged_total", "events and files of container runtimes that are unreadable", ["source"]
)


class Damage:
    """Unreadable data of one source."""

    def __init__(self, source: str) -> None:
        self._source, self._logged = source, False

    def count(self, reason: str) -> None:
        """Count one skipped item, and log the first one."""
        DAMAGED.labels(self._source).inc()
        if not self._logged:
            self._logged = True
            log.warning("containers.damaged", extra={"source": self._source, "reason": reason})
