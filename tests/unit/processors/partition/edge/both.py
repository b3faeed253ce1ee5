"""Nodes that send samples and the same nodes as edges, and folds of both."""

import json
from typing import Any

import numpy as np

from processors.estimation.state import State
from processors.partition.edge import Edge
from processors.partition.partition import Partition
from producers.simulated.cluster import Cluster
from producers.simulated.message import Writer
from schemas import codec
from schemas import settings as all_settings
from schemas.boot import DIGITS
from schemas.messages.estimate import Availability, Model
from schemas.settings import Settings
from schemas.subject import Names, token
from tests.support.processors.telemetry import METRICS

NAMES = Names()
START_US = 1_795_000_000_000_000
Stored = tuple[str, bytes]


def load(**flags: str) -> Settings:
    """Return settings with which every second of a node is reported."""
    return all_settings.load({"smoothing_publish": "false", "estimate_report_seconds": "1", **flags}, environ={})


SETTINGS = load()


def throttled(payload: bytes, random: np.random.Generator) -> bytes:
    """Return a block on which quotas hold pods back, so that its CPU needs more digits than it is sent with."""
    block = json.loads(payload)
    columns = len(block["metrics"])
    block["values"][METRICS.index("cpu_throttled") :: columns] = [round(float(random.uniform(0, 0.6)), 4)] * 10
    block["values"][METRICS.index("cpu_pressure") :: columns] = np.round(random.uniform(0, 0.3, 10), 4).tolist()
    return json.dumps(block, separators=(",", ":")).encode()


def short(payload: bytes, boot: str) -> bytes:
    """Return a message as `spazio edge` makes it."""
    return payload.replace(boot.encode(), boot[:DIGITS].encode())


def global_model(second: int) -> bytes:
    """Return a global model of a cluster whose pods take more and more."""
    cost = [0.3 + 0.002 * second, 4e8, 0.002, 0.002, 0.01]
    model = Model(
        scope="global",
        at_us=second,
        features=list(SETTINGS.model.features),
        moment=[0.0] * 15,
        nodes=1,
        pods=1,
        cost=cost,
    )
    return codec.encode(model)


def both(
    settings: Settings, nodes: int, seconds: int, *, hears: bool = False, **cluster: Any
) -> tuple[list[Stored], list[Stored]]:
    """Return the same seconds of simulated nodes as samples, and as the nodes would have modelled them.

    With `hears` there is a global model each second, and nodes hear it every thirty.
    """
    made = Cluster(nodes, seed=7, **{"churn_per_minute": 6.0, "wave_seconds": 60.0, **cluster})
    writer, random = Writer(made, START_US, ("samples", "containers", "pods")), np.random.default_rng(7)
    edges = [Edge(settings, name) for name in made.fleet.name]
    sampled, modelled = [], []
    for second in range(seconds):
        if hears:
            sampled.append((NAMES.model, global_model(second)))
            modelled.append(sampled[-1])
            for edge in edges if second % 30 == 0 else ():
                edge.adopt(global_model(second))
        for message in writer.write(made.step()):
            payload, encoded = message.payload(START_US), token(made.fleet.name[message.node])
            boot = writer.boot[message.node]
            stored = NAMES.part(0, message.kind, encoded)
            if message.kind == "samples":
                payload = throttled(payload, random)
                messages = edges[message.node].block(short(payload, boot))
                assert messages is not None
                modelled.append((NAMES.part(0, "edge", encoded), messages))
            else:
                if message.kind == "containers":
                    edges[message.node].event(short(payload, boot))
                modelled.append((stored, short(payload, boot)))
            sampled.append((stored, payload))
    return sampled, modelled


def folded(settings: Settings, messages: list[Stored]) -> tuple[Partition, dict[tuple[str, int], Availability]]:
    partition = Partition(settings, 0)
    outputs, refusals = partition.fold(messages)
    assert not refusals
    rows = [output.message for output in outputs if isinstance(output.message, Availability)]
    return partition, {(row.node, row.seq): row for row in rows}


def own(edge: Edge) -> State:
    return model_state(edge._partition)


def model_state(partition: Partition) -> State:
    state = partition.state("n")
    assert state is not None
    return state
