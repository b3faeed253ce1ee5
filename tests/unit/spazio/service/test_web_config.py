"""Metrics over HTTPS and with passwords: who reads what, what is refused at the start, and files that change."""

import asyncio
import base64
import contextlib
import importlib
import os
import socket
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bus.health import Health
from schemas.settings import SettingsError
from spazio import health as health_check
from spazio.service.liveness import probe
from spazio.service.monitor import Monitor
from spazio.service.web import config
from spazio.service.web.access import Access
from tests.support.extender.asking import make_keys
from tests.support.server import handshake

PASSWORD = "opened by this"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    make_keys(folder)
    return folder


@pytest.fixture(scope="module")
def hashed() -> str:
    bcrypt = importlib.import_module("bcrypt")
    return str(bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode())


def written(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "web.yml"
    path.write_text(text)
    path.chmod(mode)
    return path


def tls(keys: Path, more: str = "") -> str:
    return f"tls_server_config:\n  cert_file: {keys}/server.pem\n  key_file: {keys}/server.key\n{more}"


@contextmanager
def served(path: Path) -> Iterator[Monitor]:
    monitor = Monitor("127.0.0.1", 0, Health(), lambda: True, Access(path))
    try:
        yield monitor
    finally:
        monitor.close()


def client(keys: Path, who: str = "") -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(keys / "ca.pem"))
    if who:
        context.load_cert_chain(keys / f"{who}.pem", keys / f"{who}.key")
    return context


async def ask(url: str, user: str = "", password: str = PASSWORD, context: ssl.SSLContext | None = None) -> int:
    request = urllib.request.Request(url)
    if user:
        request.add_header("Authorization", "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode())

    def done() -> int:
        try:
            with urllib.request.urlopen(request, timeout=5, context=context) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    return await asyncio.to_thread(done)


async def test_metrics_need_the_password_and_health_does_not(tmp_path: Path, hashed: str) -> None:
    with served(written(tmp_path, f"basic_auth_users:\n  prometheus: {hashed}\n")) as monitor:
        metrics = f"{monitor.address}/metrics"
        assert [await ask(metrics, "prometheus") for _ in range(2)] == [200, 200]
        refused = [("", ""), ("prometheus", "wrong"), ("nobody", PASSWORD), ("prometheus", "x" * 100), ("a", "b\0c")]
        assert [await ask(metrics, user, password) for user, password in refused] == [401] * 5
        assert [await ask(monitor.address + page) for page in ("/healthz", "/readyz")] == [200, 200]
        assert await probe.page(monitor.address)


@pytest.mark.parametrize("header", ["Basic", "Basic !!", "Basic bm8=", "Bearer x", "Basic /w==", "basic  "])
async def test_any_other_header_is_refused(tmp_path: Path, hashed: str, header: str) -> None:
    access = Access(written(tmp_path, f"basic_auth_users:\n  prometheus: {hashed}\n"))
    assert access.refusal("/metrics", header, object()) == (401, "this page needs a user and a password")


async def test_https_is_served_and_the_health_check_follows(
    tmp_path: Path, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(written(tmp_path, tls(keys, "  min_version: TLS13\n"))) as monitor:
        assert monitor.address.startswith("https://127.0.0.1:")
        assert await ask(f"{monitor.address}/metrics", context=client(keys)) == 200
        old = client(keys)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(urllib.error.URLError):
            await ask(f"{monitor.address}/metrics", context=old)
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            await ask(monitor.address.replace("https", "http"))
        monkeypatch.setenv("SPAZIO_HTTP_PORT", monitor.address.rpartition(":")[2])
        assert await asyncio.to_thread(health_check.main, ["/healthz"]) == 0
        assert await probe.page(monitor.address)


async def test_with_client_certificates_only_their_owners_read_metrics(tmp_path: Path, keys: Path) -> None:
    for kind, without in (("RequireAndVerifyClientCert", 403), ("VerifyClientCertIfGiven", 200)):
        more = f"  client_auth_type: {kind}\n  client_ca_file: {keys}/ca.pem\n"
        with served(written(tmp_path, tls(keys, more))) as monitor:
            metrics = f"{monitor.address}/metrics"
            assert await ask(metrics, context=client(keys, "client")) == 200
            assert await ask(metrics, context=client(keys)) == without
            assert await ask(f"{monitor.address}/healthz", context=client(keys)) == 200
            with pytest.raises((urllib.error.URLError, OSError)):
                await ask(metrics, context=client(keys, "stranger"))
            assert await probe.page(monitor.address)


async def test_a_changed_file_is_read_again_and_a_broken_one_changes_nothing(
    tmp_path: Path, hashed: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path, f"basic_auth_users:\n  old: {hashed}\n")
    with served(path) as monitor:
        metrics = f"{monitor.address}/metrics"
        for number, (text, old, new) in enumerate(
            [
                (f"basic_auth_users:\n  new: {hashed}\n", 401, 200),
                ("basic_auth_users: [", 401, 200),
                ("", 401, 200),  # as for a moment while somebody writes it
            ]
        ):
            path.write_text(text)
            os.utime(path, ns=(number, number))
            assert (await ask(metrics, "old"), await ask(metrics, "new")) == (old, new)
    assert [record.message for record in caplog.records].count("http.config_refused") == 2


@pytest.mark.parametrize("how", handshake.DAMAGES)
@pytest.mark.parametrize("name", ["server.pem", "server.key", "ca.pem"])
def test_a_renewed_certificate_is_shown_and_one_that_cannot_be_used_changes_nothing(
    name: str, how: str, tmp_path: Path, keys: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for file in ("server.pem", "server.key", "ca.pem"):
        (tmp_path / file).write_bytes((keys / file).read_bytes())
    more = f"  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: {tmp_path}/ca.pem\n"
    access = Access(written(tmp_path, tls(tmp_path, more)))

    def shown() -> str:
        context = access.refresh()
        assert context is not None
        return handshake.shown(context, keys, "client")

    caplog.clear()
    handshake.damage(tmp_path / name, how)
    assert [shown(), shown()] == ["server", "server"]
    (record,) = caplog.records
    assert (record.message, name in vars(record)["reason"]) == ("http.config_refused", True)
    for file, fresh in (("server.pem", "renewed.pem"), ("server.key", "renewed.key"), ("ca.pem", "ca.pem")):
        handshake.repair(tmp_path / file, (keys / fresh).read_bytes())
    assert shown() == "renewed"


async def test_who_has_given_the_right_password_does_not_wait_behind_those_who_guess(
    tmp_path: Path, hashed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = Access(written(tmp_path, f"basic_auth_users:\n  prometheus: {hashed}\n"))
    monkeypatch.setattr("spazio.service.web.access._WAIT_SECONDS", 0.01)
    right, wrong = (
        "Basic " + base64.b64encode(f"prometheus:{password}".encode()).decode() for password in (PASSWORD, "wrong")
    )
    assert access.refusal("/metrics", right, object()) is None
    with access._checking, access._checking:
        assert access.refusal("/metrics", right, object()) is None
        assert access.refusal("/metrics", wrong, object()) == (503, "too many passwords are being checked")


@pytest.mark.slow
async def test_idle_connections_neither_pile_up_nor_keep_others_out(tmp_path: Path, keys: Path) -> None:
    with contextlib.ExitStack() as stack:
        plain = Monitor("127.0.0.1", 0, Health(), lambda: True)
        stack.callback(plain.close)
        for monitor in (plain, stack.enter_context(served(written(tmp_path, tls(keys))))):
            before, address = threading.active_count(), ("127.0.0.1", int(monitor.address.rpartition(":")[2]))
            for _ in range(150):
                stack.enter_context(socket.create_connection(address))
            assert await probe.page(monitor.address)
            assert threading.active_count() - before <= 70


def test_files_that_others_can_read_are_named(tmp_path: Path, hashed: str, caplog: pytest.LogCaptureFixture) -> None:
    Access(written(tmp_path, f"basic_auth_users:\n  a: {hashed}\n", 0o644))
    (record,) = caplog.records
    assert (record.message, vars(record)["mode"]) == ("http.config_exposed", "644")
    assert "chmod 600" in vars(record)["remedy"]
    caplog.clear()
    Access(written(tmp_path, f"basic_auth_users:\n  a: {hashed}\n"))
    assert not caplog.records


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("tls_config: {}", r"tls_config is unknown here; known are tls_server_config, basic_auth_users"),
        ("http_server_config: {http2: false}", r"http_server_config is unknown"),
        (
            "tls_server_config: {cert_file: a, key_file: b, cipher_suites: []}",
            r"tls_server_config\.cipher_suites is unk",
        ),
        ("tls_server_config: {cert_file: a}", r"tls_server_config\.key_file is missing"),
        ("tls_server_config: {cert_file: a, key_file: b, min_version: TLS10}", r"'TLS10' is none of TLS12, TLS13"),
        (
            "tls_server_config: {cert_file: a, key_file: b, client_auth_type: RequestClientCert}",
            r"is none of NoClientC",
        ),
        ("tls_server_config: {cert_file: a, key_file: b, client_ca_file: c}", r"go together"),
        ("tls_server_config: {cert_file: 3, key_file: b}", r"cert_file is no path"),
        ("tls_server_config: {cert_file: absent.pem, key_file: absent.key}", r"absent\.pem and .* cannot be used"),
        ("tls_server_config: 1", r"tls_server_config is no mapping"),
        ("basic_auth_users: {a: secret}", r"basic_auth_users\.a is no bcrypt hash.*htpasswd"),
        ("basic_auth_users: {a: $2y$31$abcdefghijklmnopqrstuuQ2OUnm/5R0HYkVSEBgqBxuMiJhWbVxO}", r"cost of 4 to 16"),
        ("basic_auth_users: {'a:b': x}", r"'a:b' is no name"),
        ("basic_auth_users: [a]", r"basic_auth_users is no mapping"),
        ("- a", r"holds no mapping"),
        ("{", r"is not YAML"),
        ("---\n---\n", r"is not YAML of one document"),
        ("[" * 3000, r"more than 300 levels of brackets"),
        ("!!python/object/apply:os.system [true]", r"is not YAML"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_reason(tmp_path: Path, text: str, reason: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(SettingsError, match=reason):
        Access(path)


def test_all_faults_are_reported_together_and_a_missing_file_too(tmp_path: Path) -> None:
    text = "nonsense: 1\nbasic_auth_users: {a: b}\ntls_server_config: {min_version: SSL3}\n"
    with pytest.raises(SettingsError) as caught:
        config.read(written(tmp_path, text))
    assert all(each in str(caught.value) for each in ("nonsense", "basic_auth_users.a", "SSL3", "cert_file is missing"))
    with pytest.raises(SettingsError, match="cannot be read: No such file or directory; name a file with"):
        config.read(tmp_path / "absent.yml")


def test_a_missing_package_is_named(tmp_path: Path, hashed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    present = importlib.import_module

    def absent(name: str) -> Any:
        if name == "bcrypt":
            raise ModuleNotFoundError(name)
        return present(name)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(SettingsError, match=r"package bcrypt is needed for it: pip install '\.\[web\]'"):
        config.read(written(tmp_path, f"basic_auth_users:\n  a: {hashed}\n"))
