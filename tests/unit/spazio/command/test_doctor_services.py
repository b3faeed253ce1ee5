"""What the doctor says of the streams' retention, and of what services report of themselves."""

import asyncio
import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from nats.aio.client import Client

from bus import server
from bus.accounting import retention as held
from bus.api import request
from bus.publishing import dead
from schemas import settings as all_settings
from schemas.settings import Settings
from schemas.subject import Names
from spazio.command import doctor
from spazio.service import addresses
from spazio.terminal import contradiction, letters, readiness, retention
from tests.support.server.secured import secured


def given(folder: Path, **flags: str) -> Settings:
    return all_settings.load({"data_dir": str(folder), **flags}, environ={})


async def test_streams_that_fill_up_sooner_than_they_should_are_named_with_the_size_that_helps(
    client: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await asyncio.to_thread(retention.check, settings, 1)).detail.startswith("not known yet")
    assert not await asyncio.to_thread(retention.warning, settings, 1)
    for name in ("_START_SECONDS", "_LEAST_SECONDS"):
        monkeypatch.setattr(held, name, 0.1)
    subject = Names().node("samples", "a")
    for _ in range(3):
        await client.jetstream().publish(subject, bytes(900_000))
        await asyncio.sleep(0.1)
    (telemetry,) = await held.read(client, settings, 1)
    assert telemetry.stream == "SPAZIO_TELEMETRY"
    assert telemetry.seconds == pytest.approx(settings.nats.telemetry_max_bytes / telemetry.bytes_per_second)
    assert telemetry.wanted_bytes == round(3600 * telemetry.bytes_per_second)
    finding = await asyncio.to_thread(retention.check, settings, 1)
    assert finding.ok is None
    assert finding.cost
    assert "not 60 minutes" in finding.detail
    assert "set --nats-telemetry-max-bytes " in finding.remedy
    warning = await asyncio.to_thread(retention.warning, settings, 1)
    assert "SPAZIO_TELEMETRY" in warning
    assert "set --nats-telemetry-max-bytes " in warning


async def test_the_burst_of_a_start_sets_no_rate(
    client: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held, "_START_SECONDS", 1.0)
    monkeypatch.setattr(held, "_LEAST_SECONDS", 0.05)
    subject = Names().node("samples", "a")
    for _ in range(3):
        await client.jetstream().publish(subject, bytes(900_000))
        await asyncio.sleep(0.05)
    assert await held.read(client, settings, 1) == []
    assert not await asyncio.to_thread(retention.warning, settings, 1)
    await client.jetstream().purge_stream(Names().telemetry, seq=2)  # as of a stream that is full within a second
    assert [each.stream for each in await held.read(client, settings, 1)] == [Names().telemetry]


async def test_the_rate_is_that_of_a_minute_also_where_messages_come_fast(
    client: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"_START_SECONDS": 0.1, "_LEAST_SECONDS": 0.3, "_LOOKED_BACK": 2}.items():
        monkeypatch.setattr(held, name, value)
    for _ in range(10):
        await client.jetstream().publish(Names().node("samples", "a"), b"x")
        await asyncio.sleep(0.05)
    state = (await request(client, f"STREAM.INFO.{Names().telemetry}", {}, 1))["state"]
    seconds = datetime.fromisoformat(state["last_ts"]) - datetime.fromisoformat(state["first_ts"])
    (telemetry,) = await held.read(client, settings, 1)
    assert telemetry.bytes_per_second == pytest.approx(0.9 * state["bytes"] / seconds.total_seconds())


def test_without_a_server_the_retention_is_unknown(tmp_path: Path) -> None:
    settings = given(tmp_path, nats_url=f"nats://127.0.0.1:{server.free_port(0)}")
    finding = retention.check(settings, 0.3)
    assert (finding.ok, finding.detail) == (None, "not checked: no server answers")
    assert not retention.warning(settings, 0.3)


@pytest.mark.parametrize(
    ("seconds", "words"), [(3, "3 s"), (119, "119 s"), (3600, "60 minutes"), (7200, "2 hours"), (1e6, "12 days")]
)
def test_durations_are_in_words(seconds: float, words: str) -> None:
    assert retention.duration(seconds) == words


async def test_dead_letters_are_named_with_the_newest_while_it_is_new(client: Client, settings: Settings) -> None:
    finding = await asyncio.to_thread(letters.check, settings, 2)
    assert (finding.ok, finding.detail) == (True, "none: no message was refused lately")
    for number in (1, 2):
        letter = dead.Letter(Names().node("samples", "a"), b"x", f"it is odd {number}", "process", f"dead:{number}")
        await dead.store(client, Names(), letter, timeout_seconds=2)
    finding = await asyncio.to_thread(letters.check, settings, 2)
    assert finding.ok is None
    assert finding.detail.startswith("2 kept; the newest, of 20")
    assert finding.detail.endswith("Z, on spazio.samples.a: it is odd 2")


def test_without_a_server_dead_letters_are_not_looked_for(tmp_path: Path) -> None:
    settings = given(tmp_path, nats_url=f"nats://127.0.0.1:{server.free_port(0)}")
    assert letters.check(settings, 0.3).detail.startswith("not checked")


@contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    """Answer every request alike; yields the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_port}"
        httpd.shutdown()
        thread.join()


def test_problems_that_services_report_are_repeated_with_the_name_of_the_service(tmp_path: Path) -> None:
    settings = given(tmp_path)
    assert readiness.check(settings, 1).ok is None
    problems = {"ready": False, "problems": {"overload": "predictions are left out: stop something"}}
    with answering(503, json.dumps(problems).encode()) as busy, answering(200, b"{}") as well:
        addresses.write(tmp_path, {"services": {"process": busy, "cache": well}})
        finding = readiness.check(settings, 1)
        assert finding.ok is False
        assert finding.detail == "process: overload: predictions are left out: stop something"
        addresses.write(tmp_path, {"services": {"cache": well}})
        assert readiness.check(settings, 1).ok is True
    finding = readiness.check(settings, 1)
    assert finding.ok is False
    assert "does not answer" in finding.detail
    ended = subprocess.Popen(["true"])
    ended.wait()
    addresses.write(tmp_path, {"services": {"cache": well}, "pids": {"up": ended.pid}})
    assert readiness.check(settings, 1).ok is None


def test_no_service_is_well_that_was_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = given(tmp_path)
    for address in ("https://127.0.0.1:1", "http://127.0.0.1:1"):
        addresses.write(tmp_path, {"services": {"cache": address}})
        assert readiness.check(settings, 1).detail == f"cache: {address} does not answer"
    addresses.write(tmp_path, {"services": {"cache": ""}})
    assert "no address of it" in readiness.check(settings, 1).detail
    with answering(403, b"no") as proxy, answering(200, b"{}") as well:
        monkeypatch.setenv("http_proxy", proxy)
        addresses.write(tmp_path, {"services": {"cache": well}})
        assert readiness.check(settings, 1).ok is True
        addresses.write(tmp_path, {"services": {"cache": proxy}})
        assert "answers 403" in readiness.check(settings, 1).detail


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"problems": 3}', b"\xff"])
def test_an_answer_that_makes_no_sense_is_a_problem_and_no_crash(tmp_path: Path, body: bytes) -> None:
    with answering(503, body) as odd:
        addresses.write(tmp_path, {"services": {"process": odd}})
        finding = readiness.check(given(tmp_path), 1)
    assert finding.ok is False
    assert "cannot be read" in finding.detail


@pytest.mark.parametrize(
    ("credentials", "reason"), [("", "wants a credential"), ("/nonexistent.creds", "/nonexistent.creds does not exist")]
)
def test_a_server_that_wants_another_credential_is_named_once_and_what_asks_it_refers_to_that(
    tmp_path: Path, credentials: str, reason: str
) -> None:
    with secured(tmp_path) as running:
        flags = {"nats_url": running.url, "nats_credentials": credentials}
        settings = given(tmp_path / "none", **{name: value for name, value in flags.items() if value})
        finding = doctor.streams(settings)
        assert finding.ok is False
        assert reason in finding.detail
        assert "JetStream" not in finding.remedy
        for finding in (
            doctor.names(settings),
            retention.check(settings, 1),
            letters.check(settings, 1),
            contradiction.check(settings, 1),
        ):
            assert (finding.ok, finding.detail) == (None, "not checked: the connection is refused")
            assert (bool(finding.cost), finding.remedy) == (True, "see streams")
        assert not retention.warning(settings, 1)
