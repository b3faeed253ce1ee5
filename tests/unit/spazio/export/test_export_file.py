"""Files that processes write under hidden names: at the same time, killed, and in a folder that others have locked."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bus.access import file_lock
from spazio.export import file

WRITING = """
import os, pathlib, sys
os.getpid = lambda: 1  # as in a container
from spazio.export import file
with file.replacing(pathlib.Path(sys.argv[1])) as hidden, hidden.open("w") as rows:
    rows.write("first half")
    rows.flush()
    print(flush=True)
    rows.write(sys.stdin.readline())
"""


@contextmanager
def writing(path: Path) -> Iterator["subprocess.Popen[str]"]:
    """Give a process that has written half of a file."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITING, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process


def test_two_processes_that_write_one_file_at_the_same_time_each_leave_all_of_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.csv"
    with writing(path) as slower:
        monkeypatch.setattr("os.getpid", lambda: 1)
        with file.replacing(path) as hidden:
            hidden.write_text("of the faster")
        assert path.read_text() == "of the faster"
        slower.communicate(", second half", timeout=60)
    assert (slower.returncode, path.read_text()) == (0, "first half, second half")
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_process_has_left_of_a_file_is_removed_by_the_next_that_writes_it(tmp_path: Path) -> None:
    path, other = tmp_path / "out[1].csv", tmp_path / ".out[1].csv.tmp"
    other.write_text("of another program")
    for _ in range(2):
        with writing(path) as killed:
            killed.kill()
    (left,) = {*tmp_path.iterdir()} - {other}
    with file.replacing(path) as hidden:
        assert not left.exists()
        hidden.write_text("all")
    assert {*tmp_path.iterdir()} == {path, other}


@pytest.mark.slow
def test_a_folder_that_another_program_has_locked_holds_up_nothing(tmp_path: Path) -> None:
    path, folder = tmp_path / "out.csv", os.open(tmp_path, os.O_RDONLY)
    file_lock.take(folder)
    with file.replacing(path) as hidden:
        hidden.write_text("all")
    os.close(folder)
    assert path.read_text() == "all"
