"""Containers by their control groups: what exists and what has ended, without any privilege.

A runtime makes a container's cgroup before it starts the first process (mkdir = created). In version 2 the file
`cgroup.events` there says at once when a process has come in (populated 1 = started) and when the last has ended
(populated 0 = exited), a millisecond after it did; the directory is removed soon after (rmdir = deleted). Version 1
has no such file: a process is looked for soon after the mkdir and at each look, and rmdir stands for the exit, too.

In a hybrid layout the better tree is `unified`. The other is looked at too, and watched as well from when it has held a
container, at two looks, that `unified` does not; a container is followed in one tree only.

Watches miss nothing that they do not tell of, so where they are complete and there are containers, which makes a look
dear, only every fifth is one at everything.
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
from producers.containers.sources.tree import VANISHED, Place, Tree
from producers.pods import cgroup

log = logging.getLogger(__name__)

_SOON_SECONDS = (0.02, 0.1, 0.4)  # after the mkdir, in version 1; most start within the last
_TURNS = 10  # a tenth of the containers is checked at each look
_WATCHED_TURNS = 60  # of those whose file is watched, a sixtieth
_PAUSE_LOOKS = 30
_LOOKS = 5


@dataclass(slots=True)
class _Container:
    place: Place
    identity: Identity
    state: Event | None = None  # None: there was no process in it yet, and nobody has seen it being made
    watch: int = -1
    entered: bool = True  # False: it was followed in another tree, and its process has not been seen to come here yet
    looks: int = _PAUSE_LOOKS  # left, to see whether it is a pause container


class Cgroup:
    """Follows the cgroup trees of a host.

    Args:
        root: Where cgroups are mounted.
        proc: Where /proc is mounted.
        rescan_seconds: Everything is looked at so often.
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
            OSError: There is no cgroup tree, or no inotify to be had.
        """
        with Inotify() as queue:
            self._queue, self._sink = queue, sink
            self._trees = list[Tree]()
            self._containers = dict[str, _Container]()
            self._files = dict[int, _Container]()
            self._lonely = set[str]()
            self._turn = self._looks = 0
            await inotify.attend(queue, self._take, self._look, self._rescan_seconds)

    def _look(self, *, anew: bool = False) -> None:
        """List all containers, mend what events have missed, and hand the list on."""
        self._looks += 1
        if not anew and self._looks % _LOOKS and self._containers and self._is_watched():
            self._look_at_young()
            return
        self._turn += 1
        places = self._survey(anew=anew)
        for container in [known for known in self._containers.values() if known.place.container not in places]:
            self._forget(container)
        for index, place in enumerate(places.values()):
            known = self._containers.get(place.container)
            if known is not None and known.place.path == place.path and known.place.inode != place.inode:
                self._end(known)
                known = None
            if known is None:
                self._add(place)
            elif known.place.path != place.path:
                self._move(known, place)
            elif anew or known.state not in ("started", "exited") or self._is_due(index, known):
                self._check(known)
        listed = {}
        for id_, container in self._containers.items():
            self._see_pause(container)
            listed[id_] = container.identity, container.state == "started"
        self._sink.present(self.name, listed, self._now())

    def _is_watched(self) -> bool:
        """Whether events tell all that the better tree has, the end of each container's last process too."""
        return self._trees[0].is_complete and len(self._files) == len(self._containers)

    def _look_at_young(self) -> None:
        """Look at containers that have not started yet, or might be pause containers."""
        for container in list(self._containers.values()):
            if container.state not in ("started", "exited"):
                self._check(container)
            self._see_pause(container)

    def _is_due(self, index: int, container: _Container) -> bool:
        return (index + self._turn) % (_TURNS if container.watch < 0 else _WATCHED_TURNS) == 0

    def _survey(self, *, anew: bool) -> dict[str, Place]:
        """Return where each container is, in the better tree if it is in both."""
        paths = cgroup.trees(self._root)
        if not paths:
            raise FileNotFoundError(
                errno.ENOENT, "no cgroup tree; mount it, or name it with --sample-cgroup", self._root
            )
        if [tree.path for tree in self._trees] != paths:
            self._trees = [Tree(path, None if index else self._queue) for index, path in enumerate(paths)]
        places: dict[str, Place] = {}
        for tree in self._trees:
            found = tree.look(anew=anew)
            if not tree.is_watched:
                lonely, before = set(found) - places.keys(), self._lonely
                self._lonely = lonely
                if lonely & before:
                    log.info("containers.tree_watched", extra={"path": str(tree.path)})
                    tree.watch(self._queue)
            places = found | places
        return places

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
            self._look(anew=True)

    def _change(self, event: inotify.Event) -> None:
        for tree in self._trees:
            changes = tree.take(event)
            if changes is None:
                continue
            for came, place in changes:
                known = self._containers.get(place.container)
                if came and (known is None or known.place.path == place.path or tree is self._trees[0]):
                    self._come(place, known)
                elif not came and known is not None and known.place.path == place.path:
                    self._end(known)
            return

    def _come(self, place: Place, known: _Container | None) -> None:
        if known is not None and known.place.path == place.path and known.place.inode != place.inode:
            self._end(known)
            known = None
        if known is None:
            known = self._add(place, live=True)
        elif known.place.path != place.path:
            self._move(known, place)
        if known.state is None:
            known.state = "created"
            self._say("created", known)
            self._check(known)
        if known.watch < 0 and known.state == "created":
            loop = asyncio.get_running_loop()
            for seconds in _SOON_SECONDS:
                loop.call_later(seconds, self._check_soon, known)

    def _add(self, place: Place, *, live: bool = False) -> _Container:
        container = self._containers[place.container] = _Container(place, Identity(place.container, pod=place.pod))
        self._watch(container)
        if not live and cgroup.populated(place.path):
            container.state = "started"
        return container

    def _move(self, container: _Container, place: Place) -> None:
        """Follow a container in another tree from now on."""
        self._unwatch(container)
        container.place, container.entered = place, False
        self._watch(container)
        self._check(container)

    def _watch(self, container: _Container) -> None:
        try:
            container.watch = self._queue.add(f"{container.place.path}/cgroup.events", inotify.MODIFY)
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
        if self._containers.get(container.place.container) is container and container.state == "created":
            self._check(container)

    def _check(self, container: _Container, *, changed: bool = False) -> None:
        """Look whether a process is in there; `changed`: the answer is another one than before."""
        runs = cgroup.populated(container.place.path)
        if runs is None:
            self._vanished.inc()
        container.entered = container.entered or changed or bool(runs)
        if not container.entered:
            return
        if runs and container.state != "started":
            container.state = "started"
            self._say("started", container)
        elif not runs and (
            container.state == "started" or (container.state == "created" and (changed or runs is None))
        ):
            container.state = "exited"
            self._say("exited", container)

    def _end(self, container: _Container) -> None:
        """Say that a container's directory has gone."""
        self._forget(container)
        if container.state is None:
            return
        if container.state != "exited":
            self._say("exited", container)
        self._say("deleted", container)

    def _forget(self, container: _Container) -> None:
        del self._containers[container.place.container]
        self._unwatch(container)

    def _see_pause(self, container: _Container) -> None:
        identity = container.identity
        if identity.pod is None or identity.sandbox is not None or not container.looks or container.state != "started":
            return
        container.looks -= 1
        try:
            sandbox = cgroup.is_pausing(container.place.path, self._proc)
        except (OSError, ValueError, IndexError):
            return
        container.identity = replace(identity, sandbox=sandbox)

    def _say(self, event: Event, container: _Container) -> None:
        self._sink.observe(Observation(self.name, event, container.identity, self._now()))

    def _now(self) -> int:
        return self._clock.boottime() // 1000
