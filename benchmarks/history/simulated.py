"""What agents and a cluster watch publish of a simulated cluster, into the history through the sink's own writer."""

from collections.abc import Iterator
from pathlib import Path

from producers.simulated import message
from producers.simulated.cluster import Cluster
from schemas import codec
from schemas.messages.telemetry import SampleBlock
from schemas.subject import Names
from sinks.history import table
from sinks.history.writer import Writer

_KINDS = ("samples", "pods", "containers", "nodefacts", "podfacts")
_FLUSH_SECONDS = 5


def write(folder: Path, created: str, nodes: int, start_us: int, seconds: int) -> Iterator[SampleBlock]:
    """Write what so many nodes publish in so many seconds, and yield the blocks of samples."""
    cluster = Cluster(nodes, seed=1, churn_per_minute=2, wave_seconds=600)
    messages = message.Writer(cluster, start_us, _KINDS)
    target, names, sequence = Writer(folder, "SIMULATED", created, 1), Names(), 0
    for second in range(seconds):
        made = [*(messages.begin() if second == 0 else ()), *messages.write(cluster.step())]
        for each in made:
            sequence += 1
            subject = names.part(0, each.kind, cluster.fleet.name[each.node])
            payload = each.payload(start_us)
            kept = table.decode(subject, payload)
            assert kept is not None  # each kind has its table
            target.append(subject, sequence, kept, start_us + second * 1_000_000)
            if each.kind == "samples":
                yield codec.decode(SampleBlock, payload)
        if second % _FLUSH_SECONDS == _FLUSH_SECONDS - 1:
            target.flush()
    target.flush()
