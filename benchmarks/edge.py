"""Savings of edge mode, and its cost in accuracy: both forms of the same seconds, side by side.

Simulated nodes have pods that start and end, changing load, and noise; each second of each node goes as samples through
one partition and, modelled by the node, through another. A real agent and a real edge agent then run on this machine
for a while. Bytes are those in the stream: payload, subject and headers of samples or of edge blocks.
Events and usage of pods are the same in both forms and are left out.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from nats.aio.msg import Msg

from benchmarks.agent import cpu_seconds, process, resident_bytes
from bus import connection, server, stream
from processors.partition.edge import Edge, identity
from processors.partition.partition import Partition
from producers.simulated.cluster import Cluster
from producers.simulated.message import Writer
from schemas import settings as all_settings
from schemas.boot import DIGITS
from schemas.messages.estimate import Availability
from schemas.settings import Settings
from schemas.subject import Names, token

_START_US = 1_795_000_000_000_000
_HEADER = "NATS/1.0\r\nNats-Msg-Id: {}\r\n\r\n"
_WARM_SECONDS = 5


class Form:
    """One form of the telemetry: its bytes, and a partition's rows for it."""

    def __init__(self, settings: Settings) -> None:
        self.partition, self.bytes = Partition(settings, 0), 0
        self.rows: dict[tuple[str, int], Availability] = {}

    def fold(self, messages: list[tuple[str, bytes]]) -> None:
        """Fold a second."""
        outputs, refusals = self.partition.fold(messages)
        if refusals:
            raise RuntimeError(refusals[0].reason)
        for output in outputs:
            if isinstance(output.message, Availability):
                self.rows[output.message.node, output.message.seq] = output.message


def size(subject: str, identity: str, payload: bytes) -> int:
    """Return the bytes of a message."""
    return len(subject) + len(_HEADER.format(identity)) + len(payload)


def simulated(settings: Settings, nodes: int, seconds: int, churn_per_minute: float) -> dict[str, Any]:
    """Fold the same simulated seconds in both forms; return figures."""
    estimate = settings.estimate.model_copy(update={"report_seconds": 1})  # every second is compared
    smoothing = settings.smoothing.model_copy(update={"publish": False})
    settings = settings.model_copy(update={"estimate": estimate, "smoothing": smoothing})
    cluster = Cluster(nodes, seed=1, churn_per_minute=churn_per_minute, wave_seconds=600)
    writer, names = Writer(cluster, _START_US, ("samples", "containers", "pods")), Names(settings.prefix)
    raw, modelled = Form(settings), Form(settings)
    edges = [Edge(settings, name) for name in cluster.fleet.name]
    models, used = 0, 0.0
    for _ in range(seconds):
        as_sampled, as_modelled = [], []
        for message in writer.write(cluster.step()):
            name, boot, payload = (
                cluster.fleet.name[message.node],
                writer.boot[message.node],
                message.payload(_START_US),
            )
            short = boot[:DIGITS]
            edge, subject = edges[message.node], names.part(0, message.kind, token(name))
            own = payload.replace(boot.encode(), short.encode())  # as this node's own process would send it
            as_sampled.append((subject, payload))
            if message.kind != "samples":
                if message.kind == "containers":
                    edge.event(own)
                as_modelled.append((subject, own))
                continue
            began = time.process_time()
            made = edge.block(own) or b""
            used += time.process_time() - began
            models += b'"moment"' in made
            raw.bytes += size(names.node("samples", name), f"samples:{name}:{boot}:{message.seq}", payload)
            modelled.bytes += size(names.node("edge", name), identity(name, short, message.seq), made)
            as_modelled.append((names.part(0, "edge", token(name)), made))
        raw.fold(as_sampled)
        modelled.fold(as_modelled)
    blocks = nodes * seconds
    return {
        "nodes": nodes,
        "seconds": seconds,
        "churn_per_minute": churn_per_minute,
        "samples_bytes_per_second": round(raw.bytes / blocks, 1),
        "edge_bytes_per_second": round(modelled.bytes / blocks, 1),
        "times_less": round(raw.bytes / modelled.bytes, 2),
        "blocks_with_model": round(models / blocks, 3),
        "edge_cpu_seconds_per_block": round(used / blocks, 5),
        **differences(raw.rows, modelled.rows),
    }


def differences(raw: dict[tuple[str, int], Availability], edge: dict[tuple[str, int], Availability]) -> dict[str, Any]:
    """Return the differences of availability and signal of the same seconds."""
    pairs = [(row, edge[key]) for key, row in raw.items() if key in edge]
    available = np.array([[row.available, than.available] for row, than in pairs])
    signal = np.array([[row.signal, than.signal] for row, than in pairs])
    apart = np.abs(available[:, 0] - available[:, 1])
    relative = np.abs(signal[:, 0] - signal[:, 1]) / np.maximum(signal[:, 0], 1e-9)
    return {
        "rows": [len(raw), len(edge), len(pairs)],
        "available_mean": round(float(available[:, 0].mean()), 2),
        "available_apart_max_pods": round(float(apart.max()), 4),
        "available_apart_mean_pods": round(float(apart.mean()), 5),
        "signal_apart_p99": round(float(np.quantile(relative, 0.99)), 4),
        "signal_apart_mean": round(float(relative.mean()), 4),
        "other_binding": sum(row.binding != than.binding for row, than in pairs),
    }


class Wire:
    """Counts the messages on the subjects of one kind."""

    def __init__(self) -> None:
        self.blocks = self.bytes = self.models = 0

    async def take(self, message: Msg) -> None:
        """Count a message."""
        identity = (message.headers or {}).get("Nats-Msg-Id", "")
        self.blocks += 1
        self.bytes += size(message.subject, identity, message.data)
        self.models += b'"moment"' in message.data


def environment(settings: Settings, **more: str) -> dict[str, str]:
    """Return the environment of a service."""
    return {**os.environ, **all_settings.environment(settings), "SPAZIO_HTTP_PORT": "0", **more}


async def real(folder: Path, seconds: float) -> dict[str, Any]:
    """Run an agent and an edge agent on this machine; return figures."""
    port = server.free_port(0)
    flags = {"data_dir": str(folder), "nats_url": f"nats://127.0.0.1:{port}"}
    settings = all_settings.load(flags, environ={})
    command = [sys.executable, "-m", "spazio"]
    with process(server.command(server.find(), server.write_config(settings, port))):
        async with connection.connect(settings, "benchmark") as client:
            await stream.ensure(client, settings)
            with (
                process([*command, "agent"], environment(settings, SPAZIO_SAMPLE_NODE="node-1")) as agent,
                process([*command, "edge"], environment(settings, SPAZIO_SAMPLE_NODE="node-2")) as edge,
            ):
                await asyncio.sleep(_WARM_SECONDS)
                wires = {"samples": Wire(), "edge": Wire()}
                for kind, wire in wires.items():
                    await client.subscribe(f"{settings.prefix}.{kind}.*", cb=wire.take)
                before = {running: cpu_seconds(running.pid) for running in (agent, edge)}
                await asyncio.sleep(seconds)
                used = [(cpu_seconds(running.pid) - before[running]) / seconds for running in (agent, edge)]
                resident = [resident_bytes(running.pid) for running in (agent, edge)]
    raw, modelled = wires["samples"], wires["edge"]
    each = [wire.bytes / max(wire.blocks, 1) for wire in (raw, modelled)]
    return {
        "seconds": seconds,
        "blocks": [raw.blocks, modelled.blocks],
        "samples_bytes_per_second": round(each[0], 1),
        "edge_bytes_per_second": round(each[1], 1),
        "times_less": round(each[0] / each[1], 2),
        "blocks_with_model": round(modelled.models / max(modelled.blocks, 1), 3),
        "core_share": dict(zip(("agent", "edge"), (round(share, 4) for share in used), strict=True)),
        "resident_bytes": dict(zip(("agent", "edge"), resident, strict=True)),
    }


def runs(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the figures of each run."""
    for variant, form in (("default", "composed"), ("default", "least_squares"), ("carico", "kalman_joint")):
        settings = all_settings.load({"model_variant": variant, "estimate_form": form}, environ={})
        for churn in asked.churn:
            yield {"form": form} | simulated(settings, asked.nodes, asked.simulated_seconds, churn)
    if asked.seconds:
        with tempfile.TemporaryDirectory() as folder:
            yield {"form": "this machine"} | asyncio.run(real(Path(folder), asked.seconds))


def main() -> None:
    """Print one line of JSON for each run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=30, help="simulated nodes")
    parser.add_argument("--simulated-seconds", type=int, default=120)
    parser.add_argument("--churn", type=float, nargs="+", default=[0.5, 6.0], help="pods that start in a minute")
    parser.add_argument("--seconds", type=float, default=60, help="time to measure this machine; 0: do not measure it")
    for figures in runs(parser.parse_args()):
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
