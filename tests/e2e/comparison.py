"""What a pipeline has stored, compared message by message with what an undisturbed replay of its streams makes."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from typing import Any

import duckdb
import nats.errors
from nats.aio.client import Client
from nats.js.errors import NotFoundError

from bus import api, stream
from bus.folding import journal, worker_pool
from bus.folding.task import Fold, Journal, consumer_name
from bus.publishing.batch import Row
from bus.reading.reader import Reader
from processors.partition.aggregate import Aggregate
from schemas import codec
from schemas.live import Live
from schemas.settings import Settings
from schemas.subject import Names
from spazio.service import folding, processing

Messages = Sequence[tuple[str, bytes]]

PARTITIONS = 8
NAMES = Names()
_CHUNK = 500
_ROWS = ("availability", "smoothed", "prediction", "reject", "workloads.partition")


def parts(settings: Settings) -> list[str]:
    """Return the parts of the work."""
    return processing.part_names(settings, PARTITIONS)


def consumer(part: str) -> str:
    """Return stream and consumer of a part, as the JetStream API names them."""
    stream_name = NAMES.estimates if part in (processing.AGGREGATE, processing.FORECAST) else NAMES.telemetry
    return f"{stream_name}.{consumer_name(part)}"


async def read(client: Client, name: str, subjects: list[str]) -> AsyncIterator[list[tuple[str, bytes]]]:
    """Yield what a stream holds now, in order."""
    last = (await stream.describe(client, name)).last
    async with Reader(client, name, subjects, batch=2000) as reader:
        while part := await reader.read(timeout_seconds=2):
            yield [(message.subject, message.data) for message in part]
            if reader.position >= last:
                return


class Difference(AssertionError):
    """What is stored is not what an undisturbed replay makes."""


async def compare_rows(client: Client, settings: Settings) -> Counter[str]:
    """Replay each partition undisturbed, and compare its rows with the stored ones, one by one and in order.

    Raises:
        Difference: At the first row that differs.
    """
    expected: dict[str, list[int]] = {}
    owner: dict[str, str] = {}
    for name, subjects, fold in _folds(settings):
        made = expected[name] = list[int]()
        async for messages in read(client, NAMES.telemetry, list(subjects)):
            for start in range(0, len(messages), _CHUNK):
                for row in fold(messages[start : start + _CHUNK]):
                    owner[row.subject] = name
                    made.append(hash((row.subject, row.payload)))
    places = dict.fromkeys(expected, 0)
    compared: Counter[str] = Counter()
    wanted = [*(NAMES.of(kind, "*") for kind in _ROWS), NAMES.of("model", "partition", "*")]
    async for messages in read(client, NAMES.estimates, wanted):
        for subject, payload in messages:
            name = owner[subject]
            index, rows = places[name], expected[name]
            if index >= len(rows) or rows[index] != hash((subject, payload)):
                raise Difference(f"part {name}, row {index} of {len(rows)}: {subject} {payload!r}")
            places[name] += 1
            compared[subject.split(".")[1]] += 1
    for name, rows in expected.items():
        if places[name] != len(rows):
            raise Difference(f"part {name}: {places[name]} of {len(rows)} rows are stored")
    return compared


def _folds(settings: Settings) -> Iterator[tuple[str, tuple[str, ...], Callable[[Messages], list[Row]]]]:
    """Yield each part of a partition, what it reads, and its fold."""
    for number in range(PARTITIONS):
        partition, predicting = (
            folding.partition(settings, number),
            folding.prediction(Live(settings), number, settings.nats.partitions),
        )
        yield f"{number}", processing.subjects(NAMES, number), partial(_rows, partition)
        if f"{processing.PREDICTION}-{number}" in parts(settings):
            yield (
                f"{processing.PREDICTION}-{number}",
                processing.prediction_subjects(NAMES, number),
                partial(_rows, predicting),
            )


def _rows(fold: Fold, messages: Messages) -> list[Row]:
    return [output.row for output in fold.fold(messages)[0]]


async def compare_models(client: Client, settings: Settings) -> int:
    """Aggregate the stored sums undisturbed, and compare global models with the stored ones.

    Raises:
        Difference: At the first model that differs.
    """
    aggregate = Aggregate(PARTITIONS, silent_seconds=settings.model.silent_seconds)
    expected: list[bytes] = []
    async for messages in read(client, NAMES.estimates, [NAMES.of("model", "partition", "*")]):
        made = [aggregate.fold(subject, payload) for subject, payload in messages]
        expected += [codec.encode(model) for model in made if model is not None]
    stored = [payload async for part in read(client, NAMES.telemetry, [NAMES.model]) for _, payload in part]
    for index, (left, right) in enumerate(zip(stored, expected, strict=False)):
        if left != right:
            raise Difference(f"global model {index}: {left!r}, not {right!r}")
    if len(stored) != len(expected):
        raise Difference(f"{len(stored)} global models are stored, not {len(expected)}")
    return len(stored)


async def compare_forecasts(client: Client, settings: Settings) -> int:
    """Forecast the stored sums undisturbed, and compare with the stored forecasts.

    Raises:
        Difference: At the first forecast that differs.
    """
    fold = folding.forecast(Live(settings), PARTITIONS)
    expected: list[bytes] = []
    async for messages in read(client, NAMES.estimates, [NAMES.of("workloads", "partition", "*")]):
        expected += [row.payload for row in _rows(fold, messages)]
    stored = [
        payload async for part in read(client, NAMES.estimates, [NAMES.of("forecast", ">")]) for _, payload in part
    ]
    if stored != expected:
        raise Difference(f"{len(stored)} forecasts are stored, {len(expected)} expected, or one differs")
    return len(stored)


async def compare_cache(client: Client) -> int:
    """See that the cache holds the last availability of each node.

    Raises:
        Difference: It holds another, or none.
    """
    last: dict[str, bytes] = {}
    async for messages in read(client, NAMES.estimates, [NAMES.of("availability", "*")]):
        last |= {subject.rpartition(".")[2]: payload for subject, payload in messages}
    bucket, held = NAMES.availability_bucket, 0
    async for messages in read(client, f"KV_{bucket}", [f"$KV.{bucket}.>"]):
        for subject, payload in messages:
            if last[subject.rpartition(".")[2]] != payload:
                raise Difference(f"cache: {subject} is {payload!r}")
            held += 1
    if held != len(last):
        raise Difference(f"cache: {held} of {len(last)} nodes")
    return held


def compare_history(settings: Settings, rows: int) -> int:
    """See that history has each availability once.

    Raises:
        Difference: It has not.
    """
    with duckdb.connect(str(settings.history_dir / "history.duckdb"), read_only=True) as database:
        counts = "SELECT count(*), count(DISTINCT (node, at_us)) FROM availability"
        stored, distinct = database.execute(counts).fetchall()[0]
    if stored != rows or distinct != rows:
        raise Difference(f"history has {stored} availabilities, {distinct} different ones, of {rows}")
    return int(stored)


async def compare(client: Client, settings: Settings) -> dict[str, Any]:
    """Compare everything that is stored; return how much of each there is.

    Raises:
        Difference: Something was lost, doubled or changed.
    """
    rows = await compare_rows(client, settings)
    return {
        "rows": dict(rows),
        "global_models": await compare_models(client, settings),
        "forecasts": await compare_forecasts(client, settings),
        "cached": await compare_cache(client),
        "history": compare_history(settings, rows["availability"]),
    }


async def folded(client: Client, seconds: float, work: list[str], replicas: int) -> float:
    """Wait until so many replicas have folded all that there is for these parts; returns how long that took."""
    began = time.monotonic()
    async with asyncio.timeout(seconds):
        while True:
            with contextlib.suppress(nats.errors.Error, TimeoutError):  # the last harm may have cost a leader
                if not await _behind(client, work, replicas):
                    return time.monotonic() - began
            await asyncio.sleep(0.5)


async def _behind(client: Client, work: list[str], replicas: int) -> bool:
    """Tell whether something is to be sent for one of these parts, or was sent and no owner has folded it yet."""
    answered = await worker_pool.replicas(client, NAMES.prefix)
    if len(answered) < replicas:
        return True  # or one that has not answered may be the owner
    owned = {part: about for each in answered for part, about in each.parts.items()}
    for part in work:
        about = await api.request(client, f"CONSUMER.INFO.{consumer(part)}", {}, 2)
        if about["num_pending"]:
            return True
        filters = about["config"].get("filter_subjects") or [about["config"]["filter_subject"]]
        last = max([await last_sequence(client, about["stream_name"], subject) for subject in filters])
        sent = about["delivered"]
        if part in owned:
            if owned[part]["sequence"] < last:
                return True
        # Its owner is gone. What it left undone, a replica that waits has sent again.
        elif sent["consumer_seq"] and sent["stream_seq"] > await _covered(client, part, about["stream_name"]):
            return True
    return False


async def _covered(client: Client, part: str, source: str) -> int:
    """Return the sequence up to which the rows of a part are stored."""
    rows: Journal
    if part == processing.AGGREGATE:
        rows = journal.Singles(client, NAMES.telemetry, NAMES.model, timeout_seconds=2)
    else:
        rows = journal.Batches(client, NAMES.estimates, NAMES.of("cursor", part), timeout_seconds=2)
    return await rows.covered(await stream.describe(client, source))


async def last_sequence(client: Client, name: str, subject: str) -> int:
    """Return the highest sequence of a subject with wildcards; 0: there is none."""
    try:
        return (await client.jetstream().get_msg(name, subject=subject)).seq or 0
    except NotFoundError:
        return 0
