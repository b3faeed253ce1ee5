"""What the history costs a core: `python -m benchmarks.history.sink [--nodes 1000] [--seconds 120] [--profile]`.

Another process simulates a cluster, folds it as processors do, and sends the messages of both streams. This one does
with them what the sink does, without the server and the client: it decodes each message, takes it in, writes files
every five seconds, merges the files as those of an hour that fills and then as those of one that has ended, and makes
the roll-ups. The result has the share of a core by step, bytes by table, and this process's memory.
"""

import argparse
import cProfile
import json
import multiprocessing
import pstats
import resource
import tempfile
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.history import folded
from schemas.sections.service import History
from schemas.subject import kind_of
from sinks.history import layout, table, view
from sinks.history.layout import HOUR_US
from sinks.history.upkeep import compaction, rollup
from sinks.history.writer import Writer
from spazio.service.service import rest_collector

_START_US = 1_763_596_800_000_000  # midnight
_CREATED = "20251120T00000000000{}Z"
_FLUSH_SECONDS = 5
_SETTINGS = History()


class Sink:
    """The writers of both streams, and the CPU seconds of each step.

    Attributes:
        spent: CPU seconds by step.
        messages: Messages by kind.
        rows: Rows that were written.
    """

    def __init__(self, folder: Path) -> None:
        rest_collector()
        view.create(folder)
        self._folder = folder
        self._writers = [
            Writer(folder, stream, _CREATED.format(number), 1) for number, stream in enumerate(folded.STREAMS)
        ]
        self._sequences = [0, 0]
        self.spent: defaultdict[str, float] = defaultdict(float)
        self.messages, self.rows = Counter[str](), 0

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        began = time.process_time()
        yield
        self.spent[name] += time.process_time() - began

    def take(self, messages: folded.Messages, stream: int, stored_us: int) -> None:
        """Decode messages of a stream and take them in."""
        writer, sequence = self._writers[stream], self._sequences[stream]
        with self._step("decoding"):
            decoded = [(subject, table.decode(subject, payload)) for subject, payload in messages]
        with self._step("taking in"):
            for number, (subject, message) in enumerate(decoded, sequence + 1):
                if message is not None:
                    writer.append(subject, number, message, stored_us)
        self._sequences[stream] += len(messages)
        self.messages.update(kind_of(subject) for subject, _ in messages)

    def flush(self) -> None:
        """Write what was taken in."""
        with self._step("writing"):
            self.rows += sum(writer.flush() for writer in self._writers)

    def close(self, filling_us: int, ended_us: int) -> None:
        """Merge while the hour fills and when it has ended, and make the roll-ups."""
        with self._step("merging, ten minutes"):
            deque(compaction.group(self._folder, filling_us, frozenset()), 0)
        with self._step("merging, hour"):
            deque(compaction.compact(self._folder, ended_us), 0)
        with self._step("roll-ups"):
            for job in rollup.jobs(self._folder, ended_us, _SETTINGS, {}):
                rollup.make(job)


def measure(folder: Path, nodes: int, seconds: int, profile: cProfile.Profile | None) -> dict[str, Any]:
    """Return the figures of so many seconds of so many nodes."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    maker = context.Process(target=folded.send, args=(sender, nodes, seconds, _START_US))
    maker.start()
    sender.close()
    sink, second = Sink(folder), 0
    while (received := receiver.recv()) is not None:
        if profile is not None:
            profile.enable()
        for stream, messages in enumerate(received):
            sink.take(messages, stream, _START_US + second * 1_000_000)
        second += 1
        if second % _FLUSH_SECONDS == 0 or second == seconds:
            sink.flush()
        if profile is not None:
            profile.disable()
    maker.join()
    written = _bytes(folder)
    sink.close(_START_US + seconds * 1_000_000, _START_US + 2 * HOUR_US)
    return {
        "nodes": nodes,
        "seconds": seconds,
        "messages_per_second": {kind: round(count / seconds, 1) for kind, count in sorted(sink.messages.items())},
        "rows_per_second": round(sink.rows / seconds),
        "share_of_a_core": {step: round(spent / seconds, 4) for step, spent in sink.spent.items()},
        "share_of_a_core_together": round(sum(sink.spent.values()) / seconds, 3),
        "memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "bytes_before_merging": written,
        "bytes": _bytes(folder),
    }


def _bytes(folder: Path) -> dict[str, int]:
    sizes = Counter[str]()
    for path, _ in layout.files(folder):
        sizes[path.parents[2].name] += path.stat().st_size
    return dict(sizes)


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--profile", action="store_true", help="print the functions that decode and write take most in")
    asked = parser.parse_args()
    profile = cProfile.Profile() if asked.profile else None
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(Path(folder), asked.nodes, asked.seconds, profile), indent=2))
    if profile is not None:
        pstats.Stats(profile).sort_stats("tottime").print_stats(40)


if __name__ == "__main__":
    main()
