"""Containers by containerd's task bundles: identities before the first process starts, without a socket.

For each container containerd makes a folder `<namespace>/<id>` before the start and writes the runtime's `config.json`
into it (mkdir = created). The source reports a container when its file is complete, usually within a millisecond, or
after `_PATIENCE_SECONDS` without a name. The runtime writes `init.pid` when the process exists (started). containerd
renames or removes the folder of a container that has exited (deleted).

The folders are internal to containerd and may change; only root may read them.
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
_CHECK_US = 3_000_000  # less than another source's report of the end may be old: a list says later that it runs again
_GOES = inotify.MOVED_FROM | inotify.DELETE
_FOLDER_MASK = inotify.CREATE | inotify.MOVED_TO | _GOES | inotify.ONLYDIR
_BUNDLE_MASK = inotify.CLOSE_WRITE | inotify.MOVED_TO | inotify.ONLYDIR
_ID = re.compile(r"[A-Za-z0-9]+(?:[._-][A-Za-z0-9]+)*")
_FIRST_PID_NAMESPACE = 0xEFFFFFFC  # inode of the kernel's initial namespace, in which all processes are visible


@dataclass(slots=True)
class _Bundle:
    path: str
    identity: Identity
    state: Event | None = None  # None: no event of it was reported
    named: bool = False
    watch: int = -1
    process: str = ""  # its first process, once that is read
    checked_us: int = 0


class Bundle:
    """Follows the folders of one or more instances of containerd.

    Args:
        folders: Folders of namespaces; each may be missing, and appear later.
        rescan_seconds: Time between complete listings.
        proc: Mount of /proc, to detect ended processes; None: each process is assumed to run.
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
            OSError: The folders are not readable, or inotify is not available.
        """
        with Inotify() as queue:
            self._queue, self._sink = queue, sink
            self._bundles = dict[str, _Bundle]()
            self._spaces = dict[str, tuple[int, int]]()  # watch and inode of folders of bundles or namespaces
            self._paths = dict[int, str]()  # by watch
            await inotify.attend(queue, self._take, self._rescan, self._rescan_seconds)

    def _rescan(self) -> None:
        """List all bundles, correct what events have missed, and report the list."""
        ids: dict[str, str] = {}
        readable, refusal = False, None
        for folder in self._folders:
            try:
                spaces = self._names(str(folder))
                readable = True
                ids |= {path: _last(path) for space in spaces for path in self._inside(space)}
            except (FileNotFoundError, NotADirectoryError):
                continue
            except PermissionError as error:
                refusal = error
        self._log_refusal(refusal, readable)
        for path in self._bundles.keys() - ids.keys():
            self._forget(self._bundles[path])
        listed: dict[str, tuple[Identity, bool]] = {}
        for path, name in ids.items():
            bundle = self._bundles.get(path)
            if bundle is None:
                bundle = self._find(path)
            elif bundle.state == "started" and not self._runs(bundle):
                bundle.state = "exited"
            elif bundle.state == "created" and Path(path, "init.pid").exists():
                self._start(bundle)
            listed[name] = bundle.identity, bundle.state == "started"
        self._sink.present(self.name, listed, self._now())

    def _find(self, path: str) -> _Bundle:
        """Add a bundle from a listing: either new, or already started."""
        if not Path(path, "init.pid").exists():
            return self._come(path)
        bundle = self._bundles[path] = _Bundle(path, Identity(_last(path)))
        self._read(bundle, complete=True)
        bundle.state = "started" if self._runs(bundle) else "exited"
        return bundle

    def _names(self, path: str) -> list[str]:
        """Watch a folder, and return its subfolders."""
        inode = Path(path).stat().st_ino
        watch, before = self._spaces.get(path, (-1, 0))
        if watch not in self._paths or inode != before:
            watch = self._queue.add(path, _FOLDER_MASK)
            self._spaces[path], self._paths[watch] = (watch, inode), path
        with os.scandir(path) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]

    def _log_refusal(self, refusal: PermissionError | None, readable: bool) -> None:
        if refusal is not None and not readable:
            raise refusal
        logged, self._refused = self._refused, str(refusal or "")
        if self._refused and logged != self._refused:
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
            self._rescan()

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
            self._report("created", bundle)
            if Path(bundle.path, "init.pid").exists():
                self._start(bundle)

    def _start(self, bundle: _Bundle) -> None:
        self._create(bundle)
        if bundle.state == "created":
            bundle.state = "started"
            self._report("started", bundle)
        if self._paths.pop(bundle.watch, None) is not None:
            self._queue.remove(bundle.watch)

    def _end(self, bundle: _Bundle) -> None:
        self._create(bundle)
        self._forget(bundle)
        if bundle.state != "exited":
            self._report("exited", bundle)
        self._report("deleted", bundle)

    def _forget(self, bundle: _Bundle) -> None:
        del self._bundles[bundle.path]
        if self._paths.pop(bundle.watch, None) is not None:
            self._queue.remove(bundle.watch)

    def _read(self, bundle: _Bundle, *, complete: bool = False) -> None:
        """Read a container's identity; `complete`: the file is closed, so a malformed one is damaged."""
        try:
            with Path(bundle.path, "config.json").open("rb") as file:
                bundle.identity = spec.parse(_last(bundle.path), file.read(_LONGEST))
        except OSError:
            if complete:
                self._vanished.inc()
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            if complete:
                self._damage.count(f"{bundle.path}/config.json: {error!r}")
        else:
            bundle.named = True

    def _runs(self, bundle: _Bundle) -> bool:
        """Return whether the process of a bundle exists, or did lately; true where the host's are not visible."""
        now = self._now()
        if now < bundle.checked_us + _CHECK_US or self._proc is None or not _sees_all(self._proc):
            return True
        bundle.checked_us = now
        try:
            if bundle.process and (self._proc / bundle.process).exists():
                return True
            bundle.process = Path(bundle.path, "init.pid").read_text().strip()
            return (self._proc / bundle.process).exists()
        except (OSError, ValueError):
            return True

    def _report(self, event: Event, bundle: _Bundle) -> None:
        self._sink.observe(Observation(self.name, event, bundle.identity, self._now()))

    def _now(self) -> int:
        return self._clock.boottime() // 1000


def _last(path: str) -> str:
    return path.rpartition("/")[2]


def _sees_all(proc: Path) -> bool:
    if proc != Path("/proc"):
        return True  # mounted here on purpose
    try:
        return (proc / "self/ns/pid").stat().st_ino == _FIRST_PID_NAMESPACE
    except OSError:
        return False
