"""Following the Docker Engine API: a daemon's bytes in any portions, and a daemon that lies, stalls or leaves."""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers import clock as grid
from producers.containers.sources import docker
from producers.containers.sources.damage import DAMAGED
from producers.containers.sources.docker import Docker
from producers.containers.sources.source import Identity, Observation
from producers.containers.wire.response import Decoder, Lines

ID = "70a6514740aa20b532a49dedb5cf4ca4e045cce2a032edf9811b28aa157500cb"
WALL = 1_795_262_670 * grid.SECOND
UP = 3600 * grid.SECOND
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


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


def chunk(body: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(body), body)


class Clock(grid.System):
    """Stands, two seconds after the events of these tests."""

    def boottime(self) -> int:
        return UP + 2 * grid.SECOND

    def realtime(self) -> int:
        return WALL + 2 * grid.SECOND


class Early(Clock):
    """Stands before the events of these tests, then after them: the source has asked in time."""

    def __init__(self) -> None:
        self._asked = 0

    def boottime(self) -> int:
        self._asked += 1
        return super().boottime() if self._asked > 1 else UP - grid.SECOND


class Heard:
    """Keeps what a source says, in order."""

    def __init__(self) -> None:
        self.observed: asyncio.Queue[Observation | Mapping[str, tuple[Identity, bool]]] = asyncio.Queue()

    def observe(self, observation: Observation) -> None:
        self.observed.put_nowait(observation)

    def present(self, source: str, listed: Mapping[str, tuple[Identity, bool]], boottime_us: int) -> None:
        assert source == "docker"
        self.observed.put_nowait(listed)

    async def events(self, number: int) -> list[Observation]:
        observations: list[Observation] = []
        while len(observations) < number:
            item = await asyncio.wait_for(self.observed.get(), 5)
            if isinstance(item, Observation):
                observations.append(item)
        return observations

    async def listing(self) -> Mapping[str, tuple[Identity, bool]]:
        while True:
            item = await asyncio.wait_for(self.observed.get(), 5)
            if not isinstance(item, Observation):
                return item


class Daemon:
    """Answers as the Engine API does: a listing, and a stream of events that stays open until told otherwise."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "docker.sock"
        self.rows: list[Any] = []
        self.events: list[bytes] = []
        self.asked: list[str] = []
        self.answer = CHUNKED
        self.hangs_up = False
        self.is_stuck = False
        self._serving: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._serve, self.socket)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving |= {task} if (task := asyncio.current_task()) else set()
        target = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        self.asked.append(target)
        if target.startswith("/events"):
            writer.write(self.answer + b"".join(self.events))
            if not self.hangs_up:
                await self._forever(reader)
        elif self.is_stuck:
            await self._forever(reader)
        else:
            body = json.dumps(self.rows).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def _forever(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read()


async def follow(daemon: Daemon, heard: Heard, **options: Any) -> None:
    await Docker(daemon.socket, clock=Early(), **options).run(heard)


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


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=5), st.lists(st.integers(0, 300), max_size=12))
def test_a_chunked_response_cut_anywhere_is_the_same(bodies: list[bytes], cuts: list[int]) -> None:
    whole = CHUNKED + b"".join(map(chunk, bodies)) + b"0\r\n\r\n"
    places = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    decoder = Decoder()
    pieces = [decoder.feed(whole[a:b]) for a, b in itertools.pairwise(places)]
    assert b"".join(pieces) == b"".join(bodies)
    assert (decoder.status, decoder.ended) == (200, True)


@pytest.mark.parametrize("portion", [1, 7, 1000])
def test_a_response_of_known_length_ends_with_it_and_one_without_with_the_connection(portion: int) -> None:
    for head, sure in ((b"Content-Length: 5\r\n", True), (b"", False)):
        whole = b"HTTP/1.0 404 Not Found\r\n" + head + b"\r\nhello"
        decoder = Decoder()
        body = b"".join(decoder.feed(whole[at : at + portion]) for at in range(0, len(whole), portion))
        assert (decoder.status, body, decoder.ended) == (404, b"hello", sure)
        decoder.close()
        assert decoder.ended


@pytest.mark.parametrize(
    "response", [b"SSH-2.0-OpenSSH\r\n", b"HTTP/2 200\r\n\r\n", b"x" * 9, b"HTTP/1.1" + 70_000 * b"x"]
)
def test_what_is_no_http_is_refused(response: bytes) -> None:
    with pytest.raises(ValueError, match="no HTTP"):
        Decoder().feed(response)


def test_a_chunk_without_a_size_is_refused_and_one_that_is_cut_off_is_a_lost_connection() -> None:
    with pytest.raises(ValueError, match="size"):
        Decoder().feed(CHUNKED + b"no size\r\n")
    with pytest.raises(ValueError, match="does not end"):
        Decoder().feed(CHUNKED + b"1" * 70_000)
    decoder = Decoder()
    decoder.feed(CHUNKED + b"5\r\nab")
    with pytest.raises(ConnectionError):
        decoder.close()


@given(st.lists(st.text("ab\r", max_size=12), max_size=6), st.integers(1, 9))
def test_lines_in_portions_are_lines_and_too_long_ones_are_left_out(lines: list[str], portion: int) -> None:
    whole = "".join(f"{line}\n" for line in lines).encode()
    splitter = Lines(6)
    result = [line for at in range(0, len(whole), portion) for line in splitter.feed(whole[at : at + portion])]
    assert result == [None if len(line) > 6 else line.encode() for line in lines if len(line) > 6 or line.strip()]


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


async def test_a_life_is_told_in_order_and_what_else_happens_is_not(tmp_path: Path) -> None:
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


async def test_events_that_cannot_be_read_are_counted_said_once_and_skipped(
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


async def test_no_socket_and_nobody_listening_are_told_with_the_place(tmp_path: Path) -> None:
    socket = tmp_path / "docker.sock"
    with pytest.raises(FileNotFoundError, match=r"docker\.sock"):
        await Docker(socket).run(Heard())
    async with Daemon(tmp_path):
        pass
    with pytest.raises(ConnectionRefusedError, match=r"docker\.sock"):
        await Docker(socket).run(Heard())


async def test_a_socket_that_is_closed_to_us_is_told(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    async with Daemon(tmp_path) as daemon:
        daemon.socket.chmod(0)
        request.getfixturevalue("unprivileged")
        with pytest.raises(PermissionError, match=r"docker\.sock"):
            await follow(daemon, Heard())


@pytest.mark.parametrize(
    ("rest", "error"),
    [(b"", "middle of a response"), (chunk(b'{"Type":'), "middle of a response"), (b"0\r\n\r\n", "ended the stream")],
    ids=["at once", "in an event", "politely"],
)
async def test_a_daemon_that_leaves_is_a_lost_connection(tmp_path: Path, rest: bytes, error: str) -> None:
    async with Daemon(tmp_path) as daemon:
        daemon.events, daemon.hangs_up = [rest], True
        with pytest.raises(ConnectionError, match=error):
            await follow(daemon, Heard())


async def test_a_daemon_that_is_stuck_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker, "_ANSWER_SECONDS", 0.05)
    async with Daemon(tmp_path) as daemon:
        daemon.is_stuck = True
        with pytest.raises(TimeoutError, match=r"docker\.sock gives no answer within 0\.05 s"):
            await follow(daemon, Heard())
        daemon.answer = b""
        with pytest.raises(TimeoutError, match=r"docker\.sock gives no answer"):
            await follow(daemon, Heard())


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b'HTTP/1.1 500 Oh\r\nContent-Length: 17\r\n\r\n{"message":"broken"}', "500"),
        (b"HTTP/1.1 400 No\r\n\r\nolder client", "older client"),
        (b"220 smtp\r\n", "no HTTP"),
    ],
)
async def test_what_refuses_or_is_no_docker_is_told_in_its_own_words(tmp_path: Path, answer: bytes, words: str) -> None:
    async with Daemon(tmp_path) as daemon:
        daemon.answer, daemon.hangs_up = answer, True
        with pytest.raises(ValueError, match=words):
            await follow(daemon, Heard())


async def test_a_list_that_is_none_is_refused(tmp_path: Path) -> None:
    async with Daemon(tmp_path) as daemon:
        daemon.rows = {"message": "?"}  # type: ignore[assignment] # on purpose
        with pytest.raises(ValueError, match="lists no containers"):
            await follow(daemon, Heard())
