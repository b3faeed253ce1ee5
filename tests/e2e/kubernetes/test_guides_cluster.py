"""What the pages mark to be run in a cluster does what they say: one cluster for all, whose nodes KWOK plays.

Pods there run nothing. What a kubelet would be asked for is played, too: a log is a file, a forwarded port leads to a
page of the test, and a command in a container is one that does nothing.
"""

import functools
import http.server
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from bus import server
from tests.e2e import shell
from tests.e2e.kubernetes import kwokctl
from tests.e2e.kubernetes.control_plane import PROGRAMS, missing
from tests.support.project import documents
from tests.support.project.documents import CURRENT, ROOT

RUN = "run in a cluster"
MISSING = kwokctl.MISSING or missing("helm")
INSTALL, GUIDE, HELM, OVERLAYS, BACKUP = (
    *("deploy/kubernetes/README.md", "docs/kubernetes.md"),
    *("deploy/helm/README.md", "deploy/kustomize/README.md", "docs/backup.md"),
)
NODE = "node-000000"
METRICS = "spazio_govern_pods 0\n"
# What a reader has, or puts in place of a word in capitals.
PROGRAMS_PLAYED = {
    "sleep": "exec /bin/sleep 0.5",
    "docker": "for image; do :; done; echo registry.example/${image%%:*}@sha256:$(printf %064d 0)",
    "nats-server": "exit 0",  # in a container
    "mv": 'case "$1" in /data/*) exit 0 ;; esac; exec /bin/mv "$@"',  # in a container
}


def blocks(page: str) -> list[str]:
    """Return what a page has to be typed in a cluster."""
    return [block.text for block in documents.blocks((ROOT / page).read_text()) if block.mark == RUN]


def played(folder: Path, port: int) -> str:
    """Return the configuration of kwokctl, with what its kubelets answer."""
    target = {"address": "127.0.0.1", "port": port}
    answers = {
        "ClusterLogs": {"logs": [{"logsFile": str(folder / "pod.log")}]},
        "ClusterPortForward": {"forwards": [{"target": target}]},
        "ClusterExec": {"execs": [{"local": {"workDir": str(folder)}}]},
    }
    (folder / "pod.log").write_text("2027-01-31T00:00:00.000000000Z stdout F governor.started\n")
    config = yaml.safe_load((ROOT / "deploy" / "kwok.yaml").read_text())
    # kube-apiserver's proxy has an authority where kubeadm makes a cluster.
    authority = str(folder / ".kwok" / "clusters" / kwokctl.NAME / "pki" / "ca.crt")
    proxy = {"requestheader-client-ca-file": authority, "requestheader-allowed-names": "front-proxy"}
    arguments = [{"key": key, "value": value} for key, value in proxy.items()]
    config["componentsPatches"] = [{"name": "kube-apiserver", "extraArgs": arguments}]
    made = [
        {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": kind, "metadata": {"name": "all"}, "spec": spec}
        for kind, spec in answers.items()
    ]
    return str(yaml.safe_dump_all([config, *made]))


def volumes(count: int) -> str:
    """Return volumes for claims, which a cluster has."""
    spec = {
        "capacity": {"storage": "1Ti"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/none"},
        "persistentVolumeReclaimPolicy": "Retain",
    }  # fmt: skip
    items = [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"volume-{number}"}, "spec": spec}
        for number in range(count)
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A checkout at home, and a page that a forwarded port leads to."""
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "metrics").write_text(METRICS)
    (tmp_path / "volumes.json").write_text(volumes(20))
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path / "pages"))
    with (
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as pages,
        kwokctl.home(tmp_path, **PROGRAMS_PLAYED),
    ):
        (tmp_path / "kwok.yaml").write_text(played(tmp_path, pages.server_port))
        thread = threading.Thread(target=pages.serve_forever)
        thread.start()
        yield tmp_path
        pages.shutdown()
        thread.join()


def scripts() -> dict[str, str]:
    """Return what is typed, by what it is, in an order in which each finds what it needs."""
    *install, remove = blocks(INSTALL)
    small, routes, production, change = blocks(OVERLAYS)
    save, restore = blocks(BACKUP)
    again = "kubectl apply -f deploy/kubernetes/"
    return {
        "a cluster": f"""
            kwokctl create cluster --name {kwokctl.NAME} --config kwok.yaml --wait 90s
            kwokctl scale node --name {kwokctl.NAME} --replicas 3
            kubectl create -f volumes.json""",
        HELM: "\n".join(blocks(HELM)),
        "it is gone": "kubectl wait --for=delete namespace/spazio namespace/spazio-agents --timeout=60s",
        "an older Secret": """
            kubectl create namespace spazio-agents
            kubectl -n spazio-agents create secret generic spazio-node-credentials""",
        INSTALL: "\n".join(install),
        "what is saved": f"{again}; kubectl -n spazio rollout status deployment/spazio-history",
        BACKUP: save,
        "its node": """
            for name in history backup; do
              kubectl -n spazio get pods -l app.kubernetes.io/name=spazio-$name -o jsonpath='{..nodeName}{"\\n"}'
            done""",
        "a restore": restore,
        "a full cluster": f"{again}; kubectl taint nodes --all spazio.io/full:NoSchedule",
        GUIDE: "\n".join(blocks(GUIDE)),
        "the last section": remove,
        "small": small,
        "the servers' password": routes,
        "another overlay": change,
        "production": production,
    }


@pytest.mark.slow
@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_every_command_for_a_cluster_succeeds(folder: Path) -> None:
    port = str(server.free_port(0))
    typed = {what: text.replace("NAME", NODE).replace("9470", port) for what, text in scripts().items()}
    environ = kwokctl.environment(folder, **kwokctl.BUILT)
    environ["PATH"] = f"{folder / 'bin'}:{PROGRAMS}:/usr/bin:/bin"
    printed = dict(zip(typed, shell.typed(typed.values(), folder, environ, seconds=600), strict=True))
    assert "STATUS: deployed" in printed[HELM]
    assert "successfully rolled out" in printed[INSTALL]
    history, backup = printed["its node"].split()
    assert history == backup
    assert "governor.started" in printed[GUIDE]
    assert METRICS in printed[GUIDE]
    assert "registry.example/spazio@sha256:" in (folder / "deploy" / "kubernetes" / "extender.yaml").read_text()


def test_every_page_with_commands_for_a_cluster_is_in_the_order() -> None:
    pages = {documents.name(page) for page in CURRENT if blocks(documents.name(page))}
    assert pages == {INSTALL, GUIDE, HELM, OVERLAYS, BACKUP}
