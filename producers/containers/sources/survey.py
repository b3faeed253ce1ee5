"""Container sources that are available on this machine, and which of them settings select.

`auto` selects all available ones, since each is the first to know something: `bundle` the identity of a container
before it runs, `cgroup` its end within a few milliseconds, `docker` its name. `containerd` provides the same as
`bundle` at ten times the cost, so `auto` uses it only without `bundle`.

A socket is tried by a connection, which starts Docker where systemd listens for it. `auto` does not do that: systemd's
units have control groups while they are active, so it sees that `docker.socket` waits and `docker.service` does not
run. Podman's service always starts at a connection, and so is used.
"""

import errno
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from typing import Literal

from producers.pods import cgroup
from schemas.sections.measurement import CONTAINER_SOURCES
from schemas.settings import Settings

State = Literal["usable", "absent", "refused"]

_DOCKER_SOCKETS = (Path("/var/run/docker.sock"), Path("/run/docker.sock"))  # of systemd's unit docker.socket


@dataclass(frozen=True, slots=True)
class Candidate:
    """Availability of one source on this machine.

    Attributes:
        name: Its name in settings.
        state: Whether it is usable; absent: its files do not exist; refused: they exist, but are not accessible.
        wanted: Whether settings select it, given the other sources.
        named: Whether settings name it.
        detail: What is available, or why it is not usable.
        gives: What it reports.
        remedy: How to make it usable, and what that requires; empty if it is.
    """

    name: str
    state: State
    wanted: bool
    named: bool
    detail: str
    gives: str
    remedy: str


_GIVES: Mapping[str, str] = {
    "cgroup": "every container from before it runs to its end, by its id and its pod's",
    "bundle": "who a container of containerd is, before it runs",
    "docker": "names, images, labels and Compose services of Docker's containers",
    "containerd": "names, images and labels of containerd's containers",
}
_REMEDIES: Mapping[str, str] = {
    "cgroup": "mount the host's cgroup tree and name it with --sample-cgroup; it needs no privilege",
    "bundle": "run as root (no capability is needed); in a container mount the folder of the host; "
    "if it is another, name it with --runtime-bundles",
    "docker": "start the daemon, run in the group of its socket (as good as root), in a container mount it from the "
    "host; if it is another, name it with --runtime-docker-socket",
    "containerd": "start the daemon, run as root, in a container mount its socket from the host; "
    "if it is another, name it with --runtime-containerd-socket",
}


def explain(settings: Settings) -> list[Candidate]:
    """Return the availability and selection of every source."""
    states = {name: inspect(name, settings) for name in CONTAINER_SOURCES}
    candidates = []
    for name, (state, finding) in states.items():
        named = name in settings.containers
        auto = settings.containers == ("auto",) and not (name == "containerd" and states["bundle"][0] == "usable")
        advice = "" if state == "usable" else remedy(name, finding)
        candidates.append(Candidate(name, state, named or auto, named, finding, _GIVES[name], advice))
    return candidates


def inspect(name: str, settings: Settings) -> tuple[State, str]:
    """Return whether a source is usable now, and a description; does not wait, and changes nothing."""
    inspections: Mapping[str, Callable[[], tuple[State, str]]] = {
        "cgroup": lambda: _tree(settings.sample.cgroup),
        "bundle": lambda: _folders(settings.runtime.bundles),
        "docker": lambda: _docker(settings),
        "containerd": lambda: _grpc(settings.runtime.containerd_socket),
    }
    return inspections[name]()


def remedy(name: str, finding: str) -> str:
    """Return how to make a source usable, given its description from `inspect`."""
    return finding.partition(": ")[2] if finding.startswith("grpcio") else _REMEDIES[name]


def _tree(root: Path) -> tuple[State, str]:
    trees = cgroup.trees(root)
    if not trees:
        return "absent", f"no cgroup tree in {root}"
    return "usable", " and ".join(map(str, trees))


def _folders(folders: tuple[Path, ...]) -> tuple[State, str]:
    refused = []
    for folder in folders:
        try:
            os.scandir(folder).close()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            refused.append(f"{folder} cannot be read: {error.strerror}")
        else:
            return "usable", str(folder)
    return ("refused", refused[0]) if refused else ("absent", f"no folder {' or '.join(map(str, folders))}")


def _docker(settings: Settings) -> tuple[State, str]:
    path = settings.runtime.docker_socket
    is_free = settings.containers == ("auto",) and path in _DOCKER_SOCKETS and path.exists()
    if is_free and _is_asleep(settings.sample.cgroup):
        return "absent", f"{path} is docker.socket's, and docker.service does not run"
    return _socket(path)


def _is_asleep(root: Path) -> bool:
    """Return whether systemd listens for Docker, and a connection would start it."""
    slices = [tree / "system.slice" for tree in cgroup.trees(root)]
    return any((units / "docker.socket").is_dir() for units in slices) and not any(
        (units / "docker.service").is_dir() for units in slices
    )


def _socket(path: Path) -> tuple[State, str]:
    try:
        os.stat(path)  # noqa: PTH116 - every second, and mostly it is absent; a socket would cost five times as much
        with socket.socket(socket.AF_UNIX) as link:
            link.setblocking(False)
            link.connect(str(path))
    except (FileNotFoundError, NotADirectoryError):
        return "absent", f"no socket {path}"
    except OSError as error:
        if error.errno != errno.EAGAIN:  # its queue of connections is full
            return "refused", f"{path} cannot be reached: {error.strerror or error}"
    return "usable", str(path)


def _grpc(path: Path) -> tuple[State, str]:
    state, finding = _socket(path)
    if state == "usable" and util.find_spec("grpc") is None:
        return "refused", "grpcio is not installed: pip install '.[containerd]' in a checkout"
    return state, finding
