"""A real nats-server that tests start, kill and start again."""

import os
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from bus import server

_START_SECONDS = 20


class Natsd:
    """One server on a loopback port; `kill` leaves its storage for the next `start`."""

    def __init__(self, config: Path, port: int, environ: Mapping[str, str] | None = None) -> None:
        self.config, self.port = config, port
        self._environ = {**os.environ, **(environ or {})}
        self._log = config.with_name("server.log")
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return self._log.read_text()

    def start(self) -> None:
        with self._log.open("ab") as log:
            command = server.command(server.find(), self.config)
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=self._environ)
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                time.sleep(0.02)
            else:
                return
        raise AssertionError(self.log)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
