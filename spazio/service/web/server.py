"""An HTTP server for a few pages, in a thread of its own; over TLS and with passwords where `Access` says so."""

import contextlib
import gzip
import logging
import socket
import ssl
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from prometheus_client.exposition import gzip_accepted

from bus.access import local

if TYPE_CHECKING:
    from spazio.service.web.access import Access  # only where there is a web configuration

log = logging.getLogger(__name__)

_CLOSE_SECONDS = 1.0
_MOST_CONNECTIONS = 64  # each has a thread

# From path and the header Accept to status, content type and body.
Page = Callable[[str, str, str], tuple[int, str, bytes]]
_LEAST_COMPRESSED_BYTES = 1000


class _Closed(Exception):
    """The server should end."""


class PageServer:
    """Serves pages until it is closed."""

    def __init__(self, host: str, port: int, page: Page, access: "Access | None") -> None:
        """Start listening.

        Args:
            host: Address.
            port: Port; 0: any free one.
            page: Returns status, content type and body of a path, for the headers Accept and Host.
            access: HTTPS and passwords; None: plain HTTP for everybody.

        Raises:
            OSError: The address is in use, or is not of this machine.
        """
        self._access = access
        self._server = _Server((host, port), page, access)
        self._server.local = access is None and local.is_loopback(host)
        # The thread does not poll: shutting the socket down wakes it.
        self._thread = threading.Thread(target=self._serve, name="monitor", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(_Closed):
            self._server.serve_forever(poll_interval=3600)

    @property
    def address(self) -> str:
        """URL of the pages."""
        host, port = self._server.server_address[:2]
        scheme = "https" if self._access and self._access.tls else "http"
        name = host if isinstance(host, str) else host.decode()
        return f"{scheme}://[{name}]:{port}" if ":" in name else f"{scheme}://{name}:{port}"

    def close(self) -> None:
        """Stop answering.

        The thread must end before the socket is closed. Otherwise it would wait on the next file that is opened with
        the same file descriptor, and keep that open.
        """
        self._server.closing = True
        self._server.socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(_CLOSE_SECONDS)
        self._server.socket.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = _MOST_CONNECTIONS  # with the default of 5, a few more at once wait for a second
    closing = False
    local = False  # requests must name this machine

    def __init__(self, address: tuple[str, int], page: Page, access: "Access | None") -> None:
        self.page, self.access = page, access
        self._open: dict[Any, None] = {}  # in the order in which they came
        self._counting = threading.Lock()
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, client = super().get_request()
        context = self.access.refresh() if self.access else None
        if context is not None:
            connection = context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, client

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own; if there are too many, the oldest ends."""
        with self._counting:
            self._open[request] = None
            oldest = next(iter(self._open)) if len(self._open) > _MOST_CONNECTIONS else None
            self._open.pop(oldest, None)
        if oldest is not None:
            with contextlib.suppress(OSError):  # a TLS socket's own method would disturb its thread
                socket.socket.shutdown(oldest, socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._counting:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        if self.closing:
            raise _Closed

    def handle_error(self, _request: object, client_address: object) -> None:
        log.debug("monitor.client_disconnected", extra={"client": client_address})


class _Handler(BaseHTTPRequestHandler):
    timeout = 5
    protocol_version = "HTTP/1.1"  # a scraper keeps its connection
    server: _Server

    def setup(self) -> None:
        super().setup()
        if isinstance(self.connection, ssl.SSLSocket):  # in this connection's thread, within its time limit
            self.connection.do_handshake()

    def do_GET(self) -> None:
        path, access, refusal = self.path.partition("?")[0], self.server.access, None
        if access is not None:
            refusal = access.refusal(path, self.headers.get("Authorization"), self.connection)
        elif self.server.local and not local.names(self.headers.get("Host")):
            refusal = (HTTPStatus.FORBIDDEN, "the header Host names another machine than this one")
        if refusal is None:
            asked = self.headers.get("Accept", ""), self.headers.get("Host", "")
            status, kind, body = self.server.page(path, *asked)
        else:
            status, kind, body = refusal[0], "text/plain", f"{refusal[1]}\n".encode()
        self.send_response(status)
        if status == HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", 'Basic realm="spazio"')
        self.send_header("Content-Type", kind)
        self.send_header("Vary", "Accept, Accept-Encoding")
        if len(body) >= _LEAST_COMPRESSED_BYTES and gzip_accepted(self.headers.get("Accept-Encoding", "")):
            self.send_header("Content-Encoding", "gzip")
            body = gzip.compress(body, compresslevel=1)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 # the base class looks for this name

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # the base class has this name
        log.debug("monitor.requested", extra={"request": format % args})
