"""The streams of a backup on a server: made from their snapshots, cut to fit, and copied to the history."""

import asyncio
import contextlib
from dataclasses import replace
from pathlib import Path

from bus import errors, snapshot, stream
from bus.connection import Connection
from bus.folding import journal
from bus.health import Health
from bus.snapshot import Snapshot
from schemas import channel
from schemas.live import Live
from schemas.sections.bus import Nats
from schemas.settings import Settings
from schemas.subject import Names
from sinks.history import service, table
from sinks.history.continuity import epoch
from spazio import count
from spazio.backup.archive import Reader
from spazio.backup.save import entry, is_bucket
from spazio.terminal import clean

_CHUNK_BYTES = 512 << 10
_LOOK_SECONDS = 0.05
_STALLED_SECONDS = 60.0
_ANY_SECONDS = 86_400.0 * 366 * 100  # the longest that the settings take


class Stalled(errors.BusError):
    """The history does not reach the end of the streams."""


class Streams:
    """The streams of a backup.

    Attributes:
        snapshots: What they are, in the order in which they were taken.
    """

    def __init__(self, backup: Reader, nats: Nats) -> None:
        self._backup, self._timeout = backup, nats.request_timeout_seconds
        self.snapshots = [Snapshot(**each) for each in backup.about["streams"]]

    @property
    def room(self) -> int:
        """Bytes that the server reserves for them."""
        return sum(max(int(each.config.get("max_bytes", -1)), int(each.state["bytes"])) for each in self.snapshots)

    async def put(self, client: Connection, settings: Settings, directory: Path | None) -> None:
        """Make the streams, and write to the history what it lacks.

        Args:
            client: Connection to a server without these streams.
            settings: The server's address, and the number of its replicas.
            directory: Folder with the backup's history; None: there is none.

        Raises:
            BusError: The server refuses, or the history does not get on; also TimeoutError.
        """
        for each in self.snapshots:
            config = each.config | {"num_replicas": settings.nats.replicas}
            config.pop("placement", None)
            if not is_bucket(each.name):
                config["max_age"] = 0  # otherwise the server deletes what is too old before the history has it
            chunks = self._backup.pieces(entry(each.name), _CHUNK_BYTES)
            await snapshot.put(client, each._replace(config=config), chunks, timeout_seconds=self._timeout)
            clean.tell(f"{each.name}: {count.of(each.state.get('messages', 0), 'message')}")
        await self._cut(client, Names(settings.prefix))
        if directory is not None:
            await self._complete(client, settings, directory)
        for each in self.snapshots:
            if not is_bucket(each.name):
                seconds = int(each.config.get("max_age", 0)) / 1e9
                await snapshot.set_ages(client, each.name, seconds, timeout_seconds=self._timeout)

    async def delete(self, client: Connection) -> None:
        """Delete those that there are."""
        for each in self.snapshots:
            with contextlib.suppress(errors.NotFound):
                await snapshot.delete(client, each.name, timeout_seconds=self._timeout)

    async def _cut(self, client: Connection, names: Names) -> None:
        """Delete what the snapshots split: a batch of rows, and models without their causes. All is made again."""
        with contextlib.suppress(errors.NotFound):
            last = await snapshot.cut_batch(client, names.estimates, timeout_seconds=self._timeout)
            source = replace(await stream.describe(client, names.estimates), last=last)
            for subject in (names.model, names.subspace):
                await journal.drop_beyond(client, names.telemetry, subject, source, timeout_seconds=self._timeout)

    async def _complete(self, client: Connection, settings: Settings, directory: Path) -> None:
        """Run the history sink until it has everything that the streams have.

        Raises:
            Stalled: It does not get on.
        """
        any_time = {"dir": directory, "flush_seconds": 0.2, "retention_seconds": _ANY_SECONDS, "max_bytes": 0}
        any_time["ahead_seconds"] = _ANY_SECONDS
        own = settings.model_copy(update={"history": settings.history.model_copy(update=any_time)})
        wanted = {each: await _last(client, each, settings.prefix) for each in await self._sources(client, own)}
        health = Health()
        sink = service.run(client, Live(own), health, upkeep=False)  # these settings' retentions are not the backup's
        writing = asyncio.create_task(sink, name="history")
        try:
            await _until_covered(directory, wanted, writing, health)
        finally:
            writing.cancel()
            await asyncio.wait({writing})

    async def _sources(self, client: Connection, settings: Settings) -> list[stream.Stream]:
        names = Names(settings.prefix)
        streams = {names.store(store.name) for store in channel.stores() if not store.bucket}
        return [await stream.describe(client, each.name) for each in self.snapshots if each.name in streams]


async def _last(client: Connection, source: stream.Stream, prefix: str) -> int:
    """Return the sequence of the last message of a stream that the history reads."""
    names = Names(prefix)
    rows = [row for row in channel.CHANNELS if names.store(row.store.name) == source.name and row.kind in table.KINDS]
    subjects = [row.filter(names) for row in rows] + [names.of("part", ">")]  # telemetry is stored by partition
    newest = [await stream.newest(client, source.name, subject, _STALLED_SECONDS) for subject in subjects]
    return max((each.sequence for each in newest), default=0)


async def _until_covered(
    directory: Path, wanted: dict[stream.Stream, int], writing: asyncio.Task[None], health: Health
) -> None:
    loop = asyncio.get_running_loop()
    reached, since = -1, loop.time()
    while True:
        cursors = {each: epoch.read(directory, each.name, each.identity).read.sequence for each in wanted}
        if all(cursors[each] >= last for each, last in wanted.items()):
            return
        if writing.done():
            writing.result()
        if sum(cursors.values()) > reached:
            reached, since = sum(cursors.values()), loop.time()
        if loop.time() - since > _STALLED_SECONDS:
            raise Stalled(": ".join(("the history did not get on for a minute", *health.problems.values())))
        await asyncio.sleep(_LOOK_SECONDS)
