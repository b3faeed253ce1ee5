"""Which pods run on the node, from its cgroup tree, whatever runtime made them.

Whoever needs the pods asks one census, which walks the tree at most once a second. That a directory exists stands
for a living container, since runtimes remove it within 30 ms of the exit; a tenth of them is looked into at each
walk, so that what a killed runtime left behind is no longer counted after ten seconds. The link count of a cgroup
directory is 2 + its children, which tells leaves, and pods that have not changed, for the price of one `stat`.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from producers.pods import cgroup
from producers.pods.cgroup import Kind

log = logging.getLogger(__name__)

_TURNS = 10
_FRESH_SECONDS = 0.5


class Pod(NamedTuple):
    """One pod with a container, or one container that is in no pod.

    Attributes:
        key: UID of the pod, or id of the container.
        paths: Cgroups that hold all of it, below the root of the tree; several if its containers lie astray.
        containers: Cgroup of each of its containers, its pause container's too.
        running: How many they are, the pause container left out.
    """

    key: str
    paths: tuple[str, ...]
    containers: tuple[str, ...]
    running: int


class Account(NamedTuple):
    """What a walk has found.

    Attributes:
        tree: The tree.
        pods: Those that run in it.
        idle: Pods and containers whose directory is there, but nothing runs in it (yet, or any more).
    """

    tree: Path
    pods: Sequence[Pod]
    idle: Sequence[Pod]


class Census:
    """Finds pods, for several threads.

    Args:
        root: Where cgroups are mounted.
        proc: Where `/proc` is mounted; processes that are seen there tell pause containers.
        clock: Monotonic time in seconds.
    """

    def __init__(self, root: Path, proc: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._root, self._proc, self._clock = root, proc, clock
        self._lock = threading.Lock()
        self._trees: list[Tree] = []
        self._absent = False
        self._account: Account | None = None
        self._taken = float("-inf")

    def take(self, age_seconds: float = _FRESH_SECONDS) -> Account | None:
        """Return what there is now, or was up to so long ago; None: there is no cgroup tree."""
        with self._lock:
            if self._clock() - self._taken > age_seconds:
                self._account = self._walk()
                self._taken = self._clock()
            return self._account

    def _walk(self) -> Account | None:
        """Walk the first tree, and keep the one first that has pods."""
        if not self._trees or not self._trees[0].path.is_dir():
            self._trees = [Tree(path, self._proc) for path in cgroup.trees(self._root)]
            if not self._trees and not self._absent:
                log.warning("source.absent", extra={"source": "pods", "reason": f"no cgroups in {self._root}"})
            self._absent = not self._trees
        empty: Account | None = None
        for position, tree in enumerate(self._trees):
            account = Account(tree.path, *tree.walk())
            if account.pods:
                self._trees.insert(0, self._trees.pop(position))
                return account
            empty = empty or account
        return empty


class Tree:
    """One cgroup tree and what is known of it from the walks before."""

    def __init__(self, path: Path, proc: Path) -> None:
        self.path = path
        self._proc = proc
        self._root = os.fspath(path)
        self._turn = 0
        self._examined: dict[str, tuple[int, Pod]] = {}
        self._dead: set[str] = set()
        self._begun = False

    def walk(self) -> tuple[list[Pod], list[Pod]]:
        """Return the pods with a container and the containers outside of pods: those that run, and the others."""
        if not cgroup.children(self.path):  # nobody has made a cgroup in this hierarchy: one `stat`, no walk
            return [], []
        found: dict[str, Pod] = {}
        strays: dict[str, list[str]] = {}
        examined: dict[str, tuple[int, Pod]] = {}
        for kind, entry in cgroup.found(self.path):
            if kind is Kind.STRAY:
                strays.setdefault(cgroup.pod_uid(entry.name) or entry.name, []).append(entry.path)
                continue
            known = self._examined.get(entry.path)
            if kind is Kind.POD:
                known = self._examine(entry, known)
            elif known is None:
                known = 0, self._pod(cgroup.container_id(entry.name) or entry.name, [entry.path], [entry.path], 1)
            examined[entry.path] = known
            if (pod := known[1]).containers or pod.key not in found:
                found[pod.key] = pod
        for key, paths in strays.items():
            found[key] = self._pod(key, paths, paths, _running(self._pauses(paths)))
        self._examined = examined
        return self._parted(list(found.values()))

    def _examine(self, entry: os.DirEntry[str], known: tuple[int, Pod] | None) -> tuple[int, Pod]:
        """Return with how many children (-1: look again the next time) a pod was examined, and what it is."""
        children = cgroup.children(entry)
        if known and known[0] == children >= 0:
            return known
        containers = [inner.path for inner in cgroup.directories(entry.path) if _is_container(inner.name)]
        pauses = self._pauses(containers)
        key = cgroup.pod_uid(entry.name) or entry.name
        pod = self._pod(key, [entry.path], containers, _running(pauses))
        return (-1 if None in pauses else children), pod

    def _pauses(self, containers: Sequence[str]) -> list[bool | None]:
        return [cgroup.is_pause(container, self._proc) for container in containers]

    def _pod(self, key: str, paths: Sequence[str], containers: Sequence[str], running: int) -> Pod:
        return Pod(key, self._below(paths), self._below(containers), running)

    def _below(self, paths: Sequence[str]) -> tuple[str, ...]:
        return tuple(path[len(self._root) + 1 :] for path in paths)

    def _parted(self, all_pods: list[Pod]) -> tuple[list[Pod], list[Pod]]:
        """Return those that run, and the others."""
        pods = [pod for pod in all_pods if pod.containers]
        self._turn = (self._turn + 1) % _TURNS
        # What lies there when this begins may be the remains of a runtime that was killed; it must not seem to end now.
        due = pods[self._turn :: _TURNS] if self._begun else pods
        self._begun = True
        # One that was looked into between its directory's making and its first process must not stay unseen.
        due = [*due, *(pod for pod in pods if pod.key in self._dead)]
        for pod in due:
            if any(cgroup.is_populated(f"{self._root}/{path}") for path in pod.paths):
                self._dead.discard(pod.key)
            else:
                self._dead.add(pod.key)
        self._dead.intersection_update({pod.key for pod in pods})
        if not self._dead and len(pods) == len(all_pods):
            return pods, []
        idle = [pod for pod in all_pods if not pod.containers or pod.key in self._dead]
        return [pod for pod in pods if pod.key not in self._dead], idle


def _is_container(name: str) -> bool:
    return cgroup.parse(name) is Kind.CONTAINER


def _running(pauses: Sequence[bool | None]) -> int:
    """Return how many containers run beside a pause container, which a pod has once at most.

    One that is being made is no pause container if there is another one: that comes first.
    """
    return sum(pause is False for pause in pauses) if len(pauses) < 2 else len(pauses) - any(pauses)
