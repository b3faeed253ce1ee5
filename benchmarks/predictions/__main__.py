"""CPU time of predictions beside that of the fold, over the same blocks in one process.

Two processes share what else the machine does unevenly. Here both folds take each block one after the other, so their
ratio is the same on a busy machine. Time of decoding counts for the fold, which leaves what it has decoded to the
predictions, as in a processor; each has the encoding of its own messages. The event time has whole minutes: most of
what predictions do is done when half a minute has ended.
"""

import argparse
import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from benchmarks import fold
from processors.decode import Memo
from processors.partition.output import Output
from processors.partition.partition import Partition
from processors.prediction.fold import PredictionPartition
from producers.simulated.cluster import Cluster
from producers.simulated.message import Writer
from schemas import codec
from schemas import settings as all_settings
from schemas.sections.generator import SIMULATED_KINDS
from schemas.settings import Settings
from schemas.subject import Names
from spazio.service.service import rest_collector

PARTS = ("predict", "reject", "forecast")
_START = 1_700_000_040  # a whole minute
_TOGETHER = 500  # messages of one fold, as a processor reads them
Stream = Sequence[tuple[str, bytes]]


class Cost(NamedTuple):
    """CPU seconds, messages made and a digest of them."""

    seconds: float
    messages: int
    digest: str


def blocks(nodes: int, seconds: int, noise: float, settings: Settings) -> Iterator[list[tuple[str, bytes]]]:
    """Yield the messages (stored subject, payload) of all nodes, second by second."""
    names, metrics = Names(settings.prefix), fold.METRICS["needed"]
    subjects = [names.part(0, "samples", f"node-{index}") for index in range(nodes)]
    columns = json.dumps(metrics, separators=(",", ":"))
    for second, values in enumerate(fold.courses(seconds, noise, metrics)):
        at_us = (_START + second) * 1_000_000
        yield [
            (
                subject,
                (
                    f'{{"v":1,"node":"node-{index}","boot":"5f1c2a6e-0d43-4a5e-9b57-1f7c3d2e8a90",'
                    f'"seq":{1000 + second},"at_us":{at_us + index % 1000},"step_us":100000,"cpus":16,'
                    f'"memory_bytes":68719476736,"metrics":{columns},"values":{values[index % len(values)]}}}'
                ).encode(),
            )
            for index, subject in enumerate(subjects)
        ]


def with_pods(nodes: int, seconds: int, settings: Settings) -> Iterator[list[tuple[str, bytes]]]:
    """Yield all messages of a simulated cluster, second by second: samples, usage of pods, events, and facts."""
    names, start_us = Names(settings.prefix), _START * 1_000_000
    cluster = Cluster(nodes, seed=1, churn_per_minute=0.5, wave_seconds=600)
    writer = Writer(cluster, start_us, SIMULATED_KINDS)
    waiting = list(writer.begin())
    for _ in range(seconds):
        waiting += writer.write(cluster.step())
        yield [
            (names.part(0, message.kind, cluster.fleet.name[message.node]), message.payload(start_us))
            for message in waiting
        ]
        waiting.clear()


def measure(seconds: Iterator[list[tuple[str, bytes]]], settings: Settings) -> tuple[Cost, Cost]:
    """Return the costs of the fold and of predictions over these seconds of messages."""
    memo = Memo()
    partition, predictions = Partition(settings, 0, memo), PredictionPartition(settings, 0, memo)
    spent, made, digests = [0.0, 0.0], [0, 0], (hashlib.sha256(), hashlib.sha256())

    def take(which: int, part: Stream) -> None:
        began = time.process_time()
        outputs: Sequence[Output] = partition.fold(part)[0] if which == 0 else predictions.fold(part)
        payloads = [codec.encode(output.message) for output in outputs]
        spent[which] += time.process_time() - began
        made[which] += len(payloads)
        digests[which].update(b"".join(payloads))

    for messages in seconds:
        for first in range(0, len(messages), _TOGETHER):
            part = messages[first : first + _TOGETHER]
            take(0, part)
            take(1, part)
    own, other = (Cost(spent[which], made[which], digests[which].hexdigest()[:16]) for which in (0, 1))
    return own, other


def arguments() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--seconds", type=int, default=120, help="of event time")
    parser.add_argument("--noise", type=float, default=0.005, help="deviation of a sample of CPU utilisation, ratio")
    parser.add_argument("--parts", choices=PARTS, nargs="+", default=list(PARTS), help="what is computed")
    parser.add_argument("--pods", action="store_true", help="with pods and their usage, as simulated nodes send them")
    return parser.parse_args()


def main() -> None:
    """Print one line of JSON for each number of nodes."""
    asked = arguments()
    rest_collector()
    for nodes in asked.nodes:
        flags = {f"{part}_enabled": str(part in asked.parts).lower() for part in PARTS}
        settings = all_settings.load({"process_nodes_max": str(nodes), **flags}, environ={})
        if asked.pods:
            messages = with_pods(nodes, asked.seconds, settings)
        else:
            messages = blocks(nodes, asked.seconds, asked.noise, settings)
        own, predictions = measure(messages, settings)
        result = {
            "nodes": nodes,
            "parts": asked.parts,
            "pods": asked.pods,
            "fold_us_per_block": round(1e6 * own.seconds / (nodes * asked.seconds), 1),
            "predictions_us_per_block": round(1e6 * predictions.seconds / (nodes * asked.seconds), 1),
            "ratio": round(predictions.seconds / own.seconds, 3),
            "messages": [own.messages, predictions.messages],
            "digests": [own.digest, predictions.digest],
        }
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
