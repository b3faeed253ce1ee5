"""Recording of an experiment: the telemetry from the bus, and the steps of the experiment."""

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

TELEMETRY = "telemetry.jsonl.gz"
STEPS = "steps.json"


@dataclass(slots=True)
class Step:
    """A number of pods of one family.

    Attributes:
        family: Name of the family.
        limit: `cpu` or `memory`.
        pods: Number of running pods.
        workload: Workload class of the next pod.
        begin_us: Time at which the last pod was started.
        end_us: Time at which the step ended.
        slowdown: Mean over pods of time taken over time alone; None: no work was finished, or memory limits.
        fits: Total number of pods that fit, where memory limits.
        disturbed: CPUs that something else took during the step, if too many; the slowdown is of a second measurement.
    """

    family: str
    limit: str
    pods: int
    workload: str
    begin_us: int
    end_us: int = 0
    slowdown: float | None = None
    fits: float | None = None
    disturbed: float | None = None


@dataclass(slots=True)
class Recording:
    """The experiment: the machine, its steps, and the folder of the telemetry.

    Attributes:
        folder: Folder of the recording.
        machine: `node`, `cpus`, `memory_bytes`, `kernel`.
        steps: Steps in order.
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
        path = self.folder / TELEMETRY
        try:
            with gzip.open(path, "rb") as file:
                for line in file:
                    at_us, subject, payload = line.rstrip(b"\n").split(b" ", 2)
                    yield int(at_us), subject.decode(), payload
        except (EOFError, zlib.error, gzip.BadGzipFile, ValueError) as error:
            raise ValueError(f"{path} is damaged; measure without --again") from error


def load(folder: Path) -> Recording:
    """Read a recording.

    Raises:
        OSError: There is none.
        ValueError: It is damaged.
    """
    path = folder / STEPS
    if not path.exists():
        raise FileNotFoundError(f"{folder} has no recording; name the folder of one with --out, or leave out --again")
    try:
        content = json.loads(path.read_text())
        recorded = Recording(folder, content["machine"], [Step(**step) for step in content["steps"]])
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{path} is damaged; measure without --again") from error
    if not recorded.steps:
        raise ValueError(f"{path} has no steps; measure without --again")
    return recorded


class Recorder:
    """Writes messages as they arrive."""

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
    families: dict[str, list[Step]] = {}
    for step in steps:
        families.setdefault(step.family, []).append(step)
    return families
