"""A cluster that kwokctl makes, in a home of its own, for pages whose commands are typed as a reader types them."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.kubernetes.control_plane import PROGRAMS, missing
from tests.support.project.documents import ROOT

MISSING = missing("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok", "kwokctl")
NAME = "spazio"
# What kwokctl looks for elsewhere.
BUILT = {
    "KWOK_KUBE_BINARY_PREFIX": str(PROGRAMS),
    "KWOK_ETCD_BINARY": str(PROGRAMS / "etcd"),
    "KWOK_CONTROLLER_BINARY": str(PROGRAMS / "kwok"),
}


@contextmanager
def home(folder: Path, **programs: str) -> Iterator[Path]:
    """Make a folder with `spazio` and other programs in `bin`, and delete the cluster at the end.

    Args:
        folder: It.
        programs: Shell scripts by name.
    """
    (folder / "bin").mkdir()
    scripts = {"spazio": f'exec {shlex.quote(sys.executable)} -m spazio "$@"', **programs}
    for name, script in scripts.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / "bin" / name).chmod(0o755)
    yield folder
    delete = [str(PROGRAMS / "kwokctl"), "delete", "cluster", "--name", NAME]
    subprocess.run(delete, env=environment(folder), capture_output=True, check=False)


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Return the environment of a reader at home in a folder."""
    own = {key: value for key, value in os.environ.items() if not key.startswith(("KWOK_", "KUBECONFIG", "SPAZIO_"))}
    return own | {"HOME": str(folder), "PATH": f"{folder / 'bin'}:{own['PATH']}", "PYTHONPATH": str(ROOT)} | more
