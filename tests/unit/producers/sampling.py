"""A sampler on virtual time."""

from collections.abc import Callable, Mapping
from pathlib import Path

from prometheus_client import REGISTRY

from producers import clock as grid
from producers import sampler
from producers.source import Source
from schemas import codec
from schemas.messages.telemetry import SampleBlock

EPOCH = 1_795_242_556 * grid.SECOND
MS = 1_000_000


class Virtual:
    """Time that passes only in `sleep`; what happens at which sleep is given beforehand.

    Attributes:
        late: By how many nanoseconds a sleep is too long, by its number.
        suspended: For how many nanoseconds the machine is suspended in a sleep, by its number.
    """

    def __init__(self, boottime: int = 41 * grid.SECOND + 250 * MS) -> None:
        self.now = boottime
        self.asleep = 0
        self.offset = EPOCH
        self.sleeps = 0
        self.late: dict[int, int] = {}
        self.suspended: dict[int, int] = {}
        self.at: dict[int, Callable[[], None]] = {}

    def boottime(self) -> int:
        return self.now

    def monotonic(self) -> int:
        return self.now - self.asleep

    def realtime(self) -> int:
        return self.now + self.offset

    def sleep(self, seconds: float) -> None:
        self.sleeps += 1
        self.now += round(seconds * grid.SECOND) + self.late.get(self.sleeps, 0) + self.suspended.get(self.sleeps, 0)
        self.asleep += self.suspended.get(self.sleeps, 0)
        self.at.get(self.sleeps, lambda: None)()


class Stopwatch:
    """Gives the moment at which its file was read, and the seconds since it was read before."""

    name = "stopwatch"
    metrics: tuple[str, ...] = ("moment", "passed")
    path: Path | None = Path("/proc/self/stat")  # whatever can be read
    optional = False

    def __init__(self, facts: Mapping[str, int] | None = None) -> None:
        self.before: float | None = None
        self.facts: Mapping[str, int] = {"cpus": 4, "memory_bytes": 1 << 34} if facts is None else facts
        self.broken = False

    def measure(self, content: bytes, now: float) -> tuple[float | None, ...]:
        if self.broken:
            raise OSError("gone")
        assert bool(content) == (self.path is not None)
        before, self.before = self.before, now
        return (now, None if before is None else now - before)


class Rig:
    """A sampler with virtual time that stops after some sleeps."""

    def __init__(self, sleeps: int, sources: list[Source] | None = None, interval: float = 0.1) -> None:
        self.clock = Virtual()
        self.sources = sources if sources is not None else [Stopwatch()]
        self.payloads: list[tuple[int, bytes]] = []
        self.sampler = sampler.Sampler(
            self.sources,
            node="ip-10-0-0-7.internal",
            boot="3f2504e0",
            interval_seconds=interval,
            emit=self.emit,
            clock=self.clock,
        )
        self.clock.at[sleeps] = self.sampler.stop

    def emit(self, seq: int, payload: bytes) -> None:
        self.payloads.append((seq, payload))

    def run(self) -> list[SampleBlock]:
        self.sampler.run()
        blocks = [codec.decode(SampleBlock, payload) for _, payload in self.payloads]
        assert [block.seq for block in blocks] == [seq for seq, _ in self.payloads]
        return blocks


def column(block: SampleBlock, name: str) -> list[float | None]:
    return block.values[block.metrics.index(name) :: len(block.metrics)]


def count(name: str) -> float:
    return REGISTRY.get_sample_value(name) or 0.0
