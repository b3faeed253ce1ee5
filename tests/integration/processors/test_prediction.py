"""Predictions in real processes on a real server: what is published is what one undisturbed fold gives."""

import asyncio
import signal

import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.errors import NotFoundError

from bus import stream
from processors.partition.aggregate import Federation
from processors.prediction.fold import PredictionPartition
from schemas import codec
from schemas.messages.prediction import Prediction, Reject, Subspace
from schemas.settings import Settings
from schemas.subject import Names
from spazio.service import processing
from tests.integration.processors.test_engine import everything, running
from tests.unit.processors.prediction.fold.recordings import FAST, recording

NAMES = Names()
SUBJECTS = [NAMES.of("prediction", "*"), NAMES.of("reject", "*")]
Rows = list[tuple[str, bytes]]


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Windows of seconds, and checkpoints so often that one lies between any two kills."""
    flags = {name.removeprefix("predict_"): int(value) for name, value in FAST.items()}
    predict = settings.predict.model_copy(update={**flags, "checkpoint_seconds": 0.3})
    return settings.model_copy(update={"predict": predict})


async def fill(client: Client, seed: int, begin: float = 0, end: float = 1) -> None:
    """Publish a part of a recorded stream."""
    messages = recording(seed, 1)
    for subject, payload in messages[int(begin * len(messages)) : int(end * len(messages))]:
        kind, node = subject.split(".")[3:]
        await client.jetstream().publish(NAMES.node(kind, node), payload)


async def undisturbed(client: Client, settings: Settings) -> Rows:
    """Fold what is stored once, partition by partition."""
    rows: Rows = []
    for number in range((await stream.describe(client, NAMES.telemetry)).partitions):
        federated = settings.reject.subspace == "global"
        recorded = await everything(
            client, NAMES.telemetry, list(processing.prediction_subjects(NAMES, number, federated))
        )
        outputs = PredictionPartition(settings, number).fold([(message.subject, message.data) for message in recorded])
        rows += [(output.subject, codec.encode(output.message)) for output in outputs]
    return [row for row in rows if row[0].split(".")[1] in ("prediction", "reject")]


async def published(client: Client) -> Rows:
    return [(row.subject, row.data) for row in await everything(client, NAMES.estimates, SUBJECTS)]


async def until(client: Client, wanted: Rows, least: int, seconds: float = 60) -> Rows:
    """Wait until so many of the rows are published; what is published is the beginning of each node's rows."""
    async with asyncio.timeout(seconds):
        while len(rows := await published(client)) < least:  # noqa: ASYNC110 # another process publishes
            await asyncio.sleep(0.1)
    for subject in {subject for subject, _ in wanted}:
        own, all_of_it = ([row for row in each if row[0] == subject] for each in (rows, wanted))
        assert own == all_of_it[: len(own)]
    return rows


@pytest.mark.slow
async def test_predictions_and_rejects_of_a_filled_stream_are_those_of_one_fold(
    client: Client, settings: Settings
) -> None:
    await fill(client, 3)
    wanted = await undisturbed(client, settings)
    with running(settings, "process"):
        rows = await until(client, wanted, len(wanted))
    assert sorted(rows) == sorted(wanted)
    assert {subject.split(".")[1] for subject, _ in rows} == {"prediction", "reject"}
    for subject, payload in rows:
        if ".prediction." in subject:
            codec.decode_from(Prediction, payload, subject)


@pytest.mark.slow
async def test_ended_in_the_middle_again_and_again_it_publishes_every_row_once(
    client: Client, settings: Settings
) -> None:
    for part, how in enumerate((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGTERM)):
        await fill(client, 4, part / 4, (part + 1) / 4)
        wanted = await undisturbed(client, settings)
        with running(settings, "process") as process:
            # Ended when it has begun, and when it has done all that it can.
            await until(client, wanted, len(wanted) if part % 2 else 1)
            process.send_signal(how)
            await asyncio.to_thread(process.wait, 10)
    with running(settings, "process"):
        rows = await until(client, wanted, len(wanted))
    assert sorted(rows) == sorted(wanted)
    objects = await client.jetstream().object_store(NAMES.checkpoints)
    assert any(entry.name and entry.name.startswith("outlook-") for entry in await objects.list())


async def _paced(client: Client, begin: float, end: float, *, wait: bool = True) -> None:
    """Publish a part of a recorded stream in portions; wait after each for directions made from it."""
    messages = recording(4, 1, 120)
    part = messages[int(begin * len(messages)) : int(end * len(messages))]
    js, last, newest = client.jetstream(), await _newest(client.jetstream()), 0
    for number, (subject, payload) in enumerate(part):
        kind, node = subject.split(".")[3:]
        await js.publish(NAMES.node(kind, node), payload)
        if number % 60 == 59:
            async with asyncio.timeout(60):
                while wait and (newest := await _newest(js)) == last:  # noqa: ASYNC110 # another process
                    await asyncio.sleep(0.05)
            last = newest


async def _newest(js: JetStreamContext) -> int:
    try:
        return (await js.get_last_msg(NAMES.telemetry, NAMES.subspace)).seq or 0
    except NotFoundError:
        return 0


async def _directions(client: Client, settings: Settings) -> tuple[Rows, Rows]:
    """Return the directions of all nodes as stored, and as one undisturbed fold of those of the partitions."""
    parts = await everything(client, NAMES.estimates, [NAMES.of("subspace", "partition", "*")])
    shards = (await stream.describe(client, NAMES.telemetry)).partitions
    federation = Federation(shards, silent_seconds=settings.model.silent_seconds)
    wanted = [merged for part in parts if (merged := federation.fold(part.subject, part.data)) is not None]
    stored = await everything(client, NAMES.telemetry, [NAMES.subspace])
    rows = [(message.subject, message.data) for message in stored]
    return rows, [(NAMES.subspace, codec.encode(message)) for message in wanted]


async def _wanted(client: Client, settings: Settings) -> Rows:
    """Fold what is stored once, partition by partition; as `undisturbed`, with one reading of the stream."""
    stored = await everything(client, NAMES.telemetry, [NAMES.of("part", ">"), NAMES.subspace])
    shard_of = {
        message.subject: message.subject.split(".")[2] for message in stored if message.subject != NAMES.subspace
    }
    rows: Rows = []
    for shard in set(shard_of.values()):
        own = [message for message in stored if shard_of.get(message.subject, shard) == shard]
        outputs = PredictionPartition(settings, int(shard)).fold([(message.subject, message.data) for message in own])
        rows += [(output.subject, codec.encode(output.message)) for output in outputs]
    return [row for row in rows if row[0].split(".")[1] in ("prediction", "reject")]


async def _complete(client: Client, settings: Settings, seconds: float = 180) -> Rows:
    """Wait until all that follows from the stored streams is published, and nothing else, and return the rows."""
    async with asyncio.timeout(seconds):
        while True:
            rows, wanted = await published(client), await _wanted(client, settings)
            stored, expected = await _directions(client, settings)
            if rows and sorted(rows) == sorted(wanted) and stored == expected:
                return rows


@pytest.mark.slow
async def test_federated_it_judges_by_the_directions_of_all_nodes_whatever_is_killed(
    client: Client, settings: Settings
) -> None:
    reject = settings.reject.model_copy(update={"subspace": "global", "merge_seconds": 2})
    settings = settings.model_copy(update={"reject": reject})
    for part, how in enumerate((signal.SIGKILL, signal.SIGTERM)):
        with running(settings, "process") as process:
            await _paced(client, part / 2, (part + 1) / 2)
            process.send_signal(how)
            await asyncio.to_thread(process.wait, 10)
    with running(settings, "process"):
        rows = await _complete(client, settings)
    stored, _ = await _directions(client, settings)
    directions = [codec.decode(Subspace, payload) for _, payload in stored]
    assert len(directions) > 5
    assert {message.scope for message in directions} == {"global"}
    assert max(message.nodes for message in directions) > 1
    rejects = [codec.decode_from(Reject, payload, subject) for subject, payload in rows if ".reject." in subject]
    assert rejects
    assert {message.subspace for message in rejects} == {"global"}


@pytest.mark.slow
async def test_the_form_may_change_between_two_runs(client: Client, settings: Settings) -> None:
    reject = settings.reject.model_copy(update={"subspace": "global", "merge_seconds": 2})
    with running(settings, "process") as process:
        await _paced(client, 0, 0.5, wait=False)
        async with asyncio.timeout(60):
            while not any(".reject." in row[0] for row in await published(client)):  # noqa: ASYNC110 # another process
                await asyncio.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(process.wait, 10)
    before = len(await published(client))
    with running(settings.model_copy(update={"reject": reject}), "process"):
        await _paced(client, 0.5, 1)
        async with asyncio.timeout(30):
            while True:
                rows = (await published(client))[before:]
                rejects = [codec.decode(Reject, payload) for subject, payload in rows if ".reject." in subject]
                if any(message.subspace == "global" for message in rejects):
                    break
                await asyncio.sleep(0.1)
