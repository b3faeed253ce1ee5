"""A period of event time, as a condition of SQL over the history."""

from datetime import UTC, datetime
from typing import NamedTuple

_SECOND_US = 1_000_000
LAST_US = 253_402_300_800 * _SECOND_US  # the year 10000, beyond which there are no dates


class Period(NamedTuple):
    """Event times from the first to before the second, in microseconds."""

    from_us: int
    to_us: int

    def condition(self) -> str:
        """Return the condition on a table's rows; by `date`, files of other days are not opened.

        >>> Period(86_400_000_000, 172_800_000_000).condition()
        "date BETWEEN DATE '1970-01-02' AND DATE '1970-01-02' AND at_us >= 86400000000 AND at_us < 172800000000"
        """
        first, last = (
            datetime.fromtimestamp(min(max(at, 0), LAST_US - 1) // _SECOND_US, UTC).date()
            for at in (self.from_us, self.to_us - 1)
        )
        return f"date BETWEEN DATE '{first}' AND DATE '{last}' AND at_us >= {self.from_us} AND at_us < {self.to_us}"
