"""Messages of both streams that the history reads: of a simulated cluster, and what processors make of them."""

from collections.abc import Iterator
from multiprocessing.connection import Connection

from processors.partition.partition import Partition
from processors.prediction.fold import PredictionPartition
from producers.simulated import message
from producers.simulated.cluster import Cluster
from schemas import codec
from schemas import settings as all_settings
from schemas.subject import Names

KINDS = ("samples", "pods", "containers", "nodefacts", "podfacts")
STREAMS = ("TELEMETRY", "ESTIMATES")

# Subject and payload, in the order of the stream.
Messages = list[tuple[str, bytes]]


def seconds(nodes: int, count: int, start_us: int) -> Iterator[tuple[Messages, Messages]]:
    """Yield the messages of both streams, second by second."""
    cluster = Cluster(nodes, seed=1, churn_per_minute=2, wave_seconds=600)
    published, names = message.Writer(cluster, start_us, KINDS), Names()
    settings = all_settings.load({"nats_partitions": "1"}, environ={})
    estimates, predictions = Partition(settings, 0), PredictionPartition(settings, 0)
    for second in range(count):
        made = [*(published.begin() if second == 0 else ()), *published.write(cluster.step())]
        inputs = [(names.part(0, each.kind, cluster.fleet.name[each.node]), each.payload(start_us)) for each in made]
        outputs = [*estimates.fold(inputs)[0], *predictions.fold(inputs)]
        yield inputs, [(output.subject, codec.encode(output.message)) for output in outputs]


def send(to: Connection, nodes: int, count: int, start_us: int) -> None:
    """Send the messages to another process, whose CPU time and memory are then only those of what it does with them."""
    for messages in seconds(nodes, count, start_us):
        to.send(messages)
    to.send(None)
