"""A private containerd whose CRI plugin makes pods, driven as a kubelet drives it, without a kubelet.

Pods share the host's network, since there is no network plugin; the CRI is spoken in hand-made Protocol Buffers
(https://github.com/kubernetes/cri-api/blob/master/pkg/apis/runtime/v1/api.proto has the numbers).
"""

import contextlib
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from producers.containers.wire.protobuf import field, text
from tests.e2e.pipeline import until
from tests.e2e.runtimes.runtime import CGROUPS, Daemon, archive, compile_tick, remove_cgroups, require, short_folder

_CONFIG = """
version = 2
root = "{folder}/root"
state = "{folder}/state"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.tracing.processor.v1.otlp"]
[grpc]
address = "{folder}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "localhost/pause:1"
restrict_oom_score_adj = true
"""
_HOST = 2
_PARENT = "/kubepods/burstable"


def message(*parts: bytes) -> bytes:
    return b"".join(parts)


def pairs(number: int, content: Mapping[str, str]) -> bytes:
    """Return an encoded map."""
    return b"".join(field(number, field(1, key) + field(2, value)) for key, value in content.items())


class Pod:
    """A pod as its kubelet knows it."""

    def __init__(self, namespace: str, name: str, labels: Mapping[str, str]) -> None:
        self.uid, self.namespace, self.name = str(uuid.uuid4()), namespace, name
        self.sandbox = ""
        self.containers: list[str] = []
        self.labels = dict(labels)

    @property
    def identity(self) -> dict[str, str]:
        prefix = "io.kubernetes.pod."
        return {f"{prefix}name": self.name, f"{prefix}namespace": self.namespace, f"{prefix}uid": self.uid}

    @property
    def cgroup(self) -> str:
        return f"{_PARENT}/pod{self.uid}"

    @property
    def config(self) -> bytes:
        network = field(1, _HOST)
        return message(
            field(1, field(1, self.name) + field(2, self.uid) + field(3, self.namespace)),
            pairs(6, {**self.identity, **self.labels}),
            field(8, field(1, self.cgroup) + field(2, field(1, network))),
        )


class Containerd(Daemon):
    """A containerd with two images: `tick` and `pause`."""

    def __init__(self, folder: Path) -> None:
        grpc: Any = pytest.importorskip("grpc")
        self.socket, self.out = folder / "containerd.sock", folder / "out"
        self.bundles = folder / "state/io.containerd.runtime.v2.task"
        self.out.mkdir()
        (folder / "config.toml").write_text(_CONFIG.format(folder=folder))
        super().__init__(folder, ["containerd", "--config", str(folder / "config.toml")])
        self._channel = grpc.insecure_channel(f"unix://{self.socket}")
        self._refused: type[Exception] = grpc.RpcError
        self.pods: list[Pod] = []

    def is_up(self) -> bool:
        with contextlib.suppress(Exception):
            self.ask("Status", b"", 1)
            return True
        return False

    def ask(self, method: str, body: bytes, seconds: float = 30) -> bytes:
        call = self._channel.unary_unary(f"/runtime.v1.RuntimeService/{method}")
        answer: bytes = call(body, timeout=seconds)
        return answer

    def load(self, program: Path) -> None:
        for name in ("tick", "pause"):
            path = self.folder / f"{name}.tar"
            path.write_bytes(archive(program, f"localhost/{name}:1", f"/{name}"))
            command = ["ctr", "--address", str(self.socket), "--namespace", "k8s.io", "images", "import", str(path)]
            subprocess.run(command, check=True, capture_output=True)

    def pod(self, namespace: str, name: str, **labels: str) -> Pod:
        """Make a pod's control group, as its kubelet does, and run its sandbox."""
        pod = Pod(namespace, name, labels)
        tree = CGROUPS / "unified" if (CGROUPS / "unified").is_dir() else CGROUPS
        (tree / pod.cgroup.lstrip("/")).mkdir(parents=True)
        self.pods.append(pod)
        pod.sandbox = text(self.ask("RunPodSandbox", field(1, pod.config)), 1)
        return pod

    def create(self, pod: Pod, container_name: str, milliseconds: int, note: str = "") -> str:
        """Make a container of a pod that is not started; returns its id."""
        labels = {**pod.identity, "io.kubernetes.container.name": container_name}
        config = message(
            field(1, field(1, container_name)),
            field(2, field(1, "localhost/tick:1")),
            *(field(3, word) for word in ("/tick", f"/out/{note}" if note else "-", str(milliseconds))),
            field(7, field(1, "/out") + field(2, str(self.out))),
            pairs(9, labels),
            field(15, field(2, field(3, field(1, _HOST)))),
        )
        request = field(1, pod.sandbox) + field(2, config) + field(3, pod.config)
        container = text(self.ask("CreateContainer", request), 1)
        pod.containers.append(container)
        return container

    def start_container(self, container: str) -> None:
        self.ask("StartContainer", field(1, container))

    def run(self, pod: Pod, container_name: str, milliseconds: int, note: str = "") -> str:
        container = self.create(pod, container_name, milliseconds, note)
        self.start_container(container)
        return container

    def remove(self, pod: Pod) -> None:
        """Stop and remove a pod with its containers and its control group."""
        for container in pod.containers:
            self._insist("StopContainer", field(1, container) + field(2, 0))
            self._insist("RemoveContainer", field(1, container))
        if pod.sandbox:
            self._insist("StopPodSandbox", field(1, pod.sandbox))
            self._insist("RemovePodSandbox", field(1, pod.sandbox))
        remove_cgroups(pod.cgroup.lstrip("/"))
        self.pods.remove(pod)

    def _insist(self, method: str, body: bytes) -> None:
        """Ask again until it is done, as a kubelet does: a container that is just ending can neither stop nor go."""

        def done() -> bool:
            with contextlib.suppress(self._refused):
                self.ask(method, body)
                return True
            return False

        until(done, 30, method)

    def close(self) -> None:
        self._channel.close()


@contextmanager
def containerd(program: Path | None = None) -> Iterator[Containerd]:
    """Run a containerd with CRI of one's own, or skip the test where that cannot be."""
    require("containerd", "ctr", "runc")
    with short_folder() as folder:
        daemon = Containerd(folder)
        try:
            daemon.start()
            daemon.load(program or compile_tick(folder))
            yield daemon
        finally:
            for pod in list(daemon.pods):
                with contextlib.suppress(Exception):
                    daemon.remove(pod)
            with contextlib.suppress(Exception):
                daemon.end()
            daemon.close()
            for pod in daemon.pods:
                remove_cgroups(pod.cgroup.lstrip("/"))
