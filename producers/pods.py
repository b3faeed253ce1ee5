"""How many pods run on the node, from its cgroup tree, whatever runtime made them.

A pod's cgroup that holds a container beside its pause container counts one, a container outside any pod counts one.
An agent that sees only its own cgroup namespace counts nothing: mount the host's.

The tree is walked once a second. That a directory exists stands for a living container, since runtimes remove it
within 30 ms of the exit; a tenth of them is looked into at each walk, so that what a killed runtime left behind is
no longer counted after ten seconds. The link count of a cgroup directory is 2 + its children, which tells leaves,
and pods that have not changed, for the price of one `stat`.
"""

import logging
import os
from pathlib import Path

from producers import cgroup
from producers.cgroup import Kind
from producers.source import NO_FACTS, Values

log = logging.getLogger(__name__)

_TURNS = 10


class Pods:
    """Number of running pods; None where there is no cgroup tree."""

    name = "pods"
    metrics = ("pods",)
    path = None
    optional = False
    facts = NO_FACTS

    def __init__(self, root: Path, proc: Path) -> None:
        self._root = root
        self._proc = proc
        self._trees: list[Tree] = []
        self._absent = False

    def measure(self, content: bytes, now: float) -> Values:  # noqa: ARG002 - a level, from a tree
        """Count."""
        count = self._census()
        return (None if count is None else float(count),)

    def _census(self) -> int | None:
        """Walk the first tree, and keep the one first that has containers."""
        if not self._trees or not self._trees[0].path.is_dir():
            self._trees = [Tree(path, self._proc) for path in cgroup.trees(self._root)]
            if not self._trees and not self._absent:
                log.warning("source.absent", extra={"source": self.name, "reason": f"no cgroups in {self._root}"})
            self._absent = not self._trees
        for position, tree in enumerate(self._trees):
            if count := tree.count():
                self._trees.insert(0, self._trees.pop(position))
                return count
        return None if self._absent else 0


class Tree:
    """One cgroup tree and what is known of it from the walks before."""

    def __init__(self, path: Path, proc: Path) -> None:
        self.path = path
        self._proc = proc
        self._turn = 0
        self._verdicts: dict[str, tuple[int, bool]] = {}
        self._dead: set[str] = set()

    def count(self) -> int:
        """Walk the tree; return how many pods, and containers outside of pods, run."""
        if not cgroup.children(self.path):  # nobody has made a cgroup in this hierarchy: one `stat`, no walk
            return 0
        running: list[str] = []
        strays: dict[str, list[str]] = {}
        verdicts: dict[str, tuple[int, bool]] = {}
        for kind, entry in cgroup.found(self.path):
            if kind is Kind.CONTAINER:
                running.append(entry.path)
            elif kind is Kind.STRAY:
                strays.setdefault(entry.name.partition(":")[0], []).append(entry.path)
            else:
                verdict = self._judge(entry)
                verdicts[entry.path] = verdict
                if verdict[1]:
                    running.append(entry.path)
        running += [
            paths[0] for paths in strays.values() if len(paths) > 1 or cgroup.is_pause(paths[0], self._proc) is False
        ]
        self._verdicts = verdicts
        return len(running) - self._count_dead(running)

    def _judge(self, pod: os.DirEntry[str]) -> tuple[int, bool]:
        """Say with how many children (-1: look again the next time) a pod was judged, and whether it runs."""
        children = cgroup.children(pod)
        known = self._verdicts.get(pod.path)
        if known and known[0] == children >= 0:
            return known
        containers = [
            entry.path for entry in cgroup.directories(pod.path) if cgroup.parse(entry.name) is Kind.CONTAINER
        ]
        if len(containers) != 1:
            return children, len(containers) > 1  # a pause container never comes twice
        pause = cgroup.is_pause(containers[0], self._proc)
        return (-1 if pause is None else children), pause is False

    def _count_dead(self, running: list[str]) -> int:
        self._turn = (self._turn + 1) % _TURNS
        for path in running[self._turn :: _TURNS]:
            if cgroup.is_populated(path):
                self._dead.discard(path)
            else:
                self._dead.add(path)
        self._dead.intersection_update(running)
        return len(self._dead)
