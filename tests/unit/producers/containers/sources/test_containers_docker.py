"""Following the Docker Engine API: a daemon's bytes in any portions, and a daemon that lies, stalls or leaves."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from producers import clock as grid
from producers.containers.sources.damage import DAMAGED
from producers.containers.sources.source import Identity, Observation
from tests.unit.producers.containers.sources.docker import UP, WALL, Daemon, Heard, chunk, follow

ID = "70a6514740aa20b532a49dedb5cf4ca4e045cce2a032edf9811b28aa157500cb"


def event(action: str, *, after: float = 0.0, container: str = ID, **attributes: str) -> dict[str, Any]:
    """Return an event as dockerd 20.10 sends it, so many seconds after the clock of these tests began."""
    return {
        "status": action,
        "id": container,
        "from": "shop/web:1.2",
        "Type": "container",
        "Action": action,
        "Actor": {"ID": container, "Attributes": {"image": "shop/web:1.2", "name": "web", **attributes}},
        "scope": "local",
        "time": WALL // grid.SECOND,
        "timeNano": WALL + round(after * grid.SECOND),
    }


def row(state: str, container: str = ID, **labels: str) -> dict[str, Any]:
    return {"Id": container, "Names": ["/web"], "Image": "shop/web:1.2", "State": state, "Labels": labels}


@asynccontextmanager
async def following(daemon: Daemon, heard: Heard, **options: Any) -> AsyncIterator[None]:
    running = asyncio.create_task(follow(daemon, heard, **options))
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def damaged() -> float:
    return float(DAMAGED.labels("docker")._value.get())


async def test_it_lists_first_and_then_tells_events_with_names_and_their_own_times(tmp_path: Path) -> None:
    heard = Heard()
    async with Daemon(tmp_path) as daemon:
        daemon.rows = [
            row("running", "a", **{"spazio.class": "jobs", "spazio.kind": "batch"}),
            row("exited", "b"),
            row("paused", "c"),
        ]
        daemon.events = [chunk(json.dumps(event("start", after=0.5)).encode() + b"\n")]
        async with following(daemon, heard):
            listed = await heard.listing()
            assert {name: runs for name, (_, runs) in listed.items()} == {"a": True, "b": False, "c": True}
            web = Identity("a", container_name="web", image="shop/web:1.2", workload="jobs", kind="batch")
            assert listed["a"][0] == web
            assert await heard.events(1) == [
                Observation(
                    "docker",
                    "started",
                    Identity(ID, container_name="web", image="shop/web:1.2", workload="shop/web"),
                    (UP + grid.SECOND // 2) // 1000,
                )
            ]
    assert daemon.asked[0].startswith("/events?since=1795262672.000000000&filters=")
    assert daemon.asked[1] == "/containers/json?all=1"


async def test_a_life_is_reported_in_order_and_what_else_happens_is_not(tmp_path: Path) -> None:
    heard = Heard()
    actions = ["create", "attach", "start", "exec_create: sh", "kill", "oom", "pause", "die", "destroy"]
    body = b"".join(json.dumps(event(action)).encode() + b"\n" for action in actions)
    async with Daemon(tmp_path) as daemon:
        daemon.events = [chunk(body[at : at + 100]) for at in range(0, len(body), 100)]
        async with following(daemon, heard):
            assert [observation.event for observation in await heard.events(4)] == [
                "created",
                "started",
                "exited",
                "deleted",
            ]


MALFORMED = [
    b"no json",
    b"[]",
    b"{}x",
    b'{"Type":"container"}',
    b'{"Type":"container","Action":"start"}',
    b'{"Type":"container","Action":"start","Actor":7}',
    b'{"Type":"container","Action":"start","Actor":{"ID":""},"timeNano":1}',
    b'{"Type":"container","Action":"start","Actor":{"ID":"x","Attributes":3},"timeNano":1}',
    b'{"Type":"container","Action":"start","Actor":{"ID":"x"}}',
    b'{"Type":"container","Action":["start"]}',
    b'{"Type":"container","Action":"start","Actor":{"ID":"x"},"timeNano":1e999}',
    b"[" * 100_000,
    b"\xff\xfe",
    b'"' + b"x" * (1 << 20) + b'"',
]


async def test_events_that_cannot_be_read_are_counted_logged_once_and_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    heard, before = Heard(), damaged()
    async with Daemon(tmp_path) as daemon:
        daemon.rows = [{"Id": None}, 7, {"Id": "x", "Names": 3, "State": "running"}, row("running", "a")]
        daemon.events = [chunk(line + b"\n") for line in [*MALFORMED, json.dumps(event("start")).encode()]]
        async with following(daemon, heard):
            assert list(await heard.listing()) == ["a"]
            assert [observation.identity.container for observation in await heard.events(1)] == [ID]
    assert damaged() - before == len(MALFORMED) + 3
    assert [record.message for record in caplog.records] == ["containers.damaged"]


async def test_an_event_is_never_older_than_the_question_nor_younger_than_its_reading(tmp_path: Path) -> None:
    heard = Heard()
    async with Daemon(tmp_path) as daemon:
        for after in (-9999.0, 9999.0):
            daemon.events.append(chunk(json.dumps(event("start", after=after)).encode() + b"\n"))
        async with following(daemon, heard):
            times = [observation.boottime_us for observation in await heard.events(2)]
    assert times == [(UP - grid.SECOND) // 1000, (UP + 2 * grid.SECOND) // 1000]


async def test_all_is_listed_again_from_time_to_time(tmp_path: Path) -> None:
    heard = Heard()
    async with Daemon(tmp_path) as daemon, following(daemon, heard, list_seconds=0.01):
        assert await heard.listing() == {}
        daemon.rows = [row("running")]
        while ID not in await heard.listing():
            pass
