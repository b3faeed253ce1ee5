"""`spazio sink dashboard`: pages for a browser, over the bus and the history in this machine's folder."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import msgspec

from schemas.settings import Settings
from sinks.dashboard import service as sink
from sinks.dashboard.access import Access
from sinks.dashboard.history import Answer, Unanswerable
from sinks.history import interruption, sandbox, view
from spazio import plain
from spazio.service import addresses, service
from spazio.service.service import Context

_MEMORY = "1GB"
_ANSWER_BYTES = 32 << 20  # as JSON; DuckDB does not count what it has handed over as memory


def run(settings: Settings) -> int:
    """Run the service.

    Raises:
        SettingsError: Other machines reach the address, and there is no token; or a file cannot be used.
    """
    Access(settings.dashboard)
    note = settings.data.dir / "run" / addresses.DASHBOARD

    async def work(context: Context) -> None:
        listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        listening.add_done_callback(lambda done: None if done.cancelled() else service.announce(note, done.result()))
        try:
            await sink.run(context.client, settings, Folder(settings.history_dir), listening)
        finally:
            note.unlink(missing_ok=True)

    return service.run("dashboard", settings, work)


class Folder:
    """The history in a folder.

    To create the views takes ten times as long as to answer most questions with them, so statements that only select
    share one database; each has a cursor of its own, and none waits for another. A statement of another type that has
    rows (`PRAGMA`, `EXPLAIN ANALYZE`) might change the database, and gets its own, which ends with it.
    """

    def __init__(self, directory: Path) -> None:
        """Name the folder; it may come later."""
        self._directory = directory
        self._creating = threading.Lock()
        self._database: tuple[tuple[int, int], duckdb.DuckDBPyConnection] | None = None

    def query(self, statement: str, *, rows: int, seconds: float) -> Answer:
        """Execute one statement that only reads; see `sinks.dashboard.history`."""
        try:
            with self._shared() as connection:
                parsed = _parsed(connection, statement)
                if parsed.type is duckdb.StatementType.SELECT:
                    return _answered(connection, parsed, rows, seconds)
            with self._created() as connection:
                return _answered(connection, parsed, rows, seconds)
        except FileNotFoundError as error:
            raise Unanswerable(str(error)) from error
        except duckdb.InterruptException:
            raise Unanswerable(
                f"the query took longer than {seconds:g} s; ask for a shorter time or fewer nodes"
            ) from None
        except (duckdb.Error, TypeError, OverflowError) as error:
            raise Unanswerable(str(error)) from error

    @contextlib.contextmanager
    def _shared(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield a cursor of the shared database; of one of its own where the folder has no file of views."""
        database = self._newest()  # held until the cursor is closed, since the folder that it spills into ends with it
        with database.cursor() as cursor:
            yield cursor

    def _newest(self) -> duckdb.DuckDBPyConnection:
        version = view.version(self._directory)
        if version is None:
            return self._created()
        with self._creating:
            if self._database is None or self._database[0] != version:
                self._database = version, self._created()
            return self._database[1]

    def _created(self) -> duckdb.DuckDBPyConnection:
        connection = view.connect(self._directory, restricted=True)
        connection.execute(f"SET memory_limit = '{_MEMORY}'")
        return connection


def _parsed(connection: duckdb.DuckDBPyConnection, statement: str) -> duckdb.Statement:
    parsed = connection.extract_statements(statement)
    if len(parsed) != 1:
        raise Unanswerable(f"one statement is answered at a time; this text has {len(parsed)}")
    sandbox.check(parsed[0])
    sandbox.keep_history(connection, parsed[0])
    sandbox.check_answer(parsed[0])
    return parsed[0]


def _answered(connection: duckdb.DuckDBPyConnection, parsed: duckdb.Statement, rows: int, seconds: float) -> Answer:
    with interruption.interruptible(connection, seconds):
        return view.retried(partial(_fetched, connection, parsed.query, rows))


def _fetched(connection: duckdb.DuckDBPyConnection, query: str, most: int) -> Answer:
    # Rows come as they are read, so a file may be gone when the query begins, or later.
    result = connection.execute(query)
    names = plain.distinct([column[0] for column in result.description or []])
    rows, size = list[list[Any]](), 0
    while (fetched := result.fetchone()) is not None:
        row = [plain.exact(plain.value(cell)) for cell in fetched]
        size += len(msgspec.json.encode(row))
        if len(rows) == most or (rows and size > _ANSWER_BYTES):
            return Answer(names, rows, truncated=True)
        if size > _ANSWER_BYTES:
            raise Unanswerable(f"the first row has {size >> 20} MiB, and an answer at most {_ANSWER_BYTES >> 20}")
        rows.append(row)
    return Answer(names, rows, truncated=False)
