"""Containers by their control groups: starts and exits, without any privilege.

A runtime makes a container's cgroup before it starts the first process (mkdir = created). In version 2 the file
`cgroup.events` there changes when the first process enters (populated 1 = started) and when the last one has ended
(populated 0 = exited), a millisecond later; the runtime removes the directory soon after (rmdir = deleted). Version 1
has no such file: the source looks for a process soon after the mkdir and at each scan, and rmdir also means the exit.

In a hybrid layout `unified` is the preferred tree. The source also scans the other one, and watches it once two scans
have found a container there that `unified` does not have; it follows a container in one tree only.

The kernel reports lost events. So while watches cover everything and there are containers, which make a scan
expensive, only every fifth scan covers all of them.
"""

import asyncio
import errno
import logging
from dataclasses import dataclass, replace
from pathlib import Path

from producers import clock as grid
from producers.containers.sources import inotify
from producers.containers.sources.inotify import Inotify
from producers.containers.sources.source import Event, Identity, Observation, Sink
from producers.containers.sources.tree import VANISHED, ContainerGroup, Tree
from producers.pods import cgroup

log = logging.getLogger(__name__)

_SOON_SECONDS = (0.02, 0.1, 0.4)  # after the mkdir, in version 1; most containers start within the last
_TURNS = 10  # a tenth of the containers is checked at each scan
_WATCHED_TURNS = 60  # a sixtieth of those whose file is watched
_PAUSE_LOOKS = 30
_LOOKS = 5


@dataclass(slots=True)
class _Container:
    group: ContainerGroup
    identity: Identity
    state: Event | None = None  # None: it had no process yet, and its creation was not observed
    watch: int = -1
    entered: bool = True  # False: it was followed in another tree, and no process has entered this one yet
    looks: int = _PAUSE_LOOKS  # remaining checks whether it is a pause container


class Cgroup:
    """Follows the cgroup trees of a host.

    Args:
        root: Mount of the cgroup trees.
        proc: Mount of /proc.
        rescan_seconds: Time between scans.
        clock: Time since boot.
    """

    name = "cgroup"

    def __init__(self, root: Path, proc: Path, *, rescan_seconds: float, clock: grid.Clock | None = None) -> None:
        self._root, self._proc, self._rescan_seconds = root, proc, rescan_seconds
        self._clock = clock or grid.System()
        self._vanished = VANISHED.labels(self.name)

    async def run(self, sink: Sink) -> None:
        """Follow until cancelled.

        Raises:
            OSError: There is no cgroup tree, or inotify is not available.
        """
        with Inotify() as queue:
            self._queue, self._sink = queue, sink
            self._trees = list[Tree]()
            self._containers = dict[str, _Container]()
            self._files = dict[int, _Container]()
            self._lonely = set[str]()
            self._turn = self._looks = 0
            await inotify.attend(queue, self._take, self._rescan, self._rescan_seconds)

    def _rescan(self, *, complete: bool = False) -> None:
        """List all containers, correct what events have missed, and report the list."""
        self._looks += 1
        if not complete and self._looks % _LOOKS and self._containers and self._is_watched():
            self._look_at_young()
            return
        self._turn += 1
        groups = self._survey(complete=complete)
        for container in [each for each in self._containers.values() if each.group.container not in groups]:
            self._forget(container)
        for index, group in enumerate(groups.values()):
            current = self._containers.get(group.container)
            if current is not None and current.group.path == group.path and current.group.inode != group.inode:
                self._end(current)
                current = None
            if current is None:
                self._add(group)
            elif current.group.path != group.path:
                self._move(current, group)
            elif complete or current.state not in ("started", "exited") or self._is_due(index, current):
                self._check(current)
        listed = {}
        for id_, container in self._containers.items():
            self._see_pause(container)
            listed[id_] = container.identity, container.state == "started"
        self._sink.present(self.name, listed, self._now())

    def _is_watched(self) -> bool:
        """Return whether events cover the preferred tree, including the end of each container's last process."""
        return self._trees[0].is_complete and len(self._files) == len(self._containers)

    def _look_at_young(self) -> None:
        """Check containers that have not started yet, or may be pause containers."""
        for container in list(self._containers.values()):
            if container.state not in ("started", "exited"):
                self._check(container)
            self._see_pause(container)

    def _is_due(self, index: int, container: _Container) -> bool:
        return (index + self._turn) % (_TURNS if container.watch < 0 else _WATCHED_TURNS) == 0

    def _survey(self, *, complete: bool) -> dict[str, ContainerGroup]:
        """Return the cgroup of each container, in the preferred tree if it is in both."""
        paths = cgroup.trees(self._root)
        if not paths:
            raise FileNotFoundError(
                errno.ENOENT, "no cgroup tree; mount it, or name it with --sample-cgroup", self._root
            )
        if [tree.path for tree in self._trees] != paths:
            self._trees = [Tree(path, None if index else self._queue) for index, path in enumerate(paths)]
        groups: dict[str, ContainerGroup] = {}
        for tree in self._trees:
            in_tree = tree.scan(complete=complete)
            if not tree.is_watched:
                lonely, before = set(in_tree) - groups.keys(), self._lonely
                self._lonely = lonely
                if lonely & before:
                    log.info("containers.tree_watched", extra={"path": str(tree.path)})
                    tree.watch(self._queue)
            groups = in_tree | groups
        return groups

    def _take(self, events: list[inotify.Event]) -> None:
        overflowed = False
        for event in events:
            container = self._files.get(event.watch)
            if container is not None:
                if event.mask & inotify.IGNORED:
                    del self._files[event.watch]
                    container.watch = -1
                elif event.mask & inotify.MODIFY:
                    self._check(container, changed=True)
            elif event.mask & inotify.OVERFLOW:
                overflowed = True
            else:
                self._change(event)
        if overflowed:
            log.warning("containers.overflowed", extra={"source": self.name})
            self._rescan(complete=True)

    def _change(self, event: inotify.Event) -> None:
        for tree in self._trees:
            changes = tree.take(event)
            if changes is None:
                continue
            for came, group in changes:
                current = self._containers.get(group.container)
                if came and (current is None or current.group.path == group.path or tree is self._trees[0]):
                    self._come(group, current)
                elif not came and current is not None and current.group.path == group.path:
                    self._end(current)
            return

    def _come(self, group: ContainerGroup, container: _Container | None) -> None:
        if container is not None and container.group.path == group.path and container.group.inode != group.inode:
            self._end(container)
            container = None
        if container is None:
            container = self._add(group, live=True)
        elif container.group.path != group.path:
            self._move(container, group)
        if container.state is None:
            container.state = "created"
            self._report("created", container)
            self._check(container)
        if container.watch < 0 and container.state == "created":
            loop = asyncio.get_running_loop()
            for seconds in _SOON_SECONDS:
                loop.call_later(seconds, self._check_soon, container)

    def _add(self, group: ContainerGroup, *, live: bool = False) -> _Container:
        container = self._containers[group.container] = _Container(group, Identity(group.container, pod=group.pod))
        self._watch(container)
        if not live and cgroup.populated(group.path):
            container.state = "started"
        return container

    def _move(self, container: _Container, group: ContainerGroup) -> None:
        """Follow a container in another tree."""
        self._unwatch(container)
        container.group, container.entered = group, False
        self._watch(container)
        self._check(container)

    def _watch(self, container: _Container) -> None:
        try:
            container.watch = self._queue.add(f"{container.group.path}/cgroup.events", inotify.MODIFY)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENODEV, errno.ENOSPC):
                raise
        else:
            self._files[container.watch] = container

    def _unwatch(self, container: _Container) -> None:
        if self._files.pop(container.watch, None) is not None:
            self._queue.remove(container.watch)
        container.watch = -1

    def _check_soon(self, container: _Container) -> None:
        if self._containers.get(container.group.container) is container and container.state == "created":
            self._check(container)

    def _check(self, container: _Container, *, changed: bool = False) -> None:
        """Check whether the cgroup has a process; `changed`: the kernel reported a change."""
        runs = cgroup.populated(container.group.path)
        if runs is None:
            self._vanished.inc()
        container.entered = container.entered or changed or bool(runs)
        if not container.entered:
            return
        if runs and container.state != "started":
            container.state = "started"
            self._report("started", container)
        elif not runs and (
            container.state == "started" or (container.state == "created" and (changed or runs is None))
        ):
            container.state = "exited"
            self._report("exited", container)

    def _end(self, container: _Container) -> None:
        """Report that a container's directory was removed."""
        self._forget(container)
        if container.state is None:
            return
        if container.state != "exited":
            self._report("exited", container)
        self._report("deleted", container)

    def _forget(self, container: _Container) -> None:
        del self._containers[container.group.container]
        self._unwatch(container)

    def _see_pause(self, container: _Container) -> None:
        identity = container.identity
        if identity.pod is None or identity.sandbox is not None or not container.looks or container.state != "started":
            return
        container.looks -= 1
        try:
            sandbox = cgroup.is_pausing(container.group.path, self._proc)
        except (OSError, ValueError, IndexError):
            return
        container.identity = replace(identity, sandbox=sandbox)

    def _report(self, event: Event, container: _Container) -> None:
        self._sink.observe(Observation(self.name, event, container.identity, self._now()))

    def _now(self) -> int:
        return self._clock.boottime() // 1000
