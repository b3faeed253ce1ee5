"""Processors as a real process that is killed again and again: its rows are those of one undisturbed replay."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from nats.aio.client import Client

from bus import stream
from bus.publishing import batch
from bus.reading.progress import Received
from bus.reading.reader import Reader
from processors import decode
from processors.partition.aggregate import Aggregate
from processors.partition.partition import Partition
from schemas import codec
from schemas import settings as all_settings
from schemas.messages.base import Message
from schemas.messages.estimate import Availability, Model
from schemas.settings import Settings
from schemas.subject import Names
from spazio.service import processing
from tests.conftest import NatsServer
from tests.support.processors import telemetry

NAMES = Names()


@contextmanager
def running(settings: Settings, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a service of spazio as a process; killed at the end if it still lives."""
    environ = {**os.environ, **all_settings.environment(settings), "SPAZIO_HTTP_PORT": "0"}
    process = subprocess.Popen(
        [sys.executable, "-m", "spazio", *arguments],
        env=environ,
        stderr=None if os.environ.get("LOUD") else subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def everything(client: Client, name: str, subjects: list[str]) -> list[Received]:
    messages: list[Received] = []
    async with Reader(client, name, subjects) as reader:
        while part := await reader.read(timeout_seconds=0.5):
            messages += part
    return messages


async def published(client: Client, kinds: tuple[str, ...] = ("availability", "smoothed")) -> list[tuple[str, bytes]]:
    subjects = [NAMES.of(kind, "*") for kind in kinds] + [NAMES.of("model", "partition", "*")]
    return [(row.subject, row.data) for row in await everything(client, NAMES.estimates, subjects)]


async def undisturbed(client: Client, settings: Settings) -> list[list[tuple[str, bytes]]]:
    """Fold the recorded stream once, partition by partition."""
    outputs = []
    for number in range((await stream.describe(client, NAMES.telemetry)).partitions):
        recorded = await everything(client, NAMES.telemetry, list(processing.subjects(NAMES, number)))
        rows, _ = Partition(settings, number).fold([(message.subject, message.data) for message in recorded])
        outputs.append([(row.subject, codec.encode(row.message)) for row in rows])
    return outputs


async def aggregated(client: Client, settings: Settings, seconds: float = 10) -> list[bytes]:
    """Wait until global models are those that one undisturbed aggregator makes of the stored sums; returns them."""
    shards = (await stream.describe(client, NAMES.telemetry)).partitions
    async with asyncio.timeout(seconds):
        while True:
            models = [row.data for row in await everything(client, NAMES.telemetry, [NAMES.model])]
            aggregate = Aggregate(shards, silent_seconds=settings.model.silent_seconds)
            sums = await everything(client, NAMES.estimates, [NAMES.of("model", "partition", "*")])
            made = [aggregate.fold(row.subject, row.data) for row in sums]
            if models == [codec.encode(model) for model in made if model is not None]:
                return models
            await asyncio.sleep(0.3)


async def caught_up(client: Client, settings: Settings, seconds: float = 60) -> list[tuple[str, bytes]]:
    """Wait until what is published equals the undisturbed replay; returns what is published then."""
    rows: list[tuple[str, bytes]] = []
    async with asyncio.timeout(seconds):
        while True:
            rows = await published(client)
            if sorted(rows) == sorted(row for part in await undisturbed(client, settings) for row in part):
                return rows
            await asyncio.sleep(0.3)


async def publish(client: Client, random: np.random.Generator, killed: asyncio.Event) -> None:
    """Publish forty seconds of six nodes with events, facts and pod usage, whatever the server does meanwhile.

    The last seconds wait until there have been enough kills, however slow the machine is.
    """

    async def stored(kind: str, message: Message, node: str, second: int) -> None:
        while True:
            try:
                headers = {"Nats-Msg-Id": f"{kind}:{node}:{second}"}
                subject, payload = NAMES.node(kind, node), codec.encode(message)
                await client.jetstream().publish(subject, payload, headers=headers, timeout=0.5)
            except Exception:  # noqa: BLE001 # the server is being killed; the id makes the retry harmless
                await asyncio.sleep(0.1)
            else:
                return

    for second in range(40):
        if second == 35:
            await killed.wait()
        for node in (f"node-{index}" for index in range(6)):
            pods = [f"{node}-{number}" for number in range(second // 7 % 4)]
            if second % 7 == 0:
                await stored("containers", telemetry.event(node, second + 0.1), node, second)
                await stored("podfacts", telemetry.facts(node, f"{node}-0", "shop/a", second), node, second)
            await stored("samples", telemetry.noisy(node, second, len(pods), random), node, second)
            used = [{"pod": pod, "workloads": "image", "cpu_cores": 0.3, "memory_bytes": 2e8} for pod in pods]
            await stored("pods", telemetry.usage(node, second + 1, used), node, second)
        await asyncio.sleep(0.2)


async def newest_model(client: Client) -> int:
    return (await batch.last(client, NAMES.telemetry, NAMES.model)).sequence


async def model_after(client: Client, previous: int) -> None:
    """Wait a while until a global model is made; there is none any more once everything is folded."""
    async with asyncio.timeout(5):
        while await newest_model(client) == previous:  # noqa: ASYNC110 # another process makes it
            await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_killed_at_any_instant_processors_publish_what_one_undisturbed_replay_gives(
    client: Client, settings: Settings, nats_server: NatsServer
) -> None:
    settings = settings.model_copy(update={"process": settings.process.model_copy(update={"checkpoint_seconds": 0.3})})
    random = np.random.default_rng(2)
    enough = asyncio.Event()
    publishing = asyncio.create_task(publish(client, random, enough))
    kills = 0
    while not publishing.done():
        previous = await newest_model(client)
        with running(settings, "process") as process:
            if kills % 2:  # else it is killed while it starts
                with contextlib.suppress(TimeoutError):
                    await model_after(client, previous)
            await asyncio.sleep(float(random.uniform(0.3, 1.6)))
            if kills == 2:
                await asyncio.to_thread(nats_server.kill)
                await asyncio.to_thread(nats_server.start)
            process.send_signal(signal.SIGKILL)
            kills += 1
            if kills == 5:
                enough.set()
    await publishing
    with running(settings, "process"):
        await caught_up(client, settings)
        models = await aggregated(client, settings)
        rows = await caught_up(client, settings)
    assert len(models) == len(set(models)) >= 2
    assert len(rows) == len(set(rows))
    assert sum(subject.startswith("spazio.smoothed") for subject, _ in rows) == 240
    sums = [codec.decode(Model, payload) for subject, payload in rows if ".model." in subject]
    assert {name for model in sums for name in model.classes or {}} == {"shop/a", "image"}
    estimates = [codec.decode(Availability, payload) for subject, payload in rows if ".availability." in subject]
    assert any(row.churn for row in estimates)
    assert any(set(row.classes or {}) == {"shop/a", "image"} for row in estimates)


@pytest.mark.slow
async def test_a_stop_by_signal_checkpoints_and_the_next_start_goes_on(client: Client, settings: Settings) -> None:
    random = np.random.default_rng(4)
    js = client.jetstream()
    for half in (range(5), range(5, 10)):
        for second in half:
            message = telemetry.noisy("n", second, 2, random)
            await js.publish(NAMES.node("samples", "n"), codec.encode(message))
        with running(settings, "process") as process:
            await caught_up(client, settings)
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, 5) == 0
    objects = await client.jetstream().object_store(NAMES.checkpoints)
    names = {f"{part}.{turn}" for part in processing.part_names(settings, 2) for turn in (0, 1)}
    assert {entry.name for entry in await objects.list()} <= names


@pytest.mark.slow
async def test_two_processes_on_the_same_streams_publish_every_row_once(client: Client, settings: Settings) -> None:
    random = np.random.default_rng(5)
    js = client.jetstream()
    with running(settings, "process"), running(settings, "process"):
        for second in range(15):
            for index in range(3):
                message = telemetry.noisy(f"node-{index}", second, 1, random)
                await js.publish(NAMES.node("samples", message.node), codec.encode(message))
            await asyncio.sleep(0.1)
        rows = await caught_up(client, settings)
    assert len(rows) == len(set(rows))


async def test_garbage_lands_in_dead_letters_with_a_reason_and_other_nodes_go_on(
    client: Client, settings: Settings
) -> None:
    js = client.jetstream()
    garbage = [
        b"not json",
        codec.encode(telemetry.block("x", 0)).replace(b'"v":1', b'"v":9'),
        codec.encode(telemetry.block("y", 0)),
        b"[" * 5000,
        b"\xff" * client.max_payload,
    ]
    with running(settings, "process"):
        for second, payload in enumerate(garbage):
            await js.publish(NAMES.node("samples", "x"), payload)
            await js.publish(NAMES.node("samples", "good"), codec.encode(telemetry.block("good", second)))
        others = {kind: codec.encode(telemetry.block("x", 0)) for kind in decode.OTHERS}
        for kind, payload in others.items():
            await js.publish(NAMES.node(kind, "x"), payload)
        await caught_up(client, settings)
        async with asyncio.timeout(60):
            while True:
                dead = await everything(client, NAMES.dead_letters, [NAMES.dead(NAMES.node("samples", "x"))])
                if len(dead) == len(garbage) + 1:
                    break
        for kind, payload in others.items():
            async with asyncio.timeout(60):
                while not (buried := await everything(client, NAMES.dead_letters, [NAMES.dead(NAMES.node(kind, "x"))])):
                    pass
            assert [message.data for message in buried] == [payload]
    assert [message.data for message in dead[:4]] == garbage[:4]
    assert b"".join(message.data for message in dead[4:]) == garbage[4]
    reasons = [(await js.get_msg(NAMES.dead_letters, seq=message.sequence)).headers or {} for message in dead]
    assert all(headers["Spazio-Error"] and headers["Spazio-Consumer"] == "process" for headers in reasons)
    rows = await published(client, ("smoothed",))
    assert sum(subject == "spazio.smoothed.good" for subject, _ in rows) == len(garbage)
