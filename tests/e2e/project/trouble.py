"""What goes wrong around a pipeline: what its nodes send, and what happens to its server, files and settings."""

import asyncio
import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from nats.aio.client import Client

from bus.publishing.identity import Sealer
from bus.reading.pin import GROUP
from schemas import codec
from schemas.messages.base import Message
from schemas.messages.prediction import Accuracy
from schemas.messages.telemetry import SampleBlock
from schemas.subject import Names
from sinks.history import layout
from sinks.history.layout import Name
from tests.e2e.pipeline import Up, again, until
from tests.e2e.project.watched import acting_as, ask_extender, publish_as
from tests.support.extender.placement import node, report
from tests.support.processors import predicted, telemetry
from tests.support.server.program import stopped

NAMES = Names()
CERTIFICATE = "server.pem"
DISKS = "diskstats"
_REPORTED_SECONDS, _LATE_SECONDS = 2.0, 5.3  # a number comes each second; one is late after five, and absent after nine
_RIGHT = 4  # seconds in which the clock that is set back is right
_CROWD = 400  # pods of one node, more than those of which there are statistics
_LETTERS = 400  # more than are kept of one node at a time


def flood_with_nonsense(pipeline: Up) -> None:
    """Publish more unusable messages of one node than dead letters are kept."""

    async def publish(client: Client) -> None:
        stream = client.jetstream()
        await asyncio.gather(*(stream.publish(NAMES.node("samples", "x"), b"nonsense") for _ in range(_LETTERS)))

    acting_as(pipeline, "load", publish)


def ask_for_a_pod_with_a_long_name(pipeline: Up) -> None:
    """Ask where such a pod may go, of a node that has never reported; no server takes the decision."""
    longest = "\N{GRINNING FACE}" * 253
    ask_extender(pipeline, "unheard", name=longest, namespace=longest)


def strange(second: int) -> Iterator[tuple[str, Message]]:
    """Yield what strange nodes send in a second, and a node that has grown and has more pods than there is room for."""
    for block in (*_strange(second), telemetry.block("grown", _now(), seq=second)):
        yield NAMES.node("samples", block.node), block
    pods = [{"pod": f"crowd-{number}", "workloads": "shop/web", "cpu_cores": 0.01} for number in range(_CROWD)]
    yield NAMES.node("pods", "grown"), telemetry.usage("grown", _now(), pods)


def publish_facts(pipeline: Up) -> None:
    """Publish, as the cluster watch, of which size a node is; it sends something else."""
    facts = node("grown", capacity={"cpu": 1.0, "memory": 1e9}, allocatable={"cpu": 1.0, "memory": 1e9})
    publish_as(pipeline, "watch", (NAMES.node("nodefacts", "grown"), facts))


def _now() -> int:
    return round(time.time()) - telemetry.START


def _strange(second: int) -> Iterator[SampleBlock]:
    """Yield blocks: two hosts under one name, one with gaps, a clock set back, many.

    The clock is right for some seconds, since a machine that is behind may leave the first of them out.
    """
    first = _now()
    for boot, since in (("a", 0), ("b", 1_000_000)):
        yield telemetry.block("twins", first, seq=since + second).model_copy(update={"boot": boot})
    yield telemetry.block("gaps", first, seq=3 * second)
    yield telemetry.block("slow", first - (5 if second > _RIGHT else 0), seq=second)
    if second == 1:
        yield telemetry.block("early", first + 7200, seq=second)
    for number in range(30):
        yield telemetry.block(f"more-{number}", first, seq=second)


def full(at_us: int) -> Iterator[tuple[str, Message]]:
    """Yield what processors say of a cluster of one node, which is full, and of nodes that behave unusually."""
    room = {"default/web": (0.0, 0.0)}
    yield (
        NAMES.node("availability", "full"),
        report("full", at_us, 0, classes=room, running=4, free={"cpu": 4, "memory": 1e9}),
    )
    for name in ("full", *(f"odd-{number}" for number in range(9))):
        yield NAMES.node("reject", name), predicted.reject(node=name, at_us=at_us)


def chatter() -> Iterator[tuple[str, Message]]:
    """Yield more blocks than a node may send in a minute."""
    for second in range(300):
        yield NAMES.node("samples", "chatty"), telemetry.block("chatty", _now() - 300 + second, seq=second)


@contextmanager
def silence(pipeline: Up) -> Iterator[None]:
    """Stop the agent of this machine for the length of a block; its last numbers reach the scheduler cache late."""
    with ExitStack() as stack:
        with stopped(pipeline.pid("cache")):
            time.sleep(_REPORTED_SECONDS)
            stack.enter_context(stopped(pipeline.pid("agent")))
            time.sleep(_LATE_SECONDS)
        yield


@contextmanager
def full_checkpoints(pipeline: Up) -> Iterator[None]:
    """Leave no space for checkpoints for the length of a block."""
    stream, before = f"OBJ_{NAMES.checkpoints}", 0

    async def limit(client: Client) -> int:
        config = (await client.jetstream().stream_info(stream)).config
        present = config.max_bytes or 0
        await client.jetstream().update_stream(config, max_bytes=before or 1)
        return present

    before = acting_as(pipeline, "admin", limit)
    try:
        yield
    finally:
        acting_as(pipeline, "admin", limit)


def take_leases(pipeline: Up) -> None:
    """Take all parts from the processor, as if the server had given them to another one."""

    async def take(client: Client) -> None:
        for consumer in await client.jetstream().consumers_info(NAMES.telemetry):
            if consumer.config.durable_name:
                verb = f"$JS.API.CONSUMER.UNPIN.{NAMES.telemetry}.{consumer.name}"
                await client.request(verb, json.dumps({"group": GROUP}).encode(), timeout=5)

    acting_as(pipeline, "admin", take)


def make_proc(folder: Path) -> None:
    """Make a folder that shows what /proc shows of the machine, of which one file can be damaged."""
    folder.mkdir()
    for path in Path("/proc").iterdir():
        if path.name != DISKS and not path.name.isdecimal():
            (folder / path.name).symlink_to(path)
    (folder / DISKS).write_bytes(Path("/proc", DISKS).read_bytes())


@contextmanager
def damaged_source(folder: Path) -> Iterator[None]:
    """Damage that file for the length of a block."""
    file = folder / DISKS
    before = file.read_text()
    file.write_text("nonsense")
    try:
        yield
    finally:
        file.write_text(before)


@contextmanager
def unreadable_history(pipeline: Up) -> Iterator[None]:
    """Put a file that cannot be read into the history for the length of a block.

    A sink looks for such files a minute after its start, so it starts again before it comes.
    """
    kill(pipeline, "history")
    until(lambda: pipeline.page("history", "/readyz")[0] == 200, 30, "the history is written again")
    unreadable = _old_file(pipeline, 1)
    unreadable.symlink_to("nowhere")
    try:
        yield
    finally:
        unreadable.unlink()


def damage_history(pipeline: Up) -> Path:
    """Put a damaged file into the history; returns where it is once it is set aside."""
    file = _old_file(pipeline, 3)
    file.write_bytes(b"PAR1 and nothing more")
    return file.with_name(f"{file.name}.damaged")


def _old_file(pipeline: Up, begin: int) -> Path:
    """Return the path of a file of an hour that is over, in a folder that there is."""
    two_hours_ago = time.time_ns() // 1000 - 2 * layout.HOUR_US
    folder = layout.hour_folder(pipeline.folder / "history", "samples", two_hours_ago)
    folder.mkdir(parents=True, exist_ok=True)
    return folder / str(Name("20260101T000000000001Z", begin, begin + 1))


def kill(pipeline: Up, name: str) -> None:
    """Kill a child, and wait until it runs again."""
    old = pipeline.pid(name)
    os.kill(old, signal.SIGKILL)
    until(lambda: again(pipeline, name, old), 20, f"{name} again")


@contextmanager
def stolen_key(pipeline: Up) -> Iterator[None]:
    """Let the agent make a new key for its message ids, which others may have; afterwards it starts again."""
    (pipeline.folder / "run" / "ids.key").unlink()
    kill(pipeline, "agent")
    try:
        yield
    finally:
        kill(pipeline, "agent")


def claim_ids(pipeline: Up) -> None:
    """Publish messages under the ids that the next blocks of this machine will have."""
    subject = NAMES.node("samples", socket.gethostname())

    async def claim(client: Client) -> None:
        subscription = await client.subscribe(subject)
        newest = SampleBlock.model_validate_json((await subscription.next_msg(20)).data)
        sealer = Sealer((pipeline.folder / "run" / "ids.key").read_bytes())
        for ahead in range(2, 6):
            identity = f"samples:{newest.node}:{newest.boot}:{newest.seq + ahead}".encode()
            payload = codec.encode(telemetry.block("thief", _now(), seq=ahead))
            headers = {"Nats-Msg-Id": sealer.seal(identity)}
            await client.jetstream().publish(NAMES.node("samples", "thief"), payload, headers=headers)

    acting_as(pipeline, "admin", claim)


def prediction(exceeded: float) -> tuple[str, Message]:
    """Return a prediction of a model that usage has exceeded in such a share of the times."""
    accuracy = {"calibrated": Accuracy(violations=exceeded, severity=0.1, savings=0.3, settled=1000)}
    at_us = time.time_ns() // 1000
    return NAMES.node("prediction", "n"), predicted.prediction(node="n", at_us=at_us, accuracy=accuracy)


@contextmanager
def damaged_certificate(pipeline: Up) -> Iterator[None]:
    """Damage the certificate of the dashboard, which is beside the data, for the length of a block."""
    file = pipeline.folder.parent / CERTIFICATE
    before = file.read_text()
    file.write_text("nonsense\n")
    try:
        yield
    finally:
        file.write_text(before)
