"""Files of a data folder that other users of the machine may not read."""

import asyncio
import json
from pathlib import Path

import pytest

from bus import server
from schemas import settings
from spazio.service import addresses, service


def test_a_service_that_runs_before_up_makes_a_data_folder_that_only_its_user_may_enter(tmp_path: Path) -> None:
    note = tmp_path / "data" / "run" / "agent.json"
    service.announce(note, "http://127.0.0.1:1")
    assert json.loads(note.read_text())["http"] == "http://127.0.0.1:1"
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700


async def test_a_service_that_cannot_write_its_address_does_so_as_soon_as_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_AGAIN_SECONDS", 0.01)
    note = tmp_path / "data" / "run" / "agent.json"
    (tmp_path / "data").write_text("in the way, as a disk without space is")
    service.announce(note, "http://127.0.0.1:1")
    await asyncio.sleep(0.05)
    (tmp_path / "data").unlink()
    async with asyncio.timeout(5):
        while not note.exists():  # noqa: ASYNC110 # files have no events
            await asyncio.sleep(0.01)
    assert json.loads(note.read_text())["http"] == "http://127.0.0.1:1"


def test_what_is_left_of_a_killed_run_does_not_open_the_addresses_to_others(tmp_path: Path) -> None:
    left = tmp_path / f".{addresses.FILE}"
    left.touch()
    left.chmod(0o644)
    addresses.write(tmp_path, {"nats": "nats://me:secret@host:4222"})
    assert (tmp_path / addresses.FILE).stat().st_mode & 0o777 == 0o600


def test_the_streams_of_an_earlier_version_become_private(tmp_path: Path) -> None:
    folder = tmp_path / "nats"
    folder.mkdir(mode=0o755)
    server.write_config(settings.load({"data_dir": str(tmp_path)}), 4222)
    assert folder.stat().st_mode & 0o777 == 0o700
