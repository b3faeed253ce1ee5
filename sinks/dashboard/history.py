"""What the dashboard asks of the history; the composition brings the reader, since sinks do not know each other."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol


class Answer(NamedTuple):
    """Rows of a statement.

    Attributes:
        columns: Names of the columns, each once.
        rows: Values that JSON can represent, with whole numbers beyond 53 bits as text.
        truncated: There are more rows, or rows of more bytes than an answer may have.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    truncated: bool


class Unanswerable(RuntimeError):
    """The statement has no answer; the message says why."""


class History(Protocol):
    """Reads the history."""

    def query(self, statement: str, *, rows: int, seconds: float) -> Answer:
        """Execute one statement that only reads; called in a thread.

        Args:
            statement: SQL.
            rows: Rows to return at most.
            seconds: Time after which the statement is ended.

        Raises:
            Unanswerable: There is no history, the statement may write, fails, or takes too long.
        """
