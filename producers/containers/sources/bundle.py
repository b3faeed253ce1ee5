"""Containers by containerd's task bundles: who a container is, before its first process starts, without a socket.

For each container that is to run, containerd makes a folder `<namespace>/<id>` and writes the runtime's `config.json`
into it (mkdir = created). A container is reported when its file is complete, which it is within a millisecond
as a rule, or after `_PATIENCE_SECONDS` without a name. The runtime writes `init.pid` when the process is there
(started). A folder that is renamed or removed is of a container that has exited and is deleted.

The folders are containerd's own affair and may look different one day; they are open to root alone.
"""

import asyncio
import logging
import os
import re
from dataclasses import dataclass
from pathlib import Path

from producers import clock as grid
from producers.containers import spec
from producers.containers.sources import inotify
from producers.containers.sources.damage import Damage
from producers.containers.sources.inotify import Inotify
from producers.containers.sources.source import Event, Identity, Observation, Sink
from producers.containers.sources.tree import VANISHED

log = logging.getLogger(__name__)

_PATIENCE_SECONDS = 0.02
_LONGEST = 4 << 20
_TURNS = 10
_GOES = inotify.MOVED_FROM | inotify.DELETE
_FOLDER_MASK = inotify.CREATE | inotify.MOVED_TO | _GOES | inotify.ONLYDIR
_BUNDLE_MASK = inotify.CLOSE_WRITE | inotify.MOVED_TO | inotify.ONLYDIR
_ID = re.compile(r"[A-Za-z0-9]+(?:[._-][A-Za-z0-9]+)*")
_FIRST_PID_NAMESPACE = 0xEFFFFFFC  # inode that the kernel gives to the namespace in which all processes are seen


@dataclass(slots=True)
class _Bundle:
    path: str
    identity: Identity
    state: Event | None = None  # None: nothing of it has been said
    named: bool = False
    watch: int = -1


class Bundle:
    """Follows the folders of one or more instances of containerd.

    Args:
        folders: Folders of namespaces; each may be missing, and come later.
        rescan_seconds: Everything is listed so often.
        proc: Where /proc is mounted, to tell a bundle whose process has ended; None: each is taken to run.
        clock: Time since boot.
    """

    name = "bundle"

    def __init__(
        self,
        folders: tuple[Path, ...],
        *,
        rescan_seconds: float,
        proc: Path | None = None,
        clock: grid.Clock | None = None,
    ) -> None:
        self._folders, self._rescan_seconds, self._proc = folders, rescan_seconds, proc
        self._clock = clock or grid.System()
        self._damage, self._vanished = Damage(self.name), VANISHED.labels(self.name)
        self._refused = ""

    async def run(self, sink: Sink) -> None:
        """Follow until cancelled.

        Raises:
            OSError: The folders are closed to us, or no inotify is to be had.
        """
        with Inotify() as queue:
            self._queue, self._sink = queue, sink
            self._bundles = dict[str, _Bundle]()
            self._spaces = dict[str, tuple[int, int]]()  # watch and inode of folders that hold bundles or namespaces
            self._paths = dict[int, str]()  # what is watched
            self._turn = 0
            await inotify.attend(queue, self._take, self._look, self._rescan_seconds)

    def _look(self) -> None:
        """List all bundles, mend what events have missed, and hand the list on."""
        found: dict[str, str] = {}
        readable, refusal = False, None
        for folder in self._folders:
            try:
                spaces = self._names(str(folder))
                readable = True
                found |= {path: _last(path) for space in spaces for path in self._inside(space)}
            except (FileNotFoundError, NotADirectoryError):
                continue
            except PermissionError as error:
                refusal = error
        self._tell_refusal(refusal, readable)
        for path in self._bundles.keys() - found.keys():
            self._forget(self._bundles[path])
        self._turn = (self._turn + 1) % _TURNS
        listed: dict[str, tuple[Identity, bool]] = {}
        for index, (path, name) in enumerate(found.items()):
            bundle = self._bundles.get(path)
            if bundle is None:
                bundle = self._find(path)
            elif bundle.state == "started" and index % _TURNS == self._turn and not self._runs(path):
                bundle.state = "exited"
            elif bundle.state == "created" and Path(path, "init.pid").exists():
                self._start(bundle)
            listed[name] = bundle.identity, bundle.state == "started"
        self._sink.present(self.name, listed, self._now())

    def _find(self, path: str) -> _Bundle:
        """Take in a bundle that was found by looking: being made now, or there for longer."""
        if not Path(path, "init.pid").exists():
            return self._come(path)
        bundle = self._bundles[path] = _Bundle(path, Identity(_last(path)))
        self._read(bundle, complete=True)
        bundle.state = "started" if self._runs(path) else "exited"
        return bundle

    def _names(self, path: str) -> list[str]:
        """Watch a folder, and return the folders in it."""
        inode = Path(path).stat().st_ino
        watch, before = self._spaces.get(path, (-1, 0))
        if watch not in self._paths or inode != before:
            watch = self._queue.add(path, _FOLDER_MASK)
            self._spaces[path], self._paths[watch] = (watch, inode), path
        with os.scandir(path) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]

    def _tell_refusal(self, refusal: PermissionError | None, readable: bool) -> None:
        if refusal is not None and not readable:
            raise refusal
        said, self._refused = self._refused, str(refusal or "")
        if self._refused and said != self._refused:
            log.warning("containers.refused", extra={"source": self.name, "reason": self._refused})

    def _take(self, events: list[inotify.Event]) -> None:
        overflowed = False
        for event in events:
            overflowed |= bool(event.mask & inotify.OVERFLOW)
            path = self._paths.get(event.watch)
            if path is None:
                continue
            bundle = self._bundles.get(path)
            if event.mask & inotify.IGNORED:
                del self._paths[event.watch]
            elif bundle is not None:
                self._written(bundle, event.name)
            elif event.mask & inotify.ISDIR:
                self._change(path, event)
        if overflowed:
            log.warning("containers.overflowed", extra={"source": self.name})
            self._look()

    def _change(self, parent: str, event: inotify.Event) -> None:
        path = f"{parent}/{event.name}"
        if Path(parent) in self._folders:
            if not event.mask & _GOES:
                for inner in self._inside(path):
                    self._come(inner)
        elif event.mask & _GOES:
            bundle = self._bundles.get(path)
            if bundle is not None:
                self._end(bundle)
        elif _ID.fullmatch(event.name):
            self._come(path)

    def _inside(self, space: str) -> list[str]:
        """Return the bundles of a namespace."""
        try:
            return [path for path in self._names(space) if _ID.fullmatch(_last(path))]
        except (FileNotFoundError, NotADirectoryError):
            self._vanished.inc()
            return []

    def _come(self, path: str) -> _Bundle:
        if path in self._bundles:
            return self._bundles[path]
        bundle = self._bundles[path] = _Bundle(path, Identity(_last(path)))
        try:
            bundle.watch = self._queue.add(path, _BUNDLE_MASK)
            self._paths[bundle.watch] = path
        except OSError:
            self._vanished.inc()
        self._read(bundle)
        if bundle.named:
            self._create(bundle)
        else:
            asyncio.get_running_loop().call_later(_PATIENCE_SECONDS, self._create, bundle)
        return bundle

    def _written(self, bundle: _Bundle, name: str) -> None:
        if name == "config.json" and not bundle.named:
            self._read(bundle, complete=True)
            self._create(bundle)
        elif name == "init.pid":
            self._start(bundle)

    def _create(self, bundle: _Bundle) -> None:
        if bundle.state is None and self._bundles.get(bundle.path) is bundle:
            bundle.state = "created"
            self._say("created", bundle)
            if Path(bundle.path, "init.pid").exists():
                self._start(bundle)

    def _start(self, bundle: _Bundle) -> None:
        self._create(bundle)
        if bundle.state == "created":
            bundle.state = "started"
            self._say("started", bundle)
        if self._paths.pop(bundle.watch, None) is not None:
            self._queue.remove(bundle.watch)

    def _end(self, bundle: _Bundle) -> None:
        self._create(bundle)
        self._forget(bundle)
        if bundle.state != "exited":
            self._say("exited", bundle)
        self._say("deleted", bundle)

    def _forget(self, bundle: _Bundle) -> None:
        del self._bundles[bundle.path]
        if self._paths.pop(bundle.watch, None) is not None:
            self._queue.remove(bundle.watch)

    def _read(self, bundle: _Bundle, *, complete: bool = False) -> None:
        """Learn who a container is; `complete`: nobody writes it any more, so what cannot be read is damaged."""
        try:
            with Path(bundle.path, "config.json").open("rb") as file:
                bundle.identity = spec.parse(_last(bundle.path), file.read(_LONGEST))
        except OSError:
            if complete:
                self._vanished.inc()
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            if complete:
                self._damage.tell(f"{bundle.path}/config.json: {error!r}")
        else:
            bundle.named = True

    def _runs(self, path: str) -> bool:
        """Say whether the process of a bundle is there; believed where its processes cannot be seen."""
        if self._proc is None or not _sees_all(self._proc):
            return True
        try:
            return (self._proc / Path(path, "init.pid").read_text().strip()).exists()
        except (OSError, ValueError):
            return True

    def _say(self, event: Event, bundle: _Bundle) -> None:
        self._sink.observe(Observation(self.name, event, bundle.identity, self._now()))

    def _now(self) -> int:
        return self._clock.boottime() // 1000


def _last(path: str) -> str:
    return path.rpartition("/")[2]


def _sees_all(proc: Path) -> bool:
    if proc != Path("/proc"):
        return True  # somebody has mounted it here on purpose
    try:
        return (proc / "self/ns/pid").stat().st_ino == _FIRST_PID_NAMESPACE
    except OSError:
        return False
