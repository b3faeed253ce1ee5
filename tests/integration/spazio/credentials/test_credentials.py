"""Credentials on a real server: issued once, rotated without downtime, revoked, refused with a reason; and TLS."""

import asyncio
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from bus import connection, server, stream, watchdog
from bus.connection import Refused
from bus.health import Health
from schemas import role
from schemas import settings as all_settings
from schemas.settings import Settings
from schemas.subject import Names
from spazio import option
from spazio.credentials import authority, command, embedded
from spazio.service import addresses
from tests.conftest import NatsServer
from tests.e2e.pipeline import spazio
from tests.integration.spazio.credentials.hearing import hears
from tests.support.server.secured import NAMES, Secured


async def test_a_stranger_and_one_without_a_credential_are_refused_at_once_with_the_remedy(
    running: Secured, tmp_path: Path
) -> None:
    without = running.settings("n1").model_copy(
        update={"nats": Settings().nats.model_copy(update={"url": running.url})}
    )
    with pytest.raises(Refused, match=r"wants a credential .*--nats-credentials"):
        await asyncio.wait_for(hears(without), 2)
    command.issue(tmp_path / "other", NAMES, command.Wanted())
    stranger = running.settings("n1", nats_credentials=str(tmp_path / "other" / "roles" / "admin.creds"))
    with pytest.raises(Refused, match=r"refuses user admin .*has not read the server.conf"):
        await asyncio.wait_for(hears(stranger), 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda file: file.unlink(), "does not exist"),
        (lambda file: file.chmod(0o644), "chmod 600"),
        (lambda file: file.write_text("nonsense"), "holds no NATS credential"),
        (lambda file: (file.write_text("nonsense"), file.chmod(0o644)), "holds no NATS credential"),
        (lambda file: file.write_bytes(b"\xff\xfe"), "is no text"),
        (lambda file: file.write_text("\n".join(file.read_text().splitlines()[:4])), "holds no NATS credential"),
        (lambda file: file.write_text(re.sub("(?m)^(SU.{20}).*", r"\1", file.read_text())), "holds no NATS credential"),
    ],
)
async def test_a_credential_that_cannot_be_used_is_named_with_the_reason(
    running: Secured, change: Any, reason: str
) -> None:
    settings = running.settings("cache")
    change(running.credential("cache"))
    with pytest.raises(Refused, match=reason):
        await hears(settings)


@pytest.mark.slow
async def test_a_revoked_user_is_thrown_out_and_others_stay(running: Secured) -> None:
    health, quick = Health(), {"nats_probe_seconds": "0.1"}
    settings = running.settings("n1", **quick)
    async with (
        connection.connect(settings, "agent") as revoked,
        connection.connect(running.settings("n2"), "agent") as other,
    ):
        watching = asyncio.create_task(watchdog.watch(revoked, health, settings.nats))
        lines = running.issue(revoke=["n1"])
        assert any("--signal reload" in line for line in lines)
        await asyncio.to_thread(running.reload)
        async with asyncio.timeout(5):
            while "credentials" not in health.problems:  # noqa: ASYNC110 # it sends no notice
                await asyncio.sleep(0.05)
        assert "refuses user node n1" in health.problems["credentials"]
        assert other.is_connected
        assert not other.stats["reconnects"]
        assert not running.credential("n1").name.startswith("n1")
        # A new credential in the place of the old one is used without a restart.
        running.issue(nodes=["n1"])
        async with asyncio.timeout(5):
            while health.problems:  # noqa: ASYNC110 # it sends no notice
                await asyncio.sleep(0.05)
        watching.cancel()
        assert await connection.alive(revoked, 1)
    with pytest.raises(authority.Unusable, match="has issued nothing to n3"):
        running.issue(revoke=["n3"])


async def test_what_a_clock_that_was_ahead_has_signed_can_be_revoked(
    running: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server takes as revoked what was issued before a time, which is in the future then."""
    with monkeypatch.context() as ahead:
        ahead.setattr(time, "time", lambda: time.time_ns() / 1e9 + 600)
        running.issue(nodes=["n3"])
    stolen = running.settings("n3", nats_credentials=str(running.credential("n3").rename(running.folder / "stolen")))
    await asyncio.to_thread(running.reload)
    assert await hears(stolen)
    running.issue(revoke=["n3"])
    await asyncio.to_thread(running.reload)
    with pytest.raises(Refused, match="node n3"):
        await hears(stolen)


@pytest.mark.slow
async def test_a_credential_that_is_cut_short_while_the_server_restarts_is_waited_for(
    running: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    file = running.credential("cache")
    whole = file.read_text()
    async with connection.connect(running.settings("cache"), "cache") as client:
        file.write_text("")
        running.kill()
        await asyncio.to_thread(running.start)
        async with asyncio.timeout(5):
            while "holds no NATS credential" not in caplog.text + str([vars(each) for each in caplog.records]):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        file.write_text(whole)
        async with asyncio.timeout(5):
            while not await connection.alive(client, 1):  # noqa: ASYNC110
                await asyncio.sleep(0.05)


@pytest.mark.slow
def test_a_service_that_is_refused_ends_with_status_2_and_says_why(running: Secured) -> None:
    answer = spazio("sink", "cache", "--nats", running.url, "--http-port", "0", "--data-dir", str(running.folder / "x"))
    assert answer.returncode == 2
    assert "wants a credential" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_password_on_the_command_line_is_warned_of_and_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    loaded = option.parse("agent", "", ["--nats", "nats://me:secret@127.0.0.1:1"])
    error = capsys.readouterr().err
    assert "--nats-credentials" in error
    assert "secret" not in error + loaded.nats_shown
    option.parse("agent", "", ["--nats", "nats://127.0.0.1:1"])
    assert not capsys.readouterr().err


@pytest.mark.slow
async def test_keys_are_rotated_without_anybody_being_disconnected(running: Secured, tmp_path: Path) -> None:
    old = tmp_path / "old.creds"
    old.write_text(running.credential("cache").read_text())
    old.chmod(0o600)
    before = running.settings("cache", nats_credentials=str(old))
    async with connection.connect(before, "cache") as client:
        running.issue(rotate=True)
        assert running.credential("cache").read_text() != old.read_text()
        await asyncio.to_thread(running.reload)
        assert await hears(before) == await hears(running.settings("cache"))
        assert client.is_connected
        assert not client.stats["reconnects"]
    assert any("keys revoked" in line for line in running.issue(retire=True))
    await asyncio.to_thread(running.reload)
    with pytest.raises(Refused, match="refuses user cache"):
        await asyncio.wait_for(hears(before), 2)
    await hears(running.settings("cache"))


@pytest.mark.slow
async def test_streams_of_a_server_without_accounts_are_found_again(tmp_path: Path) -> None:
    plain = NatsServer(tmp_path)
    plain.start()
    settings = all_settings.load({"nats_url": plain.url, "data_dir": str(tmp_path), "nats_partitions": "3"}, environ={})
    async with connection.connect(settings, "old") as client:
        await stream.ensure(client, settings)
        for number in range(5):
            await client.jetstream().publish("spazio.samples.n1", b"%d" % number)
        await client.jetstream().publish("$KV.SPAZIO_NODES.n1", b"{}")
        before = await stream.describe(client, "SPAZIO_TELEMETRY")
    assert plain.process is not None
    plain.process.send_signal(signal.SIGTERM)
    plain.process.wait()
    for _ in range(2):  # the second start has nothing to move
        access = embedded.prepare(settings)
        secure = NatsServer(tmp_path)
        server.write_config(settings, secure.port, access.accounts)
        secure.start()
        reader = settings.nats.model_copy(update={"url": secure.url, "credentials": access.reader})
        async with connection.connect(settings.model_copy(update={"nats": reader}), "new") as client:
            after = await stream.describe(client, "SPAZIO_TELEMETRY")
            message = await client.jetstream().get_msg("SPAZIO_TELEMETRY", 5)
            assert (after.created, after.last, after.partitions) == (before.created, 5, 3)
            assert message.data == b"4"
            assert (await client.jetstream().get_msg("KV_SPAZIO_NODES", subject="$KV.SPAZIO_NODES.n1")).data == b"{}"
        secure.kill()
        assert not list((tmp_path / "nats" / "jetstream").glob("$G/streams/*"))


@pytest.mark.slow
async def test_streams_are_kept_when_the_folder_of_credentials_is_lost(tmp_path: Path) -> None:
    settings = all_settings.load({"data_dir": str(tmp_path)}, environ={})
    for number in range(2):
        access = embedded.prepare(settings)
        running = NatsServer(tmp_path)
        server.write_config(settings, running.port, access.accounts)
        running.start()
        own = {"url": running.url, "credentials": access.of("process", settings)}
        secure = settings.model_copy(update={"nats": settings.nats.model_copy(update=own)})
        async with connection.connect(secure, "test") as client:
            await stream.ensure(client, secure)
            assert (await client.jetstream().publish("spazio.model", b"{}")).seq == number + 1
        assert running.process is not None
        running.process.send_signal(signal.SIGTERM)
        running.process.wait()
        (tmp_path / "credentials").rename(tmp_path / f"lost-{number}")


def test_a_stream_of_the_same_name_is_left_where_it_is(tmp_path: Path) -> None:
    settings = all_settings.load({"data_dir": str(tmp_path)}, environ={})
    store = tmp_path / "nats" / "jetstream"
    for folder in ("$G/streams/S", "$G/streams/T", "A1/streams/S", "$SYS/streams/U"):
        (store / folder).mkdir(parents=True)
    assert server.adopt(settings, "A1") == ["$G/S"]
    assert sorted(path.name for path in (store / "A1" / "streams").iterdir()) == ["S", "T"]
    assert (store / "$SYS" / "streams" / "U").exists()


def test_a_command_finds_the_credential_of_its_role_beside_that_of_readers(tmp_path: Path) -> None:
    settings = all_settings.load({"data_dir": str(tmp_path), "sample_node": "n.1"}, environ={})
    access = embedded.prepare(settings)
    addresses.write(tmp_path, {"nats": "nats://127.0.0.1:1", "credentials": str(access.reader)})
    result = {
        name: addresses.located(settings, name).nats.credentials
        for name in ("reader", "load", "admin", "agent", "edge", "process", "unknown")
    }
    folder = tmp_path / "credentials"
    assert result == {
        "reader": folder / "roles" / "reader.creds",
        "load": folder / "roles" / "load.creds",
        "admin": folder / "roles" / "admin.creds",
        "agent": folder / "nodes" / "n_1.creds",
        "edge": folder / "nodes" / "n_1.creds",
        "process": folder / "roles" / "process.creds",
        "unknown": folder / "reader.creds",
    }
    elsewhere = all_settings.load({"data_dir": str(tmp_path), "nats_url": "nats://127.0.0.1:2"}, environ={})
    assert addresses.located(elsewhere).nats.credentials is None
    assert addresses.admitted(settings, "process").nats.credentials is None, "it connects to port 4222"


def test_a_command_in_another_folder_finds_the_credential_of_an_up_whose_data_folder_is_relative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    settings = all_settings.load({"data_dir": "data", "history_dir": "rows"}, environ={})
    access = embedded.prepare(settings)
    addresses.write(settings.data.dir, {"nats": "nats://127.0.0.1:1", "credentials": str(access.reader)})
    monkeypatch.chdir("elsewhere")
    there = all_settings.load({"data_dir": "../data"}, environ={})
    credential = addresses.located(there, "admin").nats.credentials
    assert credential == tmp_path / "data" / "credentials" / "roles" / "admin.creds"
    assert settings.history_dir == tmp_path / "rows"


def test_a_node_whose_name_is_too_long_uses_the_credential_of_a_region(tmp_path: Path) -> None:
    settings = all_settings.load({"data_dir": str(tmp_path), "sample_node": "n" * 253}, environ={})
    assert embedded.prepare(settings).of("agent", settings) == tmp_path / "credentials" / "roles" / "region.creds"


def test_a_prefix_of_its_own_has_subjects_of_its_own(tmp_path: Path) -> None:
    names = Names("lab")
    assert all("spazio" not in subject.lower() for each in role.ROLES for subject in each.grant(names).publish)
    assert role.node(names, "n").publish[0] == "lab.samples.n"
