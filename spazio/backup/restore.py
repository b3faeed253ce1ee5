"""`spazio restore`: streams, buckets, checkpoints and history as a backup has them, so that `up` goes on from there.

The whole backup is checked first. A data folder is made beside the old one and gets its name at the end, so a failure
changes nothing. Before that, what the streams have and the history lacks is written to the history: restored after
hours, the streams would otherwise delete it as too old.
"""

import asyncio
import contextlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from bus import errors, snapshot
from bus.connection import Connection
from bus.folding import worker_pool
from bus.server import Unusable
from schemas.settings import Settings, SettingsError
from sinks.history import lock, view
from spazio import INTERRUPTED
from spazio.backup import about, archive, history, server
from spazio.backup.archive import Damaged, Reader
from spazio.backup.save import RUN, SETTINGS, Refused
from spazio.backup.streams import Streams
from spazio.credentials import authority
from spazio.service import data_folder
from spazio.terminal import clean, latest

_BUCKETS_BYTES = 1 << 30
_SERVER = "nats"
_SETTINGS = "restored-settings.toml"
_WITHIN = ".restore"
_NO_DATA = (lock.FILE, "lost+found", _WITHIN)


def run(settings: Settings, source: Path, *, force: bool) -> int:
    """Restore a backup; return the exit status.

    Args:
        settings: The data folder, or with `nats.url` the server, and the folder of the history.
        source: Backup, or a folder of backups, of which the newest is restored.
        force: Replace what is there: files are moved aside, streams of a named server are deleted.
    """
    outcome = "nothing was restored"
    try:
        path = _newest(source)
        with archive.opened(path) as backup:
            about.check(backup)
            clean.tell(f"checking {path}, made {backup.about['made_at']}")
            backup.verify()
            _check_prefix(settings, backup)
            outcome = "the restore is not complete"
            asyncio.run(
                _to_server(settings, backup, force) if settings.nats.url else _to_folder(settings, backup, force)
            )
    except latest.Unreachable as error:
        clean.complain(error)
        return error.status
    except (Refused, Damaged, SettingsError, Unusable, errors.BusError, TimeoutError) as error:
        clean.complain(str(error) or "the server does not answer")
        return 1
    except OSError as error:
        clean.complain(f"{clean.reason(error, settings.data.dir)}; {outcome}")
        return 1
    except KeyboardInterrupt:
        clean.complain(f"interrupted; {outcome}")
        return INTERRUPTED
    return 0


def _newest(source: Path) -> Path:
    if not source.exists():
        raise Refused(f"there is no {source}; name a backup, or a folder with spazio-*.tar; nothing was restored")
    if not source.is_dir():
        return source
    backups = sorted(source.glob("spazio-*.tar"))
    if not backups:
        raise Refused(f"{source} has no spazio-*.tar; name the file of a backup")
    return backups[-1]


def _check_prefix(settings: Settings, backup: Reader) -> None:
    if backup.about["prefix"] != settings.prefix:
        raise Refused(f"the backup is of prefix {backup.about['prefix']}; add --prefix {backup.about['prefix']}")


async def _to_folder(settings: Settings, backup: Reader, force: bool) -> None:
    folder = settings.data.dir
    needed = settings.data.min_free_bytes + 2 * sum(entry.bytes for entry in backup.entries.values())
    with data_folder.own(folder, needed) as owned:
        staged = _Staged(settings, backup, force)
        with staged.cleared(), _unwritten(settings.history_dir):
            streams = Streams(backup, settings.nats)
            async with server.running(staged.folder / _SERVER, streams.room + _BUCKETS_BYTES, owned) as url:
                own = _of_own_server(settings, url)
                async with latest.dial(own) as client:
                    await streams.put(client, own, staged.history)
            staged.settle([_SERVER])
    config = f" --config {folder / _SETTINGS}" if backup.entries[SETTINGS].bytes else ""
    clean.tell(f"next: spazio up --data-dir {folder}{config}")


def _of_own_server(settings: Settings, url: str) -> Settings:
    """Return settings for a server on this machine that knows no credential and no TLS."""
    own = {"url": url, "replicas": 1, "credentials": None, "ca": None, "cert": None, "key": None}
    return settings.model_copy(update={"nats": settings.nats.model_copy(update=own)})


async def _to_server(settings: Settings, backup: Reader, force: bool) -> None:
    settings.data.dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    staged = _Staged(settings, backup, force)
    with staged.cleared(), _unwritten(settings.history_dir):
        async with latest.dial(settings) as client:
            if await worker_pool.replicas(client, settings.prefix):
                raise Refused("processors run and would mix their state with the backup's: stop all services first")
            streams = Streams(backup, settings.nats)
            await _make_way(client, streams, settings, force)
            try:
                await streams.put(client, settings, staged.history)
                staged.settle([])
            except BaseException:
                await streams.delete(client)
                raise


async def _make_way(client: Connection, streams: Streams, settings: Settings, force: bool) -> None:
    """Delete the streams that are there.

    Raises:
        Refused: There are some, and `force` is not set.
    """
    names = await snapshot.names(client, settings.nats.request_timeout_seconds)
    present = sorted({each.name for each in streams.snapshots} & set(names))
    if present and not force:
        raise Refused(
            f"{settings.nats_shown} has {', '.join(present)} already; --force deletes them and puts the backup's there"
        )
    await streams.delete(client)


@contextmanager
def _unwritten(directory: Path) -> Iterator[None]:
    """Make sure that no sink writes the history meanwhile."""
    if not directory.is_dir():
        yield
        return
    with lock.exclusive(directory):
        yield


class _Staged:
    """The restored files under names of their own, until everything is there.

    Attributes:
        folder: Stands for the data folder.
        history: Stands for the folder of the history; None: the backup has none.
    """

    def __init__(self, settings: Settings, backup: Reader, force: bool) -> None:
        self._settings, self._backup, self._force = settings, backup, force
        self.folder = settings.data.dir / ".restore"
        target = settings.history_dir
        # Nothing can take the name of a volume, so in one the files stand within.
        beside = target / _WITHIN if os.path.ismount(target) else target.with_name(f".{target.name}.restore")
        self.history = beside if backup.about["history"] else None

    @contextmanager
    def cleared(self) -> Iterator[None]:
        """Extract the files, and remove what is left of them at the end.

        Raises:
            Refused: There are data already, and `force` is not set.
        """
        parts = [
            self._settings.data.dir / name
            for name in (authority.FOLDER, *(() if self._settings.nats.url else (_SERVER,)))
        ]
        present = [str(path) for path in (*parts, self._settings.history_dir) if _contents(path)]
        if present and not self._force:
            raise Refused(
                f"{', '.join(present)}: there are data already; name an empty folder with --data-dir, or add --force, "
                "which moves them aside"
            )
        self._remove()
        try:
            self.folder.mkdir(parents=True, mode=0o700)
            if self._backup.below(authority.FOLDER):
                (self.folder / authority.FOLDER).mkdir(mode=0o700)
            for name in (*self._backup.below(authority.FOLDER), *self._backup.below(RUN)):
                self._backup.extract(name, self.folder / name)
            if self._backup.entries[SETTINGS].bytes:
                self._backup.extract(SETTINGS, self.folder / _SETTINGS)
            if self.history is not None:
                self.history.mkdir(parents=True)
                for name in self._backup.below(history.FOLDER):
                    self._backup.extract(name, self.history / name.partition("/")[2], mode=0o666)
            yield
        finally:
            self._remove()

    def _remove(self) -> None:
        for path in (self.folder, self.history):
            if path is not None:
                shutil.rmtree(path, ignore_errors=True)

    def settle(self, parts: list[str]) -> None:
        """Give the files their names, which takes no space, and make the views; what has the names is moved aside."""
        data, target = self._settings.data.dir, self._settings.history_dir
        if self.history is not None:
            _replace(self.history, target)
        for name in (authority.FOLDER, *parts):
            if (self.folder / name).is_dir():
                _replace(self.folder / name, data / name)
        for name in self._backup.below(RUN):
            (data / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).replace(data / name)
        if (self.folder / _SETTINGS).exists():
            (self.folder / _SETTINGS).replace(data / _SETTINGS)
            clean.tell(f"settings of the backup: {data / _SETTINGS}; use them with --config")
        if self.history is not None:
            _create_views(target)


def _create_views(history: Path) -> None:
    """Make the views, which have absolute paths; all is restored by then, so a failure is only reported."""
    try:
        view.create(history)
    except OSError as error:
        clean.complain(f"warning: no views: {clean.reason(error, history)}; the history makes them when it starts")


def _contents(folder: Path) -> list[Path]:
    """Return what is in a folder, without what every history or file system has there."""
    return [path for path in folder.iterdir() if path.name not in _NO_DATA] if folder.is_dir() else []


def _replace(new: Path, path: Path) -> None:
    """Let a folder have another's name, or what it has; what was there is moved aside."""
    before = f"before-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    if new.parent == path:
        _replace_within(new, path, path / f".{before}")
        return
    if path.is_dir():
        aside = path.with_name(f"{path.name}.{before}")
        with contextlib.suppress(OSError):
            path.rmdir()  # an empty one needs no copy
        if path.is_dir():
            path.rename(aside)
            clean.tell(f"moved aside: {aside}")
    new.rename(path)


def _replace_within(new: Path, path: Path, aside: Path) -> None:
    if present := _contents(path):
        aside.mkdir()
        for child in present:
            child.rename(aside / child.name)
        clean.tell(f"moved aside: {aside}")
    for child in new.iterdir():
        child.rename(path / child.name)
