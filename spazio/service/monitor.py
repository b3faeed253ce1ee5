"""Metrics and health of a service over HTTP: /metrics, /healthz (liveness), /readyz (readiness), /targets.

/targets lists the services of the running `spazio up` in the format of Prometheus' HTTP service discovery.
"""

import asyncio
import errno
import json
import os
import platform
import socket
import threading
import urllib.parse
from collections.abc import Callable
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, Gauge, disable_created_metrics
from prometheus_client.exposition import choose_encoder

from bus.health import Health
from schemas.messages.base import RELEASE
from schemas.sections.bus import Http
from schemas.settings import SettingsError
from spazio.service.addresses import Target
from spazio.service.web.server import PageServer

if TYPE_CHECKING:
    from spazio.service.web.access import Access

_Answer = tuple[int, str, bytes]

_STUCK_SECONDS = 3.0
_INDEX = (
    b"<!doctype html><title>spazio</title><h1>spazio</h1>"
    b'<p><a href="/metrics">/metrics</a> <a href="/healthz">/healthz</a> <a href="/readyz">/readyz</a> '
    b'<a href="/targets">/targets</a>\n'
)
_BUILD = Gauge("spazio_build_info", "1; the release of spazio and of Python", ["version", "python"])
_BUILD.labels(RELEASE, platform.python_version()).set(1)

disable_created_metrics()  # type: ignore[no-untyped-call] # creation times would double the page


def check(http: Http) -> None:
    """Find out whether the address of the pages is free.

    Raises:
        SettingsError: It is not.
    """
    try:
        _try(http)
    except OSError as error:
        raise unusable(http, error) from error


def beside(http: Http, offset: int, last: str = "") -> Http:
    """Return settings with the port so far behind theirs, or any free one (0) where that is in use.

    Args:
        http: Settings of all services of a machine.
        offset: Place of the service among them.
        last: Address that it had before it ended, which it keeps if any was free (0); empty: it had none.
    """
    port = http.port + offset if http.port else urllib.parse.urlsplit(last).port or 0
    beyond = http.model_copy(update={"port": port if port < 65_536 else 0})
    try:
        _try(beyond)
    except OSError:
        return http.model_copy(update={"port": 0})
    return beyond


def _try(http: Http) -> None:
    family = socket.AF_INET6 if ":" in http.host else socket.AF_INET
    socket.getaddrinfo(http.host, http.port, family)  # create_server does not say that a name has no address
    socket.create_server((http.host, http.port), family=family).close()


def unusable(http: Http, error: OSError) -> SettingsError:
    """Return the error of an address on which nothing can listen."""
    if isinstance(error, socket.gaierror):
        remedy = "name an address of this machine with --http-host, of IPv6 without brackets"
        return SettingsError([f"http host: cannot listen on {http.host}: {error.strerror}; {remedy}"])
    reason = os.strerror(error.errno) if error.errno else str(error)  # its text has the address once more
    if error.errno == errno.EADDRNOTAVAIL:
        return SettingsError([f"http host: cannot listen on {http.host}: {reason}; name another with --http-host"])
    return SettingsError(
        [f"http port: cannot listen on {http.host}:{http.port}: {reason}; choose another with --http-port, 0 for any"]
    )


class Monitor:
    """Serves the pages from a thread, so that it answers while the event loop is busy."""

    def __init__(
        self,
        host: str,
        port: int,
        health: Health,
        connected: Callable[[], bool],
        access: "Access | None" = None,
        targets: Callable[[str], list[Target]] = lambda _: [],
    ) -> None:
        """Start listening.

        Args:
            host: Address.
            port: Port; 0: any free one.
            health: Problems of the service.
            connected: Tells whether NATS answers.
            access: HTTPS and passwords; None: plain HTTP for everybody.
            targets: Lists the services of this machine, for a header Host.

        Raises:
            OSError: The address is in use, or is not of this machine.
        """
        self._health, self._connected, self._targets = health, connected, targets
        self._loop = asyncio.get_running_loop()
        self._server = PageServer(host, port, self.page, access)

    @property
    def address(self) -> str:
        """URL of the pages."""
        return self._server.address

    def close(self) -> None:
        """Stop answering."""
        self._server.close()

    def page(self, path: str, accept: str, host: str = "") -> _Answer:
        """Return status, content type and body of a page.

        Args:
            path: The page.
            accept: Header of that name, which selects Prometheus or OpenMetrics text.
            host: Header of that name.
        """
        if path == "/metrics":
            encode, kind = choose_encoder(accept)
            return 200, kind, encode(REGISTRY)
        if path == "/targets":
            return 200, "application/json", json.dumps(self._targets(host)).encode() + b"\n"
        pages = {"/": self._index, "/healthz": self._healthz, "/readyz": self._readyz}
        return pages.get(path, self._unknown)()

    def _index(self) -> _Answer:
        return 200, "text/html; charset=utf-8", _INDEX

    def _healthz(self) -> _Answer:
        if not self._turns():
            return 503, "text/plain", b"stuck\n"
        return 200, "text/plain", b"ok\n"

    def _readyz(self) -> _Answer:
        problems = dict(self._health.problems)
        if not self._connected():
            problems["nats"] = "not connected; waiting for the server"
        body = json.dumps({"ready": not problems, "problems": problems}).encode() + b"\n"
        return (503 if problems else 200), "application/json", body

    def _unknown(self) -> _Answer:
        return 404, "text/plain", b"try /metrics, /healthz, /readyz or /targets\n"

    def _turns(self) -> bool:
        """Tell whether the event loop runs callbacks; tested only when the page is requested."""
        turned = threading.Event()
        try:
            self._loop.call_soon_threadsafe(turned.set)
        except RuntimeError:  # the loop is closed
            return False
        return turned.wait(_STUCK_SECONDS)
