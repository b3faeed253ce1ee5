"""Which nats-server is started, on which port, and with what configuration."""

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bus import server
from schemas import settings as all_settings
from tests.support.server.natsd import Natsd


def program(folder: Path, answer: str) -> Path:
    folder.mkdir()
    path = folder / "nats-server"
    path.write_text(f"#!/bin/sh\necho '{answer}'\n")
    path.chmod(0o755)
    return path


def test_the_program_on_the_path_is_used_if_it_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = program(tmp_path / "new", "nats-server: v2.14.3")
    monkeypatch.setenv("PATH", str(path.parent))
    assert server.find() == server.Program(str(path), (2, 14, 3))


def test_an_old_program_on_the_path_gives_way_to_the_packaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = program(tmp_path / "old", "nats-server: v2.10.1")
    monkeypatch.setenv("PATH", f"{old.parent}:/bin:/usr/bin")
    assert server.find().path == str(Path(sys.executable).with_name("nats-server"))


def test_without_any_usable_program_it_says_what_was_seen_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = program(tmp_path / "old", "nats-server: v2.10.1")
    mute = program(tmp_path / "mute", "hello")
    monkeypatch.setattr(sys, "executable", str(mute.with_name("python")))
    monkeypatch.setenv("PATH", str(old.parent))
    with pytest.raises(server.Unusable, match=r"2\.14 or newer .*2\.10\.1.*does not print its version.*--nats URL"):
        server.find()


@pytest.mark.parametrize("content", [b"\x7fELF of another machine", b"#!/bin/sh\nexec sleep 60\n"])
def test_a_program_that_cannot_run_gives_way_to_the_packaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    broken = program(tmp_path / "broken", "")
    broken.write_bytes(content)
    run = subprocess.run

    def impatient(command: list[str], **options: Any) -> Any:
        return run(command, **options | {"timeout": 0.3 if command[0] == str(broken) else 10})

    monkeypatch.setattr(subprocess, "run", impatient)
    monkeypatch.setenv("PATH", f"{broken.parent}:/bin:/usr/bin")
    assert server.find().path == str(Path(sys.executable).with_name("nats-server"))


@pytest.mark.slow
def test_the_log_of_what_strangers_try_takes_limited_space(tmp_path: Path) -> None:
    port = server.free_port(0)
    config = server.write_config(all_settings.load({"data_dir": str(tmp_path)}, environ={}), port)
    config.write_text(config.read_text().replace("10MB", "20KB"))
    running = Natsd(config, port)
    running.start()
    try:
        for _ in range(600):
            with socket.create_connection(("127.0.0.1", port)) as stranger:
                stranger.sendall(b"nonsense\r\n")
                stranger.recv(4096)
    finally:
        running.kill()
    logs = list(config.parent.glob("server.log*"))
    assert len(logs) == 2
    assert sum(log.stat().st_size for log in logs) < 50_000


def test_a_taken_port_gives_way_to_the_next_free_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert port < (other := server.free_port(port)) <= port + 100
        assert other < server.free_port(port, besides=[other]) <= port + 100
    assert server.free_port(0) > 0


def test_the_configuration_is_for_loopback_and_this_users_eyes(tmp_path: Path) -> None:
    settings = all_settings.load({"data_dir": str(tmp_path / 'a "quoted" folder')}, environ={})
    path = server.write_config(settings, 4223)
    text = path.read_text()
    assert "listen: 127.0.0.1:4223" in text
    assert "js_ack_fc_v2: false" in text
    assert r"a \"quoted\" folder" in text
    assert path.parent.stat().st_mode & 0o077 == 0
