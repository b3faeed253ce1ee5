"""The node's running pods, from its cgroup tree, for every runtime.

All readers share one census, which walks the tree at most once a second. An existing directory counts as a running
container once it had a process, since runtimes remove it within 30 ms of the exit. Each walk also checks a tenth of
them for processes, so that directories of a killed runtime no longer count after ten seconds. The link count of a
cgroup directory is 2 + its children, which identifies leaves and unchanged pods by one `stat`.

A hybrid host has two trees, and some runtimes do not use the unified one, which is preferred. A pod that only the
other tree has counts from the second walk on, since runtimes make and remove the directories of both one by one.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from producers.pods import cgroup
from producers.pods.cgroup import Kind

log = logging.getLogger(__name__)

_TURNS = 10
_FRESH_SECONDS = 0.5


class Pod(NamedTuple):
    """One pod with a container, or one container outside pods.

    Attributes:
        key: UID of the pod, or id of the container.
        paths: Its cgroups, below the root of the tree; several if it has stray containers.
        containers: Cgroup of each of its containers, including its pause container.
        running: Number of its containers, without the pause container.
        legacy: Whether it runs in the tree of version 1 only, while the host also has the unified one.
    """

    key: str
    paths: tuple[str, ...]
    containers: tuple[str, ...]
    running: int
    legacy: bool = False


class Account(NamedTuple):
    """Result of a walk.

    Attributes:
        tree: The preferred tree.
        pods: Running pods.
        idle: Pods and containers with a directory but no process (yet, or any more).
    """

    tree: Path
    pods: Sequence[Pod]
    idle: Sequence[Pod]


class Census:
    """Finds pods, for several threads.

    Args:
        root: Mount of the cgroup trees.
        proc: Mount of `/proc`, whose processes identify pause containers.
        clock: Monotonic time in seconds.
    """

    def __init__(self, root: Path, proc: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._root, self._proc, self._clock = root, proc, clock
        self._lock = threading.Lock()
        self._trees: list[Tree] = []
        self._lonely: set[str] | None = None  # that only the second tree had at the last walk; None: no walk yet
        self._absent = False
        self._account: Account | None = None
        self._taken = float("-inf")

    def take(self, age_seconds: float = _FRESH_SECONDS) -> Account | None:
        """Return a result that is at most `age_seconds` old; None: there is no cgroup tree."""
        with self._lock:
            if self._clock() - self._taken > age_seconds:
                self._account = self._walk()
                self._taken = self._clock()
            return self._account

    def _walk(self) -> Account | None:
        if not self._trees or not all(tree.path.is_dir() for tree in self._trees):
            paths = cgroup.trees(self._root)
            self._trees = [Tree(path, self._proc, legacy=path != paths[0]) for path in paths]
            self._lonely = None
            if not self._trees and not self._absent:
                log.warning("source.absent", extra={"source": "pods", "reason": f"no cgroups in {self._root}"})
            self._absent = not self._trees
        if not self._trees:
            return None
        pods, idle = self._trees[0].walk()
        for other in self._trees[1:]:
            pods, idle = self._joined(other, pods, idle)
        return Account(self._trees[0].path, pods, idle)

    def _joined(self, other: "Tree", pods: list[Pod], idle: list[Pod]) -> tuple[list[Pod], list[Pod]]:
        """Return running pods and the others, with those that only the other tree has."""
        also, also_idle = other.walk({pod.key for pod in pods}, {pod.key for pod in idle})
        before, self._lonely = self._lonely, {pod.key for pod in (*also, *also_idle)}
        if pods and before is not None:
            also = [pod for pod in also if pod.key in before]
            also_idle = [pod for pod in also_idle if pod.key in before]
        if not also and not also_idle:
            return pods, idle
        added = {pod.key for pod in also}
        idle = [pod for pod in idle if pod.key not in added]
        present = {pod.key for pod in idle}
        return [*pods, *also], [*idle, *(pod for pod in also_idle if pod.key not in present)]


class _Examined(NamedTuple):
    """A pod and what it depends on.

    Attributes:
        pod: The pod.
        children: Number of child cgroups when it was examined; -1: examine it again at the next walk.
        empty: Its containers without a process.
    """

    pod: Pod
    children: int = 0
    empty: tuple[str, ...] = ()


class Tree:
    """One cgroup tree, with state from earlier walks."""

    def __init__(self, path: Path, proc: Path, *, legacy: bool = False) -> None:
        self.path, self._legacy = path, legacy
        self._proc = proc
        self._root = os.fspath(path)
        self._turn = 0
        self._examined: dict[str, _Examined] = {}
        self._dead: set[str] = set()
        self._begun = False

    def walk(
        self, running: AbstractSet[str] = frozenset(), idle: AbstractSet[str] = frozenset()
    ) -> tuple[list[Pod], list[Pod]]:
        """Return the pods with a container and the containers outside pods: running ones, and the others.

        Args:
            running: Keys of pods that run in another tree, which are left out.
            idle: Keys of pods that have no process in another tree, which are checked.
        """
        if not cgroup.children(self.path):  # this hierarchy has no cgroups: one `stat`, no walk
            return [], []
        pods: dict[str, Pod] = {}
        strays: dict[str, list[str]] = {}
        examined: dict[str, _Examined] = {}
        for kind, entry in self._entries(running):
            if kind is Kind.STRAY:
                strays.setdefault(_key(entry.name), []).append(entry.path)
                continue
            result = self._examined.get(entry.path)
            if kind is Kind.POD:
                result = self._examine(entry, result)
            elif result is None:
                key = _key(entry.name)
                result = _Examined(self._pod(key, [entry.path], [entry.path], 1))
            examined[entry.path] = result
            if (pod := result.pod).containers or pod.key not in pods:
                pods[pod.key] = pod
        for key, paths in strays.items():
            own = pods.get(key)
            inner = own.containers if own is not None else ()
            outer = own.paths if own is not None and inner else ()  # else it is empty
            containers = [*(f"{self._root}/{path}" for path in inner), *paths]
            all_paths = [*(f"{self._root}/{path}" for path in outer), *paths]
            pauses = self._pauses(containers, _empty(containers))
            pods[key] = self._pod(key, all_paths, containers, _running(pauses))
        self._examined = examined
        return self._split(list(pods.values()), idle)

    def _entries(self, left_out: AbstractSet[str]) -> Iterator[tuple[Kind, os.DirEntry[str]]]:
        for kind, entry in cgroup.walk(self.path):
            if not left_out or _key(entry.name) not in left_out:
                yield kind, entry

    def _examine(self, entry: os.DirEntry[str], previous: _Examined | None) -> _Examined:
        """Return a pod as it was examined before, if it is the same still."""
        children = cgroup.children(entry)
        # One container may have taken the place of another, as the first one does of an init container.
        if (
            previous
            and previous.children == children >= 0
            and all(map(self._exists, previous.pod.containers))
            and _empty(previous.empty) == previous.empty
        ):
            return previous
        containers = [inner.path for inner in cgroup.directories(entry.path) if _is_container(inner.name)]
        empty = _empty(containers)
        pauses = self._pauses(containers, empty)
        key = _key(entry.name)
        pod = self._pod(key, [entry.path], containers, _running(pauses))
        return _Examined(pod, -1 if None in pauses else children, empty)

    def _exists(self, container: str) -> bool:
        return os.path.exists(f"{self._root}/{container}")  # noqa: PTH110 # faster, a hundred times a second

    def _pauses(self, containers: Sequence[str], empty: Sequence[str]) -> list[bool | None]:
        return [cgroup.is_pause(container, self._proc) for container in containers if container not in empty]

    def _pod(self, key: str, paths: Sequence[str], containers: Sequence[str], running: int) -> Pod:
        return Pod(key, self._below(paths), self._below(containers), running, self._legacy)

    def _below(self, paths: Sequence[str]) -> tuple[str, ...]:
        return tuple(path[len(self._root) + 1 :] for path in paths)

    def _split(self, all_pods: list[Pod], suspects: AbstractSet[str]) -> tuple[list[Pod], list[Pod]]:
        """Return running pods, and the others."""
        pods = [pod for pod in all_pods if pod.containers]
        self._turn = (self._turn + 1) % _TURNS
        # The first walk checks all: remains of a killed runtime must not seem to end later.
        due = pods[self._turn :: _TURNS] if self._begun else pods
        self._begun = True
        # A pod that was checked before its first process started must not stay idle.
        due = [*due, *(pod for pod in pods if pod.key in self._dead or pod.key in suspects)]
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


@lru_cache(maxsize=4096)
def _key(name: str) -> str:
    return cgroup.pod_uid(name) or cgroup.container_id(name) or name


def _is_container(name: str) -> bool:
    return cgroup.parse(name) is Kind.CONTAINER


def _empty(containers: Sequence[str]) -> tuple[str, ...]:
    """Return those that have no process: CRI-O makes a cgroup for a pod's sandbox also if no pause container runs."""
    return tuple(container for container in containers if cgroup.populated(container) is False)


def _running(pauses: Sequence[bool | None]) -> int:
    """Return the number of containers without the pause container, of which a pod has at most one.

    A container that is being made is not a pause container if the pod has another one: that is made first.
    """
    return sum(pause is False for pause in pauses) if len(pauses) < 2 else len(pauses) - any(pauses)
