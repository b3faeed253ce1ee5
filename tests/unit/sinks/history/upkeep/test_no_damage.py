"""A file is set aside for what is in it, never for what the machine lacks."""

import errno
import os
from pathlib import Path
from typing import Self

import duckdb
import pytest

from sinks.history.upkeep import damage


class Lacking:
    """A connection to DuckDB that fails as it does where the machine lacks something."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close nothing."""

    def execute(self, _query: str, paths: list[str]) -> None:
        raise duckdb.IOException(f'IO Error: Cannot open file "{paths[0]}": {os.strerror(self._number)}')


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.EIO, errno.ENOMEM])
def test_a_file_that_cannot_be_opened_now_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    path = tmp_path / "good.parquet"
    path.write_bytes(b"rows")
    monkeypatch.setattr(duckdb, "connect", lambda **_: Lacking(number))
    with pytest.raises(OSError, match=os.strerror(number)):
        damage.set_aside(path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_stays_where_duckdb_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise duckdb.Error("no thread can be started")

    path = tmp_path / "good.parquet"
    path.write_bytes(b"rows")
    monkeypatch.setattr(duckdb, "connect", fail)
    with pytest.raises(OSError, match="no thread"):
        damage.set_aside(path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_without_rows_in_it_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "bad.parquet"
    path.write_bytes(b"no rows")
    assert damage.set_aside(path)
    assert [each.name for each in tmp_path.iterdir()] == ["bad.parquet.damaged"]
