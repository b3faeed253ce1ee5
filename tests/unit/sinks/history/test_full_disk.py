"""A history sink that starts on a full disk deletes what is too old, and then writes."""

import asyncio
from pathlib import Path

import pytest

from bus.health import Health
from schemas.live import Live
from schemas.settings import Settings
from sinks.history import layout, lock, service, view
from sinks.history.writer import Writer
from tests.support.history import UNROLLED, append
from tests.support.mount import mounted, mounting
from tests.support.processors.telemetry import block, stored


def fill(path: Path) -> None:
    """Write a file until the disk is full."""
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass


def old_hours(folder: Path) -> Settings:
    """Make a history of three hours that are older than the retention of these settings."""
    target = Writer(folder, "S", "20261121T063000123456Z", 1)
    for hour in range(3):
        subject, payload = stored(block("n", hour * 3600))
        append(target, subject, hour + 1, payload)
        target.flush()
    for path, _ in list(layout.files(folder)):
        path.with_name(path.name + layout.DAMAGED).write_bytes(bytes(1 << 20))  # so that the hours have a size
    view.create(folder)
    return Settings.model_validate({"history": {"dir": str(folder), "retention_seconds": 86_400.0, **UNROLLED}})


@mounting
@pytest.mark.slow
async def test_a_sink_that_starts_on_a_full_disk_deletes_hours_that_are_too_old_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving, health = asyncio.Event(), Health()

    async def serve(*_: object) -> None:
        serving.set()

    monkeypatch.setattr(service, "_serve", serve)
    with mounted(tmp_path / "disk", "4m"):
        settings = old_hours(tmp_path / "disk" / "history")
        fill(tmp_path / "disk" / "other")
        async with asyncio.timeout(30):
            await service.run(None, Live(settings), health)  # type: ignore[arg-type] # the server comes after the disk
        assert serving.is_set()
        assert not list(layout.files(settings.history_dir))
        assert not health.problems


@mounting
@pytest.mark.slow
async def test_a_sink_without_an_old_hour_waits_until_the_disk_has_space(tmp_path: Path) -> None:
    health = Health()
    with mounted(tmp_path / "disk", "4m"):
        folder = tmp_path / "disk" / "history"
        folder.mkdir()
        fill(tmp_path / "disk" / "other")
        settings = Settings.model_validate({"history": {"dir": str(folder)}})
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(service.run(None, Live(settings), health), 2)  # type: ignore[arg-type] # as above
        assert "free space" in health.problems["history"]


@mounting
def test_on_a_full_disk_the_lock_of_a_folder_holds_without_a_name(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "64k"):
        folder = tmp_path / "disk" / "history"
        folder.mkdir()
        fill(tmp_path / "disk" / "other")
        with lock.exclusive(folder), pytest.raises(lock.Held, match="another process writes"), lock.exclusive(folder):
            pass
