"""The cgroup tree: identify the directories of pods and containers of every runtime and driver.

Names identify both: `pod<uid>` below `kubepods` (or `kubepods-...-pod<uid>.slice`), `libpod_pod_<id>`,
and 64 hexadecimal digits, alone (cgroupfs driver) or as in `docker-<id>.scope`, `cri-containerd-<id>.scope`,
`crio-<id>.scope`, `libpod-<id>.scope` (systemd driver). `kata_<id>` in a pod's directory is its virtual machine; what
serves that outside (`kata_overhead`, once `vc`) and monitors (`conmon`) are not containers. Directories below a
container are ignored: kind or docker-in-docker is one container to its host, while an agent inside it sees the pods
there.
"""

import enum
import os
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

_UID = r"[0-9a-f][0-9a-f_-]{31,35}"
_ID = r"[0-9a-f]{64}"
_POD = re.compile(rf"(?:.+-)?pod{_UID}(?:\.slice)?|(?:.+-)?libpod_pod_{_ID}(?:\.slice)?")
_CONTAINER = re.compile(rf"(?:.*[-:]|kata_)?{_ID}(?:\.scope)?")
_STRAY = re.compile(rf"(?:.+-)?pod{_UID}(?:\.slice)?:.*{_ID}")
_POD_UID = re.compile(rf"pod_?({_ID}|{_UID})$")
_V1_TREES = ("pids", "memory", "cpu", "cpu,cpuacct", "systemd")
_OVERHEAD = ("kata_overhead", "vc")  # of Kata Containers
_PAUSE = (b"pause\n", b"catatonit\n")  # of Kubernetes, of podman's pods


class Kind(enum.Enum):
    """Kind of a directory, by its name.

    A stray is a container of a pod outside the pod's directory, with the pod's name in its own: a runtime with the
    cgroupfs driver makes one from a systemd path.
    """

    POD = enum.auto()
    CONTAINER = enum.auto()
    STRAY = enum.auto()
    GROUP = enum.auto()
    OTHER = enum.auto()


@lru_cache(maxsize=4096)  # more than a node's cgroups; names recur every second
def parse(name: str) -> Kind:
    """Return the kind of a directory of this name.

    >>> parse("docker-" + 64 * "a" + ".scope").name, parse("kubepods.slice").name, parse("tmp.mount").name
    ('CONTAINER', 'GROUP', 'OTHER')
    """
    if _POD.fullmatch(name):
        return Kind.POD
    if _STRAY.fullmatch(name):
        return Kind.STRAY
    if _CONTAINER.fullmatch(name):
        return Kind.OTHER if "conmon-" in name else Kind.CONTAINER
    return Kind.OTHER if name in _OVERHEAD or name.endswith((".mount", ".socket", ".swap")) else Kind.GROUP


def container_id(name: str) -> str | None:
    """Return the runtime's id of the container whose cgroup has this name; None: it is not a container's.

    >>> container_id("cri-containerd-" + 64 * "a" + ".scope") == 64 * "a", container_id("kubepods.slice")
    (True, None)
    """
    if parse(name) not in (Kind.CONTAINER, Kind.STRAY):
        return None
    return name.removesuffix(".scope")[-64:]


def pod_uid(name: str) -> str | None:
    """Return the UID of the pod whose cgroup has this name, as the API server writes it; None: it is not a pod's.

    >>> pod_uid("kubepods-burstable-pod0a1b2c3d_0000_4000_8000_00000000000f.slice")
    '0a1b2c3d-0000-4000-8000-00000000000f'
    """
    kind = parse(name)
    if kind is Kind.STRAY:
        name = name.partition(":")[0]
    elif kind is not Kind.POD:
        return None
    match = _POD_UID.search(name.removesuffix(".slice"))
    return match[1].replace("_", "-") if match else None


def is_uid(key: str) -> bool:
    """Tell whether the key of a pod is the UID of one that a kubelet runs, and not the id of a container or of podman.

    >>> is_uid("0a1b2c3d-0000-4000-8000-00000000000f"), is_uid(64 * "a")
    (True, False)
    """
    return re.fullmatch(_ID, key) is None


def trees(root: Path) -> list[Path]:
    """Return the trees that may contain containers, the preferred one first; empty if none is mounted.

    Version 2 has one tree. A hybrid host has a `unified` tree in addition to version 1's controllers, which some
    runtimes use and others do not. Of the controllers `pids` is the first choice: its count of processes is also
    correct in another pid namespace, where `cgroup.procs` is empty.
    """
    if (root / "cgroup.controllers").exists():
        return [root]
    version_1 = next((tree for tree in map(root.joinpath, _V1_TREES) if tree.is_dir()), None)
    unified = root / "unified" if (root / "unified").is_dir() else None
    return [tree for tree in (unified, version_1) if tree is not None]


def is_pause(container: str, proc: Path) -> bool | None:
    """Return whether the only container of a pod is its pause container; None while it is being made.

    The process decides if it is visible. Otherwise the runtime decides: CRI-O has no pause container unless the pod
    shares one pid namespace, and Kata Containers a virtual machine; all other runtimes always have one.
    """
    try:
        return is_pausing(container, proc)
    except (OSError, ValueError, IndexError):
        return not Path(container).name.startswith(("crio-", "kata_"))


def is_pausing(container: str, proc: Path) -> bool | None:
    """Return whether a container's first process is that of a pause container; None while it is being made.

    Raises:
        OSError: Its processes are not visible; also ValueError, IndexError.
    """
    pid = int(_processes(container).split(None, 1)[0])
    command = (proc / f"{pid}" / "comm").read_bytes()
    return None if command.startswith(b"runc:") else command in _PAUSE


def _processes(container: str) -> bytes:
    """Return the processes of a container: crun puts them in a cgroup below, as does systemd in a container."""
    processes = Path(container, "cgroup.procs").read_bytes()
    inner = () if processes else directories(container)
    return processes or next(filter(None, (Path(each.path, "cgroup.procs").read_bytes() for each in inner)), b"")


def is_populated(path: str) -> bool:
    """Return whether the cgroup or one below it has a process; true if unknown."""
    return populated(path) is not False


def populated(path: str) -> bool | None:
    """Return whether the cgroup or one below it has a process; None: the cgroup is gone.

    `pids.current` also counts processes that are not visible in `cgroup.procs` from another pid namespace. Only the
    latter leaves out what is below, as the containers of a pod where version 1 has no controller `pids`.
    """
    for name, empty in (("cgroup.events", b"populated 0"), ("pids.current", b"0\n"), ("cgroup.procs", b"")):
        try:
            with open(f"{path}/{name}", "rb", buffering=0) as file:  # noqa: PTH123 - a third of the time of Path's
                content = file.read()
        except OSError:
            continue
        if empty:
            return not content.startswith(empty)
        return bool(content) or any(populated(each.path) for each in directories(path))
    return True if Path(path).is_dir() else None


def walk(tree: Path) -> Iterator[tuple[Kind, os.DirEntry[str]]]:
    """Yield the pods and containers below a directory, without directories below those."""
    pending = [str(tree)]
    while pending:
        for entry in directories(pending.pop()):
            kind = parse(entry.name)
            if kind is Kind.GROUP:
                if children(entry):
                    pending.append(entry.path)
            elif kind is not Kind.OTHER:
                yield kind, entry


def directories(path: str) -> list[os.DirEntry[str]]:
    """Return the child cgroups; empty if the directory is gone or not readable."""
    try:
        with os.scandir(path) as entries:
            return [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


def children(entry: os.DirEntry[str] | Path) -> int:
    """Return the number of child cgroups; -1 if the file system does not count them (btrfs, merged overlays)."""
    try:
        links = entry.stat(follow_symlinks=False).st_nlink
    except FileNotFoundError:
        return 0
    return links - 2 if links >= 2 else -1
