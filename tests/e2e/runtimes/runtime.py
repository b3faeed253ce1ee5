"""A private dockerd for tests: real containers without a network, and nothing of it left behind.

Everything lies in one folder of a short name (a socket's path has at most 107 bytes), which also tells which
processes, mounts and control groups are ours when something has to be cleared away.
"""

import contextlib
import hashlib
import http.client
import io
import json
import os
import shutil
import socket
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGCONT, SIGKILL
from typing import Any
from urllib.parse import quote

import pytest

from tests.e2e.pipeline import alive, until
from tests.support.server.program import Program

CGROUPS = Path("/sys/fs/cgroup")
NETWORKS = Path("/sys/class/net")


def require(*programs: str) -> None:
    """Skip the test where it cannot run: without root, or without a program."""
    if os.geteuid() != 0:
        pytest.skip("a container runtime of one's own needs root")
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


def compile_tick(folder: Path) -> Path:
    """Build the program that containers run; linked statically, since their image has nothing else."""
    program = folder / "tick"
    compiler = next(filter(None, map(shutil.which, ("gcc", "cc", "musl-gcc"))), None)
    if compiler is None:
        pytest.skip("no C compiler, and so no program for the containers")
    source = Path(__file__).with_name("tick.c")
    subprocess.run([compiler, "-static", "-O2", "-o", str(program), str(source)], check=True)
    return program


def layer(program: Path) -> bytes:
    """Return the file system of an image as a tar: the program under both of its names, and a place for its notes."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name in ("tick", "pause"):
            tar.add(program, arcname=name)
        for name in ("out", "etc", "proc", "sys", "dev", "tmp"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(folder)
    return content.getvalue()


def archive(program: Path, tag: str, command: str) -> bytes:
    """Return an image as `docker save` writes it."""
    inner = layer(program)
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": [command]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(inner).hexdigest()}"]},
        }
    ).encode()
    manifest = json.dumps([{"Config": "config.json", "RepoTags": [tag], "Layers": ["layer.tar"]}]).encode()
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name, body in (("config.json", config), ("layer.tar", inner), ("manifest.json", manifest)):
            info = tarfile.TarInfo(name)
            info.size = len(body)
            tar.addfile(info, io.BytesIO(body))
    return content.getvalue()


@contextmanager
def short_folder() -> Iterator[Path]:
    """Make a folder whose path leaves room for sockets; everything below it is gone at the end."""
    folder = Path(tempfile.mkdtemp(prefix="spz-", dir="/tmp"))
    try:
        yield folder
    finally:
        clear(folder)


def clear(folder: Path) -> None:
    """End the processes that were started with a path below the folder, undo its mounts, and remove it."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            if f"{folder}/".encode() in (process / "cmdline").read_bytes() and int(process.name) != os.getpid():
                os.kill(int(process.name), SIGKILL)
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in sorted((mount for mount in mounts if mount.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "-l", mount], check=False)
    if (NETWORKS / folder.name).exists():
        subprocess.run(["ip", "link", "delete", folder.name], check=False)
    shutil.rmtree(folder, ignore_errors=True)


def bridge(name: str) -> str:
    """Return what to tell a Docker engine of bridges: one that is to have none removes `docker0`, whosever it is."""
    if not (NETWORKS / "docker0").exists():
        return "none"
    require("ip")
    address = f"198.18.{zlib.crc32(name.encode()) % 256}.1/24"  # of networks that are kept for tests
    for command in (["link", "add", name, "type", "bridge"], ["address", "add", address, "dev", name]):
        made = subprocess.run(["ip", *command], capture_output=True, check=False)
        if made.returncode:
            pytest.skip(f"docker0 is another engine's, and there is no making a bridge: {made.stderr.decode()}")
    return name


def remove_cgroups(name: str) -> None:
    """Remove the empty control groups of this name from all trees; what is not empty stays."""
    for tree in (CGROUPS, *(path for path in CGROUPS.iterdir() if path.is_dir() and not path.is_symlink())):
        for top, _, _ in os.walk(tree / name, topdown=False):
            with contextlib.suppress(OSError):
                Path(top).rmdir()


class Daemon(Program):
    """A container runtime."""

    def __init__(self, folder: Path, command: list[str]) -> None:
        super().__init__(command, folder / "daemon.log")
        self.folder = folder

    def is_up(self) -> bool:
        raise NotImplementedError

    def start(self) -> None:
        """Start it and wait until it answers; skips the test where it never does."""
        super().start()
        until(lambda: self.is_up() or not self.alive, 30, "a runtime")
        if not self.is_up():
            pytest.skip(f"{self.command[0]} does not come up here: {self.log.read_text()[-600:]}")


class _Link(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class Dockerd(Daemon):
    """A Docker engine with one image: `tick`."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "docker.sock"
        self.out = folder / "out"
        self.bundles = folder / "exec/containerd/daemon/io.containerd.runtime.v2.task"
        self.containerd = folder / "exec/containerd/containerd.sock"
        self.out.mkdir()
        options = {"data-root": folder / "root", "exec-root": folder / "exec", "pidfile": folder / "pid"}
        super().__init__(
            folder,
            [
                "dockerd",
                *(f"--{name}={value}" for name, value in options.items()),
                f"--host=unix://{self.socket}",
                "--iptables=false",
                "--ip6tables=false",
                f"--bridge={bridge(folder.name)}",
            ],
        )

    def is_up(self) -> bool:
        with contextlib.suppress(OSError):
            return self.ask("GET", "/_ping") == b"OK"
        return False

    def ask(self, method: str, target: str, body: Any = None) -> bytes:
        """Call the API; returns the body of the answer."""
        link = _Link(self.socket)
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        kind = "application/x-tar" if isinstance(body, bytes) else "application/json"
        try:
            link.request(method, target, content, {"Content-Type": kind})
            answer = link.getresponse()
            messages = answer.read()
        finally:
            link.close()
        if answer.status >= 400:
            raise RuntimeError(f"{method} {target}: {answer.status} {messages.decode()}")
        return messages

    def kill(self) -> None:
        """Kill it; its containers live on, and its containerd dies with it."""
        super().kill()
        note = self.folder / "exec/containerd/containerd.pid"
        # Where process 1 reaps nobody, a zombie with that pid makes the next dockerd wait for it in vain.
        until(lambda: not alive(int(note.read_text())), 5, "the end of its containerd")
        note.unlink()

    def load(self, program: Path) -> None:
        self.ask("POST", "/images/create?fromSrc=-&repo=tick&tag=1", layer(program))

    def create(self, *command: str, name: str = "", **labels: str) -> str:
        """Make a container that is not started; returns its id."""
        settings = {
            "Image": "tick:1",
            "Cmd": list(command),
            "Labels": labels,
            "HostConfig": {"NetworkMode": "none", "Binds": [f"{self.out}:/out"]},
        }
        answer = self.ask("POST", f"/containers/create?name={quote(name)}" if name else "/containers/create", settings)
        return str(json.loads(answer)["Id"])

    def start_container(self, container: str) -> None:
        self.ask("POST", f"/containers/{container}/start")

    def run(self, milliseconds: int, *, name: str = "", **labels: str) -> str:
        """Start a container that notes its times in a file of its own name or none, and sleeps in between."""
        container = self.create("/tick", f"/out/{name}" if name else "-", str(milliseconds), name=name, **labels)
        self.start_container(container)
        return container

    def wait(self, container: str) -> None:
        self.ask("POST", f"/containers/{container}/wait")

    def remove(self, container: str) -> None:
        with contextlib.suppress(RuntimeError):  # it may be gone already
            self.ask("DELETE", f"/containers/{container}?force=1")

    def running(self) -> set[str]:
        return {str(row["Id"]) for row in json.loads(self.ask("GET", "/containers/json"))}

    def remove_all(self) -> None:
        for row in json.loads(self.ask("GET", "/containers/json?all=1")):
            self.remove(row["Id"])


@contextmanager
def dockerd(program: Path | None = None) -> Iterator[Dockerd]:
    """Run a Docker engine of one's own, or skip the test where that cannot be."""
    require("dockerd", "containerd", "runc")
    with short_folder() as folder:
        engine = Dockerd(folder)
        engine.start()
        try:
            engine.load(program or compile_tick(folder))
            yield engine
        finally:
            with contextlib.suppress(Exception):
                engine.send(SIGCONT)
            with contextlib.suppress(Exception):
                engine.remove_all()
            with contextlib.suppress(Exception):
                engine.end()


class Times:
    """What a container noted of itself, in nanoseconds of CLOCK_BOOTTIME; None for what it has not come to."""

    def __init__(self, note: Path) -> None:
        words = [line.split() for line in note.read_text().splitlines()] if note.exists() else []
        result = {line[0]: int(line[2]) for line in words}
        self.began, self.ended = result.get("began"), result.get("ended")
