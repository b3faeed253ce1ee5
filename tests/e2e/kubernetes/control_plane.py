"""A real etcd and a real kube-apiserver for tests, and a client that speaks plain JSON with them.

No kubelet, no scheduler, no controllers: pods exist, and the tests play the rest, or has `cluster` play it.
"""

import asyncio
import base64
import json
import os
import re
import shutil
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import aiohttp

from bus import server

PROGRAMS = Path(__file__).parents[3] / ".tools" / "kube"
_ADMIN, _STRANGER, _NOBODY = "admin-token", "stranger-token", "wrong-token"
# Keys of objects that the API server makes by itself, some of them a moment after it is ready; it makes no pods.
_ITS_OWN = re.compile("^/registry/(namespaces/default$|masterleases/|(?!pods/).*(/kube-[a-z-]+(/|$)|/system[:-]))")


def missing(*programs: str) -> str:
    """Say why these programs, or those of a control plane, cannot be run here; empty: they can."""
    wanted = programs or ("etcd", "kube-apiserver")
    absent = [name for name in wanted if not (PROGRAMS / name).exists()]
    if absent and not shutil.which("go"):
        return f"no Go toolchain to build {' and '.join(absent)} with"
    return f"{', '.join(absent)} not built: run `make kube-tools`" if absent else ""


def _encoded(key: str) -> str:
    return base64.b64encode(key.encode()).decode()


class ControlPlane:
    """etcd and kube-apiserver on loopback, each to be killed and started again."""

    def __init__(self, folder: Path, *flags: str) -> None:
        """Describe it.

        Args:
            folder: For data, keys and logs.
            flags: More flags of the API server.
        """
        self.folder, self._flags = folder, flags
        self._etcd_port, self._peer_port, self._port = (server.free_port(0) for _ in range(3))
        self._etcd: subprocess.Popen[bytes] | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._key = folder / "service-account.key"
        self._first: set[str] = set()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Make keys, and start both."""
        self.folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["openssl", "genrsa", "-out", str(self._key), "2048"], check=True, capture_output=True)
        (self.folder / "tokens.csv").write_text(
            f'{_ADMIN},admin,1,"system:masters"\n{_STRANGER},stranger,2,""\n', encoding="ascii"
        )
        self.start_etcd()
        self.start_server()
        self._first, self._groups = self._objects(), self._ask("/apis")

    def clear(self) -> None:
        """Remove every object that came after the start, so that the next test finds it as the first one did.

        They go from etcd, whatever would keep them, and the API server learns of it as of any other change.
        """
        if self._server is None:
            self.start_server()
        for key in self._objects() - self._first:
            if not _ITS_OWN.search(key):
                self._gateway("kv/deleterange", {"key": _encoded(key)})
        deadline = time.monotonic() + 60
        while self._ask("/apis") != self._groups or any(self._cached(kind) for kind in ("nodes", "pods")):
            assert time.monotonic() < deadline, "the API server still has objects of the test before"
            time.sleep(0.1)

    def stop(self) -> None:
        """Kill both."""
        self.kill_server()
        if self._etcd is not None:
            self._etcd.kill()
            self._etcd.wait()

    def start_etcd(self) -> None:
        client, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{self._peer_port}"
        self._etcd = self._run(
            "etcd", "--name=one", f"--data-dir={self.folder / 'etcd'}", f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=one={peer}", "--unsafe-no-fsync",
        )  # fmt: skip

    def start_server(self) -> None:
        """Start the API server and wait until it is ready."""
        self._server = self._run(
            "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{self._etcd_port}", "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1", f"--secure-port={self._port}",
            f"--cert-dir={self.folder / 'certificates'}", f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self._key}", f"--service-account-signing-key-file={self._key}",
            "--disable-admission-plugins=ServiceAccount", "--endpoint-reconciler-type=none",
            "--max-requests-inflight=0", "--max-mutating-requests-inflight=0", "--enable-priority-and-fairness=false",
            *self._flags,
        )  # fmt: skip
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            if self._server.poll() is not None:
                break
            try:
                self._ask("/readyz")
            except OSError:
                time.sleep(0.2)
            else:
                return
        raise AssertionError((self.folder / "kube-apiserver.log").read_text()[-4000:])

    def kill_server(self) -> None:
        if self._server is not None:
            self._server.kill()
            self._server.wait()
            self._server = None

    def compact(self) -> int:
        """Make etcd forget everything but the present; returns its revision."""
        present = int(self._gateway("kv/range", {"key": _encoded("x")})["header"]["revision"])
        self._gateway("kv/compaction", {"revision": str(present), "physical": True})
        return present

    def kubeconfig(self, *, token: str = _ADMIN) -> Path:
        """Write a kubeconfig for a token."""
        path = self.folder / f"{token}.kubeconfig"
        cluster = {"server": self.url, "insecure-skip-tls-verify": True}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "lab", "cluster": cluster}],
            "users": [{"name": "me", "user": {"token": token}}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "me"}}],
            "current-context": "lab",
        }
        path.write_text(json.dumps(content))
        return path

    def stranger(self) -> Path:
        """Return the kubeconfig of somebody who may do nothing."""
        return self.kubeconfig(token=_STRANGER)

    def nobody(self) -> Path:
        """Return a kubeconfig whose token nobody knows."""
        return self.kubeconfig(token=_NOBODY)

    def _run(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{program}.log").open("ab") as log:
            return subprocess.Popen(
                [str(PROGRAMS / program), *arguments], stdout=log, stderr=log, env={"PATH": os.environ["PATH"]}
            )

    def _ask(self, path: str) -> bytes:
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {_ADMIN}"})
        context = ssl._create_unverified_context()
        with urllib.request.urlopen(request, timeout=5, context=context) as answer:
            body: bytes = answer.read()
            return body

    def _objects(self) -> set[str]:
        """Return the keys of all objects in etcd."""
        asked = {"key": _encoded("/registry/"), "range_end": _encoded("/registry0"), "keys_only": True}
        return {base64.b64decode(each["key"]).decode() for each in self._gateway("kv/range", asked)["kvs"]}

    def _cached(self, kind: str) -> list[Any]:
        """Return the objects of a kind with which a watch begins now."""
        items: list[Any] = json.loads(self._ask(f"/api/v1/{kind}?resourceVersion=0"))["items"]
        return items

    def _gateway(self, path: str, request: dict[str, Any]) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self._etcd_port}/v3/{path}"
        with urllib.request.urlopen(url, data=json.dumps(request).encode(), timeout=30) as answer:
            content: dict[str, Any] = json.loads(answer.read())
            return content


@contextmanager
def control_plane(folder: Path, *flags: str) -> Iterator[ControlPlane]:
    """Run a control plane for the length of a block."""
    running = ControlPlane(folder, *flags)
    try:
        running.start()
        yield running
    finally:
        running.stop()


class Kubectl:
    """Creates, changes and deletes objects; tries again while the API server is away."""

    def __init__(self, plane: ControlPlane, *, parallel: int = 16) -> None:
        self._plane, self._parallel = plane, asyncio.Semaphore(parallel)

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {_ADMIN}"}, connector=aiohttp.TCPConnector(ssl=False)
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def call(
        self, verb: str, path: str, content: object = None, *, patch: str = "strategic-merge-patch+json"
    ) -> dict[str, Any]:
        """Send a request until it is answered; that something is there or gone already is as good as done."""
        kind = f"application/{patch}" if verb == "PATCH" else "application/json"
        async with self._parallel, asyncio.timeout(120):
            while True:
                try:
                    async with self._session.request(
                        verb, self._plane.url + path, data=json.dumps(content), headers={"Content-Type": kind}
                    ) as response:
                        body = await response.read()
                except (aiohttp.ClientError, OSError):
                    await asyncio.sleep(0.2)
                    continue
                if response.status in (429, 500, 502, 503, 504):
                    await asyncio.sleep(0.2)
                    continue
                done = response.status < 300 or response.status == 409 or (verb == "DELETE" and response.status == 404)
                assert done, body
                answer: dict[str, Any] = json.loads(body)
                return answer

    async def node(self, name: str, **metadata: Any) -> None:
        """Create a node with something allocatable."""
        node = {"metadata": {"name": name, **metadata}}
        await self.call("POST", "/api/v1/nodes", node)
        room = {"cpu": "3920m", "memory": "15Gi", "pods": "110"}
        status = {"status": {"capacity": {"cpu": "4", "memory": "16Gi", "pods": "110"}, "allocatable": room}}
        await self.call("PATCH", f"/api/v1/nodes/{name}/status", status)

    async def pod(self, name: str, **metadata: Any) -> None:
        """Create a pod that asks for a little."""
        container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}}}
        pod = {"metadata": {"name": name, **metadata}, "spec": {"containers": [container]}}
        await self.call("POST", "/api/v1/namespaces/default/pods", pod)

    async def label(self, name: str, **labels: str) -> None:
        await self.call("PATCH", f"/api/v1/namespaces/default/pods/{name}", {"metadata": {"labels": labels}})

    async def bind(self, name: str, node: str) -> None:
        """Bind a pod as a scheduler does."""
        binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
        await self.call("POST", f"/api/v1/namespaces/default/pods/{name}/binding", binding)

    async def status(self, name: str, **status: Any) -> None:
        """Report a pod's status as a kubelet does."""
        await self.call("PATCH", f"/api/v1/namespaces/default/pods/{name}/status", {"status": status})

    async def delete(self, name: str) -> None:
        """Delete a pod at once."""
        await self.call("DELETE", f"/api/v1/namespaces/default/pods/{name}", {"gracePeriodSeconds": 0})

    async def list(self, resource: str) -> list[dict[str, Any]]:
        """Return all objects."""
        items: list[dict[str, Any]] = (await self.call("GET", f"/api/v1/{resource}"))["items"]
        return items
