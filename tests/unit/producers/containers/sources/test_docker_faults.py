"""A Docker daemon that is absent, leaves, hangs, refuses or is none."""

from pathlib import Path

import pytest

from producers.containers.sources import docker
from producers.containers.sources.docker import Docker
from tests.unit.producers.containers.sources.docker import Daemon, Heard, chunk, follow


async def test_no_socket_and_nobody_listening_are_reported_with_the_place(tmp_path: Path) -> None:
    socket = tmp_path / "docker.sock"
    with pytest.raises(FileNotFoundError, match=r"docker\.sock"):
        await Docker(socket).run(Heard())
    async with Daemon(tmp_path):
        pass
    with pytest.raises(ConnectionRefusedError, match=r"docker\.sock"):
        await Docker(socket).run(Heard())


async def test_a_socket_that_is_closed_to_us_is_reported(tmp_path: Path, request: pytest.FixtureRequest) -> None:
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
async def test_what_refuses_or_is_no_docker_is_reported_in_its_own_words(
    tmp_path: Path, answer: bytes, words: str
) -> None:
    async with Daemon(tmp_path) as daemon:
        daemon.answer, daemon.hangs_up = answer, True
        with pytest.raises(ValueError, match=words):
            await follow(daemon, Heard())


async def test_a_list_that_is_none_is_refused(tmp_path: Path) -> None:
    async with Daemon(tmp_path) as daemon:
        daemon.rows = {"message": "?"}  # type: ignore[assignment] # on purpose
        with pytest.raises(ValueError, match="lists no containers"):
            await follow(daemon, Heard())
