"""Whom the dashboard's server lets in, and what its pages may load."""

import asyncio
import ssl
from pathlib import Path

import aiohttp
import pytest
from nats.aio.client import Client

from schemas.sections.dashboard import Dashboard
from schemas.settings import Settings, SettingsError
from sinks.dashboard import web as dashboard
from sinks.dashboard.access import Access
from tests.support.dashboard.pages import served
from tests.support.extender.asking import make_keys
from tests.support.server.raw import eventually

SECRET = "a-secret-of-enough-letters"  # of a test


async def test_pages_load_nothing_from_elsewhere_and_run_no_script_but_their_own(
    client: Client, settings: Settings, web: aiohttp.ClientSession
) -> None:
    async with served(client, settings) as address:
        for path in ("/", "/static/app.js", "/api/about", "/static/none", "/nowhere", "/static/../web.py"):
            async with web.get(address + path) as answer:
                policy = answer.headers["Content-Security-Policy"]
                assert "default-src 'none'" in policy
                assert "unsafe" not in policy
                assert answer.status == (404 if "no" in path or "web.py" in path else 200)


async def test_a_name_that_only_resolves_to_this_machine_is_refused(
    client: Client, settings: Settings, web: aiohttp.ClientSession
) -> None:
    async with served(client, settings) as address:
        for host, status in (
            ("evil.example", 403),
            ("localhost", 200),
            ("127.0.0.1:1", 200),
            ("[::1]", 200),
            ("", 403),
        ):
            async with web.get(f"{address}/api/about", headers={"Host": host}) as answer:
                assert answer.status == status, host


async def test_off_loopback_a_browser_needs_the_token_and_keeps_it_in_a_cookie(
    client: Client, settings: Settings, web: aiohttp.ClientSession, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(f"{SECRET}\n")
    async with served(client, settings, token_file=file) as address:
        for path in ("/", "/api/about", "/?token=wrong", "/static/app.js"):
            async with web.get(address + path, allow_redirects=False) as answer:
                assert answer.status == 401
                assert SECRET not in await answer.text()
        async with web.get(f"{address}/healthz") as answer:
            assert answer.status == 200
        async with web.get(f"{address}/?token={SECRET}", allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (303, "/")
            cookie = answer.cookies["spazio-dashboard"]
            assert SECRET not in cookie.value
            # Strict would keep it from links in chats and wikis. Other sites can still post nothing: see below.
            assert (cookie["httponly"], cookie["samesite"]) == (True, "Lax")
        for path in ("query", "recording"):
            async with web.post(f"{address}/api/{path}", data={"sql": "SELECT 1"}) as answer:
                assert answer.status == 415
        async with web.get(f"{address}/api/about", headers={"Host": "pages.example"}) as answer:
            assert answer.status == 200


async def test_a_cookie_holds_over_a_restart_and_ends_with_its_token(
    client: Client, settings: Settings, web: aiohttp.ClientSession, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(SECRET)
    async with served(client, settings, token_file=file) as address, web.get(f"{address}/?token={SECRET}") as answer:
        assert answer.status == 200
    for token, status in ((SECRET, 200), (SECRET[::-1], 401)):
        file.write_text(token)
        async with served(client, settings, token_file=file) as address, web.get(f"{address}/api/about") as answer:
            assert answer.status == status


@pytest.mark.slow
async def test_a_body_that_does_not_come_ends_the_connection(
    client: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dashboard, "_BODY_SECONDS", 0.1)
    async with served(client, settings) as address:
        host, port = address.removeprefix("http://").rstrip("/").split(":")
        for path in ("query", "recording"):
            reader, writer = await asyncio.open_connection(host, int(port))
            head = f"POST /api/{path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            writer.write(f"{head}Content-Length: 99\r\n\r\n{{".encode())
            async with asyncio.timeout(60):
                answer = await reader.read()  # to the end of the connection
            assert answer.startswith(b"HTTP/1.1 408 ")
            writer.close()


async def test_a_renewed_certificate_is_shown_to_the_next_browser(
    client: Client, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sinks.serving.listener._LOOK_SECONDS", 0.05)
    await asyncio.to_thread(make_keys, tmp_path)
    trusting = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    files = {"tls_cert": tmp_path / "server.pem", "tls_key": tmp_path / "server.key"}
    async with served(client, settings, **files) as address:

        async def shown() -> object:
            host, port = address.removeprefix("https://").split(":")
            _, writer = await asyncio.open_connection(host, int(port), ssl=trusting)
            writer.transport.abort()
            return writer.get_extra_info("peercert")["subject"][0][0][1]

        async def renewed() -> bool:
            return await shown() == "renewed"

        assert await shown() == "server"
        for kind in ("pem", "key"):
            (tmp_path / f"renewed.{kind}").rename(tmp_path / f"server.{kind}")
        await eventually(renewed)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.7", "example.org"])  # refused
def test_off_loopback_it_does_not_start_without_a_token(host: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="token"):
        Access(Dashboard(host=host))
    short = tmp_path / "short"
    short.write_text("short")
    with pytest.raises(SettingsError, match="at least 16"):
        Access(Dashboard(host=host, token_file=short))
    with pytest.raises(SettingsError, match="cannot be read"):
        Access(Dashboard(host=host, token_file=tmp_path / "none"))
    Access(Dashboard(host=host, allow_anonymous=True))
