"""Real agents and a subscriber that notes when each container event reaches it, as anybody on the bus would."""

import contextlib
import json
import signal
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from nats.aio.client import Client
from nats.aio.msg import Msg

from bus import stream
from schemas import codec
from schemas import settings as all_settings
from schemas.messages.telemetry import ContainerEvent
from tests.conftest import NatsServer
from tests.e2e.pipeline import until
from tests.e2e.runtimes.cri import Containerd
from tests.e2e.runtimes.runtime import Dockerd
from tests.support.server.listener import Listener
from tests.support.server.program import SPAZIO, Program

_STEP_DOWN = (
    "import encodings.idna, os, sys\n"
    "from spazio.command import agent\n"
    "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"  # after the imports: the interpreter may be root's own
    "sys.exit(agent.main(sys.argv[1:]))\n"
)
LIFE = ["created", "started", "exited", "deleted"]


class Heard(NamedTuple):
    """An event and when it arrived, in nanoseconds of CLOCK_BOOTTIME."""

    event: ContainerEvent
    at: int


class Bus(Listener):
    """A nats-server, and a thread that listens to all container events on it."""

    def __init__(self, folder: Path) -> None:
        self.server = NatsServer(folder)
        self.server.start()
        self.heard: list[Heard] = []
        super().__init__(self.server.url)

    async def subscribe(self, client: Client) -> None:
        settings = all_settings.load(
            {"nats_telemetry_max_bytes": str(64 << 20), "nats_estimates_max_bytes": str(64 << 20)}, environ={}
        )
        await stream.ensure(client, settings)

        async def take(message: Msg) -> None:
            at = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            self.heard.append(Heard(codec.decode_from(ContainerEvent, message.data, message.subject), at))

        await client.subscribe("spazio.containers.*", cb=take)

    def of(self, node: str, container: str) -> list[Heard]:
        """Return what one agent has reported of one container, in the order of arrival."""
        return [each for each in list(self.heard) if each.event.container == container and each.event.node == node]

    def life(self, node: str, container: str) -> list[str]:
        return [each.event.event for each in self.of(node, container)]

    def story(self, node: str, container: str) -> str:
        """Return the same for people, in milliseconds since the first of it."""
        heard = self.of(node, container)
        since = heard[0].event.boottime_us
        return ", ".join(
            f"{each.event.event} by {'+'.join(each.event.sources)} {(each.event.boottime_us - since) / 1000:.1f}"
            for each in heard
        )

    def running(self, node: str) -> set[str]:
        """Return what runs by what one agent has reported."""
        alive: set[str] = set()
        for each in list(self.heard):
            if each.event.node != node:
                continue
            if each.event.event == "started":
                alive.add(each.event.container)
            elif each.event.event in ("exited", "deleted"):
                alive.discard(each.event.container)
        return alive

    def close(self) -> None:
        super().close()
        self.server.kill()


@contextmanager
def bus(folder: Path) -> Iterator[Bus]:
    """Run a server and listen."""
    running = Bus(folder)
    try:
        yield running
    finally:
        running.close()


class Agent(Program):
    """A `spazio agent` process; its node is called as it is."""

    def __init__(
        self, folder: Path, bus: Bus, name: str, options: Sequence[str], *, unprivileged: bool = False
    ) -> None:
        self.name, self.folder = name, folder / name
        program = [sys.executable, "-c", _STEP_DOWN] if unprivileged else [*SPAZIO, "agent"]
        given = ["--sample-node", name, "--http-port", "0", "--log-format", "json"]
        given += ["--nats-url", bus.server.url, "--data-dir", str(self.folder), *options]
        super().__init__([*program, *given], folder / f"{name}.log")
        self._unprivileged = unprivileged

    def start(self) -> None:
        self.folder.mkdir(exist_ok=True)
        if self._unprivileged:
            self.folder.chmod(0o777)
        super().start()

    def end(self, seconds: float = 20, sign: signal.Signals = signal.SIGTERM) -> int:
        """End it; it must have lived until now."""
        assert self.alive, self.log.read_text()
        return super().end(seconds, sign)

    def logged(self, event: str) -> list[dict[str, object]]:
        """Return what it has logged under a name."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        rows = [json.loads(line) for line in lines if line.startswith("{")]
        return [row for row in rows if row.get("event") == event]

    def metric(self, line: str) -> float:
        """Return the value of a metric, by its name with labels; 0 if it is not there."""
        page = ""
        with contextlib.suppress(OSError, ValueError):
            address = json.loads((self.folder / "run/agent.json").read_text())["http"]
            with urllib.request.urlopen(f"{address}/metrics", timeout=5) as answer:
                page = answer.read().decode()
        return next((float(row.split()[-1]) for row in page.splitlines() if row.startswith(f"{line} ")), 0.0)


def options(containers: str, *, docker: Path = Path("/nowhere"), containerd: Path, bundles: Path) -> list[str]:
    """Return an agent's options to follow these sources of a runtime."""
    places = {"docker-socket": docker, "containerd-socket": containerd, "bundles": bundles}
    return [
        "--containers",
        containers,
        *(word for name, path in places.items() for word in (f"--runtime-{name}", str(path))),
    ]


def of_engine(engine: Dockerd, containers: str) -> list[str]:
    return options(containers, docker=engine.socket, containerd=engine.containerd, bundles=engine.bundles)


def of_kubelet(kubelet: Containerd, containers: str) -> list[str]:
    return options(containers, containerd=kubelet.socket, bundles=kubelet.bundles)


@contextmanager
def agents(folder: Path, bus: Bus, **options: Sequence[str]) -> Iterator[dict[str, Agent]]:
    """Run one agent for each name, and end them; each must still live then."""
    running = {name: Agent(folder, bus, name, given) for name, given in options.items()}
    try:
        for agent in running.values():
            agent.start()
        yield running
        for agent in running.values():
            if agent.process is not None:
                agent.end()
    finally:
        for agent in running.values():
            agent.kill()


def hearing(bus: Bus, names: Sequence[str], run: Callable[[], str]) -> None:
    """Wait until agents follow what happens: start containers until all have reported the same one."""
    tried: list[str] = []

    def all_hear() -> bool:
        if tried and all(bus.life(name, tried[-1]) for name in names):
            return True
        if not tried or time.monotonic() > hearing_since[0] + 1:
            tried.append(run())
            hearing_since[0] = time.monotonic()
        return False

    hearing_since = [0.0]
    until(all_hear, 30, f"{', '.join(names)} to hear")
