"""The extender over HTTPS: who is served, what is refused at the start, and renewed certificates."""

import asyncio
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from schemas.sections.placement import Extender
from schemas.settings import SettingsError
from sinks.extender.web import server
from sinks.serving import tls
from sinks.serving.connection import Limits
from sinks.serving.listener import KEPT
from tests.support.extender.asking import Lab, lab, make_keys, question


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    make_keys(folder)
    return folder


def client_of(keys: Path, who: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(keys / "ca.pem"))
    if who is not None:
        context.load_cert_chain(keys / f"{who}.pem", keys / f"{who}.key")
    return context


async def ask_securely(address: str, context: ssl.SSLContext) -> int:
    connector = aiohttp.TCPConnector(ssl=context)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.post(f"{address}/filter", json=question()) as response,
    ):
        return response.status


async def test_https_is_served_and_old_protocols_are_not(keys: Path) -> None:
    async with lab(tls_cert=keys / "server.pem", tls_key=keys / "server.key") as running:
        assert running.address.startswith("https://127.0.0.1:")
        own = Extender(tls_cert=keys / "server.pem", tls_key=keys / "server.key")
        assert tls.Identity(server.files(own)).context.minimum_version == ssl.TLSVersion.TLSv1_2
        assert await ask_securely(running.address, client_of(keys, None)) == 200
        old = client_of(keys, None)
        old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises(aiohttp.ClientConnectorError):
            await ask_securely(running.address, old)


async def test_only_clients_of_the_named_ca_are_served_where_one_is_named(keys: Path) -> None:
    server, ca = keys / "server.pem", keys / "ca.pem"
    async with lab(tls_cert=server, tls_key=keys / "server.key", tls_client_ca=ca) as running:
        assert await ask_securely(running.address, client_of(keys, "client")) == 200
        for who in (None, "stranger"):
            with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
                await ask_securely(running.address, client_of(keys, who))


Handshake = tuple[ssl.SSLObject, ssl.SSLObject]


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, session: ssl.SSLSession | None = None) -> Handshake:
    """Let a client begin a connection, and return its side and the server's; a side that goes away ends the session."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1", session=session)
    serving = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(3):
        for side in (asking, serving):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    return asking, serving


def test_no_session_spares_a_client_its_certificate(keys: Path) -> None:
    """As one of TLS 1.2 would, which names the session before it instead."""
    context = client_of(keys, "client")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    files = tls.Files("extender", keys / "server.pem", keys / "server.key", keys / "ca.pem")
    server = tls.Identity(files).context
    before, _kept = shake_hands(server, context)
    with pytest.raises(ssl.SSLError):
        shake_hands(server, context, before.session)
    again, _kept = shake_hands(server, context)
    assert (again.version(), again.session_reused) == ("TLSv1.2", False)
    anyone = tls.Identity(files._replace(client_ca=None)).context
    before, _kept = shake_hands(anyone, context)
    again, _kept = shake_hands(anyone, context, before.session)
    assert again.session_reused  # so it was the certificate


async def test_off_loopback_clients_need_certificates_unless_settings_allow_anyone(keys: Path) -> None:
    server: dict[str, Any] = {"tls_cert": keys / "server.pem", "tls_key": keys / "server.key"}
    anyone: dict[str, Any] = {}
    for given in (anyone, server):
        with pytest.raises(SettingsError, match=r"anyone who reaches 0\.0\.0\.0 could reserve capacity"):
            async with lab(host="0.0.0.0", **given):
                raise AssertionError("it was served")
    for given in (anyone | {"allow_anonymous": True}, server | {"tls_client_ca": keys / "ca.pem"}):
        async with lab(host="0.0.0.0", **given) as running:
            assert running.address.endswith("/scheduler")


async def test_a_renewed_certificate_is_taken_up_and_a_broken_one_is_not(
    keys: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cert, key = tmp_path / "tls.crt", tmp_path / "tls.key"

    def install(name: str, *paths: Path) -> None:
        for path in paths:
            path.write_bytes((keys / f"{name}{'.pem' if path == cert else '.key'}").read_bytes())

    async def who(running: Lab) -> object:
        host, _, port = running.root.removeprefix("https://").rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port), ssl=client_of(keys, None))
        subject = writer.get_extra_info("peercert")["subject"]
        writer.close()
        return subject[0][0][1]

    install("server", cert, key)
    async with lab(Limits(read_seconds=0.1), tls_cert=cert, tls_key=key) as running:
        assert await who(running) == "server"
        install("renewed", cert)  # its key is still to come
        async with asyncio.timeout(60):
            while "certificate.renewal_failed" not in [record.message for record in caplog.records]:  # noqa: ASYNC110 # nobody tells
                await asyncio.sleep(0.02)
        assert (await who(running), KEPT._value.get()) == ("server", 1)
        install("renewed", key)
        async with asyncio.timeout(60):
            while await who(running) != "renewed":  # noqa: ASYNC110 # nobody tells
                await asyncio.sleep(0.02)
        assert KEPT._value.get() == 0


async def test_handshakes_that_do_not_end_are_bounded_before_there_is_a_connection(keys: Path) -> None:
    async with lab(Limits(connections=5), tls_cert=keys / "server.pem", tls_key=keys / "server.key") as running:
        host, _, port = running.root.removeprefix("https://").rpartition(":")
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(30)]
        assert await ask_securely(running.address, client_of(keys, None)) == 200
        async with asyncio.timeout(5):  # half of the time for a handshake
            for reader, _ in silent[:25]:
                assert await reader.read() == b""
        for _, writer in silent:
            writer.transport.abort()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_clients_of_an_authority_that_is_taken_away_are_refused_and_those_of_a_new_one_served(
    keys: Path, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    make_keys(tmp_path)
    ours, others = ((folder / "ca.pem").read_bytes() for folder in (keys, tmp_path))
    authorities = tmp_path / "clients.pem"
    context = client_of(keys, None)
    context.maximum_version = version

    async def served(address: str, folder: Path) -> bool:
        context.load_cert_chain(folder / "client.pem", folder / "client.key")
        try:
            return await ask_securely(address, context) == 200
        except (aiohttp.ClientError, ssl.SSLError):
            return False

    async def become(address: str, *wanted: bool) -> None:
        async with asyncio.timeout(60):
            while [await served(address, folder) for folder in (keys, tmp_path)] != [*wanted]:  # noqa: ASYNC110 # nobody tells
                await asyncio.sleep(0.02)

    authorities.write_bytes(ours)
    files = {"tls_cert": keys / "server.pem", "tls_key": keys / "server.key", "tls_client_ca": authorities}
    async with lab(Limits(read_seconds=0.1), **files) as running:
        for content, wanted in ((ours, (True, False)), (ours + others, (True, True)), (others, (False, True))):
            authorities.write_bytes(content)
            await become(running.address, *wanted)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        (("absent.pem", "server.key", None), r"tls cert: .*absent\.pem cannot be read.*--extender-tls-cert"),
        (("server.pem", "absent.key", None), r"tls key: .*absent\.key cannot be read.*--extender-tls-key"),
        (("server.pem", "client.key", None), r"cannot be used: KEY_VALUES_MISMATCH"),
        (("server.pem", "locked.key", None), r"has a password"),
        (("server.pem", None, None), r"and no key cannot be used"),
        (("san", "server.key", None), r"san and .*server\.key cannot be used"),
        (("server.pem", "server.key", "absent.pem"), r"client-ca: .*absent\.pem cannot be read"),
        (("server.pem", "server.key", "san"), r"client-ca: .*certificates in PEM"),
        ((None, "server.key", None), r"tls key: .*without a certificate"),
        ((None, None, "ca.pem"), r"tls client-ca: .*without a certificate"),
    ],
)
async def test_files_that_cannot_be_used_are_faults_of_the_settings(
    keys: Path, files: tuple[str | None, ...], reason: str
) -> None:
    names = ("tls_cert", "tls_key", "tls_client_ca")
    given: dict[str, Any] = {name: keys / file for name, file in zip(names, files, strict=True) if file is not None}
    with pytest.raises(SettingsError, match=reason):
        async with lab(**given):
            raise AssertionError("it was served")
