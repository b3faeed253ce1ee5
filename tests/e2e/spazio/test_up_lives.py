"""`spazio up` that is stopped, killed, started wrong, or runs out of disk."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from functools import partial
from pathlib import Path

import pytest

from spazio.service.composition.machine import NAMES as SERVICES
from tests.e2e.pipeline import Up, again, alive, set_back, spazio, until, up


@pytest.mark.slow
@pytest.mark.alone
def test_a_signal_ends_everything_within_five_seconds_and_the_next_start_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    for sign in (signal.SIGINT, signal.SIGTERM):
        with up(folder) as running:
            until(running.top, 10, "this host in the cache")
            pids = running.addresses["pids"]
            assert running.stop(sign) < 5
            assert running.process.returncode == 0
            assert not [name for name, pid in pids.items() if alive(pid)]
            assert "leaked" not in running.log.read_text()  # what DuckDB's bindings say of types that are left
    with up(folder) as last:
        until(last.top, 10, "this host in the cache")
        until(lambda: last.sql("SELECT count(DISTINCT boot) AS n FROM samples")[0]["n"] == 1, 10, "samples")
        check = "SELECT count(*) AS n, count(DISTINCT (node, seq, at_us)) AS once FROM {}"
        for table in ("samples", "smoothed"):
            counted = last.sql(check.format(table))[0]
            assert counted["n"] == counted["once"] > 0
        log = last.log.read_text()
        assert "Traceback" not in log


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.skipif(os.cpu_count() != 2, reason="the numbers are those of a machine with two CPUs")
def test_the_first_number_of_an_idle_machine_comes_soon_and_holds(tmp_path: Path) -> None:
    number = re.compile(r"at least (\d+) more pods fit, ([\d.]+) expected")
    with up(tmp_path / "data") as running:
        shown = until(lambda: number.search(running.log.read_text()), 20, "a number on the screen")
        assert shown is not None
        least, expected = float(shown[1]), float(shown[2])
        assert least <= expected
        assert 10 <= expected <= 20
        time.sleep(60)
        row = running.cached()
        assert row["lower"] >= 0.6 * row["available"]
        assert row["available"] == pytest.approx(expected, rel=0.25)


def adds_up(running: Up) -> bool:
    answer = running.run("doctor", "--flow", "--json")
    return answer.returncode == 0 and not json.loads(answer.stdout)["faults"]


@pytest.mark.slow
@pytest.mark.alone
def test_killing_any_child_is_logged_and_restarts_it_and_killing_up_leaves_no_orphan(tmp_path: Path) -> None:
    with up(tmp_path / "data", "--processors", "2") as running:
        until(running.is_cached, 10, "this host in the cache")
        running.folder.joinpath("run", "settings.toml").write_text("[garbage")  # each start writes it
        for name in (*SERVICES, "process-2", "nats"):
            old = running.pid(name)
            os.kill(old, signal.SIGKILL)
            until(partial(again, running, name, old), 15, f"{name} again")
        lines = running.log.read_text()
        for name in (*SERVICES, "process-2", "nats"):
            assert re.search(rf'child\.ended.*"child": "{name}".*SIGKILL', lines), name
        until(running.is_fresh, 20, "fresh numbers")
        time.sleep(6)  # past one flush of the history, in real time since everything here is real
        gaps = (
            "SELECT max(seq) - min(seq) + 1 - count(DISTINCT seq) AS missing, "
            "count(*) - count(DISTINCT (node, seq, at_us)) AS doubled FROM samples"
        )
        counted = running.sql(gaps)[0]
        assert counted["doubled"] == 0
        assert counted["missing"] <= 8  # the agent's own time down: a pause, a start, the rest of a second
        until(lambda: adds_up(running), 10, "the accounts add up after every kill")
        set_back(running, tmp_path / "copy")
        # The history has what the server lost; a reader that noticed goes on behind what both have.
        noticed = re.compile(r"^spazio_stream_set_back_total\{[^}]*\} [1-9]", re.MULTILINE)
        until(lambda: noticed.search(running.page("history", "/metrics")[1]), 20, "the history noticed the loss")
        until(lambda: adds_up(running), 20, "the accounts add up after a loss of power")
        assert running.sql(gaps)[0]["doubled"] == 0
        pids = running.addresses["pids"]
        running.process.kill()
        running.process.wait()
        until(lambda: not [pid for pid in pids.values() if alive(pid)], 6, "no orphan")


@pytest.mark.slow
@pytest.mark.alone
def test_a_stopped_server_that_a_killed_up_leaves_is_ended_before_the_next_has_one(tmp_path: Path) -> None:
    with up(tmp_path / "data") as running:
        until(running.is_cached, 10, "this host in the cache")
        left = running.pid("nats")
        os.kill(left, signal.SIGSTOP)
        running.process.kill()
        running.process.wait()
        assert alive(left)
    with up(tmp_path / "data") as last:
        assert not alive(left)
        assert "server.left" in last.log.read_text()
        until(last.is_fresh, 20, "fresh numbers")
        assert "corrupt" not in (tmp_path / "data" / "nats" / "server.log").read_text()


@pytest.mark.slow
def test_every_wrong_setting_is_reported_at_once_with_status_2(tmp_path: Path) -> None:
    config = tmp_path / "spazio.toml"
    config.write_text("[model]\ntau_secnods = 3\n[nats]\nport = 'x'\n")
    answer = spazio(
        "up",
        "--config",
        str(config),
        "--http-port",
        "99999",
        "--data-dir",
        str(tmp_path),
        SPAZIO_SAMPLE_INTERVAL_SECONDS="0.3",
    )
    assert answer.returncode == 2
    for part in ("4 faults", "tau_seconds", "[nats] port", "--http-port", "SPAZIO_SAMPLE_INTERVAL_SECONDS"):
        assert part in answer.stderr
    assert "Traceback" not in answer.stderr
    assert spazio("agent", "--sample-interval-seconds", "7").returncode == 2
    assert spazio("nonsense").returncode == 2
    assert spazio("up", "--nonsense", "1").returncode == 2


@pytest.mark.slow
@pytest.mark.alone
def test_a_busy_port_and_an_unusable_folder_are_reported_with_status_2(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = str(busy.getsockname()[1])
        answer = spazio("up", "--data-dir", str(tmp_path / "a"), "--nats-port", "0", "--http-port", port)
        assert answer.returncode == 2
        assert port in answer.stderr
        assert "--http-port" in answer.stderr
    (tmp_path / "file").write_text("")
    answer = spazio("up", "--data-dir", str(tmp_path / "file" / "below"))
    assert answer.returncode == 2
    assert "--data-dir" in answer.stderr
    answer = spazio("up", "--data-dir", str(tmp_path / "b"), "--data-min-free-bytes", str(1 << 60))
    assert answer.returncode == 2
    assert "MB free" in answer.stderr


@pytest.mark.slow
def test_commands_without_a_pipeline_say_how_to_start_one(tmp_path: Path) -> None:
    answer = spazio("top", "--once", "--nats", "nats://127.0.0.1:9", "--nats-connect-timeout-seconds", "1")
    assert (answer.returncode, "spazio up" in answer.stderr) == (1, True)
    answer = spazio("sql", "SELECT 1", "--data-dir", str(tmp_path / "none"))
    assert (answer.returncode, "spazio up" in answer.stderr) == (1, True)


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mount") is None, reason="mounting a small disk needs root")
def test_while_the_disk_of_the_history_is_full_rows_wait_in_the_stream(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("this machine does not allow to mount a tmpfs")
    try:
        with up(tmp_path / "data", "--history-dir", str(disk / "history"), "--history-flush-seconds", "1") as running:
            until(running.is_cached, 10, "this host in the cache")
            filler = disk / "filler"
            with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * 4096)
            until(lambda: running.page("history", "/readyz")[0] == 503, 15, "degraded")
            assert "free space" in running.page("history", "/readyz")[1]
            time.sleep(3)
            filler.unlink()
            until(lambda: running.page("history", "/readyz")[0] == 200, 15, "recovered")

            def whole() -> bool:
                count = (
                    "SELECT max(seq) - min(seq) + 1 = count(DISTINCT seq) AND count(*) = 10 * count(DISTINCT seq) AS ok"
                )
                answer = spazio("sql", f"{count} FROM samples", "--json", "--history-dir", str(disk / "history"))
                return answer.returncode == 0 and bool(json.loads(answer.stdout)[0]["ok"])

            until(whole, 10, "no row missing or doubled")
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)
