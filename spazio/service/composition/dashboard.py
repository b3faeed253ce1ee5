"""`spazio sink dashboard`: pages for a browser, over the bus and the history in this machine's folder."""

import asyncio
import threading
from pathlib import Path

import duckdb

from schemas.settings import Settings
from sinks.dashboard import service as sink
from sinks.dashboard.access import Access
from sinks.dashboard.history import Answer, Unanswerable
from sinks.history import sandbox, view
from spazio import plain
from spazio.service import addresses, service
from spazio.service.service import Context

_MEMORY = "1GB"


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
    """The history in a folder; each statement has a connection of its own, so none waits for another."""

    def __init__(self, directory: Path) -> None:
        """Name the folder; it may come later."""
        self._directory = directory

    def query(self, statement: str, *, rows: int, seconds: float) -> Answer:
        """Execute one statement that only reads; see `sinks.dashboard.history`."""
        try:
            with view.connect(self._directory, restricted=True) as connection:
                return _answered(connection, statement, rows, seconds)
        except FileNotFoundError as error:
            raise Unanswerable(str(error)) from error
        except duckdb.InterruptException:
            raise Unanswerable(
                f"the query took longer than {seconds:g} s; ask for a shorter time or fewer nodes"
            ) from None
        except (duckdb.Error, TypeError) as error:
            raise Unanswerable(str(error)) from error


def _answered(connection: duckdb.DuckDBPyConnection, statement: str, rows: int, seconds: float) -> Answer:
    parsed = connection.extract_statements(statement)
    if len(parsed) != 1:
        raise Unanswerable(f"one statement is answered at a time; this text has {len(parsed)}")
    sandbox.check(parsed[0])
    connection.execute(f"SET memory_limit = '{_MEMORY}'")
    timer = threading.Timer(seconds, connection.interrupt)
    timer.start()
    try:
        try:
            result = connection.execute(parsed[0].query)
        except duckdb.IOException:  # compaction has just replaced a file that the query had listed
            result = connection.execute(parsed[0].query)
        names = plain.distinct([column[0] for column in result.description or ()])
        fetched = result.fetchmany(rows + 1)
    finally:
        timer.cancel()
    return Answer(names, [[plain.value(cell) for cell in row] for row in fetched[:rows]], len(fetched) > rows)
