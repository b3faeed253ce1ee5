"""What was measured while the experiment ran: telemetry as it came over the bus, and the steps of the experiment."""

import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

TELEMETRY = "telemetry.jsonl.gz"
STEPS = "steps.json"


@dataclass(slots=True)
class Step:
    """So many pods of one family.

    Attributes:
        family: Its name.
        limit: `cpu` or `memory`.
        pods: How many run.
        workload: Workload class of the pod that comes next.
        begin_us: When the last of them was started.
        end_us: When it was over.
        slowdown: Mean over pods of time taken over time alone; None: nothing was finished, or memory limits.
        fits: Pods that hold in all, where memory limits.
    """

    family: str
    limit: str
    pods: int
    workload: str
    begin_us: int
    end_us: int = 0
    slowdown: float | None = None
    fits: int | None = None


@dataclass(slots=True)
class Recording:
    """The experiment: the machine, its steps, and where the telemetry lies.

    Attributes:
        folder: Where it lies.
        machine: `node`, `cpus`, `memory_bytes`, `kernel`.
        steps: In order.
    """

    folder: Path
    machine: dict[str, Any] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)

    def save(self) -> None:
        """Write machine and steps."""
        content = {"machine": self.machine, "steps": [asdict(step) for step in self.steps]}
        (self.folder / STEPS).write_text(json.dumps(content, indent=1) + "\n")

    def messages(self) -> Iterator[tuple[int, str, bytes]]:
        """Yield time of arrival in microseconds, subject and payload of every message, in order."""
        with gzip.open(self.folder / TELEMETRY, "rb") as file:
            for line in file:
                at_us, subject, payload = line.rstrip(b"\n").split(b" ", 2)
                yield int(at_us), subject.decode(), payload


def load(folder: Path) -> Recording:
    """Read a recording.

    Raises:
        OSError: It is not there.
        ValueError: It is damaged.
    """
    content = json.loads((folder / STEPS).read_text())
    return Recording(folder, content["machine"], [Step(**step) for step in content["steps"]])


class Recorder:
    """Writes messages as they come."""

    def __init__(self, folder: Path) -> None:
        self._file = gzip.open(folder / TELEMETRY, "wb", compresslevel=3)  # noqa: SIM115 # closed by `close`

    def write(self, at_us: int, subject: str, payload: bytes) -> None:
        """Append one message."""
        self._file.write(b"%d %s %s\n" % (at_us, subject.encode(), payload))

    def close(self) -> None:
        """Finish the file."""
        self._file.close()


def of_family(steps: Sequence[Step]) -> dict[str, list[Step]]:
    """Return the steps of each family, in order."""
    found: dict[str, list[Step]] = {}
    for step in steps:
        found.setdefault(step.family, []).append(step)
    return found
