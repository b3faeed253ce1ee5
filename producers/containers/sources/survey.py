"""Which container sources this machine offers, and which of them settings choose.

`auto` takes all that are there, since each knows something first: `bundle` who a container is before it runs,
`cgroup` within a few milliseconds that it has ended, `docker` what it is called. `containerd` tells what `bundle`
does for ten times the price, so it stands in for it only.
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


@dataclass(frozen=True, slots=True)
class Candidate:
    """One source as this machine has it.

    Attributes:
        name: Its name in settings.
        state: Whether it can be used; absent: nobody made what it follows; refused: it is there, but not for us.
        wanted: Whether settings want it, as the other sources are.
        named: Whether settings name it.
        found: What is there, or why it cannot be used.
        gives: What it tells.
        mend: How to make it usable, and what that takes; empty if it is.
    """

    name: str
    state: State
    wanted: bool
    named: bool
    found: str
    gives: str
    mend: str


_GIVES: Mapping[str, str] = {
    "cgroup": "every container from before it runs to its end, by its id and its pod's",
    "bundle": "who a container of containerd is, before it runs",
    "docker": "names, images, labels and Compose services of Docker's containers",
    "containerd": "names, images and labels of containerd's containers",
}
_MEND: Mapping[str, str] = {
    "cgroup": "mount the host's cgroup tree and name it with --sample-cgroup; it needs no privilege",
    "bundle": "run as root (no capability is needed); in a container mount the folder of the host; "
    "if it is another, name it with --runtime-bundles",
    "docker": "start the daemon, run in the group of its socket (as good as root), in a container mount it from the "
    "host; if it is another, name it with --runtime-docker-socket",
    "containerd": "start the daemon, run as root, in a container mount its socket from the host; "
    "if it is another, name it with --runtime-containerd-socket",
}


def explain(settings: Settings) -> list[Candidate]:
    """Look at every source that there is and say what becomes of it."""
    looked = {name: look(name, settings) for name in CONTAINER_SOURCES}
    candidates = []
    for name, (state, found) in looked.items():
        named = name in settings.containers
        auto = settings.containers == ("auto",) and not (name == "containerd" and looked["bundle"][0] == "usable")
        cure = "" if state == "usable" else mend(name, found)
        candidates.append(Candidate(name, state, named or auto, named, found, _GIVES[name], cure))
    return candidates


def look(name: str, settings: Settings) -> tuple[State, str]:
    """Say whether a source can be used right now, and what was found; nothing waits and nothing is changed."""
    looks: Mapping[str, Callable[[], tuple[State, str]]] = {
        "cgroup": lambda: _tree(settings.sample.cgroup),
        "bundle": lambda: _folders(settings.runtime.bundles),
        "docker": lambda: _socket(settings.runtime.docker_socket),
        "containerd": lambda: _grpc(settings.runtime.containerd_socket),
    }
    return looks[name]()


def mend(name: str, found: str) -> str:
    """Return how to make a source usable, by what was found of it."""
    return found.partition(": ")[2] if found.startswith("grpcio") else _MEND[name]


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


def _socket(path: Path) -> tuple[State, str]:
    with socket.socket(socket.AF_UNIX) as link:
        link.setblocking(False)
        try:
            link.connect(str(path))
        except (FileNotFoundError, NotADirectoryError):
            return "absent", f"no socket {path}"
        except OSError as error:
            if error.errno != errno.EAGAIN:  # so busy that others wait in line
                return "refused", f"{path} cannot be reached: {error.strerror or error}"
    return "usable", str(path)


def _grpc(path: Path) -> tuple[State, str]:
    state, found = _socket(path)
    if state == "usable" and util.find_spec("grpc") is None:
        return "refused", "grpcio is not installed: pip install 'spazio[containerd]'"
    return state, found
