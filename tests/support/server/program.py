"""A program with a log beside it, for tests: started as a user starts it, stopped in every way, started again."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

SPAZIO = (sys.executable, "-m", "spazio")


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a process for the length of a block; `spazio up` may kill it meanwhile, as one that is hung."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


class Program:
    """One program; what it says is in `log`, of all its lives."""

    def __init__(
        self, command: Sequence[str], log: Path, environ: Mapping[str, str] | None = None, folder: Path | None = None
    ) -> None:
        """Describe it.

        Args:
            command: Program and arguments.
            log: File for what it writes.
            environ: Its whole environment; default: ours.
            folder: Where it runs; default: where we do.
        """
        self.command, self.log = list(command), log
        self._environ, self._folder = environ, folder
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, env=self._environ, cwd=self._folder)

    @property
    def alive(self) -> bool:
        """Whether it was started and has not ended."""
        return self.process is not None and self.process.poll() is None

    def send(self, sign: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(sign)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def end(self, seconds: float = 15, sign: signal.Signals = signal.SIGTERM) -> int:
        """End it by a signal; returns its status."""
        self.send(sign)
        assert self.process is not None
        status, self.process = self.process.wait(seconds), None
        return status

    @property
    def cpu_seconds(self) -> float:
        """CPU time that it has used so far."""
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def events(self) -> list[dict[str, Any]]:
        """What it has logged."""
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
