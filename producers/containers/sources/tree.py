"""One watched cgroup tree: its container directories, and their creation and removal.

The tree watches every directory that may contain containers, and none below a container. It lists a directory after
adding the watch, so that the list, the watch or both find a directory that is made meanwhile. A later scan lists a
directory if its number of children has changed (2 us each instead of 15), and a tenth of the others in turn.
"""

import errno
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from prometheus_client import Counter

from producers.containers.sources import inotify
from producers.containers.sources.inotify import Event, Inotify
from producers.pods import cgroup
from producers.pods.cgroup import Kind

log = logging.getLogger(__name__)

VANISHED = Counter(
    "spazio_container_vanished_total", "directories and files of containers that were gone when read", ["source"]
)

_MASK = inotify.CREATE | inotify.DELETE | inotify.ONLYDIR
_TURNS = 10
_GONE = (errno.ENOENT, errno.ENODEV, errno.ENOTDIR)


class ContainerGroup(NamedTuple):
    """Cgroup of a container: its directory, the inode of that, the container's id, the UID of its pod."""

    path: str
    inode: int
    container: str
    pod: str | None


class Change(NamedTuple):
    """A container's directory was created or removed."""

    came: bool
    group: ContainerGroup


@dataclass(slots=True)
class _Folder:
    path: str
    pod: str | None
    inode: int
    links: int = -1  # when it was listed; -1: list it at the next scan
    watch: int = -1
    folders: set[str] = field(default_factory=set)
    containers: dict[str, ContainerGroup] = field(default_factory=dict)


class Tree:
    """One tree.

    Args:
        path: Its root.
        queue: Queue for the watches; None: scan only.
    """

    def __init__(self, path: Path, queue: Inotify | None) -> None:
        self._root, self._queue = str(path), queue
        self._folders: dict[str, _Folder] = {}
        self._watches: dict[int, _Folder] = {}
        self._unwatched, self._turn = False, 0

    @property
    def path(self) -> Path:
        """Root of the tree."""
        return Path(self._root)

    @property
    def is_watched(self) -> bool:
        """Whether the kernel reports changes."""
        return self._queue is not None

    @property
    def is_complete(self) -> bool:
        """Whether watches cover the whole tree."""
        return self._queue is not None and not self._unwatched

    def watch(self, queue: Inotify) -> None:
        """Start to watch a tree that was only scanned before."""
        self._queue = queue
        self._folders.clear()

    def scan(self, *, complete: bool = False) -> dict[str, ContainerGroup]:
        """Return every container in the tree; add missing watches.

        Args:
            complete: List every directory, also unchanged ones.
        """
        groups: dict[str, ContainerGroup] = {}
        pending: list[tuple[str, str | None]] = [(self._root, None)]
        seen = set[str]()
        self._turn = (self._turn + 1) % _TURNS
        while pending:
            due = len(seen) % _TURNS == self._turn
            folder = self._open(*pending.pop(), complete=complete or due)
            if folder is not None:
                seen.add(folder.path)
                groups |= {group.container: group for group in folder.containers.values()}
                pending += [(path, self._pod(path, folder)) for path in folder.folders]
        for path in self._folders.keys() - seen:
            self._drop(path)
        return groups

    def take(self, event: Event) -> list[Change] | None:
        """Return the changes of an event, in order; None: the watch is not of this tree."""
        folder = self._watches.get(event.watch)
        if folder is None:
            return None
        if event.mask & inotify.IGNORED:
            del self._watches[event.watch]
            folder.watch, folder.inode = -1, 0
        if not event.mask & inotify.ISDIR:
            return []
        folder.links = -1
        if event.mask & inotify.CREATE:
            return [Change(True, group) for group in self._came(folder, event.name)]
        return [Change(False, group) for group in self._went(folder, event.name)]

    def _came(self, folder: _Folder, name: str) -> Iterator[ContainerGroup]:
        path, kind = f"{folder.path}/{name}", cgroup.parse(name)
        if kind is Kind.OTHER:
            return
        if kind in (Kind.CONTAINER, Kind.STRAY):
            group = folder.containers[name] = _group(path, name, _inode(path), folder.pod)
            yield group
            return
        folder.folders.add(path)
        pending = [(path, self._pod(path, folder))]
        while pending:
            inner = self._open(*pending.pop(), complete=True)
            if inner is not None:
                yield from inner.containers.values()
                pending += [(path, self._pod(path, inner)) for path in inner.folders]

    def _went(self, folder: _Folder, name: str) -> Iterator[ContainerGroup]:
        group = folder.containers.pop(name, None)
        if group is not None:
            yield group
        path = f"{folder.path}/{name}"
        if path in folder.folders:
            folder.folders.discard(path)
            yield from self._drop(path)

    def _drop(self, path: str) -> list[ContainerGroup]:
        """Drop a folder and all below it; return its containers."""
        folder = self._folders.pop(path, None)
        if folder is None:
            return []
        if folder.watch >= 0 and folder.watch in self._watches and self._queue:
            del self._watches[folder.watch]
            self._queue.remove(folder.watch)
        return [*folder.containers.values(), *(group for inner in folder.folders for group in self._drop(inner))]

    def _open(self, path: str, pod: str | None, *, complete: bool) -> _Folder | None:
        """Return a folder, watched and with a current list; None: it is gone."""
        try:
            status = os.stat(path)  # noqa: PTH116 - hundreds a second; making a Path costs as much
            folder = self._folders.get(path)
            if folder is None or folder.inode != status.st_ino:
                self._drop(path)
                folder = self._folders[path] = _Folder(path, pod, status.st_ino)
                self._add(folder)
            unwatched = folder.watch < 0 and self._queue is not None
            if complete or unwatched or folder.links < 2 or folder.links != status.st_nlink:
                folder.links = status.st_nlink
                self._list(folder)
        except OSError as error:
            if path == self._root or error.errno not in (*_GONE, errno.EACCES, errno.EPERM):
                raise
            VANISHED.labels("cgroup").inc()
            self._drop(path)
            return None
        return folder

    def _add(self, folder: _Folder) -> None:
        if self._queue is None:
            return
        try:
            folder.watch = self._queue.add(folder.path, _MASK)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            if not self._unwatched:
                self._unwatched = True
                log.warning("containers.unwatched", extra={"path": folder.path, "reason": error.strerror})
            return
        self._watches[folder.watch] = folder

    def _list(self, folder: _Folder) -> None:
        folders, containers = set[str](), dict[str, ContainerGroup]()
        with os.scandir(folder.path) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    continue
                kind = cgroup.parse(entry.name)
                if kind in (Kind.CONTAINER, Kind.STRAY):
                    containers[entry.name] = _group(entry.path, entry.name, entry.inode(), folder.pod)
                elif kind is not Kind.OTHER:
                    folders.add(entry.path)
        for path in folder.folders - folders:
            self._drop(path)
        folder.folders, folder.containers = folders, containers

    @staticmethod
    def _pod(path: str, folder: _Folder) -> str | None:
        return cgroup.pod_uid(path.rpartition("/")[2]) or folder.pod


def _group(path: str, name: str, inode: int, pod: str | None) -> ContainerGroup:
    return ContainerGroup(path, inode, cgroup.container_id(name) or name, cgroup.pod_uid(name) or pod)


def _inode(path: str) -> int:
    """Return a directory's inode; 0: it is gone already."""
    try:
        return Path(path).stat().st_ino
    except FileNotFoundError:
        VANISHED.labels("cgroup").inc()
        return 0
