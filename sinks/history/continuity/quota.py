"""A bound on what one node may add to a table, so that one agent cannot keep the history from the others' rows."""

import logging

from prometheus_client import Counter

from sinks.history.table import Kept, Table

log = logging.getLogger(__name__)

_MINUTE_US = 60_000_000

OVER_QUOTA = Counter(
    "spazio_history_over_quota_rows_total", "rows refused because their node sent too many messages", ["table"]
)


class MessageQuota:
    """Counts the messages of each node and table in each minute of the stream."""

    def __init__(self) -> None:
        self._minute = -1
        self._counts: dict[tuple[str, str], int] = {}

    def admit(self, table: Table, kept: Kept, stored_us: int, limit: int) -> bool:
        """Tell whether a message is within its node's quota; the rows of others are counted.

        Args:
            table: Table of the message.
            kept: What is kept of the message; one that is not of a node is always within.
            stored_us: When the server stored it, in microseconds; its minute counts, not the time of reading, so that a
                history that catches up refuses nothing.
            limit: Messages of a node for a table in a minute; 0: any number.
        """
        if not limit or not table.by_node:
            return True
        if (minute := stored_us // _MINUTE_US) != self._minute:
            self._minute, self._counts = minute, {}
        key = table.name, str(getattr(kept, "node", ""))
        count = self._counts[key] = self._counts.get(key, 0) + 1
        if count <= limit:
            return True
        OVER_QUOTA.labels(table.name).inc(table.rows(kept))
        if count == limit + 1:
            log.warning("history.over_quota", extra={"table": table.name, "node": key[1], "messages_per_minute": limit})
        return False
