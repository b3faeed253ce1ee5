"""The outlook in real processes on a real server: what is published is what one undisturbed fold gives."""

import asyncio
import signal

import pytest
from nats.aio.client import Client

from bus import stream
from processors.prediction.fold import PredictionPartition
from schemas import codec
from schemas.messages.prediction import Prediction
from schemas.settings import Settings
from schemas.subject import Names
from spazio.service import processing
from tests.integration.test_engine import everything, running
from tests.unit.processors.prediction.test_outlook import FAST, recording

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
        recorded = await everything(client, NAMES.telemetry, list(processing.outlook_subjects(NAMES, number)))
        outputs = PredictionPartition(settings, number).fold([(message.subject, message.data) for message in recorded])
        rows += [(output.subject, codec.encode(output.message)) for output in outputs]
    return [row for row in rows if row[0].split(".")[1] in ("prediction", "reject")]


async def published(client: Client) -> Rows:
    return [(row.subject, row.data) for row in await everything(client, NAMES.estimates, SUBJECTS)]


async def until(client: Client, wanted: Rows, least: int, seconds: float = 20) -> Rows:
    """Wait until so many of the rows are published; what is published is the beginning of each node's rows."""
    async with asyncio.timeout(seconds):
        while len(rows := await published(client)) < least:  # noqa: ASYNC110 # another process publishes
            await asyncio.sleep(0.1)
    for subject in {subject for subject, _ in wanted}:
        own, all_of_it = ([row for row in each if row[0] == subject] for each in (rows, wanted))
        assert own == all_of_it[: len(own)]
    return rows


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
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_ended_in_the_middle_again_and_again_it_publishes_every_row_once(
    client: Client, settings: Settings, how: signal.Signals
) -> None:
    for part in range(4):
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
