"""`spazio up` as a user runs it: what it shows, serves, survives and leaves behind."""

import asyncio
import contextlib
import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import duckdb
import nats
import nats.js.errors
import pytest

from schemas.messages.estimate import Availability
from schemas.subject import token
from spazio.service.composition.machine import NAMES as SERVICES
from tests.e2e.pipeline import Up, alive, spazio, until, up
from tests.support.placement import asked

README = Path(__file__).parents[3] / "README.md"


def ready(running: Up, service: str) -> bool:
    return running.page(service, "/readyz")[0] == 200


def again(running: Up, name: str, old: int) -> bool:
    return running.pid(name) not in (0, old)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("up") / "data") as pipeline:
        yield pipeline


def test_within_ten_seconds_of_the_screen_the_cache_holds_this_host_whole_and_finite(running: Up) -> None:
    rows = until(running.top, 10, "this host in the cache")
    fields = set(Availability.model_fields)
    assert fields <= set(rows[0])
    assert all(math.isfinite(value) for value in rows[0].values() if isinstance(value, float))
    assert rows[0]["lower"] <= rows[0]["available"] <= rows[0]["upper"]
    assert rows[0]["age_seconds"] < 5


def test_the_bucket_and_the_subjects_are_as_the_contract_says(running: Up) -> None:
    async def look() -> tuple[list[str], dict[str, object], str]:
        client = await nats.connect(running.addresses["nats"], user_credentials=running.addresses["credentials"])
        bucket = await client.jetstream().key_value("SPAZIO_AVAILABILITY")
        keys: list[str] = []
        while not keys:  # a row that is replaced while it is looked for is not found
            with contextlib.suppress(nats.js.errors.NoKeysError):
                keys = await bucket.keys()
        value = json.loads((await bucket.get(keys[0])).value or b"")
        heard = await client.subscribe("spazio.samples.>")
        message = await heard.next_msg(timeout=3)
        await client.close()
        return keys, value, message.subject

    until(running.is_cached, 10, "this host in the cache")
    keys, value, subject = asyncio.run(look())
    assert len(keys) == 1
    assert subject == f"spazio.samples.{keys[0]}"
    assert value["node"] == socket.gethostname()


def test_a_stranger_on_this_machine_is_refused_and_only_the_owner_can_read_the_credentials(running: Up) -> None:
    port = int(running.addresses["nats"].rpartition(":")[2])
    # By the protocol itself: a refused client of the library leaves its socket open.
    with socket.create_connection(("127.0.0.1", port), timeout=5) as link, link.makefile("rb") as lines:
        assert lines.readline().startswith(b"INFO")
        link.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
        assert lines.readline() == b"-ERR 'Authorization Violation'\r\n"
    credential = Path(running.addresses["credentials"])
    assert f"credential {credential}" in running.log.read_text()
    for path in (credential.parent, *credential.parent.rglob("*")):
        assert not path.stat().st_mode & 0o077, path
    environs = {name: Path(f"/proc/{running.pid(name)}/environ").read_text() for name in SERVICES}
    own = {name: re.findall(r"SPAZIO_NATS_CREDENTIALS=([^\0]+)", text) for name, text in environs.items()}
    expected = {name: credential.parent / "roles" / f"{name}.creds" for name in SERVICES if name != "agent"}
    expected["agent"] = credential.parent / "nodes" / f"{token(socket.gethostname())}.creds"
    assert own == {name: [str(path)] for name, path in expected.items()}


def test_the_example_of_the_readme_runs(running: Up) -> None:
    example = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert example is not None
    until(running.is_cached, 10, "this host in the cache")
    program = example[1].replace("~/.local/share/spazio", str(running.folder))
    assert program != example[1]
    assert len(program.splitlines()) <= 12
    with subprocess.Popen([sys.executable, "-uc", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        limit = threading.Timer(20, process.kill)
        limit.start()
        lines = [process.stdout.readline() for _ in range(2)]
        limit.cancel()
        process.kill()
    assert all(line.startswith(f"{socket.gethostname()} ") for line in lines)


def test_every_service_serves_metrics_and_health_on_loopback(running: Up) -> None:
    for service in SERVICES:
        assert running.addresses["services"][service].startswith("http://127.0.0.1:")
        assert running.page(service, "/healthz") == (200, "ok\n")
        assert running.page(service, "/metrics")[0] == 200
        assert running.page(service, "/nonsense")[0] == 404
        until(partial(ready, running, service), 10, f"{service} ready")
    until(running.is_cached, 10, "this host in the cache")
    page = running.page("metrics", "/metrics")[1]
    assert re.search(r'spazio_available_pods\{node="[^"]+"\} [0-9.]+', page)
    assert running.addresses["http"] == running.addresses["services"]["metrics"]


def test_one_page_lists_the_services_for_prometheus(running: Up) -> None:
    groups = json.loads(running.page("agent", "/targets")[1])
    assert {(group["labels"]["service"], *group["targets"]) for group in groups} == {
        (name, url.removeprefix("http://")) for name, url in running.addresses["services"].items()
    }
    assert all(group["labels"]["__scheme__"] == "http" for group in groups)


def test_the_scheduler_s_question_is_answered_and_the_answer_is_in_the_history(running: Up) -> None:
    until(running.is_cached, 10, "this host in the cache")
    question = {"Pod": asked("p"), "Nodes": None, "NodeNames": [socket.gethostname(), "another"]}
    request = urllib.request.Request(f"{running.addresses['extender']}/filter", json.dumps(question).encode())
    with urllib.request.urlopen(request, timeout=10) as reply:
        answer = json.load(reply)
    assert not answer["Error"]
    assert "another" in answer["NodeNames"], "nobody knows it, so it passes, last"
    decided = "SELECT outcome, nodes FROM decisions WHERE name = 'p'"
    until(lambda: running.sql(decided) == [{"outcome": "placed", "nodes": 2}], 20, "the decision in the history")


def test_what_happened_fifteen_seconds_ago_is_visible_in_sql_and_to_another_process(running: Up) -> None:
    recent = "SELECT count(*) AS n FROM samples WHERE time > now() - INTERVAL 15 SECOND"
    until(lambda: running.sql(recent)[0]["n"] > 0, 15, "recent samples")
    until(lambda: running.sql("SELECT count(*) AS n FROM availability")[0]["n"] > 0, 15, "availability")
    with duckdb.connect(running.addresses["history"], read_only=True) as other:
        assert other.execute("SELECT count(*) FROM smoothed").fetchone() != (0,)
        assert running.sql("SELECT count(DISTINCT (node, seq, at_us)) = count(*) AS once FROM samples")[0]["once"]


def test_parts_without_messages_are_no_fault(running: Up) -> None:
    answer = running.run("top", "--partitions", "--once", "--json")
    rows = json.loads(answer.stdout)
    assert answer.returncode == 0
    assert any(row["owner"] for row in rows)
    assert all(row["owner"] or row["idle"] for row in rows)


def test_a_second_up_on_the_same_folder_says_who_holds_it(running: Up) -> None:
    answer = running.run("up")
    assert answer.returncode == 2
    assert f"in use by process {running.process.pid}" in answer.stderr


def test_garbage_is_kept_as_a_dead_letter_and_nothing_crashes(running: Up) -> None:
    before = running.addresses["pids"]
    for payload in (b"nonsense", b'{"v": 99}', b"\x00" * 100_000):
        running.publish("spazio.samples.x", payload)

    async def dead() -> list[bytes]:
        client = await nats.connect(running.addresses["nats"], user_credentials=running.addresses["credentials"])
        info = await client.jetstream().stream_info("SPAZIO_DEAD")
        sequences = range(info.state.first_seq, info.state.last_seq + 1)
        letters = [await client.jetstream().get_msg("SPAZIO_DEAD", seq=number) for number in sequences]
        await client.close()
        return [letter.data or b"" for letter in letters if (letter.subject or "").startswith("spazio.dead.")]

    until(lambda: len(asyncio.run(dead())) >= 3, 10, "dead letters")
    assert sorted(asyncio.run(dead())) == sorted([b"nonsense", b'{"v": 99}', b"\x00" * 100_000])
    assert running.addresses["pids"] == before
    pattern = re.compile(r"spazio_dead_letters_total\{.*\} [0-9.]+")
    until(lambda: pattern.search(running.page("process", "/metrics")[1]), 10, "the processors count dead letters")


def test_the_agent_has_none_of_the_heavy_packages_loaded(running: Up) -> None:
    maps = Path(f"/proc/{running.pid('agent')}/maps").read_text()
    assert not [name for name in ("numpy", "polars", "_duckdb", "kubernetes") if name in maps]
    heavy = ("numpy", "polars", "duckdb", "kubernetes_asyncio", "typer", "rich", "aiohttp")
    program = f"import sys, spazio.command.agent; print([name for name in {heavy} if sys.modules.get(name)])"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=True)
    assert answer.stdout == "[]\n"


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


@pytest.mark.slow
@pytest.mark.alone
def test_killing_any_child_is_said_and_mended_and_killing_up_leaves_no_orphan(tmp_path: Path) -> None:
    with up(tmp_path / "data", "--processors", "2") as running:
        until(running.is_cached, 10, "this host in the cache")
        for name in (*SERVICES, "process-2", "nats"):
            old = running.pid(name)
            os.kill(old, signal.SIGKILL)
            until(partial(again, running, name, old), 15, f"{name} again")
        lines = running.log.read_text()
        for name in (*SERVICES, "process-2", "nats"):
            assert re.search(rf'child\.ended.*"child": "{name}".*SIGKILL', lines), name
        until(lambda: any(row["age_seconds"] < 3 for row in running.top()), 20, "fresh numbers")
        time.sleep(6)  # past one flush of the history, in real time since everything here is real
        gaps = (
            "SELECT max(seq) - min(seq) + 1 - count(DISTINCT seq) AS missing, "
            "count(*) - count(DISTINCT (node, seq, at_us)) AS doubled FROM samples"
        )
        counted = running.sql(gaps)[0]
        assert counted["doubled"] == 0
        assert counted["missing"] <= 8  # the agent's own time down: a pause, a start, the rest of a second
        pids = running.addresses["pids"]
        running.process.kill()
        running.process.wait()
        until(lambda: not [pid for pid in pids.values() if alive(pid)], 6, "no orphan")


@pytest.mark.slow
def test_every_wrong_setting_is_told_at_once_with_status_2(tmp_path: Path) -> None:
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
def test_a_busy_port_and_an_unusable_folder_are_told_with_status_2(tmp_path: Path) -> None:
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
