"""Backups and restores of what is not where `spazio up` has it, of old hours, and restores that fail or are killed."""

import asyncio
import errno
import os
import socket
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from nats.aio.client import Client

from bus import stream
from schemas import settings as all_settings
from schemas.settings import Settings
from sinks.history import layout, service, view
from spazio.backup import restore, streams
from spazio.service import addresses, reload
from tests.e2e.pipeline import until
from tests.integration.spazio.backup import test_backup
from tests.integration.spazio.backup.test_backup import feed, names, of_another_folder, rows, samples, spazio
from tests.support.mount import mounted, mounting

SERVING = """
import asyncio, pathlib, sys
from spazio.backup import server
from spazio.service import data_folder
async def main():
    folder = pathlib.Path(sys.argv[1])
    with data_folder.own(folder.parent, 0) as owned:
        async with server.running(folder, 1 << 30, owned) as url:
            print(url, flush=True)
            await asyncio.sleep(60)
asyncio.run(main())
"""

quick, backup = test_backup.quick, test_backup.backup  # fixtures


@pytest.mark.slow
@mounting
async def test_a_history_on_a_file_system_of_its_own_is_restored_and_replaced_within_it(
    backup: Path, quick: Settings, tmp_path: Path
) -> None:
    other = of_another_folder(quick, tmp_path / "other")
    with mounted(other.history_dir):
        (other.history_dir / "lost+found").mkdir()
        for force, moved in ((False, 0), (True, 1)):
            command = ["restore", str(backup), *(["--force"] if force else [])]
            answer = await asyncio.to_thread(spazio, other, *command)
            assert answer.returncode == 0, answer.stderr
            assert samples(other) == rows(range(3))
            assert len([name for name in names(other.history_dir) if name.startswith(".before-")]) == moved
        assert ".restore" not in names(other.history_dir)


@pytest.mark.slow
async def test_a_restore_keeps_hours_that_are_older_than_its_own_settings_keep_them(
    backup: Path, client: Client, quick: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hour = layout.hour_folder(quick.history_dir, "samples_1s", time.time_ns() // 1000 - 30 * 86_400_000_000)
    hour.mkdir(parents=True)
    recent = next((quick.history_dir / "samples").glob("*/*/*.parquet"))
    path = hour / recent.name
    path.write_bytes(recent.read_bytes())
    later = await without_end(client, quick, backup)
    monkeypatch.setattr(service, "_FIRST_TIDY_SECONDS", 0.0)
    other = of_another_folder(quick, tmp_path / "other")
    assert await asyncio.to_thread(restore.run, other, later, force=False) == 0
    assert samples(other) == rows(range(5))
    assert (other.history_dir / path.relative_to(quick.history_dir)).exists()


async def without_end(client: Client, settings: Settings, backup: Path) -> Path:
    """Make a later backup, whose history lacks what its streams have last."""
    await feed(client, range(3, 5), 0)
    path = backup.with_name("later.tar")
    made = await asyncio.to_thread(spazio, settings, "backup", str(path))
    assert made.returncode == 0, made.stderr
    return path


@pytest.mark.slow
async def test_a_restore_whose_history_does_not_get_on_states_what_keeps_it(
    backup: Path,
    client: Client,
    quick: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    later = await without_end(client, quick, backup)

    def full(_: Path) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(view, "create", full)
    monkeypatch.setattr(streams, "_STALLED_SECONDS", 2.0)
    other = of_another_folder(quick, tmp_path / "other")
    assert await asyncio.to_thread(restore.run, other, later, force=False) == 1
    error = capsys.readouterr().err
    assert "the history did not get on for a minute: " in error
    assert "cannot be written: No space left on device; free space" in error
    assert names(other.data.dir) <= {"lock"}


@pytest.mark.slow
def test_killing_a_restore_ends_its_server(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SERVING, str(tmp_path / "nats")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as restoring:
        assert restoring.stdout is not None
        port = urlsplit(restoring.stdout.readline().strip()).port
        restoring.kill()
    until(lambda: not listens(port), 20, "the end of the server")


def listens(port: int | None) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.slow
async def test_a_disk_that_is_full_at_the_end_of_a_restore_leaves_every_part_of_the_backup_in_place(
    backup: Path, quick: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other, create = of_another_folder(quick, tmp_path / "other"), view.create
    for part in ("history/samples", "credentials", "nats"):
        (other.data.dir / part).mkdir(parents=True)
        (other.data.dir / part / "before").touch()

    def full(folder: Path) -> Path:
        if folder == other.history_dir:
            raise OSError(errno.ENOSPC, "No space left on device")
        return create(folder)

    monkeypatch.setattr(view, "create", full)
    assert await asyncio.to_thread(restore.run, other, backup, force=True) == 0
    assert "warning: no views" in capsys.readouterr().err
    assert samples(other) == rows(range(3))
    assert (other.data.dir / "credentials" / "roles" / "reader.creds").read_text() == "secret"
    assert (other.data.dir / "nats" / "jetstream").is_dir()
    assert (other.data.dir / "restored-settings.toml").exists()
    assert not [path for path in other.data.dir.rglob("before") if ".before-" not in str(path)]


@pytest.mark.slow
async def test_a_backup_has_the_settings_of_the_running_up_and_a_restore_names_them(
    client: Client, quick: Settings, tmp_path: Path
) -> None:
    await stream.ensure(client, quick)
    other, made = of_another_folder(quick, tmp_path / "other"), dict[str, str]()
    for name, pid in (("ended", 0), ("running", os.getpid())):
        kept = quick.model_copy(update={"policy": quick.policy.model_copy(update={"slowdown": 3.0})})
        reload.write(kept, quick.data.dir / "run")
        addresses.write(quick.data.dir, {"nats": quick.nats_url, "pids": {"up": pid}})
        answer = await asyncio.to_thread(spazio, quick, "backup", str(tmp_path / name))
        assert answer.returncode == 0, answer.stderr
        assert ("settings: those of this command" in answer.stdout) == (name == "ended")
        with tarfile.open(tmp_path / name) as archive:
            content = archive.extractfile("settings.toml")
            assert content is not None
            made[name] = content.read().decode()
    assert ["slowdown" in made[name] for name in ("ended", "running")] == [False, True]
    answer = await asyncio.to_thread(spazio, other, "restore", str(tmp_path / "running"))
    file = other.data.dir / "restored-settings.toml"
    assert f"next: spazio up --data-dir {other.data.dir} --config {file}" in answer.stdout
    assert all_settings.load(config=file, environ={}).slowdown == 3


@pytest.mark.slow
async def test_a_backup_of_another_machines_server_has_nothing_of_this_machine_that_was_not_named(
    client: Client, quick: Settings, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    own = home / ".local" / "share" / "spazio"
    (own / "history" / "samples").mkdir(parents=True)
    (own / "credentials").mkdir()
    (own / "credentials" / "operator.nk").write_text("secret")
    environ = {
        **os.environ,
        "HOME": str(home),
        "XDG_DATA_HOME": "",
        "SPAZIO_NATS_URL": quick.nats_url,
        "SPAZIO_NATS_PARTITIONS": "2",
    }
    command = [sys.executable, "-m", "spazio", "backup", str(tmp_path / "b.tar")]
    for more, files in (([], 0), (["--data-dir", str(own)], 1)):
        (tmp_path / "b.tar").unlink(missing_ok=True)
        done = await asyncio.to_thread(
            subprocess.run, [*command, *more], env=environ, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        assert ("no history" in done.stdout) == (not files)
        with tarfile.open(tmp_path / "b.tar") as backup:
            assert len([name for name in backup.getnames() if name.endswith("operator.nk")]) == files
    (own / "credentials" / "operator.nk~").write_text("of an editor")
    command[-1] = str(tmp_path / "c.tar")
    done = await asyncio.to_thread(
        subprocess.run, [*command, *more], env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "'credentials/operator.nk~' cannot be in a backup" in done.stderr
    assert "Traceback" not in done.stderr
    assert not {"c.tar", "c.tar.partial"} & names(tmp_path)
