"""What a replay leaves behind that fails on the way."""

from pathlib import Path
from typing import Any, NoReturn

import pytest

from spazio import cli
from spazio.command import replay
from spazio.service import logs
from spazio.service.child import Unstartable


@pytest.mark.parametrize(("error", "status"), [(Unstartable("history did not start"), 2), (OSError("full"), 1)])
@pytest.mark.parametrize("stored", [False, True])
def test_a_replay_that_fails_on_the_way_leaves_nothing_but_its_history(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception, *, status: int, stored: bool
) -> None:
    async def fail(self: Any) -> NoReturn:
        folder = self._settings.data.dir
        for name in ("nats/jetstream", "credentials/keys", "run"):
            (folder / name).mkdir(parents=True)
        (folder / "run" / "history.json").write_text("{}")
        if stored:
            self._settings.history_dir.mkdir()
        raise error

    trace, data = tmp_path / "trace.csv", tmp_path / "data"
    trace.write_text("node,seconds,cpu_util\nn,1700000000,0.5\n")
    monkeypatch.setattr(replay._Replay, "run", fail)
    monkeypatch.setattr(logs, "configure", lambda *_: None)  # it would stay for other tests
    sizes = ["--cpus", "4", "--memory-bytes", "8000000000"]
    monkeypatch.setattr("sys.argv", ["spazio", "replay", str(trace), "--data-dir", str(data), *sizes])
    assert cli.main() == status
    assert [path.name for path in data.glob("replay/*/*")] == (["history"] if stored else [])
    assert data.exists() == stored
