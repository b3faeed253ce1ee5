"""Bursts of real containers under two whole pipelines: one holds still while they come and go, the other learns on.

Both measure the same machine at the same moments. A container works for a second when it starts, as an application
does, and takes a small share of a CPU from then on. Counts of pods are compared with the truth: a container runs from
when the engine says so, until it has noted that it ends and the engine has seen it. From when the engine is asked to
start it, it may count, since it has a process that waits to be let go; on a slow machine that takes seconds. First
come pods that stay, one at a time, so that their cost can be learned; then bursts that are over before anything
settles, and bursts that stay for a while.
"""

import itertools
import json
import math
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from typing import NamedTuple

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from schemas import codec
from schemas.messages.estimate import Availability, Model
from schemas.messages.telemetry import ContainerEvent
from tests.e2e.pipeline import Up, until, up
from tests.e2e.runtimes.runtime import Dockerd, Times
from tests.support.server.listener import Listener

pytestmark = [pytest.mark.slow, pytest.mark.alone]

BURSTS = (1, 5, 20)
STAYING = 4
BUSY_MS, PERCENT = 1000, 6
SHORT_MS, LONG_MS, ALWAYS_MS = 1500, 9000, 600_000
LAST_SAMPLE = 0.9  # of a second's block, which is published at once then


def boottime() -> float:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) / 1e9


class Row(NamedTuple):
    """What was reported of a second, and when it was heard, in seconds of CLOCK_BOOTTIME."""

    heard: float
    row: Availability


class Happening(NamedTuple):
    """A container event, and when it was heard."""

    heard: float
    event: ContainerEvent


class Ears(Listener):
    """Listens to one pipeline."""

    def __init__(self, running: Up) -> None:
        self.rows: list[Row] = []
        self.events: list[Happening] = []
        self.models: list[Model] = []
        super().__init__(running.addresses["nats"], running.addresses["credentials"])

    async def subscribe(self, client: Client) -> None:
        async def take(message: Msg) -> None:
            heard = boottime()
            if ".availability." in message.subject:
                self.rows.append(Row(heard, codec.decode_from(Availability, message.data, message.subject)))
            elif ".containers." in message.subject:
                self.events.append(Happening(heard, codec.decode_from(ContainerEvent, message.data, message.subject)))
            else:
                self.models.append(codec.decode_from(Model, message.data, message.subject))

        for subject in ("availability.*", "model.partition.*"):
            await client.jetstream().subscribe(f"spazio.{subject}", ordered_consumer=True, cb=take)
        await client.subscribe("spazio.containers.*", cb=take)

    def is_quiet(self) -> bool:
        return bool(self.rows) and not self.rows[-1].row.churn

    def since(self, second: int) -> list[Row]:
        """Return what was reported from a second on: one row for each, none left out."""
        rows = [row for row in self.rows if row.row.seq >= second]
        assert [row.row.seq for row in rows] == list(range(second, second + len(rows)))
        return rows

    def first(self, burst: "Burst") -> Happening:
        """Return the first event of a burst."""
        ours = {life.container for life in burst.lives}
        return min((each for each in self.events if each.event.container in ours), key=lambda each: each.heard)

    def window(self, burst: "Burst") -> list[Availability]:
        """Return the second before a burst and those that churn was declared in from then on."""
        begun = math.floor(self.first(burst).event.boottime_us / 1e6)
        rows = [row.row for row in self.since(begun - 1)]
        shaken = next(index for index, row in enumerate(rows) if row.churn)
        return rows[shaken - 1 : shaken] + list(itertools.takewhile(lambda row: row.churn, rows[shaken:]))

    def energies(self, window: Sequence[Availability]) -> list[float]:
        """Return the CPU's part of the learned model in a window's seconds; that of the last comes with the next."""
        seconds = [row.at_us // 1_000_000 for row in window[1:-1]]
        return [model.moment[0] for model in self.models if model.nodes and model.at_us // 1_000_000 in seconds]


@contextmanager
def listening(running: Up) -> Iterator[Ears]:
    ears = Ears(running)
    try:
        yield ears
    finally:
        ears.close()


class Life(NamedTuple):
    """A container, in seconds of CLOCK_BOOTTIME; infinite: not yet.

    The engine is `asked` to start it, makes its process, and lets that go when all is prepared. The engine says
    `started` when the kernel may run it, which on a saturated machine is seconds before its first instruction, and
    `finished` when it has seen its end, of which its last instruction is the earliest sign.
    """

    container: str
    asked: float
    started: float
    first: float
    last: float
    finished: float


class Burst(NamedTuple):
    """Containers that were started at once."""

    title: str
    lives: Sequence[Life]

    def running(self, moment: float) -> tuple[int, int]:
        """Return how many run at least and at most: who has noted that it ends is about to."""
        least = sum(life.started <= moment < life.last for life in self.lives)
        return least, sum(life.asked <= moment < life.finished for life in self.lives)


class Story(NamedTuple):
    """All that was done and reported."""

    bursts: Sequence[Burst]
    holding: Ears
    learning: Ears
    before: int

    def is_right(self, row: Availability) -> bool:
        """Tell whether a row counts right; what happens as the last sample is taken may come with the next block."""
        last = row.seq + LAST_SAMPLE
        for moment in (last - 0.1, last):
            least, most = (
                sum(counts) for counts in zip(*(burst.running(moment) for burst in self.bursts), strict=True)
            )
            if least <= row.pods - self.before <= most:
                return True
        return False


def start(engine: Dockerd, title: str, count: int, milliseconds: int) -> list[tuple[str, str, float]]:
    """Start containers at once; returns their names and ids, and when the engine was asked."""

    def launch(index: int) -> tuple[str, str, float]:
        name = f"{title}-{index}"
        container = engine.create("/tick", f"/out/{name}", *map(str, (milliseconds, BUSY_MS, PERCENT)), name=name)
        asked = boottime()
        engine.start_container(container)
        return name, container, asked

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(launch, range(count)))


def life(engine: Dockerd, name: str, container: str, asked: float) -> Life:
    """Return what a container has noted, and what the engine says of it."""
    times, since = Times(engine.out / name), time.time() - boottime()
    state = json.loads(engine.ask("GET", f"/containers/{container}/json"))["State"]
    started, finished = (datetime.fromisoformat(state[key]).timestamp() - since for key in ("StartedAt", "FinishedAt"))
    first, last = ((noted or math.inf) / 1e9 for noted in (times.began, times.ended))
    return Life(container, asked, started, first, last, math.inf if state["Running"] else finished)


def tell(engine: Dockerd, holding: Ears, learning: Ears) -> list[Burst]:
    """Start all containers, and wait until the last of a burst has ended."""
    started: dict[str, list[tuple[str, str, float]]] = {}

    def settle(seconds: float) -> None:
        time.sleep(1.5)  # until what just happened can have been reported
        until(lambda: holding.is_quiet() and learning.is_quiet(), 60, "churn that ends")
        time.sleep(seconds)

    def burst(title: str, count: int, milliseconds: int) -> None:
        started[title] = start(engine, title, count, milliseconds)
        settle(3)

    settle(4)
    for index in range(STAYING):
        burst(f"staying-{index}", 1, ALWAYS_MS)
    for count in BURSTS:
        burst(f"short-{count}", count, SHORT_MS)
    for count in BURSTS:
        burst(f"long-{count}", count, LONG_MS + 300 * count)
        for _, container, _ in started[f"long-{count}"]:
            engine.wait(container)
        settle(2)
    return [Burst(title, [life(engine, *our) for our in ours]) for title, ours in started.items()]


@pytest.fixture(scope="module")
def story(shared_engine: Dockerd, tmp_path_factory: pytest.TempPathFactory) -> Story:
    folder, places = tmp_path_factory.mktemp("churn"), shared_engine
    options = ["--runtime-docker-socket", str(places.socket), "--runtime-containerd-socket", str(places.containerd)]
    options += ["--runtime-bundles", str(places.bundles), "--estimate-report-seconds", "1"]
    # A pod that is assumed to need no memory: costs are reported of CPU alone. And the regression's cost, which
    # holding still protects; what is composed of classes is learned from pods that run, in churn as well.
    options += ["--estimate-pod-memory-bytes", "1", "--estimate-form", "least_squares"]
    with (
        up(folder / "holding", *options) as still,
        up(folder / "learning", *options, "--estimate-hold-in-churn", "false") as restless,
        listening(still) as holding,
        listening(restless) as learning,
    ):
        until(lambda: holding.is_quiet() and learning.is_quiet(), 30, "both pipelines")
        before, since = holding.rows[-1].row.pods, boottime()
        bursts = tell(shared_engine, holding, learning)
    messages = [
        each.event for ears in (holding, learning) for each in ears.events if each.event.boottime_us / 1e6 > since
    ]
    strangers = {event.container for event in messages} - {life.container for burst in bursts for life in burst.lives}
    assert not strangers, "containers of others come and go on this machine, and nobody counts them here"
    return Story(bursts, holding, learning, before)


def test_pods_are_right_at_every_second_that_no_churn_is_declared_in(story: Story) -> None:
    begun = math.floor(story.bursts[0].lives[0].started)
    for ears in (story.holding, story.learning):
        rows = [row.row for row in ears.since(begun - 3)]
        wrong = [row for row in rows if not story.is_right(row)]
        calm = [row for row in rows if not row.churn]
        whole = {
            burst.title: sum(burst.running(row.seq)[0] == len(burst.lives) for row in calm) for burst in story.bursts
        }
        print(json.dumps({"seconds": len(rows), "without churn": len(calm), "wrong": len(wrong), "whole": whole}))
        assert [(row.seq, row.pods) for row in wrong if not row.churn] == []
        assert all(whole[f"long-{count}"] >= 3 for count in BURSTS)


def test_churn_is_declared_within_a_second_of_the_first_event_of_a_burst(story: Story) -> None:
    for ears in (story.holding, story.learning):
        late = {}
        for burst in story.bursts:
            first, window = ears.first(burst), ears.window(burst)
            assert first.heard < min(life.first for life in burst.lives)
            assert window[1].seq <= math.ceil(first.heard - LAST_SAMPLE)  # the first block that is sent after it
            heard = next(row.heard for row in ears.rows if row.row.seq == window[1].seq)
            late[burst.title] = round(heard - first.event.boottime_us / 1e6, 3)
        print(json.dumps({"seconds until churn is declared": late}))
        assert max(late.values()) < 1.5  # one until the block is sent; the rest is for a machine that is saturated


def test_nothing_that_is_learned_moves_in_churn_unless_holding_is_off(story: Story) -> None:
    moved, energies = {}, {}
    for name, ears in (("holding", story.holding), ("learning on", story.learning)):
        windows = {burst.title: ears.window(burst) for burst in story.bursts}
        moved[name] = {title: abs(window[-1].cost / window[0].cost - 1) for title, window in windows.items()}
        energies[name] = {title: ears.energies(window) for title, window in windows.items()}
        before, after = windows[f"short-{BURSTS[0]}"][0].cost, ears.rows[-1].row.cost
        print(json.dumps({"by": name, "cost before all bursts": before, "after": after}))
        print(json.dumps({"cost moved": {title: f"{by:.1%}" for title, by in moved[name].items()}}))
        model = {
            title: f"{max(first) / max(min(first), 1e-12) - 1:.1%}" for title, first in energies[name].items() if first
        }
        print(json.dumps({"model moved": model}))
        assert {row.mode for row in (row.row for row in ears.rows) if row.churn} == {"capacity"}
    rows = [row.row for row in story.holding.rows]
    shaken = [(before.cost, after.cost) for before, after in itertools.pairwise(rows) if after.churn]
    assert [pair for pair in shaken if abs(pair[1] / pair[0] - 1) > 0.05] == []
    assert all(len(set(energy)) == 1 for energy in energies["holding"].values())
    # Work at the start of twenty containers is many times what they take later.
    assert max(moved["learning on"].values()) > 0.05
    assert any(len(set(energy)) > 1 for energy in energies["learning on"].values())
