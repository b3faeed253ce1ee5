"""Cost of the extender for a scheduler: `python -m benchmarks.extender [--nodes 5000] [--pods 2000] [--beside 1000]`.

One client sends requests over one connection, as kube-scheduler does: for each pod, with its own UID, filter with the
names of all nodes and then prioritize with the feasible ones. The result has the time of both requests at the client,
from the first byte sent to the last one read, pods per second, and CPU of the service. The time excludes the encoding
of requests. By default the service is `spazio sink extender` with its own server and a filled cache; with `--http` a
selector that passes all nodes replaces the real one, which leaves only the HTTP side. With `--graded` every node gets a
score, not just one. With `--beside N` the same machine runs `spazio up --nodes N` meanwhile, everything on.
"""

import argparse
import asyncio
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.agent import cpu_seconds, process, resident_bytes
from bus import connection, server, stream
from bus.health import Health
from schemas import codec
from schemas import settings as all_settings
from schemas.messages.estimate import Availability
from schemas.messages.facts import NodeFacts
from schemas.sections.placement import Extender
from schemas.settings import Settings
from schemas.subject import Names, token
from sinks.extender.web import server as http
from sinks.extender.web.selector import Filtered
from spazio.service import addresses

_WARM = 100
_START_SECONDS = 60.0
_SWING_SECONDS = 30.0
_CACHE_SECONDS = 86_400
_DISORDER = 64.0


class Everything:
    """Passes all nodes, and scores the last of them, or all."""

    def __init__(self, *, graded: bool) -> None:
        self._graded = graded

    async def filter(self, pod: Mapping[str, Any], names: Sequence[str]) -> Filtered:
        """Pass all nodes."""
        assert pod["metadata"]["uid"]
        return Filtered(names)

    async def prioritize(self, pod: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, int]:
        """Score one node, or each."""
        assert pod["metadata"]["uid"]
        return {name: index % 11 for index, name in enumerate(names)} if self._graded else {names[-1]: 10}

    async def bind(self, namespace: str, name: str, uid: str, node: str) -> str:  # noqa: ARG002 # as Selector
        """Do nothing."""
        return ""

    async def preempt(
        self, pod: Mapping[str, Any], victims: Mapping[str, Sequence[str]]
    ) -> Mapping[str, Sequence[str]]:
        """Accept all victims."""
        assert pod["metadata"]["uid"]
        return victims


class Client:
    """One connection that stays open."""

    def __init__(self, address: str) -> None:
        host, _, port = address.removeprefix("http://").partition("/")[0].rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(4 << 20)

    def ask(self, request: bytes) -> bytes:
        """Send a whole request and return the body of its answer."""
        self._socket.sendall(request)
        view, size, whole, begin = memoryview(self._buffer), 0, -1, -1
        while size != whole:
            size += self._socket.recv_into(view[size:])
            if whole < 0 and (begin := self._buffer.find(b"\r\n\r\n", 0, size) + 4) >= 4:
                head = bytes(view[:begin]).lower()
                assert head.startswith(b"http/1.1 200"), bytes(view[:size])
                length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
                whole = begin + int(length)
        return bytes(view[begin:size])


def requests(names: list[str], uid: str) -> tuple[bytes, bytes]:
    """Return filter and prioritize for a pod as kube-scheduler sends it."""
    pod = {
        "metadata": {
            "name": f"web-{uid}", "namespace": "default", "uid": uid, "resourceVersion": "200", "generation": 1,
            "creationTimestamp": "2026-03-02T10:00:00Z", "labels": {"app": "web", "pod-template-hash": "6d4cf56db6"},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-6d4cf56db6", "uid": "r", "controller": True,
            }],
        },
        "spec": {
            "containers": [{
                "name": "main", "image": "registry.example/web:1", "imagePullPolicy": "IfNotPresent",
                "resources": {"limits": {"memory": "128Mi"}, "requests": {"cpu": "50m", "memory": "64Mi"}},
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            }],
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
            "securityContext": {}, "schedulerName": "default-scheduler", "priority": 0, "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {"phase": "Pending", "qosClass": "Burstable"},
    }  # fmt: skip
    body = json.dumps({"Pod": pod, "Nodes": None, "NodeNames": names}, separators=(",", ":")).encode()
    head = "POST /scheduler/{} HTTP/1.1\r\nHost: x\r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: {}\r\n"
    rest = "Content-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
    return (
        (head.format("filter", len(body)) + rest).encode() + body,
        (head.format("prioritize", len(body)) + rest).encode() + body,
    )


def ask(address: str, pid: int, names: list[str], pods: int) -> dict[str, Any]:
    """Send the requests of pods one after the other; return seconds and rates."""
    client, random = Client(address), np.random.default_rng(7)
    passed, scored, unanswered = names, 0, 0
    took = np.empty(pods)
    cpu = began = 0.0
    for number in range(-_WARM, pods):
        if number == 0:
            cpu, began = cpu_seconds(pid), time.monotonic()
        # The scheduler's workers filter nodes side by side, so names come almost, but never quite, in the same order.
        order = np.argsort(np.arange(len(names)) + random.uniform(0, _DISORDER, len(names)))
        filtering, ranking = requests(
            [names[index] for index in order.tolist()], str(uuid.UUID(int=number % (1 << 64)))
        )
        since = time.perf_counter()
        answer = client.ask(filtering)
        between = time.perf_counter()
        # If the service refuses nodes, prioritize gets only the others.
        filtered = json.loads(answer)
        if filtered["Error"]:  # no reservation could be written in time; kube-scheduler tries the pod again later
            if number >= 0:
                took[number], unanswered = between - since, unanswered + 1
            continue
        if len(filtered["NodeNames"]) != len(names):
            passed = filtered["NodeNames"]
            ranking = requests(passed, str(uuid.UUID(int=number % (1 << 64))))[1]
        again = time.perf_counter()
        scores = client.ask(ranking)
        if number >= 0:
            took[number] = (between - since) + (time.perf_counter() - again)
        scored = max(scored, len(json.loads(scores)))
    seconds = time.monotonic() - began
    return {
        "nodes": len(names),
        "pods": pods,
        "unanswered": unanswered,
        "passed": len(passed),
        "scored": scored,
        "p50_seconds": round(float(np.quantile(took, 0.5)), 6),
        "p99_seconds": round(float(np.quantile(took, 0.99)), 6),
        "longest_seconds": round(float(took.max()), 6),
        "pods_per_second": round(1 / float(took.mean()), 1),
        "service_cpu_seconds_per_pod": round((cpu_seconds(pid) - cpu) / pods, 6),
        "service_share_of_a_core": round((cpu_seconds(pid) - cpu) / seconds, 3),
        "service_resident_bytes": resident_bytes(pid),
    }


@contextmanager
def http_alone(*, graded: bool) -> Iterator[tuple[str, int]]:
    """Serve a selector that passes all nodes, in a separate process; yield address and pid."""
    command = [sys.executable, "-m", "benchmarks.extender", "--serve", *(["--graded"] if graded else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        try:
            assert select.select([running.stdout], [], [], _START_SECONDS)[0]
            yield running.stdout.readline().decode().strip(), running.pid
        finally:
            running.terminate()


async def _serve(*, graded: bool) -> None:
    async with http.serve(Extender(port=0), Everything(graded=graded), Health()) as address:
        print(address, flush=True)
        await asyncio.Event().wait()


@contextmanager
def service(names: list[str], *, graded: bool) -> Iterator[tuple[str, int]]:
    """Run `spazio sink extender` over a cache with these nodes; yield address and pid."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        port = server.free_port(0)
        environ = {
            "SPAZIO_NATS_URL": f"nats://127.0.0.1:{port}",
            "SPAZIO_DATA_DIR": folder,
            "SPAZIO_HTTP_PORT": "0",
            "SPAZIO_EXTENDER_PORT": "0",
            "SPAZIO_EXTENDER_MODE": "graded" if graded else "argmax",
            "SPAZIO_CACHE_EXPIRY_SECONDS": str(_CACHE_SECONDS),
        }
        settings = all_settings.load(environ=environ)
        running.enter_context(process(server.command(server.find(), server.write_config(settings, port))))
        asyncio.run(_fill(settings, names))
        started = running.enter_context(
            process([sys.executable, "-m", "spazio", "sink", "extender"], os.environ | environ)
        )
        note, until = Path(folder) / "run" / addresses.SCHEDULER, time.monotonic() + _START_SECONDS
        while not note.exists():
            assert started.poll() is None
            assert time.monotonic() < until
            time.sleep(0.1)
        time.sleep(0.1)
        yield (
            next(value for value in json.loads(note.read_text()).values() if str(value).startswith("http")),
            started.pid,
        )


@contextmanager
def beside(nodes: int) -> Iterator[None]:
    """Run `spazio up --nodes N` for the duration of a `with` block, which begins once it is in full swing."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = [sys.executable, "-m", "spazio", "up", "--nodes", str(nodes), "--data-dir", folder]
        environ = os.environ | {"SPAZIO_EXTENDER_PORT": "0"}
        with process([*command, "--nats-port", "0", "--http-port", "0"], environ) as up:
            until = time.monotonic() + _START_SECONDS
            while not (Path(folder) / "addresses.json").exists():
                assert up.poll() is None
                assert time.monotonic() < until
                time.sleep(0.1)
            time.sleep(_SWING_SECONDS)
            assert up.poll() is None
            yield


async def _fill(settings: Settings, names: list[str]) -> None:
    """Write the rows of the cache and of the watch for nodes with room for many pods."""
    own, random = Names(settings.prefix), np.random.default_rng(7)
    at_us = time.time_ns() // 1000
    async with asyncio.timeout(_START_SECONDS), connection.connect(settings, "benchmark") as client:
        await stream.ensure(client, settings)
        for name, room in zip(names, random.uniform(20, 100, len(names)).tolist(), strict=True):
            availability = Availability(
                node=name, at_us=at_us, seq=1, available=room, lower=room, upper=room, signal=room, cost=0.01,
                capacity=0.9, pods=10, binding="cpu", mode="signal", churn=False, prior=0.0,
                usage={"cpu": 0.3, "memory": 0.4}, explained=0.9, gap=0.1, since_us=at_us,
            )  # fmt: skip
            amounts = {"cpu": 64.0, "memory": float(256 << 30), "pods": 250.0}
            facts = NodeFacts(
                node=name, uid=f"u-{name}", version=1, at_us=at_us, created_us=at_us, ready=True, unschedulable=False,
                allocatable=amounts, capacity=amounts, labels={"kubernetes.io/hostname": name}, annotations={},
                taints=[],
            )  # fmt: skip
            await client.publish(f"$KV.{own.availability_bucket}.{token(name)}", codec.encode(availability))
            await client.publish(f"$KV.{own.nodes_bucket}.{token(name)}", codec.encode(facts))
        await client.flush(int(_START_SECONDS))


def main() -> None:
    """Measure, and print the result."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--nodes", type=int, default=5000)
    options.add_argument("--pods", type=int, default=2000)
    options.add_argument("--http", action="store_true", help="measure only the HTTP side")
    options.add_argument("--graded", action="store_true", help="score all nodes")
    options.add_argument("--beside", type=int, default=0, help="nodes of a whole system on the same machine")
    options.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.serve:
        asyncio.run(_serve(graded=chosen.graded))
        return
    names = [f"worker-{number:05d}.region-1.example" for number in range(chosen.nodes)]
    running = http_alone(graded=chosen.graded) if chosen.http else service(names, graded=chosen.graded)
    with beside(chosen.beside) if chosen.beside else nullcontext(), running as (address, pid):
        print(json.dumps({"beside": chosen.beside} | ask(address, pid, names, chosen.pods), indent=2))


if __name__ == "__main__":
    main()
