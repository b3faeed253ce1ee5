"""Simulated nodes and replay as a user runs them."""

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bus import connection, stream
from schemas.settings import Settings
from schemas.subject import Names
from sinks.history import layout, view
from sinks.history.tables import sample
from sinks.history.writer import Writer
from tests.e2e.pipeline import Up, spazio, until, up
from tests.support.processors import telemetry
from tests.support.processors.telemetry import stored
from tests.unit.spazio.command.recordings import history

NODES = 50
ROWS = "SELECT * EXCLUDE (time, sequence) FROM availability WHERE node LIKE 'sim-%' ORDER BY node, at_us"
ENDS = "SELECT node, max(at_us) AS us FROM samples GROUP BY node"


def answered(statement: str, *where: str) -> list[dict[str, Any]]:
    answer = spazio("sql", statement, "--json", *where)
    assert answer.returncode == 0, answer.stderr
    document: list[dict[str, Any]] = json.loads(answer.stdout)
    return document


def rows(*where: str) -> list[dict[str, Any]]:
    return answered(ROWS, *where)


def simulated(running: Up) -> list[dict[str, Any]]:
    return [row for row in running.top() if row["node"].startswith("sim-")]


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Record simulated nodes until each was heard of for a while, with churn."""
    folder = tmp_path_factory.mktemp("recording") / "data"
    settings = ("--nodes", str(NODES), "--simulated-churn-per-minute", "5", "--history-flush-seconds", "1")
    with up(folder, *settings) as running:
        shown = until(lambda: result if len(result := simulated(running)) == NODES else [], 30, "all simulated nodes")
        assert {row["node"] for row in shown} == {f"sim-{number:05d}" for number in range(NODES)}
        until(lambda: all(row["age_seconds"] < 10 for row in simulated(running)), 30, "fresh rows")
        assert running.pid("load")
        until(lambda: running.sql("SELECT count(*) AS n FROM models WHERE scope = 'global'")[0]["n"] > 12, 60, "models")
    return folder


@pytest.mark.slow
def test_the_replay_of_a_recording_by_two_processors_has_the_rows_that_the_recording_had(recording: Path) -> None:
    processors = ("--process-replicas", "2", "--log-level", "info")
    answer = spazio("replay", "--data-dir", str(recording), "--json", *processors)
    assert answer.returncode == 0, answer.stderr
    assert "process-2" in answer.stderr
    document = json.loads(answer.stdout)
    assert document["whole"]
    assert not document["faulty"]
    before, after = rows("--data-dir", str(recording)), rows("--history-dir", document["history"])
    assert len(after) > 5 * NODES
    # The recording ended at a signal: the replay folds what its processors had not folded, and the last rows may lack
    # the samples that they are of, which were still in the stream.
    replayed = {(row["node"], row["at_us"]): row for row in after}
    assert len(replayed) == len(after)
    ends = {row["node"]: row["us"] for row in answered(ENDS, "--data-dir", str(recording))}
    expected = [row for row in before if row["at_us"] <= ends.get(row["node"], 0)]
    assert [(row["node"], row["at_us"]) for row in expected if (row["node"], row["at_us"]) not in replayed] == []
    different = [(row, same) for row in expected if (same := replayed[row["node"], row["at_us"]]) != row]
    assert different[:1] == []
    assert abs(len(after) - len(before)) < 3 * NODES


@pytest.mark.slow
def test_a_replay_reads_the_history_that_the_environment_names_and_writes_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = history(tmp_path / "live", [stored(telemetry.block("n", second)) for second in range(3)])
    before = {path: path.stat().st_mtime_ns for path in live.rglob("*")}
    monkeypatch.setenv("SPAZIO_HISTORY_DIR", str(live))
    answer = spazio("replay", "--data-dir", str(tmp_path / "data"), "--json")
    assert answer.returncode == 0, answer.stderr
    document = json.loads(answer.stdout)
    assert document["messages"] == {"samples": 3}
    assert Path(document["history"]).is_relative_to(tmp_path / "data" / "replay")
    assert {path: path.stat().st_mtime_ns for path in live.rglob("*")} == before


@pytest.mark.slow
async def test_a_replay_into_streams_that_hold_messages_changes_nothing_of_them(
    settings: Settings, tmp_path: Path
) -> None:
    live, names = settings.model_copy(update={"prefix": "live"}), Names("live")
    trace = tmp_path / "trace.csv"
    trace.write_text("node,seconds,cpu_util\nn,1700000000,0.4\n")
    sizes = ("--cpus", "8", "--memory-bytes", "16000000000")
    options = ("--data-dir", str(tmp_path / "data"), "--nats", settings.nats_url, "--prefix", "live", *sizes)
    async with connection.connect(live, "live") as client:
        await stream.ensure(client, live)
        await client.jetstream().publish(names.node("samples", "n"), b"{}")
        before = (await client.jetstream().stream_info(names.telemetry)).config
        answer = await asyncio.to_thread(spazio, "replay", str(trace), *options)
        assert (await client.jetstream().stream_info(names.telemetry)).config == before
    assert answer.returncode == 2, answer.stderr
    assert (
        f"{names.telemetry} holds messages of a pipeline or of an earlier replay; name another --prefix"
        in answer.stderr
    )


@pytest.mark.slow
def test_a_recording_that_turns_out_unusable_on_the_way_ends_with_its_reason(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    lines = [f"n,{1_700_000_000 + index / 200},0.4" for index in range(200)]
    trace.write_text("\n".join(["node,seconds,cpu_util", *lines]) + "\n")
    sizes = ("--cpus", "8", "--memory-bytes", "16000000000")
    answer = spazio("replay", str(trace), "--data-dir", str(tmp_path / "data"), *sizes)
    assert answer.returncode == 2, answer.stderr
    assert "node n has 200 samples in second 1700000000" in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("sign", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_replay_that_is_ended_reports_what_it_has_sent_and_has_the_status_of_the_signal(
    tmp_path: Path, sign: signal.Signals, status: int
) -> None:
    trace, folder = tmp_path / "trace.csv", tmp_path / "data"
    lines = [f"n,{1_700_000_000 + second},0.4" for second in range(3600)]
    trace.write_text("\n".join(["node,seconds,cpu_util", *lines]) + "\n")
    options = ("--speed", "1", "--history-flush-seconds", "1", "--cpus", "8", "--memory-bytes", "16000000000", "--json")
    command = [sys.executable, "-m", "spazio", "replay", str(trace), "--data-dir", str(folder), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as replay:
        until(lambda: [*folder.glob("replay/*/history/samples/date=2*")], 60, "rows")
        replay.send_signal(sign)
        shown, _ = replay.communicate(timeout=60)
    assert replay.returncode == status
    document = json.loads(shown)
    assert not document["whole"]
    assert 0 < document["samples"] < 3600


@pytest.mark.slow
def test_a_replay_without_sizes_ends_before_any_server_starts(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("node,seconds,cpu_util\nn,1700000000,0.4\n")
    answer = spazio("replay", str(trace), "--data-dir", str(tmp_path / "data"))
    assert answer.returncode == 2, answer.stderr
    assert "--cpus and --memory-bytes" in answer.stderr
    assert not list((tmp_path / "data").rglob("server.log"))


@pytest.mark.slow
def test_a_replay_leaves_out_bad_rows_only_on_request(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    lines = [f"n{index % 3},{1_700_000_000 + index // 3},{index % 90},0.4" for index in range(90)]
    trace.write_text("\n".join(["host,when,cpu %,mem", *lines, "n0,1700000031,900,0.4"]) + "\n")
    command = [
        "replay",
        str(trace),
        "--data-dir",
        str(tmp_path / "data"),
        "--cpus",
        "8",
        "--memory-bytes",
        "16000000000",
    ]
    command += ["--map", "node=host,seconds=when,cpu=cpu %/100,memory=mem", "--json"]
    refused = spazio(*command)
    assert refused.returncode == 2
    assert f"{trace} row 91, column 'cpu %': is '900'" in refused.stderr
    assert "--skip-bad" in refused.stderr
    answer = spazio(*command, "--skip-bad")
    assert answer.returncode == 0, answer.stderr
    document = json.loads(answer.stdout)
    assert (document["samples"], document["faulty"]) == (90, 1)
    assert not {each.name for each in Path(document["history"]).parent.iterdir()} & {"nats", "credentials", "work"}
    statement = "SELECT node, count(*) AS n, min(at_us) AS first FROM availability GROUP BY node ORDER BY node"
    result = spazio("sql", statement, "--json", "--history-dir", document["history"])
    counted = json.loads(result.stdout)
    assert [row["node"] for row in counted] == ["n0", "n1", "n2"]
    assert all(row["n"] > 5 and row["first"] < 1_700_000_005_000_000 for row in counted)


@pytest.mark.slow
def test_a_bad_row_of_a_history_is_reported_with_its_file_in_the_history(tmp_path: Path) -> None:
    folder = tmp_path / "history"
    writer = Writer(folder, "T", "20260101T000000000000Z", 1)
    block = telemetry.block("n", 0, cpu_util=1.5)
    kept = sample.smoothed(block)._replace(cpus=block.cpus, memory_bytes=block.memory_bytes)  # `raw` would refuse it
    writer.append(telemetry.NAMES.part(0, "samples", "n"), 1, kept)
    writer.flush()
    view.create(folder)
    answer = spazio("replay", str(folder), "--data-dir", str(tmp_path / "data"))
    assert answer.returncode == 2
    ((file, _),) = layout.files(folder)
    assert f"{file} row 1, column 'cpu_util': is '1.5'" in answer.stderr
