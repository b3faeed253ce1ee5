"""The compose stack for tests: a Docker engine of its own, images made without a registry, and real containers."""

import asyncio
import json
import os
import signal
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import nats.errors

from bus.link import Connection
from schemas.subject import token
from spazio.service.composition import machine
from tests.e2e.pipeline import spazio
from tests.e2e.runtimes import runtime

ROOT = Path(__file__).parents[3]
PROGRAMS = ("dockerd", "containerd", "runc", "docker", "docker-compose", "mmdebstrap", "busybox")
SERVICES = ("nats", *machine.NAMES)
NODE = "node-1.example"
PROJECT = "spazio-test"
USER = 12345  # owner of the history's folder; neither root nor the images' own


@contextmanager
def engine() -> Iterator[str]:
    """Run a Docker engine of our own and yield its address; nothing of the host's firewall is touched."""
    runtime.require(*PROGRAMS)
    with runtime.short_folder() as folder:
        dockerd = runtime.Dockerd(folder)
        dockerd.start()
        try:
            yield f"unix://{dockerd.socket}"
        finally:
            dockerd.end(seconds=60)


def run(*command: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600, env={**os.environ, **environ}
    )


class Stack:
    """The containers of `docker-compose.yml`, as a user has them.

    Args:
        address: The engine's.
        history: Folder of this host in which history is written.
        nats_port: Port of this host at which NATS is offered.
        http_port: The same of the metrics.
    """

    def __init__(self, address: str, history: Path, nats_port: int, http_port: int) -> None:
        self.history, self.url, self.page = history, f"tls://127.0.0.1:{nats_port}", f"http://127.0.0.1:{http_port}"
        self._environ = {
            "DOCKER_HOST": address,
            "COMPOSE_PROJECT_NAME": PROJECT,
            "BASE_IMAGE": "spazio-base:local",
            "SPAZIO_NATS_IMAGE": "spazio-nats:local",
            "SPAZIO_NATS_PORT": str(nats_port),
            "SPAZIO_HTTP_PORT": str(http_port),
            "SPAZIO_EXTENDER_PORT": "0",
            "SPAZIO_DASHBOARD_PORT": "0",
            "SPAZIO_SAMPLE_NODE": NODE,
            "SPAZIO_HISTORY": str(history),
            "SPAZIO_USER": f"{USER}:{USER}",
            "SPAZIO_RUNTIME_DOCKER_SOCKET": address.removeprefix("unix://"),
            "SPAZIO_DOCKER_GROUP": str(Path(address.removeprefix("unix://")).stat().st_gid),
        }

    def prepare(self) -> None:
        """Make the images and the folder of the history."""
        self.history.mkdir()
        os.chown(self.history, USER, USER)
        self._done("deploy/offline.sh")
        self.compose("build")

    def compose(self, *arguments: str) -> str:
        """Run a command of docker-compose."""
        return self._done("docker-compose", *arguments)

    def docker(self, *arguments: str) -> str:
        """Run a command of docker."""
        return self._done("docker", *arguments)

    def _done(self, *command: str) -> str:
        answer = run(*command, **self._environ)
        assert answer.returncode == 0, f"{' '.join(command)}\n{answer.stdout[-3000:]}\n{answer.stderr[-3000:]}"
        return answer.stdout.strip()

    def inspect(self, service: str) -> dict[str, Any]:
        """Return what the engine knows of a service's container."""
        (result,) = json.loads(self.docker("inspect", self.compose("ps", "-q", service)))
        assert isinstance(result, dict)
        return result

    def health(self) -> dict[str, str]:
        """Return the health of every service."""
        return {name: self.inspect(name)["State"]["Health"]["Status"] for name in SERVICES}

    def kill(self, service: str) -> None:
        """Kill a container's first process, as a crash or a lack of memory does; `docker kill` means stop."""
        os.kill(self.inspect(service)["State"]["Pid"], signal.SIGKILL)

    def taken(self, stored: str) -> Path:
        """Return a file of the volume of keys, taken out of the stack as a user does."""
        file = self.history.with_name(stored.replace("/", "-"))
        if not file.exists():
            file.touch(mode=0o600)
            path = f"/credentials/keys/{stored}"
            file.write_text(self.compose("run", "--rm", "-T", "--entrypoint", "cat", "credentials", path))
        return file

    def cached(self) -> dict[str, Any]:
        """Return the node's row of the scheduler cache, asked for from outside; empty if there is none."""

        async def once() -> bytes | None:
            client = Connection()
            try:
                await client.connect(
                    self.url,
                    connect_timeout=2,
                    allow_reconnect=False,
                    error_cb=_quiet,
                    user_credentials=str(self.taken("roles/reader.creds")),
                    tls=ssl.create_default_context(cafile=self.taken("tls/nats/ca.crt")),
                    inbox_prefix=b"_INBOX_reader",
                )
                bucket = await client.jetstream(timeout=2).key_value("SPAZIO_AVAILABILITY")
                return (await bucket.get(token(NODE))).value
            finally:
                await client.close()

        try:
            row = json.loads(asyncio.run(once()) or b"{}")
        except (nats.errors.Error, OSError):
            return {}
        assert isinstance(row, dict)
        return row

    def metrics(self) -> str:
        """Return the page of the metrics sink; empty if nobody answers."""
        try:
            with urllib.request.urlopen(f"{self.page}/metrics", timeout=5) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def sql(self, statement: str) -> list[dict[str, Any]]:
        """Query the history in its folder of this host."""
        answer = spazio("sql", statement, "--json", "--history-dir", str(self.history))
        assert answer.returncode == 0, answer.stderr
        rows: list[dict[str, Any]] = json.loads(answer.stdout)
        return rows

    def parquet(self, statement: str) -> tuple[Any, ...]:
        """Query the files themselves, with nothing of spazio; `FILES` stands for those of the samples."""
        files = f"read_parquet('{self.history}/samples/*/*/*.parquet', union_by_name = true)"
        with duckdb.connect() as connection:
            row = connection.execute(statement.replace("FILES", files)).fetchone()
        assert row is not None
        return row


async def _quiet(_error: Exception) -> None:
    """Say nothing: each client gets an empty answer."""
