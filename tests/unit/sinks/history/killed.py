"""A history in a folder, and a file system that fails at a step."""

from pathlib import Path

from sinks.history import view
from sinks.history.writer import Writer
from tests.support.history import append
from tests.support.processors.telemetry import block, stored

CREATED = "20261121T063000123456Z"
HOUR = 3600


def query(directory: Path, sql: str) -> list[tuple[object, ...]]:
    with view.connect(directory, restricted=True) as connection:
        return connection.execute(sql).fetchall()


def writer(directory: Path, first: int = 1, created: str = CREATED) -> Writer:
    return Writer(directory, "S", created, first)


def feed(target: Writer, seconds: range, *, offset: int = 1) -> None:
    """Append one block per second; the stream sequence is the second plus an offset."""
    for second in seconds:
        append(target, *_message(second, offset))


def _message(second: int, offset: int = 1) -> tuple[str, int, bytes]:
    subject, payload = stored(block("n", second, cpu_util=0.25))
    return subject, second + offset, payload


def seconds_of(directory: Path) -> list[int]:
    rows = query(directory, "SELECT seq, count(*) FROM samples GROUP BY seq ORDER BY seq")
    assert all(count == 10 for _, count in rows), rows
    return [int(str(seq)) - 1000 for seq, _ in rows]
