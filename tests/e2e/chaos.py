"""Everything dies, again and again, while telemetry comes; then each row is compared with an undisturbed replay.

    python -m tests.e2e.chaos --minutes 10 --nodes 2000 --seed 7 [--cluster]

Replicas of the processors are killed, stopped and continued, the server is made to take parts from them, sinks are
killed, and so is the server itself, or with --cluster the leader of the telemetry stream among three. What they
leave behind must be, message by message and in order, what one process makes of the recorded streams.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import nats.errors
from nats.aio.client import Client
from nats.js.errors import NotFoundError

from bus import api, connection, stream
from bus.folding import journal, worker_pool
from bus.folding.task import Fold, Journal
from bus.publishing.batch import Row
from bus.reading.reader import Reader
from processors.partition.aggregate import Aggregate
from schemas import codec
from schemas import settings as all_settings
from schemas.live import Live
from schemas.sections.generator import SIMULATED_KINDS
from schemas.settings import Settings
from schemas.subject import Names
from sinks.history import layout
from spazio.service import folding, processing
from tests.e2e.servers import Servers
from tests.support.program import SPAZIO, Program

Messages = Sequence[tuple[str, bytes]]

REPLICAS = 3
PARTITIONS = 8
NAMES = Names()
_CHUNK = 500
_LONG_SECONDS = 5.0
_PROBE_SECONDS = 0.25
_ROWS = ("availability", "smoothed", "prediction", "reject", "workloads.partition")


class Service(Program):
    """One service as a process that is started again whenever it has died."""

    def __init__(self, settings: Settings, log: Path, *arguments: str) -> None:
        environ = {**os.environ, **all_settings.environment(settings), "SPAZIO_HTTP_PORT": "0"}
        super().__init__((*SPAZIO, *arguments), log, environ)
        self.start()

    def revive(self) -> None:
        if not self.alive:
            self.start()

    async def stop(self) -> int:
        return await asyncio.to_thread(self.end, 30)


def parts(settings: Settings) -> list[str]:
    """Return the parts of the work."""
    return processing.part_names(settings, PARTITIONS)


def _steady(settings: Settings) -> list[str]:
    """Return the parts that say something every second."""
    return [part for part in parts(settings) if not part.startswith((processing.PREDICTION, processing.FORECAST))]


def place(part: str) -> str:
    """Return stream and consumer of a part, as the JetStream API names them."""
    if part in (processing.AGGREGATE, processing.FORECAST):
        return f"{NAMES.estimates}.{part}"
    return f"{NAMES.telemetry}.{part if part.startswith(processing.PREDICTION) else f'process-{part}'}"


@contextmanager
def ended(servers: Servers) -> Iterator[list[Service]]:
    """Hand out a list of services, and kill them and the servers at the end."""
    services: list[Service] = []
    try:
        yield services
    finally:
        for service in services:
            service.kill()
        servers.kill()


class Silence:
    """The longest time that each partition's cursor stood still, as a reader of the stream sees it.

    Outlooks are left out: they have nothing to say for half a minute at first.

    A cluster that has lost a leader takes four to nine seconds to elect another, for each stream and consumer, and
    nobody can fold meanwhile. So it is counted apart how long the servers did not serve a part's consumer.

    Attributes:
        gaps: Time of the day, part, seconds of silence, and seconds of those in which the servers served.
    """

    def __init__(self, client: Client, steady: list[str]) -> None:
        self._client, self._steady = client, steady
        self._last: dict[str, float] = {}
        self._unserved: defaultdict[str, float] = defaultdict(float)
        self._unserved_before: dict[str, float] = {}
        self.longest: dict[str, float] = {}
        self.longest_served: dict[str, float] = {}
        self.gaps: list[tuple[str, str, float, float]] = []

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._read())
            tasks.create_task(self._probe())

    async def _probe(self) -> None:
        """Count for each part how long its consumer or a stream had nobody who answers for it."""
        streams = [f"STREAM.INFO.{name}" for name in (NAMES.telemetry, NAMES.estimates)]
        consumers = {part: f"CONSUMER.INFO.{place(part)}" for part in self._steady}
        while True:
            began = time.monotonic()
            about_streams, about_consumers = await asyncio.gather(
                asyncio.gather(*map(self._answers, streams)),
                asyncio.gather(*map(self._answers, consumers.values())),
            )
            await asyncio.sleep(max(0.0, began + _PROBE_SECONDS - time.monotonic()))
            for part, served in zip(consumers, about_consumers, strict=True):
                if not (served and all(about_streams)):
                    self._unserved[part] += time.monotonic() - began

    async def _answers(self, verb: str) -> bool:
        try:
            await api.request(self._client, verb, {}, _PROBE_SECONDS)
        except (nats.errors.Error, TimeoutError):
            return False
        return True

    async def _read(self) -> None:
        subjects = [NAMES.of("cursor", part) for part in self._steady]
        async with Reader(self._client, NAMES.estimates, subjects, newest=True) as reader:
            while True:
                for message in await reader.read():
                    now = time.monotonic()
                    part = message.subject.rpartition(".")[2]
                    gap = now - self._last.get(part, now)
                    self._last[part] = now
                    served = gap - (self._unserved[part] - self._unserved_before.get(part, 0.0))
                    self._unserved_before[part] = self._unserved[part]
                    self.longest[part] = max(self.longest.get(part, 0.0), gap)
                    self.longest_served[part] = max(self.longest_served.get(part, 0.0), served)
                    if gap > _LONG_SECONDS:
                        self.gaps.append((time.strftime("%X"), part, round(gap, 1), round(served, 1)))


class Chaos:
    """Does harm, in an order that the seed decides."""

    def __init__(
        self,
        servers: Servers,
        replicas: list[Service],
        sinks: list[Service],
        client: Client,
        seed: int,
        work: list[str],
    ) -> None:
        self._parts = work
        self._servers, self._replicas, self._sinks, self._client = servers, replicas, sinks, client
        self._random = random.Random(seed)
        self.done: Counter[str] = Counter()

    async def run(self, seconds: float) -> None:
        harms: list[tuple[Callable[[], Awaitable[None]], int]] = [
            (self.kill_replica, 5),
            (self.stop_replica, 4),
            (self.unpin, 4),
            (self.kill_sink, 2),
            (self.kill_server, 2),
        ]
        end = time.monotonic() + seconds
        first = [harm for harm, _ in harms]  # each at least once, however short the run
        while time.monotonic() < end:
            weights = [weight for _, weight in harms]
            harm = first.pop() if first else self._random.choices([left for left, _ in harms], weights)[0]
            self.done[harm.__name__] += 1
            await harm()
            await asyncio.sleep(self._random.uniform(1, 6))
            for service in (*self._replicas, *self._sinks):
                service.revive()

    async def kill_replica(self) -> None:
        first = self._random.choice(self._replicas)
        first.kill()
        await asyncio.sleep(self._random.uniform(0, 3))
        first.start()

    async def stop_replica(self) -> None:
        first = self._random.choice(self._replicas)
        first.send(signal.SIGSTOP)
        await asyncio.sleep(self._random.uniform(0.5, 6))
        first.send(signal.SIGCONT)

    async def unpin(self) -> None:
        part = self._random.choice(self._parts)
        with contextlib.suppress(nats.errors.Error, TimeoutError):
            await api.request(self._client, f"CONSUMER.UNPIN.{place(part)}", {"group": "owner"}, 2)

    async def kill_sink(self) -> None:
        first = self._random.choice(self._sinks)
        first.kill()
        first.start()

    async def kill_server(self) -> None:
        first = self._servers.all[0]
        if len(self._servers.all) > 1:
            with contextlib.suppress(nats.errors.Error, TimeoutError):
                info = await self._client.jetstream(timeout=2).stream_info(NAMES.telemetry)
                if info.cluster and info.cluster.leader:
                    first = self._servers.named(info.cluster.leader)
        await asyncio.to_thread(first.kill)
        await asyncio.sleep(self._random.uniform(0.2, 2))
        await asyncio.to_thread(first.start)


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
            place, rows = places[name], expected[name]
            if place >= len(rows) or rows[place] != hash((subject, payload)):
                raise Difference(f"part {name}, row {place} of {len(rows)}: {subject} {payload!r}")
            places[name] += 1
            compared[subject.split(".")[1]] += 1
    for name, rows in expected.items():
        if places[name] != len(rows):
            raise Difference(f"part {name}: {places[name]} of {len(rows)} rows are stored")
    return compared


def _folds(settings: Settings) -> Iterator[tuple[str, tuple[str, ...], Callable[[Messages], list[Row]]]]:
    """Yield each part of a partition, what it reads, and its fold."""
    for number in range(PARTITIONS):
        partition, predicting = folding.partition(settings, number), folding.prediction(Live(settings), number)
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
    for place, (left, right) in enumerate(zip(stored, expected, strict=False)):
        if left != right:
            raise Difference(f"global model {place}: {left!r}, not {right!r}")
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
        return True  # or whoever has not answered may be the owner
    owned = {part: about for each in answered for part, about in each.parts.items()}
    for part in work:
        about = await api.request(client, f"CONSUMER.INFO.{place(part)}", {}, 2)
        if about["num_pending"]:
            return True
        filters = about["config"].get("filter_subjects") or [about["config"]["filter_subject"]]
        last = max([await _last(client, about["stream_name"], subject) for subject in filters])
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


async def _last(client: Client, name: str, subject: str) -> int:
    """Return the highest sequence of a subject with wildcards; 0: there is none."""
    try:
        return (await client.jetstream().get_msg(name, subject=subject)).seq or 0
    except NotFoundError:
        return 0


def _configured(servers: Servers, folder: Path, *, nodes: int, seed: int, kinds: str, ahead: bool) -> Settings:
    """Return the settings of all services."""
    options = {
        "nats_url": servers.url,
        "data_dir": str(folder / "data"),
        "nats_partitions": str(PARTITIONS),
        "nats_replicas": str(len(servers.all)),
        "nats_telemetry_max_bytes": str(16 << 30),
        "nats_estimates_max_bytes": str(16 << 30),
        "cache_expiry_seconds": "3600",
        "process_shed": "false",  # what is left out for lack of CPU time is in no replay
        "simulated_nodes": str(nodes),
        "simulated_seed": str(seed),
        "simulated_kinds": kinds,
        "log_format": "json",
        **({} if ahead else dict.fromkeys(("predict_enabled", "reject_enabled", "forecast_enabled"), "false")),
    }
    return all_settings.load(options, environ={})


async def run(
    folder: Path,
    *,
    seconds: float,
    nodes: int,
    seed: int,
    cluster: bool,
    kinds: str = ",".join(SIMULATED_KINDS),
    ahead: bool = True,
) -> dict[str, Any]:
    """Do it all; returns what was compared.

    Raises:
        Difference: Something was lost, doubled or changed.
    """
    servers = Servers(folder, 3 if cluster else 1)
    await servers.start()
    settings = _configured(servers, folder, nodes=nodes, seed=seed, kinds=kinds, ahead=ahead)
    with ended(servers) as services:
        async with connection.connect(settings, "chaos") as client:
            await stream.ensure(client, settings)
            load = Service(settings, folder / "load.log", "load")
            replicas = [Service(settings, folder / f"process-{number}.log", "process") for number in range(REPLICAS)]
            sinks = [Service(settings, folder / f"{name}.log", "sink", name) for name in ("cache", "history")]
            services += [load, *replicas, *sinks]
            silence = Silence(client, _steady(settings))
            watching = asyncio.create_task(silence.run())
            await asyncio.sleep(5)
            chaos = Chaos(servers, replicas, sinks, client, seed, parts(settings))
            await chaos.run(seconds)
            status = await load.stop()
            caught_up = await folded(client, 120, parts(settings), REPLICAS)
            await written(client, settings, 600, sinks)
            watching.cancel()
            for service in (*replicas, *sinks):
                service.revive()
                await service.stop()
            return {
                "harms": dict(chaos.done),
                "load_exit_status": status,
                "caught_up_seconds": round(caught_up, 1),
                **await compare(client, settings),
                "gaps": silence.gaps,
                "longest_silence_seconds": round(max(silence.longest.values()), 2),
                "longest_silence_while_served_seconds": round(max(silence.longest_served.values()), 2),
            }


async def written(client: Client, settings: Settings, seconds: float, sinks: list[Service]) -> None:
    """Wait until history has everything that the streams have, and the cache what it is to have."""
    async with asyncio.timeout(seconds):
        subjects = {NAMES.telemetry: NAMES.part("*", "samples"), NAMES.estimates: NAMES.of("availability", "*")}
        for name, subject in subjects.items():
            identity = (await stream.describe(client, name)).identity
            last = await _last(client, name, subject)
            while (layout.read_cursor(settings.history_dir, name, identity) or 0) < last:
                await asyncio.sleep(1)
                for sink in sinks:
                    sink.revive()


def main() -> None:
    """Run as a program."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--minutes", type=float, default=10)
    options.add_argument("--nodes", type=int, default=2000)
    options.add_argument("--seed", type=int, default=7)
    options.add_argument("--cluster", action="store_true", help="three servers; the leader is killed")
    options.add_argument("--kinds", default=",".join(SIMULATED_KINDS), help="kinds of messages; pods are the most")
    options.add_argument("--now-only", action="store_true", help="nothing of what is to come is made")
    options.add_argument("--folder", type=Path, help="where everything is kept; default: a temporary one")
    chosen = options.parse_args()
    with contextlib.ExitStack() as stack:
        folder = chosen.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        result = asyncio.run(
            run(
                folder,
                seconds=chosen.minutes * 60,
                nodes=chosen.nodes,
                seed=chosen.seed,
                cluster=chosen.cluster,
                kinds=chosen.kinds,
                ahead=not chosen.now_only,
            )
        )
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
