"""How many pods run on the node, from its cgroup tree, whatever runtime made them.

A pod's cgroup that holds a container beside its pause container counts one, a container outside any pod counts one.
Both are known by their names: `pod<uid>` below `kubepods` (or `kubepods-...-pod<uid>.slice`), `libpod_pod_<id>`,
and 64 hexadecimal digits, alone (cgroupfs driver) or as in `docker-<id>.scope`, `cri-containerd-<id>.scope`,
`crio-<id>.scope`, `libpod-<id>.scope` (systemd driver). Monitors (`conmon`) are no containers. Nothing below a
container is looked at: what runs inside kind or docker-in-docker is one container to its host, while an agent
inside it sees the pods there. An agent that sees only its own cgroup namespace counts nothing: mount the host's.

The tree is walked once a second. That a directory exists stands for a living container, since runtimes remove it
within 30 ms of the exit; a tenth of them is looked into at each walk, so that what a killed runtime left behind is
no longer counted after ten seconds. The link count of a cgroup directory is 2 + its children, which tells leaves,
and pods that have not changed, for the price of one `stat`.
"""

import enum
import logging
import os
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from producers.source import NO_FACTS, Values

log = logging.getLogger(__name__)

_TURNS = 10

_UID = r"[0-9a-f][0-9a-f_-]{31,35}"
_ID = r"[0-9a-f]{64}"
_POD = re.compile(rf"(?:.+-)?pod{_UID}(?:\.slice)?|(?:.+-)?libpod_pod_{_ID}(?:\.slice)?")
_CONTAINER = re.compile(rf"(?:.*[-:])?{_ID}(?:\.scope)?")
_STRAY = re.compile(rf"(?:.+-)?pod{_UID}(?:\.slice)?:.*{_ID}")
_V1_TREES = ("pids", "memory", "cpu", "cpu,cpuacct", "systemd")
_PAUSE = (b"pause\n", b"catatonit\n")  # of Kubernetes, of podman's pods


class Kind(enum.Enum):
    """What a directory is, by its name.

    A stray is a container of a pod that lies outside the pod's directory, with the pod's name in its own: what a
    runtime makes of a systemd path when it was told to use cgroupfs.
    """

    POD = enum.auto()
    CONTAINER = enum.auto()
    STRAY = enum.auto()
    GROUP = enum.auto()
    OTHER = enum.auto()


@lru_cache(maxsize=4096)  # more than a node has cgroups; names come again every second
def parse(name: str) -> Kind:
    """Return what a directory of this name is.

    >>> parse("docker-" + 64 * "a" + ".scope").name, parse("kubepods.slice").name, parse("tmp.mount").name
    ('CONTAINER', 'GROUP', 'OTHER')
    """
    if _POD.fullmatch(name):
        return Kind.POD
    if _STRAY.fullmatch(name):
        return Kind.STRAY
    if _CONTAINER.fullmatch(name):
        return Kind.OTHER if "conmon-" in name else Kind.CONTAINER
    return Kind.OTHER if name.endswith((".mount", ".socket", ".swap")) else Kind.GROUP


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
            self._trees = [Tree(path, self._proc) for path in trees(self._root)]
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
        if not _children(self.path):  # nobody has made a cgroup in this hierarchy: one `stat`, no walk
            return 0
        running: list[str] = []
        strays: dict[str, list[str]] = {}
        verdicts: dict[str, tuple[int, bool]] = {}
        for kind, entry in _found(self.path):
            if kind is Kind.CONTAINER:
                running.append(entry.path)
            elif kind is Kind.STRAY:
                strays.setdefault(entry.name.partition(":")[0], []).append(entry.path)
            else:
                verdict = self._judge(entry)
                verdicts[entry.path] = verdict
                if verdict[1]:
                    running.append(entry.path)
        running += [paths[0] for paths in strays.values() if len(paths) > 1 or is_pause(paths[0], self._proc) is False]
        self._verdicts = verdicts
        return len(running) - self._count_dead(running)

    def _judge(self, pod: os.DirEntry[str]) -> tuple[int, bool]:
        """Say with how many children (-1: look again the next time) a pod was judged, and whether it runs."""
        children = _children(pod)
        known = self._verdicts.get(pod.path)
        if known and known[0] == children >= 0:
            return known
        containers = [entry.path for entry in _directories(pod.path) if parse(entry.name) is Kind.CONTAINER]
        if len(containers) != 1:
            return children, len(containers) > 1  # a pause container never comes twice
        pause = is_pause(containers[0], self._proc)
        return (-1 if pause is None else children), pause is False

    def _count_dead(self, running: list[str]) -> int:
        self._turn = (self._turn + 1) % _TURNS
        for path in running[self._turn :: _TURNS]:
            if is_populated(path):
                self._dead.discard(path)
            else:
                self._dead.add(path)
        self._dead.intersection_update(running)
        return len(self._dead)


def trees(root: Path) -> list[Path]:
    """Return the trees in which containers may be found, the better one first; none if nothing is mounted.

    Version 2 has one tree. Beside version 1's controllers there may be a `unified` one (hybrid), in which some
    runtimes put their containers and others do not. Of the controllers `pids` is the first choice: its count of
    processes is true also for a reader in another pid namespace, to whom `cgroup.procs` shows nothing.
    """
    if (root / "cgroup.controllers").exists():
        return [root]
    unified = [tree for tree in (root / "unified",) if tree.is_dir()]
    return unified + [tree for tree in map(root.joinpath, _V1_TREES) if tree.is_dir()][:1]


def is_pause(container: str, proc: Path) -> bool | None:
    """Say whether the only container of a pod is its pause container; None while it is being made.

    Its process tells, where it can be seen. Elsewhere the runtime decides: CRI-O does without a pause container
    unless the pod shares one pid namespace, all others always have one.
    """
    path = Path(container)
    try:
        pid = int((path / "cgroup.procs").read_bytes().split(None, 1)[0])
        command = (proc / f"{pid}" / "comm").read_bytes()
    except (OSError, ValueError, IndexError):
        return not path.name.startswith("crio-")
    return None if command.startswith(b"runc:") else command in _PAUSE


def is_populated(path: str) -> bool:
    """Say whether a process is in the cgroup or below it; a tree that does not tell is believed."""
    for name, empty in (("cgroup.events", b"populated 0"), ("pids.current", b"0\n")):
        try:
            return not Path(path, name).read_bytes().startswith(empty)
        except OSError:
            continue
    return True


def _found(tree: Path) -> Iterator[tuple[Kind, os.DirEntry[str]]]:
    """Yield the pods and containers below a directory, but nothing below those."""
    pending = [str(tree)]
    while pending:
        for entry in _directories(pending.pop()):
            kind = parse(entry.name)
            if kind is Kind.GROUP:
                if _children(entry):
                    pending.append(entry.path)
            elif kind is not Kind.OTHER:
                yield kind, entry


def _directories(path: str) -> list[os.DirEntry[str]]:
    """Return the child cgroups; none where the directory has gone or is closed to us."""
    try:
        with os.scandir(path) as entries:
            return [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


def _children(entry: os.DirEntry[str] | Path) -> int:
    """Return the number of child cgroups; -1 where the file system does not tell (btrfs, merged overlays)."""
    try:
        links = entry.stat(follow_symlinks=False).st_nlink
    except FileNotFoundError:
        return 0
    return links - 2 if links >= 2 else -1
