"""Who has the data folder, and the server that one who was killed has left there."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from schemas.settings import SettingsError
from spazio.service import data_folder

OWNER = """
import pathlib, subprocess, sys, time
from spazio.service import data_folder
folder = pathlib.Path(sys.argv[1])
with data_folder.own(folder, 0) as owned:
    left = subprocess.Popen(sys.argv[2:], pass_fds=(owned.descriptor,))
    owned.lend(left.pid)
    print(left.pid, flush=True)
    time.sleep(600)
"""
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"


@contextmanager
def owner(folder: Path, *command: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Yield a process that owns the folder, and the id of the one that has inherited the lock; both end."""
    argv = [sys.executable, "-c", OWNER, str(folder), *command]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        descriptor = os.pidfd_open(pid)
        try:
            yield process, pid
        finally:
            for end in (process.kill, lambda: signal.pidfd_send_signal(descriptor, signal.SIGKILL)):
                with suppress(ProcessLookupError):
                    end()
            os.close(descriptor)


def kill(process: subprocess.Popen[str]) -> None:
    """End a process whose end no other has waited for yet, as in a container whose first process never does."""
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def runs(pid: int) -> bool:
    return data_folder._stat(pid)[0] not in ("", "Z", "X")


def test_a_stopped_server_whose_owner_was_killed_is_ended_before_the_folder_has_another_owner(tmp_path: Path) -> None:
    with owner(tmp_path, "sleep", "600") as (process, pid):
        os.kill(pid, signal.SIGSTOP)
        kill(process)
        data_folder.check(tmp_path)
        assert not runs(pid)
        with data_folder.own(tmp_path, 0):
            assert (tmp_path / "lock").read_text() == str(os.getpid())


@pytest.mark.slow
def test_a_server_that_does_not_heed_the_first_signal_is_killed(tmp_path: Path) -> None:
    with owner(tmp_path, sys.executable, "-c", DEAF) as (process, pid):
        assert process.stdout is not None
        process.stdout.readline()
        kill(process)
        with data_folder.own(tmp_path, 0):
            assert not runs(pid)


def test_the_server_of_an_owner_that_lives_goes_on(tmp_path: Path) -> None:
    with owner(tmp_path, "sleep", "600") as (process, pid):
        with pytest.raises(SettingsError, match=f"in use by process {process.pid}; stop it"):
            data_folder.check(tmp_path)
        assert runs(pid)


@pytest.mark.parametrize("started", ["own", "1"])
def test_another_process_that_has_the_id_of_the_server_goes_on(tmp_path: Path, started: str) -> None:
    with owner(tmp_path, "sleep", "600") as (process, pid), subprocess.Popen(["sleep", "600"]) as other:
        gone = process.pid
        kill(process)
        ticks = data_folder._stat(other.pid)[1] if started == "own" else started
        (tmp_path / "lock").write_text(f"{gone}\n{other.pid if started == 'own' else pid} {ticks}\n")
        try:
            with pytest.raises(SettingsError, match=f"in use by process {gone}; stop it"):
                data_folder.check(tmp_path)
            assert runs(pid)
            assert other.poll() is None
        finally:
            other.kill()


def test_a_folder_of_an_earlier_version_without_a_note_of_the_server_is_refused(tmp_path: Path) -> None:
    with owner(tmp_path, "sleep", "600") as (process, pid):
        kill(process)
        (tmp_path / "lock").write_text(str(process.pid))
        with pytest.raises(SettingsError, match=f"in use by process {process.pid}; stop it"):
            data_folder.check(tmp_path)
        assert runs(pid)
