"""A port that another server takes in the moment of a start: that server is not used."""

from pathlib import Path

import pytest

from bus import server
from schemas.settings import load
from spazio.command import up
from spazio.service import logs, supervision
from spazio.service.child import Unstartable
from spazio.service.supervision import Supervised
from tests.conftest import NatsServer


@pytest.fixture
def taken(nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> int:
    """The port of another server, which seems to be free for the next one."""
    port = nats_server.port
    monkeypatch.setattr(server, "free_port", lambda *_, **__: port)
    monkeypatch.setattr(logs, "configure", lambda *_: None)  # which lasts beyond the test
    monkeypatch.setattr(up, "_START_SECONDS", 3.0)
    monkeypatch.setattr(supervision, "_START_SECONDS", 3.0)
    return port


@pytest.mark.slow
def test_up_does_not_take_the_server_of_another_for_its_own(
    taken: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = {"data_dir": str(tmp_path / "own"), "nats_port": str(taken), "http_port": "0"}
    assert up.run(load(flags, environ={})) == 2
    message = capsys.readouterr().err
    assert "nats-server did not start: " in message
    assert f"127.0.0.1:{taken}: bind: address already in use" in message


@pytest.mark.slow
async def test_a_replay_does_not_take_the_server_of_another_for_its_own(taken: int, tmp_path: Path) -> None:
    async with Supervised(load({"data_dir": str(tmp_path / "own")}, environ={})) as running:
        with pytest.raises(Unstartable, match="nats did not start"):
            await running.start_server(aggregate=True)
