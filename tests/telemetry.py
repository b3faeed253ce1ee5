"""Sample blocks for tests: seeded, with pods that come and go, and as the agent would send them."""

import numpy as np

from schemas import codec, metric
from schemas.subject import Names
from schemas.telemetry import SampleBlock

METRICS = list(metric.NAMES)
START = 1_700_000_000
NAMES = Names()


def block(
    node: str, second: int, *, samples: int = 10, seq: int | None = None, **constant: float | None
) -> SampleBlock:
    """Return one block; metrics that are not named are 0."""
    row = [constant.get(name, 0.0) for name in METRICS]
    return SampleBlock(
        node=node,
        boot="boot",
        seq=1000 + second if seq is None else seq,
        at_us=(START + second) * 1_000_000,
        step_us=1_000_000 // samples,
        cpus=4,
        memory_bytes=8 << 30,
        metrics=METRICS,
        values=row * samples,
    )


def noisy(node: str, second: int, pods: int, random: np.random.Generator) -> SampleBlock:
    """Return a block of a node on which each pod takes 8 % of CPU utilisation and 3 % of memory."""
    made = block(node, second, pods=float(pods))
    values = np.zeros((10, len(METRICS)))
    values[:, METRICS.index("cpu_util")] = np.clip(0.05 + 0.08 * pods + random.normal(0, 0.01, 10), 0, 1)
    values[:, METRICS.index("cpu_pressure")] = np.clip(random.normal(0, 0.005, 10), 0, 1)
    values[:, METRICS.index("memory_util")] = np.clip(0.2 + 0.03 * pods + random.normal(0, 0.001, 10), 0, 1)
    values[:, METRICS.index("memory_used")] = values[:, METRICS.index("memory_util")]
    values[:, METRICS.index("pods")] = pods
    return made.model_copy(update={"values": np.round(values, 4).ravel().tolist()})


def stored(message: SampleBlock, partition: int = 0) -> tuple[str, bytes]:
    """Return (subject as stored, payload)."""
    node = NAMES.node("samples", message.node).rsplit(".", 1)[-1]
    return NAMES.part(partition, "samples", node), codec.encode(message)


def recording(nodes: int = 5, seconds: int = 12, seed: int = 1) -> list[tuple[str, bytes]]:
    """Return a recorded stream of several nodes, in stream order, some of them late, silent or repeated."""
    random = np.random.default_rng(seed)
    messages: list[tuple[str, bytes]] = []
    pods = random.integers(0, 4, nodes)
    for second in range(seconds):
        for index in random.permutation(nodes):
            if random.random() < 0.1:
                continue
            pods[index] = max(0, pods[index] + random.choice([-1, 0, 0, 0, 1]))
            message = stored(noisy(f"node-{index}", second, int(pods[index]), random))
            messages += [message] * (2 if random.random() < 0.1 else 1)
    return messages
