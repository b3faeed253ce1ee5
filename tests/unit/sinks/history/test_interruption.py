"""A statement ends at its limit of time, whenever the interrupt comes."""

import signal
import threading
from collections.abc import Iterator

import duckdb
import pytest

from sinks.history.interruption import interruptible

LONG = "SELECT sum(a.range * b.range) FROM range(50_000) a, range(20_000) b"  # a second and more


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        yield opened


def test_a_limit_that_passes_before_the_statement_starts_ends_it(connection: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(duckdb.InterruptException), interruptible(connection, 1e-9):
        connection.execute(LONG).fetchall()


def test_a_limit_that_passes_between_two_statements_ends_the_second(connection: duckdb.DuckDBPyConnection) -> None:
    with interruptible(connection, 0.5):
        connection.execute("SELECT 1").fetchall()
        threading.Event().wait(0.6)
        with pytest.raises(duckdb.InterruptException):
            connection.execute(LONG).fetchall()


def test_a_statement_after_the_block_is_not_interrupted(connection: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(duckdb.InterruptException), interruptible(connection, 1e-9):
        connection.execute(LONG).fetchall()
    assert connection.execute("SELECT sum(range) FROM range(10_000_000)").fetchall() == [(49_999_995_000_000,)]


def test_ctrl_c_is_raised_once_the_statement_has_ended(connection: duckdb.DuckDBPyConnection) -> None:
    pressed = threading.Timer(0.1, signal.raise_signal, [signal.SIGINT])
    pressed.start()
    with pytest.raises(KeyboardInterrupt) as raised, interruptible(connection):
        connection.sql(LONG).fetchall()
    assert isinstance(raised.value.__context__, duckdb.InterruptException)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_handler_of_sigterm_runs_once_the_statement_has_ended(connection: duckdb.DuckDBPyConnection) -> None:
    def end(*_: object) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, end)
    pressed = threading.Timer(0.1, signal.raise_signal, [signal.SIGTERM])
    try:
        pressed.start()
        with pytest.raises(SystemExit) as raised, interruptible(connection):
            connection.sql(LONG).fetchall()
        assert signal.getsignal(signal.SIGTERM) is end
    finally:
        signal.signal(signal.SIGTERM, before)
    assert isinstance(raised.value.__context__, duckdb.InterruptException)


def test_ctrl_c_that_comes_before_its_numbers_are_written_ends_the_statement(
    connection: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def pressed(thread: threading.Thread) -> None:
        signal.raise_signal(signal.SIGINT)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", pressed)
    with pytest.raises(KeyboardInterrupt) as raised, interruptible(connection):
        connection.execute(LONG).fetchall()
    assert isinstance(raised.value.__context__, duckdb.InterruptException)


def test_signals_stay_with_a_program_that_handles_them_itself(connection: duckdb.DuckDBPyConnection) -> None:
    seen = list[int]()
    before = signal.signal(signal.SIGINT, lambda number, _: seen.append(number))
    try:
        with interruptible(connection, 60):
            signal.raise_signal(signal.SIGINT)
            assert connection.execute("SELECT 1").fetchall() == [(1,)]
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.SIGINT]
