"""`spazio backup` of a running pipeline and `spazio restore` of it, with a real server, processors and history."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import duckdb
import numpy as np
import pytest
from nats.aio.client import Client

from bus import connection, server, stream
from schemas import codec
from schemas import settings as all_settings
from schemas.messages.base import Message
from schemas.settings import Settings
from schemas.subject import Names
from sinks.history import lock, view
from tests.integration.processors.test_engine import aggregated, caught_up, everything, running
from tests.support import powerless
from tests.support.processors import telemetry
from tests.support.server.natsd import Natsd

NAMES = Names()
NODES = [f"node-{index}" for index in range(6)]


def spazio(settings: Settings, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, **all_settings.environment(settings)}
    command = [sys.executable, "-m", "spazio", *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)


def messages(second: int) -> Iterator[tuple[str, str, Message]]:
    """Yield (kind, node, message) of one second; the same at every call."""
    random = np.random.default_rng(second)
    for node in NODES:
        pods = [f"{node}-{number}" for number in range(second // 7 % 4)]
        if second % 7 == 0:
            yield "containers", node, telemetry.event(node, second + 0.1)
        yield "samples", node, telemetry.noisy(node, second, len(pods), random)
        used = [{"pod": pod, "workloads": "image", "cpu_cores": 0.3, "memory_bytes": 2e8} for pod in pods]
        yield "pods", node, telemetry.usage(node, second + 1, used)


async def feed(client: Client, seconds: range, pause: float, stored: Collection[bytes] = ()) -> None:
    """Publish seconds, except what is stored already."""
    for second in seconds:
        for kind, node, message in messages(second):
            payload = codec.encode(message)
            if payload not in stored:
                await client.jetstream().publish(NAMES.node(kind, node), payload)
        await asyncio.sleep(pause)


@asynccontextmanager
async def served(settings: Settings) -> AsyncIterator[tuple[Client, Settings]]:
    """Run a server over a data folder, as `up` does."""
    port = server.free_port(0)
    natsd = Natsd(server.write_config(settings, port), port)
    natsd.start()
    try:
        own = settings.model_copy(update={"nats": settings.nats.model_copy(update={"url": natsd.url})})
        async with connection.connect(own, "test") as client:
            await stream.ensure(client, own)
            yield client, own
    finally:
        natsd.kill()


@contextmanager
def services(settings: Settings) -> Iterator[None]:
    with running(settings, "process"), running(settings, "sink", "history"):
        yield


def only(folder: Path, pattern: str) -> Path:
    (path,) = folder.glob(pattern)
    return path


def truncated(backup: Path, path: Path) -> Path:
    path.write_bytes(backup.read_bytes()[:-30_000])
    return path


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def of_another_folder(settings: Settings, folder: Path) -> Settings:
    data, nats = settings.data.model_copy(update={"dir": folder}), settings.nats.model_copy(update={"url": ""})
    return settings.model_copy(update={"data": data, "nats": nats})


def samples(settings: Settings) -> dict[tuple[str, int], int]:
    """Return the number of rows by node and second."""
    try:
        with view.connect(settings.history_dir) as tables:
            counts = tables.execute("SELECT node, seq - 1000, count(*) FROM samples GROUP BY ALL").fetchall()
    except (FileNotFoundError, duckdb.IOException):  # it has not begun yet
        return {}
    return {(node, second): count for node, second, count in counts}


async def until(wanted: dict[tuple[str, int], int], settings: Settings) -> None:
    async with asyncio.timeout(60):
        while samples(settings) != wanted:  # noqa: ASYNC110 # another process writes
            await asyncio.sleep(0.2)


def rows(seconds: range) -> dict[tuple[str, int], int]:
    return {(node, second): 10 for node in NODES for second in seconds}


@pytest.fixture
def quick(settings: Settings) -> Settings:
    history = settings.history.model_copy(update={"flush_seconds": 1.0})
    return settings.model_copy(update={"history": history})


@pytest.mark.slow
@pytest.mark.parametrize(("sign", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_a_backup_that_is_ended_leaves_nothing(
    client: Client, settings: Settings, tmp_path: Path, sign: signal.Signals, status: int
) -> None:
    await stream.ensure(client, settings)
    endless, target = settings.history_dir / ".samples.cursor.json", tmp_path / "b.tar"
    endless.parent.mkdir(parents=True)
    os.mkfifo(endless)  # the copy of the history waits for what it says
    environ = {**os.environ, **all_settings.environment(settings)}
    command = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "spazio", "backup", str(target)), env=environ, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(60):
        while (writing := opened(endless)) is None:  # noqa: ASYNC110 # another process reads it
            await asyncio.sleep(0.02)
        assert f"{target.name}.partial" in names(tmp_path)
        command.send_signal(sign)
        while f"{target.name}.partial" in names(tmp_path):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        endless.unlink()
        os.close(writing)
        _, err = await command.communicate()
    assert (command.returncode, err) == (status, b"spazio: interrupted; nothing was written\n")
    assert target.name not in names(tmp_path)


def opened(pipe: Path) -> int | None:
    """Return a descriptor to write into a pipe; None: it is not read."""
    try:
        return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None


@pytest.mark.slow
async def test_a_backup_into_a_folder_that_another_user_has_locked_says_so(
    client: Client, settings: Settings, tmp_path: Path
) -> None:
    await stream.ensure(client, settings)
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    answer = await asyncio.to_thread(
        powerless.run, "backup", str(locked / "b.tar"), environ=all_settings.environment(settings)
    )
    assert (answer.returncode, answer.stderr) == (
        1,
        f"spazio: {locked}/b.tar.partial: Permission denied; name another place, or become a user who may use it; "
        "nothing was written\n",
    )


@pytest.mark.slow
async def test_a_running_pipeline_is_saved_and_goes_on_exactly_from_there(
    client: Client, quick: Settings, tmp_path: Path
) -> None:
    with services(quick):
        await feed(client, range(12), 0)
        await until(rows(range(12)), quick)
        feeding = asyncio.create_task(feed(client, range(12, 40), 0.1))
        made = await asyncio.to_thread(spazio, quick, "backup", str(tmp_path))
        await feeding
    assert made.returncode == 0, made.stderr
    backup = only(tmp_path, "spazio-*.tar")
    originals = {each.sequence: each for each in await everything(client, NAMES.telemetry, [">"])}

    other = of_another_folder(quick, tmp_path / "other")
    restored = await asyncio.to_thread(spazio, other, "restore", str(backup))
    assert restored.returncode == 0, restored.stderr
    async with served(other) as (second, own):
        copies = await everything(second, NAMES.telemetry, [">"])
        assert [originals[each.sequence] for each in copies] == copies
        saved = max(each.sequence for each in copies)
        missing = [each for number, each in originals.items() if number <= saved and each not in copies]
        assert {each.subject for each in missing} <= {NAMES.model}  # they are made again
        # The history has all of it, before any service runs.
        blocks = sum(each.subject.split(".")[-2] == "samples" for each in copies)
        assert 0 < blocks < len(rows(range(40)))
        assert set(samples(own).values()) == {10}
        assert len(samples(own)) == blocks
        with services(own):
            await feed(second, range(40), 0, {each.data for each in copies})
            await caught_up(second, own, seconds=60)
            await aggregated(second, own, seconds=30)
            await until(rows(range(40)), own)


@pytest.fixture
async def backup(client: Client, quick: Settings, tmp_path: Path) -> Path:
    """A small backup, made while the history sink runs."""
    credentials = quick.data.dir / "credentials" / "roles"
    credentials.mkdir(parents=True)
    (credentials / "reader.creds").write_text("secret")
    with running(quick, "sink", "history"):
        await feed(client, range(3), 0)
        await until(rows(range(3)), quick)
        made = await asyncio.to_thread(spazio, quick, "backup", str(tmp_path / "b.tar"))
    assert made.returncode == 0, made.stderr
    return tmp_path / "b.tar"


@pytest.mark.slow
async def test_a_backup_is_put_into_a_running_server_and_replaces_only_what_it_may(
    backup: Path, client: Client, quick: Settings, tmp_path: Path
) -> None:
    data = quick.data.model_copy(update={"dir": tmp_path / "new"})
    there = quick.model_copy(update={"data": data})
    refused = await asyncio.to_thread(spazio, there, "restore", str(backup))
    assert refused.returncode == 1
    assert "--force" in refused.stderr
    assert "SPAZIO_TELEMETRY" in refused.stderr
    assert not there.history_dir.exists()
    await client.jetstream().purge_stream(NAMES.telemetry)
    restored = await asyncio.to_thread(spazio, there, "restore", str(backup), "--force")
    assert restored.returncode == 0, restored.stderr
    assert samples(there) == rows(range(3))
    assert len([each for each in await everything(client, NAMES.telemetry, [">"]) if ".samples." in each.subject]) == 18
    (config,) = [(await client.jetstream().stream_info(NAMES.telemetry)).config]
    assert config.max_age == quick.nats.telemetry_max_age_seconds
    credentials = there.data.dir / "credentials" / "roles" / "reader.creds"
    assert credentials.read_text() == "secret"
    assert credentials.stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
async def test_a_damaged_backup_changes_nothing_and_data_are_replaced_only_on_request(
    backup: Path, quick: Settings, tmp_path: Path
) -> None:
    other = of_another_folder(quick, tmp_path / "other")
    (other.history_dir / "samples").mkdir(parents=True)
    damaged = truncated(backup, tmp_path / "damaged.tar")
    for path, force, reason in ((damaged, True, "truncated"), (backup, False, "--force")):
        answer = await asyncio.to_thread(spazio, other, "restore", str(path), *(["--force"] if force else []))
        assert answer.returncode == 1
        assert reason in answer.stderr
        assert names(other.data.dir) <= {"history", "lock"}
        assert names(other.history_dir) == {"samples"}
    with lock.exclusive(other.history_dir):
        answer = await asyncio.to_thread(spazio, other, "restore", str(backup), "--force")
    assert answer.returncode == 1
    assert f"writes history into {other.history_dir} already" in answer.stderr
    assert names(other.history_dir) == {"samples", lock.FILE}
    answer = await asyncio.to_thread(spazio, other, "restore", str(backup), "--force")
    assert answer.returncode == 0, answer.stderr
    assert samples(other) == rows(range(3))
    assert names(only(other.data.dir, "history.before-*")) == {"samples", lock.FILE}
    assert not [name for name in names(other.data.dir) if name.startswith(".")]
