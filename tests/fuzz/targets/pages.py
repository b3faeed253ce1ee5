"""Pages over HTTP: those of the dashboard, with a history and a bus, and those of every service, behind a password."""

import asyncio
import json
import logging
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple

from aiohttp.http_exceptions import HttpProcessingError

from bus import connection, stream
from schemas import settings as all_settings
from spazio.service.web.access import Access
from spazio.service.web.server import PageServer
from tests.conftest import NatsServer
from tests.fuzz.session import Run, Target
from tests.support.dashboard import flight
from tests.support.dashboard.pages import cache, rows, served

_QUERY, _RECORDING, _NODE, _OPEN, _TOKEN, _MONITOR = range(6)
_NO_METHOD = 501
_POSTED = {_QUERY: "query", _RECORDING: "recording"}
_HASH = "$2b$04$abcdefghijklmnopqrstuuQ2OUnm/5R0HYkVSEBgqBxuMiJhWbVxO"
_WHOLE_SECONDS, _ANSWER_SECONDS = 0.3, 5.0
_QUERIES = (
    "SELECT node, available FROM availability ORDER BY at_us DESC LIMIT 5",
    "SELECT time_bucket(INTERVAL '1 minute', time) AS minute, avg(cpu_util) FROM samples GROUP BY ALL",
    "FROM cluster_room",
    "SELECT * FROM read_text('/etc/passwd')",
)
_WORDS = (
    b"SELECT ", b" FROM samples ", b"read_parquet(", b"; ", b"--", b"/*", b"?token=", b"%2e%2e/", b"%00", b"%ff",
    b"Host: localhost\r\n", b"Cookie: spazio-dashboard=", b"Transfer-Encoding: chunked\r\n",
    b"Expect: 100-continue\r\n",
    b"Authorization: Basic ", b"Range: bytes=0-1\r\n", b"If-Modified-Since: ", b"Accept-Encoding: gzip\r\n",
    b"Connection: Upgrade\r\nUpgrade: websocket\r\n", b"application/json; charset=",
)  # fmt: skip


class _Servers(NamedTuple):
    """Ports on loopback (a dashboard, one that wants a token, pages of a service), and what their requests raised."""

    open: int
    token: int
    monitor: int
    raised: list[BaseException]


def target() -> Target:
    """Return the target; the first byte is what is asked, the rest a body, a name or the whole request."""
    local = b"Host: localhost\r\n"
    recording = {"from": 0, "to": 2e9, "node": "n1"}
    seeds = [
        *(bytes([_QUERY]) + json.dumps({"sql": text}).encode() for text in _QUERIES),
        bytes([_RECORDING]) + json.dumps(recording).encode(),
        bytes([_RECORDING]) + json.dumps(recording | {"node": ""}).encode(),
        bytes([_NODE]) + b"node-00000",
        bytes([_NODE]) + b"a%20b%2F%E2%82%AC",
        *(
            bytes([server]) + b"GET %s HTTP/1.1\r\n%s\r\n" % (path, local)
            for server in (_OPEN, _TOKEN)
            for path in (b"/", b"/api/about", b"/api/cluster", b"/api/pipeline", b"/api/model", b"/static/app.js")
        ),
        bytes([_OPEN]) + b"POST /api/query HTTP/1.1\r\n" + local + b"Content-Type: application/json\r\n"
        b'Content-Length: 18\r\n\r\n{"sql":"SELECT 1"}',
        bytes([_TOKEN]) + b"GET /?token=a-secret-of-enough-letters HTTP/1.1\r\n" + local + b"\r\n",
        bytes([_TOKEN]) + b"GET /api/about HTTP/1.1\r\n" + local + b"Cookie: spazio-dashboard=0a1b; a=b\r\n\r\n",
        *(
            bytes([_MONITOR]) + b"GET %s HTTP/1.1\r\n%sAuthorization: Basic YTpi\r\n\r\n" % (path, local)
            for path in (b"/metrics", b"/healthz", b"/a?b=c#d")
        ),
    ]  # fmt: skip
    return Target("pages", seeds, _opened, (), _WORDS)


@contextmanager
def _opened() -> Iterator[Run]:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        servers = runner.run(stack.enter_async_context(_served()))
        try:
            yield lambda data: runner.run(_ask(servers, data)) if data else None
        finally:
            runner.run(stack.aclose())


@asynccontextmanager
async def _served() -> AsyncIterator[_Servers]:
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        bus = NatsServer(folder)
        bus.start()
        flags = {"nats_url": bus.url, "data_dir": str(folder / "data"), "nats_request_timeout_seconds": "1"}
        settings = all_settings.load(flags, environ={})
        settings.history_dir.mkdir(parents=True)
        flight.record(settings.history_dir)
        raised, log = _Raised(), logging.getLogger("aiohttp.server")
        log.addHandler(raised)
        log.propagate = False
        (folder / "token").write_text("a-secret-of-enough-letters")
        (folder / "web.yml").write_text(f"basic_auth_users: {{a: {_HASH}}}\n")
        try:
            async with connection.connect(settings, "fuzz") as client:
                await stream.ensure(client, settings)
                await cache(client, rows(3))
                pages = PageServer("127.0.0.1", 0, lambda path, *_: (200, "text/plain", path.encode()), _access(folder))
                bounds = {"query_seconds": 0.5, "query_rows": 100}
                async with (
                    served(client, settings, **bounds) as plain,
                    served(client, settings, token_file=folder / "token", **bounds) as guarded,
                ):
                    first, second, third = (int(each.rpartition(":")[2]) for each in (plain, guarded, pages.address))
                    yield _Servers(first, second, third, raised.errors)
                pages.close()
        finally:
            bus.kill()
            log.removeHandler(raised)
            log.propagate = True


def _access(folder: Path) -> Access:
    return Access(folder / "web.yml")


async def _ask(servers: _Servers, data: bytes) -> None:
    """Send a request, and expect an answer that names no fault of the server, or the end of the connection."""
    which, given = data[0] % 6, data[1:]
    port = {_TOKEN: servers.token, _MONITOR: servers.monitor}.get(which, servers.open)
    if which in _POSTED:
        head = f"POST /api/{_POSTED[which]} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        request = head.encode() + b"Content-Length: %d\r\n\r\n" % len(given) + given
    elif which == _NODE:
        request = b"GET /api/node/%s HTTP/1.1\r\nHost: localhost\r\n\r\n" % given
    else:
        request = given
    line = await _first_line(port, request)
    # The server drops what it has to say of a request if the client closes its side before.
    raised, servers.raised[:] = list(servers.raised), []
    for error in raised:
        raise error
    status = int(line.split()[1]) if line.startswith(b"HTTP/") else 0
    assert status < 500 or status == _NO_METHOD, line


async def _first_line(port: int, request: bytes) -> bytes:
    """Return the first line of the answer; empty: there is none, since the request is not complete or too long."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        try:
            async with asyncio.timeout(_WHOLE_SECONDS):
                return await reader.readline()
        except TimeoutError:  # it waits for more
            writer.write_eof()
        async with asyncio.timeout(_ANSWER_SECONDS):
            return await reader.readline()
    except ConnectionError:
        return b""
    finally:
        writer.transport.abort()


class _Raised(logging.Handler):
    """Takes what handlers of requests raise, other than refusals of what is no HTTP."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, HttpProcessingError):
            self.errors.append(error)
