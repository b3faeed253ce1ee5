"""One command of spazio as a process for tests, with a data folder of its own."""

import os
from collections.abc import Mapping
from pathlib import Path

from tests.e2e.pipeline import until
from tests.support.server.program import SPAZIO, Program


class Service(Program):
    """`spazio` with these arguments."""

    def __init__(self, name: str, arguments: tuple[str, ...], folder: Path, environ: Mapping[str, str]) -> None:
        """Describe it.

        Args:
            name: What it calls itself in its note.
            arguments: Of the command line.
            folder: Its data folder; its log is beside it.
            environ: Its settings.
        """
        self._note = folder / "run" / f"{name}.json"
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("SPAZIO_")}
        common = {"SPAZIO_DATA_DIR": str(folder), "SPAZIO_HTTP_PORT": "0", "SPAZIO_LOG_FORMAT": "json"}
        super().__init__((*SPAZIO, *arguments), folder.with_suffix(".log"), {**inherited, **common, **environ})

    def start(self) -> None:
        self._note.unlink(missing_ok=True)
        super().start()

    def ready(self) -> None:
        """Wait until it listens."""
        until(self._note.exists, 30, f"{self.command[2:]} listens\n{self.log.read_text()[-3000:]}")
