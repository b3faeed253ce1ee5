"""Sources that fail, wait and recover; what is handed on of what they say."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from producers.containers import follow
from producers.containers.follow import Follower, MemoryLoader
from producers.containers.published import Happening, LastEvent, Memory
from producers.containers.sources.source import Identity, Observation, Sink, Source
from producers.source import FAILURES
from schemas import codec
from schemas.messages.telemetry import ContainerEvent
from tests.support.background import background

A, B = (digit * 64 for digit in "ab")
SECOND = 1_000_000_000


class Clock:
    """Time that stands still."""

    def boottime(self) -> int:
        return 100 * SECOND

    def monotonic(self) -> int:
        return 100 * SECOND

    def realtime(self) -> int:
        return 1_700_000_000 * SECOND

    def sleep(self, seconds: float, /) -> None:
        raise AssertionError("nobody waits by this clock")


class Script:
    """A source that follows its script, call by call; then it stays quiet."""

    def __init__(self, *runs: Callable[[Sink], None], name: str = "docker") -> None:
        self.name = name
        self._runs = list(runs)

    async def run(self, sink: Sink) -> None:
        if self._runs:
            self._runs.pop(0)(sink)
        await asyncio.Event().wait()


def lists(*containers: str, name: str = "docker") -> Callable[[Sink], None]:
    return lambda sink: sink.present(name, {item: (Identity(item), True) for item in containers}, 99_000_000)


def raises(error: Exception) -> Callable[[Sink], None]:
    def fail(_: Sink) -> None:
        raise error

    return fail


async def nothing() -> Memory:
    return Memory()


class Handed(list[ContainerEvent]):
    """What was handed on."""

    @property
    def story(self) -> list[tuple[str, str]]:
        return [(event.event, event.container) for event in self]


@asynccontextmanager
async def following(*sources: Source, load_memory: MemoryLoader = nothing) -> AsyncIterator[tuple[Follower, Handed]]:
    messages = Handed()
    follower = Follower(sources, node="n", boot="b", emit=messages.append, rescan_seconds=0.01, clock=Clock())
    async with background(follower.run(load_memory)):
        yield follower, messages


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while True:
            if holds():
                return
            await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has to wait for a pause to end."""
    monkeypatch.setattr(follow, "_FIRST_SECONDS", 0.001)
    monkeypatch.setattr(follow, "_LONGEST_SECONDS", 0.01)
    monkeypatch.setattr(follow, "_SETTLE_SECONDS", 0.01)


async def test_an_event_has_both_times_who_it_is_and_can_be_read_back() -> None:
    identity = Identity(
        A, container_name="", image="i" * 600, pod="uid", namespace="shop", name="web-0", workload="w", kind="batch"
    )
    async with following(Script(name="bundle")) as (follower, messages):
        follower.observe(Observation("bundle", "created", identity, 90_000_000))
    event = codec.decode(ContainerEvent, codec.encode(messages[0]))
    assert (event.node, event.boot, event.sources) == ("n", "b", ["bundle"])
    assert (event.boottime_us, event.at_us) == (90_000_000, 1_700_000_000_000_000 - 10_000_000)
    assert (event.container_name, event.image, event.name) == (None, "i" * 512, "web-0")
    given = follow.happening(event).identity
    assert (given.workload, given.kind) == ("w", "batch")


async def test_a_source_that_fails_is_run_again_logged_once_and_its_recovery_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    before = FAILURES.labels("docker")._value.get()
    gone, odd = FileNotFoundError(2, "No such file", "/run/docker.sock"), ValueError("no daemon")
    source = Script(raises(gone), raises(gone), raises(odd), lists(A))
    async with following(source) as (_, messages):
        await until(lambda: len(messages) == 2)
    assert messages.story == [("created", A), ("started", A)]
    assert FAILURES.labels("docker")._value.get() == before + 3
    lines = [(record.getMessage(), getattr(record, "reason", "")) for record in caplog.records]
    assert lines == [
        ("containers.failed", "[Errno 2] No such file: '/run/docker.sock'"),
        ("containers.failed", "ValueError('no daemon')"),
        ("containers.recovered", ""),
    ]


async def test_one_source_that_fails_for_ever_holds_up_no_other() -> None:
    class Broken:
        name = "docker"

        async def run(self, sink: Sink) -> None:
            raise RuntimeError("always")

    async with following(Broken(), Script(lists(A, name="cgroup"), name="cgroup")) as (_, messages):
        await until(lambda: len(messages) == 2)


async def test_what_is_gone_is_reported_when_every_source_has_been_heard() -> None:
    async def before() -> Memory:
        identities = {container: Identity(container) for container in (A, B)}
        return Memory(
            {key: LastEvent(Happening("started", value, ("cgroup",), 5)) for key, value in identities.items()}
        )

    async with following(Script(lists(A)), load_memory=before) as (_, messages):
        await until(lambda: len(messages) == 2)
    assert messages.story == [("exited", B), ("deleted", B)]


async def test_nothing_is_reported_to_be_gone_while_no_source_sees_anything() -> None:
    async def before() -> Memory:
        return Memory({A: LastEvent(Happening("started", Identity(A), ("cgroup",), 5))})

    async with following(Script(raises(OSError(13, "Permission denied"))), load_memory=before) as (follower, messages):
        await until(lambda: bool(follower._failing))
        await asyncio.sleep(0.05)
        assert messages == []
        follower.present("docker", {}, 99_000_000)
        await until(lambda: len(messages) == 2)


async def test_a_memory_that_does_not_come_is_waited_for_no_longer_than_is_allowed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(follow, "_REMEMBER_SECONDS", 0.02)

    async def never() -> Memory:
        await asyncio.Event().wait()
        raise AssertionError

    async with following(Script(lists(A)), load_memory=never) as (_, messages):
        await asyncio.sleep(0)
        assert messages == []
        await until(lambda: len(messages) == 2)
    assert [record.getMessage() for record in caplog.records] == ["containers.forgotten"]


async def test_without_sources_nothing_is_asked_and_nothing_reported() -> None:
    async def asked() -> Memory:
        raise AssertionError

    messages = Handed()
    await Follower([], node="n", boot="b", emit=messages.append, rescan_seconds=1).run(asked)
    assert messages == []
