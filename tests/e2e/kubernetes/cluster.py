"""What makes the control plane a cluster: a real kube-scheduler, set up as users set it up, and KWOK's kubelets."""

import os
import re
import ssl
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from bus import server
from tests.e2e.kubernetes import control_plane as lab
from tests.e2e.kubernetes.control_plane import ControlPlane
from tests.support.server.program import Program

SCHEDULER_CONFIG = Path(__file__).parents[3] / "deploy" / "kube-scheduler.yaml"
_KWOK_CONFIG = Path(__file__).with_name("kwok.yaml")


def missing(*more: str) -> str:
    """Say why there is no cluster here, or not these programs beside it; empty: there are."""
    return lab.missing("etcd", "kube-apiserver", "kube-scheduler", "kwok", *more)


def scheduler_config(plane: ControlPlane, extender: str, *, ignorable: bool = False) -> str:
    """Return the configuration that users are given, with the addresses of this machine."""
    content = SCHEDULER_CONFIG.read_text()
    content = re.sub(r"(?m)^(  kubeconfig: ).*$", rf"\g<1>{plane.kubeconfig()}", content)
    content = re.sub(r"(?m)^(  - urlPrefix: ).*$", rf"\g<1>{extender}", content)
    return re.sub(r"(?m)^(    ignorable: ).*$", rf"\g<1>{str(ignorable).lower()}", content)


class Component(Program):
    """A program of a cluster, to be killed and started again."""

    def __init__(self, name: str, arguments: Sequence[str], folder: Path, healthy: str, **environ: str) -> None:
        """Describe it.

        Args:
            name: Of the program.
            arguments: Its flags.
            folder: For its log.
            healthy: Address that answers once it is up.
            environ: More of its environment.
        """
        environ = {"PATH": os.environ["PATH"], **environ}
        super().__init__([str(lab.PROGRAMS / name), *arguments], folder / f"{name}.log", environ)
        self._healthy = healthy

    def start(self) -> None:
        """Start it and wait until it is healthy."""
        super().start()
        context = ssl._create_unverified_context() if self._healthy.startswith("https") else None
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self.alive:
            try:
                urllib.request.urlopen(self._healthy, timeout=2, context=context).close()
            except OSError:
                time.sleep(0.1)
            else:
                return
        raise AssertionError(self.log.read_text()[-4000:])


def scheduler(plane: ControlPlane, config: str) -> Component:
    """Return a kube-scheduler with this configuration."""
    path, port = plane.folder / "kube-scheduler.yaml", server.free_port(0)
    path.write_text(config)
    return Component(
        "kube-scheduler",
        [
            f"--config={path}", "--bind-address=127.0.0.1", f"--secure-port={port}",
            f"--cert-dir={plane.folder / 'scheduler-certificates'}", "--leader-elect=false",
            "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics", "--v=2",
        ],
        plane.folder,
        f"https://127.0.0.1:{port}/readyz",
    )  # fmt: skip


def kwok(plane: ControlPlane) -> Component:
    """Return kubelets for all nodes."""
    port = server.free_port(0)
    return Component(
        "kwok",
        [
            f"--kubeconfig={plane.kubeconfig()}", f"--config={_KWOK_CONFIG}", "--manage-all-nodes=true",
            "--node-ip=127.0.0.1", f"--server-address=127.0.0.1:{port}", "--node-lease-duration-seconds=0",
        ],
        plane.folder,
        f"http://127.0.0.1:{port}/healthz",
    )  # fmt: skip
