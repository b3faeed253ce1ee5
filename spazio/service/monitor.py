"""Metrics and health of a service over HTTP: /metrics, /healthz (liveness), /readyz (readiness)."""

import asyncio
import contextlib
import json
import logging
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST, disable_created_metrics, generate_latest

from bus.health import Health

log = logging.getLogger(__name__)

_STUCK_SECONDS = 3.0
_CLOSE_SECONDS = 1.0

disable_created_metrics()  # type: ignore[no-untyped-call] # creation times would double the page


class _Closed(Exception):
    """The server should end."""


class Monitor:
    """Serves the pages from a thread, so that it answers while the event loop is busy."""

    def __init__(self, host: str, port: int, health: Health, connected: Callable[[], bool]) -> None:
        """Start listening.

        Raises:
            OSError: The address is in use, or is not of this machine.
        """
        self._health, self._connected = health, connected
        self._loop = asyncio.get_running_loop()
        monitor = self

        class Handler(BaseHTTPRequestHandler):
            timeout = 5

            def do_GET(self) -> None:
                status, kind, body = monitor.page(self.path.partition("?")[0])
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # the base class has this name
                log.debug("monitor.requested", extra={"request": format % args})

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            closing = False

            def service_actions(self) -> None:
                if self.closing:
                    raise _Closed

            def handle_error(self, _request: object, client_address: object) -> None:
                log.debug("monitor.client_disconnected", extra={"client": client_address})

        self._server = Server((host, port), Handler)
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
        return f"http://{host if isinstance(host, str) else host.decode()}:{port}"

    def close(self) -> None:
        """Stop answering.

        The thread must end before the socket is closed. Otherwise it would wait on whatever is opened next with the
        same file descriptor, and keep that open.
        """
        self._server.closing = True
        self._server.socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(_CLOSE_SECONDS)
        self._server.socket.close()

    def page(self, path: str) -> tuple[int, str, bytes]:
        """Return status, content type and body of a page."""
        if path == "/metrics":
            return 200, CONTENT_TYPE_LATEST, generate_latest()
        if path == "/healthz":
            if not self._turns():
                return 503, "text/plain", b"stuck\n"
            dead = [f"{part}: {self._health.problems.get(part, '')}\n" for part in sorted(self._health.dead)]
            return (503, "text/plain", "".join(dead).encode()) if dead else (200, "text/plain", b"ok\n")
        if path == "/readyz":
            problems = dict(self._health.problems)
            if not self._connected():
                problems["nats"] = "not connected; waiting for the server"
            body = json.dumps({"ready": not problems, "problems": problems}).encode() + b"\n"
            return (503 if problems else 200), "application/json", body
        return 404, "text/plain", b"try /metrics, /healthz or /readyz\n"

    def _turns(self) -> bool:
        """Tell whether the event loop runs callbacks; tested only when the page is requested."""
        turned = threading.Event()
        try:
            self._loop.call_soon_threadsafe(turned.set)
        except RuntimeError:  # the loop is closed
            return False
        return turned.wait(_STUCK_SECONDS)
