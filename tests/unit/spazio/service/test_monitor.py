"""The pages of a service as a browser and Prometheus ask for them."""

import asyncio
import gzip
import http.client
import socket
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from bus.health import Health
from bus.server import free_port
from schemas import settings as all_settings
from schemas.messages.base import RELEASE
from schemas.sections.bus import Http
from spazio.service import addresses
from spazio.service import monitor as monitor_module
from spazio.service.monitor import Monitor

Answer = tuple[dict[str, str], bytes]


@pytest.fixture
async def monitor() -> AsyncIterator[Monitor]:
    made = Monitor("127.0.0.1", 0, Health(), lambda: True)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("host", "reason"),
    [("[::1]", "Name or service not known"), ("203.0.113.1", "Cannot assign requested address")],
)
def test_a_host_on_which_nothing_can_listen_is_a_fault_of_the_host(host: str, reason: str) -> None:
    with pytest.raises(all_settings.SettingsError, match="--http-host") as raised:
        monitor_module.check(Http(host=host, port=0))
    assert str(raised.value).startswith(f"http host: cannot listen on {host}: {reason}; ")


async def ask(monitor: Monitor, path: str, method: str = "GET", **headers: str) -> Answer:
    request = urllib.request.Request(
        monitor.address + path,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
        method=method,
    )

    def answered() -> Answer:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return dict(answer.headers), answer.read()

    return await asyncio.to_thread(answered)


async def test_the_root_links_to_every_page(monitor: Monitor) -> None:
    headers, body = await ask(monitor, "/")
    assert headers["Content-Type"].startswith("text/html")
    for path in ("/metrics", "/healthz", "/readyz", "/targets"):
        assert f'href="{path}"'.encode() in body
        await ask(monitor, path)


def test_services_that_listen_everywhere_are_listed_by_the_name_by_which_this_one_is_asked(tmp_path: Path) -> None:
    services = {"process": "http://0.0.0.0:9471", "process-2": "https://[::]:9472", "cache": "http://127.0.0.1:9473"}
    addresses.write(tmp_path, {"services": services | {"agent": "http://", "load": 3}})
    settings = all_settings.load({"data_dir": str(tmp_path)}, environ={})

    def listed(asked: str) -> list[str]:
        return [each for target in addresses.targets(settings, asked) for each in target["targets"]]

    assert listed("host.example:9470") == ["host.example:9471", "host.example:9472", "127.0.0.1:9473"]
    assert listed("[fd00::1]:9470") == ["[fd00::1]:9471", "[fd00::1]:9472", "127.0.0.1:9473"]
    assert listed("") == ["0.0.0.0:9471", "[::]:9472", "127.0.0.1:9473"]


async def test_head_has_the_headers_of_get_and_no_body(monitor: Monitor) -> None:
    headers, body = await ask(monitor, "/healthz", "HEAD")
    assert (headers["Content-Length"], body) == ("3", b"")


async def test_a_page_on_loopback_answers_only_to_names_of_this_machine(monitor: Monitor) -> None:
    """A web page of a stranger asks by a name of its own that resolves to 127.0.0.1, and could read the answer."""
    for host in ("localhost:1", "127.0.0.1", "[::1]:2", socket.gethostname()):
        await ask(monitor, "/metrics", host=host)
    for host in ("example.com", "127.0.0.1.example.com:8801", "localhost.example.com", ""):
        with pytest.raises(urllib.error.HTTPError, match="403") as refusal:
            await ask(monitor, "/metrics", host=host)
        assert b"names another machine" in refusal.value.read()
    everywhere = Monitor("0.0.0.0", 0, Health(), lambda: True)
    port = everywhere.address.rpartition(":")[2]
    try:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/healthz", headers={"Host": "example.com"})
        with await asyncio.to_thread(urllib.request.urlopen, request, timeout=5) as answer:
            assert answer.read() == b"ok\n"
    finally:
        everywhere.close()


async def test_a_connection_is_kept_for_the_next_scrape(monitor: Monitor) -> None:
    def scraped() -> list[int]:
        connection = http.client.HTTPConnection(monitor.address.removeprefix("http://"), timeout=5)
        sockets = []
        for _ in range(2):
            connection.request("GET", "/healthz")
            connection.getresponse().read()
            sockets.append(id(connection.sock))
        connection.close()
        return sockets

    first, second = await asyncio.to_thread(scraped)
    assert first == second != id(None)


async def test_prometheus_gets_compressed_openmetrics_and_others_plain_text(monitor: Monitor) -> None:
    plain_headers, plain = await ask(monitor, "/metrics")
    assert plain_headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert "Content-Encoding" not in plain_headers
    accept = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3"
    headers, body = await ask(monitor, "/metrics", Accept=accept, Accept_Encoding="gzip")
    assert headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert headers["Content-Encoding"] == "gzip"
    assert len(body) < len(plain)
    parsed = text_string_to_metric_families(gzip.decompress(body).decode())  # type: ignore[no-untyped-call]
    families = {family.name: family for family in parsed}
    assert families["spazio_build_info"].samples[0].labels["version"] == RELEASE


def test_each_service_has_the_port_that_the_documentation_says_unless_it_is_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        http = Http(port=taken.getsockname()[1] - 3)
        assert monitor_module.beside(http, 3).port == 0
    assert monitor_module.beside(http, 3).port == http.port + 3
    assert monitor_module.beside(Http(port=0), 3).port == 0
    assert monitor_module.beside(Http(port=65_535), 3).port == 0


def test_a_service_that_starts_again_keeps_its_port_unless_somebody_else_has_it() -> None:
    port = free_port(0)
    assert monitor_module.beside(Http(port=0), 3, f"http://127.0.0.1:{port}").port == port
    with socket.create_server(("127.0.0.1", port)):
        assert monitor_module.beside(Http(port=0), 3, f"http://127.0.0.1:{port}").port == 0
