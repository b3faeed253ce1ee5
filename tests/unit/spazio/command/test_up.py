"""What `spazio up` refuses before it starts anything."""

import errno
import os
import socket
from pathlib import Path
from typing import NoReturn

import pytest

from schemas.settings import load
from spazio.command import up
from spazio.service import data_folder, logs


def test_a_port_that_is_taken_ends_the_start_with_one_sentence_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        flags = {"http_port": str(port), "nats_port": "0", "extender_port": "0", "data_dir": str(tmp_path / "data")}
        assert up.run(load(flags, environ={})) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"cannot listen on 127.0.0.1:{port}" in captured.err
    assert "--http-port" in captured.err
    assert len(captured.err.splitlines()) == 1
    assert captured.err.count(str(port)) == 1
    assert not (tmp_path / "data").exists()


def test_who_starts_twice_learns_of_the_first_and_not_of_its_ports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with data_folder.own(tmp_path, 0), socket.create_server(("127.0.0.1", 0)) as taken:
        flags = {"http_port": str(taken.getsockname()[1]), "data_dir": str(tmp_path)}
        assert up.run(load(flags, environ={})) == 2
    assert f"{tmp_path} is in use by process {os.getpid()}; stop it" in capsys.readouterr().err


def test_a_disk_that_is_full_at_the_start_is_no_wrong_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fail(_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(up._Up, "run", fail)
    monkeypatch.setattr(logs, "configure", lambda *_: None)  # it would stay for other tests
    assert up.run(load({"http_port": "0", "data_dir": str(tmp_path)}, environ={})) == 1
    assert "No space left on device; fix that, or choose another folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "partitions"),
    [
        ({}, 2),
        ({"process_replicas": "3"}, 6),
        ({"process_replicas": "9"}, 8),
        ({"simulated_nodes": "5000"}, 4),
        ({"nats_partitions": "8"}, 8),
        ({"nats_url": "nats://n:4222"}, 8),
    ],
)
def test_up_makes_few_partitions_unless_told_otherwise_or_on_a_server_of_others(
    given: dict[str, str], partitions: int
) -> None:
    assert up._partitioned(load(given, environ={})).partitions == partitions
