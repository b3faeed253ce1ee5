"""Messages that would end or stop a service, through task runners and a real server."""

import asyncio
import json
import logging
from collections.abc import Sequence

import pytest
from nats.aio.client import Client
from prometheus_client import REGISTRY

from bus import connection, stream
from bus.folding.journal import Batches
from bus.folding.task import Fold, Given, OutputRow, Shared, Task
from bus.folding.task_runner import TaskRunner
from bus.health import Health
from bus.publishing import coverage
from bus.publishing.batch import Row
from bus.reading.reader import Reader
from schemas.codec import InvalidMessage
from schemas.live import Live
from schemas.settings import Settings
from schemas.subject import Names

NAMES = Names()
INPUT = NAMES.node("samples", "n")
OUTPUT = NAMES.of("availability", "{}")
LONG = "x" * 4000


class Totals(Fold):
    """Sums numbers, a row for each; other payloads make what no service may trip over."""

    def __init__(self) -> None:
        self.total = 0

    def fold(self, messages: Sequence[tuple[str, bytes]]) -> tuple[Sequence[OutputRow], Sequence[InvalidMessage]]:
        outputs: list[OutputRow] = []
        for index, (_, payload) in enumerate(messages):
            self.total += 1
            if payload == b"raise":
                raise LookupError("no such thing")
            if payload == b"many":
                outputs += [OutputRow(index, Row(OUTPUT.format("m"), b"%d" % number)) for number in range(2500)]
            elif payload == b"large":
                outputs.append(OutputRow(index, Row(OUTPUT.format("l"), bytes(3 << 20))))
            elif payload == b"long":
                outputs.append(OutputRow(index, Row(OUTPUT.format(LONG), b"x")))
            elif payload == b"odd":
                outputs.append(OutputRow(index, Row(OUTPUT.format("a b\r\nPUB x 1"), b"x")))
            else:
                outputs.append(OutputRow(index, Row(OUTPUT.format("n"), b"%d" % self.total)))
        return outputs, []

    def snapshot(self) -> bytes | None:
        return self.capture()

    def capture(self) -> bytes:
        return json.dumps(self.total).encode()

    def clear(self) -> None:
        self.total = 0

    def restore(self, body: bytes) -> None:
        self.total = json.loads(body)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    process = settings.process.model_copy(update={"checkpoint_seconds": 0.2, "failover_seconds": 1})
    nats = settings.nats.model_copy(update={"partitions": 1})
    return settings.model_copy(update={"process": process, "nats": nats})


def runner(client: Client, settings: Settings, health: Health, given: Given | None = None) -> TaskRunner:
    task = Task("totals", NAMES.telemetry, (NAMES.partition(0),), given=given)
    journal = Batches(client, NAMES.estimates, NAMES.of("cursor", "totals"), timeout_seconds=1)
    return TaskRunner(client, Live(settings), health, task, Totals(), journal, Shared())


async def fill(client: Client, payloads: Sequence[bytes]) -> int:
    last = 0
    for payload in payloads:
        last = (await client.jetstream().publish(INPUT, payload)).seq
    return last


async def folded(client: Client, sequence: int) -> None:
    """Wait until the cursor covers a sequence."""
    source = await stream.describe(client, NAMES.telemetry)
    async with asyncio.timeout(60):
        while (  # noqa: ASYNC110 # a stream sends no notice
            await coverage.covered(client, NAMES.estimates, NAMES.of("cursor", "totals"), source)
        ).sequence < sequence:
            await asyncio.sleep(0.02)


async def rows(client: Client) -> list[tuple[str, bytes]]:
    result: list[tuple[str, bytes]] = []
    async with Reader(client, NAMES.estimates, [NAMES.of("availability", ">")]) as reader:
        while messages := await reader.read(timeout_seconds=0.3):
            result += [(message.subject, message.data) for message in messages]
    return result


async def letters(client: Client) -> list[tuple[str, bytes, str]]:
    """Return subject, payload and reason of every dead letter."""
    last, result = (await stream.describe(client, NAMES.dead_letters)).last, list[tuple[str, bytes, str]]()
    for sequence in range(1, last + 1):
        letter = await client.jetstream().get_msg(NAMES.dead_letters, seq=sequence)
        result.append((letter.subject or "", letter.data or b"", (letter.headers or {})["Spazio-Error"]))
    return result


def withheld(reason: str) -> float:
    labels = {"publisher": "process", "reason": reason}
    return REGISTRY.get_sample_value("spazio_publish_withheld_total", labels) or 0.0


async def test_rows_that_no_server_takes_are_withheld_and_the_rest_of_the_fold_is_stored(
    client: Client, settings: Settings
) -> None:
    before = {cause: withheld(cause) for cause in ("too_large", "subject_too_long", "subject_malformed")}
    health = Health()
    last = await fill(client, [b"1", b"large", b"long", b"1", b"odd", b"long", b"1"])
    running = asyncio.create_task(runner(client, settings, health).run())
    await folded(client, last)
    running.cancel()
    assert [payload for _, payload in await rows(client)] == [b"1", b"4", b"7"]
    assert {cause: withheld(cause) - count for cause, count in before.items()} == {
        "too_large": 1, "subject_too_long": 2, "subject_malformed": 1,
    }  # fmt: skip
    buried = await letters(client)
    large = [payload for subject, payload, _ in buried if subject == NAMES.dead(OUTPUT.format("l"))]
    assert b"".join(large) == bytes(3 << 20)
    others = [reason for subject, _, reason in buried if subject == NAMES.of("dead", "long")]
    assert len(others) == 2  # the same subject is buried once
    assert others[0].startswith("subject has 4020 bytes, a server takes 3584")
    assert "a space" in others[1]
    assert not health.problems


async def test_a_message_that_makes_the_fold_raise_is_buried_and_the_others_are_folded_once(
    client: Client, settings: Settings
) -> None:
    payloads = [b"raise" if number % 70 == 50 else b"1" for number in range(300)]
    last = await fill(client, payloads)
    running = asyncio.create_task(runner(client, settings, Health()).run())
    await folded(client, last)
    again = await fill(client, [b"1", b"raise", b"raise", b"1"])
    await folded(client, again)
    running.cancel()
    good = payloads.count(b"1") + 2
    assert await rows(client) == [(OUTPUT.format("n"), b"%d" % number) for number in range(1, good + 1)]
    subject = NAMES.dead(INPUT)
    assert await letters(client) == [(subject, b"raise", "the fold raised LookupError: no such thing")] * (
        payloads.count(b"raise") + 2
    )


async def test_what_makes_the_fold_raise_is_left_out_of_what_a_new_state_begins_with(
    client: Client, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    async def given() -> list[tuple[str, bytes]]:
        return [(INPUT, payload) for payload in (b"1", b"raise", b"1")]

    last = await fill(client, [b"1", b"1"])
    await client.jetstream().purge_stream(NAMES.telemetry, seq=last)
    with caplog.at_level(logging.WARNING, "bus.folding.careful"):
        running = asyncio.create_task(runner(client, settings, Health(), given).run())
        await folded(client, last)
    running.cancel()
    assert await rows(client) == [(OUTPUT.format("n"), b"3")]
    (record,) = caplog.records
    assert (record.message, record.__dict__["left_out"]) == ("given.refused", 1)


@pytest.mark.slow
async def test_rows_are_the_same_if_the_process_dies_again_and_again_while_it_looks_for_bad_messages(
    client: Client, settings: Settings
) -> None:
    payloads = [b"raise" if number % 41 == 7 else b"many" if number == 100 else b"1" for number in range(200)]
    last = await fill(client, payloads)
    for seconds in (0.1, 0.2, 0.4):
        async with connection.connect(settings, "doomed") as doomed:
            running = asyncio.create_task(runner(doomed, settings, Health()).run())
            await asyncio.sleep(seconds)
            doomed.abort()  # nothing more reaches the server: no checkpoint, no release
            running.cancel()
            await asyncio.wait({running})
    running = asyncio.create_task(runner(client, settings, Health()).run())
    await folded(client, last)
    running.cancel()
    plain = Totals()
    expected, _ = plain.fold([(INPUT, payload) for payload in payloads if payload != b"raise"])
    assert await rows(client) == [(output.row.subject, output.row.payload) for output in expected]
    assert len(await letters(client)) == payloads.count(b"raise")


async def test_a_message_of_more_rows_than_a_batch_is_stored_whole_and_once(client: Client, settings: Settings) -> None:
    last = await fill(client, [b"1", b"many", b"1"])
    running = asyncio.create_task(runner(client, settings, Health()).run())
    await folded(client, last)
    running.cancel()
    stored = await rows(client)
    assert [payload for subject, payload in stored if subject.endswith(".m")] == [b"%d" % each for each in range(2500)]
    assert [payload for subject, payload in stored if subject.endswith(".n")] == [b"1", b"3"]


async def test_a_holder_that_died_within_such_a_message_leaves_the_rest_to_the_next(
    client: Client, settings: Settings
) -> None:
    last = await fill(client, [b"1", b"many", b"1"])
    source = await stream.describe(client, NAMES.telemetry)
    journal = Batches(client, NAMES.estimates, NAMES.of("cursor", "totals"), timeout_seconds=1)
    await journal.covered(source)
    await journal.commit([Row(OUTPUT.format("n"), b"1")], source, 1)
    await journal.commit([Row(OUTPUT.format("m"), b"%d" % number) for number in range(900)], source, 1, partial=900)
    running = asyncio.create_task(runner(client, settings, Health()).run())
    await folded(client, last)
    running.cancel()
    stored = await rows(client)
    assert [payload for subject, payload in stored if subject.endswith(".m")] == [b"%d" % each for each in range(2500)]
    assert [payload for subject, payload in stored if subject.endswith(".n")] == [b"1", b"3"]
