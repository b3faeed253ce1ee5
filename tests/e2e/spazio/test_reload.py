"""`spazio up` hands new settings on to everything that it runs."""

import signal
from pathlib import Path

import pytest

from tests.e2e.pipeline import until, up


@pytest.mark.slow
def test_a_signal_to_up_changes_the_settings_of_its_services_and_restarts_none(tmp_path: Path) -> None:
    config = tmp_path / "spazio.toml"
    config.write_text('[log]\nformat = "json"\n[history]\nflush_seconds = 3600\n')
    with up(tmp_path / "data", "--config", str(config)) as running:
        until(running.top, 10, "this host in the cache")
        pids = {name: running.pid(name) for name in ("nats", "agent", "process", "cache", "history", "metrics")}
        until(lambda: running.page("history", "/readyz")[0] == 200, 20, "the history is there")
        assert not running.sql("SELECT * FROM samples")
        config.write_text(
            '[log]\nformat = "json"\nlevel = "info"\n[history]\nflush_seconds = 0.5\n[process]\nbatch = 7\n'
        )
        running.process.send_signal(signal.SIGHUP)
        until(lambda: running.sql("SELECT * FROM samples"), 10, "rows in the history")
        log = (tmp_path / "data.log").read_text()
        messages = [line for line in log.splitlines() if '"settings.reloaded"' in line]
        for service in ("up", "agent", "process", "cache", "history", "metrics"):
            assert [line for line in messages if f'"service": "{service}"' in line], service
        assert '"settings": "process_batch"' in log
        assert {name: running.pid(name) for name in pids} == pids
        config.write_text("[log\n")
        running.process.send_signal(signal.SIGHUP)
        until(lambda: '"settings.refused"' in (tmp_path / "data.log").read_text(), 10, "a refusal")
        assert {name: running.pid(name) for name in pids} == pids
