"""Record what a real kube-scheduler sends to an extender: `python -m tests.golden.extender.record`.

Needs `make kube-tools`. One file for each verb and form, with the bytes of the whole HTTP request. The recorder lets
every node pass, scores them, and binds; a pod that fits nowhere makes the scheduler ask about preemption.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bus import server
from tests.e2e.kubernetes import control_plane
from tests.e2e.kubernetes.control_plane import PROGRAMS, ControlPlane, Kubectl

NODES = ("lab-0", "lab-1", "lab-2")
VERBS = ("filter", "prioritize", "bind", "preempt")
_SECONDS = 60


class Recorder:
    """Answers as an extender would that has nothing against any node.

    Attributes:
        heard: The first request of each verb, as it came.
    """

    def __init__(self, kubectl: Kubectl) -> None:
        self._kubectl = kubectl
        self.heard: dict[str, bytes] = {}
        self.complete = asyncio.Event()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            lines = head.decode("ascii").split("\r\n")
            fields = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
            body = await reader.readexactly(int(fields["content-length"]))
            verb = lines[0].split()[1].rpartition("/")[2]
            self.heard.setdefault(verb, head + body)
            content = json.dumps(await self._reply(verb, json.loads(body))).encode()
            kind = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
            writer.write(kind + str(len(content)).encode() + b"\r\n\r\n" + content)
            await writer.drain()
            if len(self.heard) == len(VERBS):
                self.complete.set()
        writer.close()

    async def _reply(self, verb: str, asked: dict[str, Any]) -> Any:
        if verb == "bind":
            await self._kubectl.bind(asked["PodName"], asked["Node"])
            return {"Error": ""}
        if verb == "preempt":
            return {"NodeNameToMetaVictims": {}}
        if verb == "filter":
            return {"Nodes": asked["Nodes"], "NodeNames": asked["NodeNames"]}
        names = asked["NodeNames"] or [node["metadata"]["name"] for node in asked["Nodes"]["items"]]
        return [{"Host": name, "Score": score} for score, name in enumerate(names)]


@contextmanager
def scheduler(plane: ControlPlane, url: str, *, names: bool, **more: Any) -> Iterator[None]:
    """Run a kube-scheduler that asks one extender, with names of nodes or with whole nodes.

    Args:
        plane: Where it schedules.
        url: Of the extender.
        names: nodeCacheCapable.
        more: More of what its configuration says of the extender.
    """
    extender = {f"{verb}Verb": verb for verb in VERBS} | more
    content = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(plane.kubeconfig())},
        "extenders": [{"urlPrefix": url, "weight": 121, "nodeCacheCapable": names, **extender}],
    }
    config = plane.folder / "scheduler.json"
    config.write_text(json.dumps(content))
    with (plane.folder / "kube-scheduler.log").open("ab") as log:
        command = [
            str(PROGRAMS / "kube-scheduler"), f"--config={config}", "--bind-address=127.0.0.1",
            f"--secure-port={server.free_port(0)}", f"--cert-dir={plane.folder / 'scheduler'}",
        ]  # fmt: skip
        running = subprocess.Popen(command, stdout=log, stderr=log, env={"PATH": os.environ["PATH"]})
    try:
        yield
    finally:
        running.kill()
        running.wait()


def _pod(name: str, cpu: str, **spec: Any) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "registry.example/web:1",
        "env": [{"name": "GREETING", "value": 'a <b> & "c"'}],
        "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
    }
    metadata = {
        "name": name,
        "labels": {"app": name, "spazio.class": "web"},
        "annotations": {"example/words": "grüße, 世界 🚀 <&>\u2028"} if cpu == "50m" else {},
    }
    return {"metadata": metadata, "spec": {"containers": [container], **spec}}


async def record(plane: ControlPlane, kubectl: Kubectl, *, names: bool) -> dict[str, bytes]:
    """Return the first request of each verb."""
    form = "names" if names else "nodes"
    recorder = Recorder(kubectl)
    server = await asyncio.start_server(recorder.answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/scheduler"
    pods = "/api/v1/namespaces/default/pods"
    with scheduler(plane, url, names=names):
        await kubectl.call("POST", pods, _pod(f"web-{form}", "50m"))
        await kubectl.call("POST", pods, _pod(f"urgent-{form}", "2", priorityClassName="urgent"))
        async with asyncio.timeout(_SECONDS):
            await recorder.complete.wait()
    server.close()
    return recorder.heard


async def run(plane: ControlPlane) -> dict[str, bytes]:
    """Record both forms; returns requests by verb and form."""
    async with Kubectl(plane) as kubectl:
        for name in NODES:
            await kubectl.node(name, labels={"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "zone-1"})
            await kubectl.call("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}})
            await kubectl.call("POST", "/api/v1/namespaces/default/pods", _pod(f"filler-{name}", "3", nodeName=name))
        urgent = {"metadata": {"name": "urgent"}, "value": 1000000}
        await kubectl.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", urgent)
        result: dict[str, bytes] = {}
        for form in ("names", "nodes"):
            heard = await record(plane, kubectl, names=form == "names")
            result |= {f"{verb}-{form}": request for verb, request in heard.items()}
            for name in (f"web-{form}", f"urgent-{form}"):
                await kubectl.delete(name)
        return result


def main() -> None:
    """Write the files beside this one."""
    if reason := control_plane.missing():
        sys.exit(reason)
    with tempfile.TemporaryDirectory() as folder, control_plane.control_plane(Path(folder) / "plane") as plane:
        try:
            result = asyncio.run(run(plane))
        except TimeoutError:
            sys.exit((plane.folder / "kube-scheduler.log").read_text()[-4000:])
    for name, request in result.items():
        (Path(__file__).parent / f"{name}.http").write_bytes(request)


if __name__ == "__main__":
    main()
