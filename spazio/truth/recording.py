"""Recording of an experiment: the telemetry from the bus, and the steps of the experiment.

Both files carry the identifier of the recording, so that the steps of one experiment are never evaluated with the
telemetry of another. An earlier recording in the folder stays until there is a step to replace it.
"""

import contextlib
import gzip
import json
import secrets
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from spazio.export import file

TELEMETRY = "telemetry.jsonl.gz"
STEPS = "steps.json"
_IDENTIFIER = "identifier"  # stands for the subject in the first line of the telemetry


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
        identifier: What its two files have in common; None in recordings of earlier versions.
    """

    folder: Path
    machine: dict[str, Any] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    identifier: str | None = field(default_factory=lambda: secrets.token_hex(8))

    def save(self) -> None:
        """Write identifier, machine and steps."""
        steps = [asdict(step) for step in self.steps]
        content = {"identifier": self.identifier, "machine": self.machine, "steps": steps}
        with file.replacing(self.folder / STEPS) as hidden:
            hidden.write_text(json.dumps(content, indent=1) + "\n")

    def messages(self) -> Iterator[tuple[int, str, bytes]]:
        """Yield time of arrival in microseconds, subject and payload of every message, in order.

        Raises:
            OSError: The telemetry cannot be read.
            ValueError: It is damaged, or that of another recording.
        """
        path = self.folder / TELEMETRY
        messages = _messages(path)
        first = next(messages, None)
        identifier = first[2].decode() if first is not None and first[1] == _IDENTIFIER else None
        if identifier != self.identifier:
            raise ValueError(f"{path} is of another experiment than {STEPS}; measure without --again")
        if first is not None and identifier is None:
            yield first
        yield from messages


def _messages(path: Path) -> Iterator[tuple[int, str, bytes]]:
    try:
        with gzip.open(path, "rb") as lines:
            for line in lines:
                at_us, subject, payload = line.rstrip(b"\n").split(b" ", 2)
                yield int(at_us), subject.decode(), payload
    except (EOFError, zlib.error, gzip.BadGzipFile, ValueError) as error:
        raise ValueError(f"{path} is damaged; measure without --again") from error


def load(folder: Path) -> Recording:
    """Read a recording.

    Raises:
        OSError: It cannot be read.
        ValueError: There is none, or it is damaged.
    """
    path = folder / STEPS
    if not path.exists():
        raise ValueError(f"{folder} has no recording; name the folder of one with --out, or leave out --again")
    try:
        content = json.loads(path.read_text())
        steps = [Step(**step) for step in content["steps"]]
        recorded = Recording(folder, content["machine"], steps, content.get("identifier"))
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{path} is damaged; measure without --again") from error
    if not recorded.steps:
        raise ValueError(f"{path} has no steps; measure without --again")
    return recorded


class Recorder:
    """Writes messages as they arrive.

    Args:
        hidden: File that it writes.
        path: File that `keep` replaces with it.
    """

    def __init__(self, hidden: Path, path: Path) -> None:
        self._hidden, self._path = hidden, path
        self._file = gzip.open(hidden, "wb", compresslevel=3)  # noqa: SIM115 # closed by `close`

    def write(self, at_us: int, subject: str, payload: bytes) -> None:
        """Append one message."""
        self._file.write(b"%d %s %s\n" % (at_us, subject.encode(), payload))

    def keep(self) -> None:
        """Replace the telemetry of an earlier recording; what is still to come is added."""
        self._hidden.replace(self._path)

    def close(self) -> None:
        """Finish the file."""
        self._file.close()


@contextlib.contextmanager
def recorder(recording: Recording) -> Iterator[Recorder]:
    """Record the telemetry of a recording; if `keep` was not called before an error, an earlier recording stays."""
    path = recording.folder / TELEMETRY
    with file.replacing(path) as hidden, contextlib.closing(Recorder(hidden, path)) as made:
        made.write(0, _IDENTIFIER, str(recording.identifier).encode())
        yield made


def of_family(steps: Sequence[Step]) -> dict[str, list[Step]]:
    """Return the steps of each family, in order."""
    families: dict[str, list[Step]] = {}
    for step in steps:
        families.setdefault(step.family, []).append(step)
    return families
