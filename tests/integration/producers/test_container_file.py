"""An agent that may read nothing remembers its containers by a file; it sends events to a real server."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bus import connection, stream
from bus.health import Health
from bus.publishing.outbox import Outbox
from producers.containers.published import Memory
from schemas import codec
from schemas.messages.telemetry import ContainerEvent
from spazio.recovery.container_file import ContainerFile
from tests.support.server.secured import Secured, secured

A, B, C = ("a" * 64, "b" * 64, "c" * 64)
BOOT = "0123456789abcdef"


def event(kind: str, container: str, boot: str = BOOT) -> ContainerEvent:
    fields = {"node": "n1", "boot": boot, "at_us": 1, "boottime_us": 1, "sources": ["cgroup"]}
    return ContainerEvent.model_validate({**fields, "event": kind, "container": container})


def file_of(folder: Path, node: str = "n1", boot: str = BOOT) -> ContainerFile:
    return ContainerFile(folder / "run" / "containers.json", node=node, boot=boot, max_age_seconds=3600)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Secured]:
    with secured(tmp_path) as made:
        yield made


async def test_containers_are_remembered_once_their_events_are_stored(running: Secured, tmp_path: Path) -> None:
    processors, settings = running.settings("process"), running.settings("n1")
    async with (
        connection.connect(processors, "process") as creating,
        connection.connect(settings, "agent") as client,
    ):
        assert not client.may_publish("$JS.API.CONSUMER.CREATE.SPAZIO_TELEMETRY")
        outbox = Outbox(client, Health(), limit=10, timeout_seconds=1, kind="containers")
        kept = file_of(tmp_path)
        working = [asyncio.create_task(outbox.run()), asyncio.create_task(kept.keep(outbox))]
        for number, (kind, name) in enumerate([("started", A), ("started", B), ("created", C), ("deleted", B)]):
            kept.note(event(kind, name))
            outbox.put("spazio.containers.n1", codec.encode(event(kind, name)), str(number))
        await asyncio.sleep(0.3)
        assert await file_of(tmp_path).load() == Memory(), "no stream has stored them yet"
        await stream.ensure(creating, processors)
        async with asyncio.timeout(5):
            while not (tmp_path / "run" / "containers.json").exists():  # noqa: ASYNC110 # files have no events
                await asyncio.sleep(0.05)
        for task in working:
            task.cancel()
    memory = await file_of(tmp_path).load()
    assert {name: (last.happening.event, last.rebooted) for name, last in memory.events.items()} == {
        A: ("started", False),
        C: ("created", False),
    }
    rebooted = await file_of(tmp_path, boot="fedcba9876543210").load()
    assert all(last.rebooted for last in rebooted.events.values())


class Stored:
    """A queue of which everything is stored."""

    async def flush(self, timeout_seconds: float) -> bool:
        return True


async def written(folder: Path) -> Path:
    kept = file_of(folder)
    kept.note(event("started", A))
    await kept.finish(Stored())
    assert (await file_of(folder).load()).events
    return folder / "run" / "containers.json"


async def test_a_file_of_another_node_or_time_and_a_damaged_one_are_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = await written(tmp_path)
    content = json.loads(path.read_text())
    assert await file_of(tmp_path, node="n2").load() == Memory()
    for at_us in (time.time_ns() // 1000 - 3601 * 10**6, time.time_ns() // 1000 + 3700 * 10**6):
        path.write_text(json.dumps(content | {"at_us": at_us}))
        assert await file_of(tmp_path).load() == Memory()
    for damaged in ("", "{", "[]", "{}", json.dumps(content | {"events": [{"v": 1}]}), json.dumps(content | {"v": 2})):
        path.write_text(damaged)
        assert await file_of(tmp_path).load() == Memory()
    assert {record.getMessage() for record in caplog.records} == {"containers.file_ignored"}


async def test_what_an_earlier_run_announced_stays_in_the_file(tmp_path: Path) -> None:
    await written(tmp_path)
    kept = file_of(tmp_path)
    kept.note(event("started", B))
    await kept.load()
    kept.note(event("exited", A))
    await kept.finish(Stored())
    assert set((await file_of(tmp_path).load()).events) == {B}


async def test_a_folder_that_cannot_be_written_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "run").write_text("a file")
    kept = file_of(tmp_path)
    for _ in range(3):
        await kept.finish(Stored())
    assert [record.getMessage() for record in caplog.records] == ["containers.file_write_failed"]
