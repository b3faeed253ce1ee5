"""What a connection for statements by others leaves to other users of the machine: nothing."""

import stat
import tempfile
from pathlib import Path

import duckdb
import pytest

from sinks.history import sandbox

SPILLING = "FROM (SELECT repeat('x', 50) || a AS s FROM range(2000000) AS r(a) ORDER BY hash(a), s) SELECT last(s)"


def spill(connection: duckdb.DuckDBPyConnection) -> Path:
    ((folder,),) = connection.execute("SELECT current_setting('temp_directory')").fetchall()
    return Path(folder)


@pytest.mark.slow
def test_only_their_user_reads_what_queries_spill_and_nothing_of_it_is_left(tmp_path: Path) -> None:
    connection = duckdb.connect()
    sandbox.prepare(connection)
    folder = spill(connection)
    sandbox.confine(connection, tmp_path)
    connection.execute("SET memory_limit = '60MB'; SET threads = 1")
    connection.execute(SPILLING)
    assert list(folder.iterdir())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    with pytest.raises(duckdb.Error, match="stop"):
        connection.execute(f"SELECT error('stop') WHERE ({SPILLING}) IS NOT NULL")
    connection.close()
    del connection
    assert not folder.exists()


def test_where_no_folder_can_be_made_queries_have_the_memory_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/proc/none")
    with duckdb.connect() as connection:
        sandbox.prepare(connection)
        assert connection.execute("SELECT 7").fetchall() == [(7,)]
