"""Who has a lock is known to the one that finds it held, and the lock goes with its file."""

from pathlib import Path

import pytest

from bus.access import file_lock


def test_a_held_lock_names_its_holder_and_is_free_once_its_file_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with path.open("a+") as first:
        file_lock.take(first)
        file_lock.sign(first, "somebody with a long name")
        file_lock.sign(first, "process 1")
        with path.open("a+") as second, pytest.raises(file_lock.Held, match="locked by process 1") as held:
            file_lock.take(second)
        assert held.value.holder == "process 1"
    with path.open("r+b") as third:
        file_lock.take(third)
        with path.open("w") as blind, pytest.raises(file_lock.Held, match="locked by another process"):
            file_lock.take(blind)
