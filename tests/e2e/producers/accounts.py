"""An agent that measures real cgroups, and what the kernel accounts of them."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from processors.estimation import resource
from producers import file, inventory
from producers.pods import usage
from producers.pods.census import Census
from producers.pods.ticker import Ticker
from producers.sampler import Sampler
from schemas import codec
from schemas.messages.telemetry import PodUsageBlock, SampleBlock
from schemas.sections.measurement import Sample


class Agent:
    """What the agent measures, without a bus."""

    def __init__(self) -> None:
        self.pods: list[PodUsageBlock] = []
        self.samples: list[SampleBlock] = []
        sample = Sample()
        census = Census(sample.cgroup, sample.proc)
        self.reader = usage.Reader(
            census,
            sample.cgroup,
            sample.proc,
            node="n",
            boot="b",
            identify=lambda _: None,
            descriptors=file.allow_descriptors(),
        )
        self._threads = (
            Ticker(self.reader, lambda _, payload: self.pods.append(codec.decode(PodUsageBlock, payload))),
            Sampler(
                inventory.default(sample, census, self.reader),
                node="n",
                boot="b",
                interval_seconds=0.1,
                emit=lambda _, payload: self.samples.append(codec.decode(SampleBlock, payload)),
            ),
        )

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        for thread in self._threads:
            thread.stop()

    def cores(self, pod: str, since: float, until: float) -> float:
        """Return the mean CPU use of a pod between two moments of the wall clock, from the blocks that cover them."""
        seconds = covered = 0.0
        for block in self.pods:
            end, span = block.at_us / 1e6, block.span_us / 1e6
            part = min(end, until) - max(end - span, since)
            if part > 0 and pod in block.pods and (used := block.cpu_cores[block.pods.index(pod)]) is not None:
                seconds += used * part
                covered += part
        assert covered > 0.9 * (until - since)
        return seconds / covered

    def cpu(self, *, quotas: bool) -> float:
        """Return the mean of the CPU metric over the samples taken until now."""
        rows = np.concatenate(
            [np.array(block.values, dtype=float).reshape(-1, len(block.metrics)) for block in self.samples]
        )
        columns = {name: index for index, name in enumerate(self.samples[0].metrics)}
        made = resource.update(rows[None], columns, features=("cpu",), slowdown=2, memory="memory_util", quotas=quotas)
        return float(np.nanmean(made))


@contextmanager
def agent() -> Iterator[Agent]:
    running = Agent()
    running.start()
    try:
        yield running
    finally:
        running.stop()
