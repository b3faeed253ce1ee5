"""The service behind an APIService: forecasts as `external.metrics.k8s.io`, for the API server's aggregator alone.

The API server authenticates and authorizes each client, and passes the request on with its own client certificate.
Only clients with a certificate of that authority are answered, so no client gets round the API server.
"""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import Counter

from schemas.sections.output import Output
from schemas.settings import SettingsError
from sinks.kubernetes.external import metric, selector
from sinks.kubernetes.latest import Latest
from sinks.serving import listener, tls
from sinks.serving.connection import Limits

log = logging.getLogger(__name__)

_CLOSE_SECONDS = 1.0

REQUESTS = Counter("spazio_kube_external_requests_total", "requests for external metrics, by status", ["status"])


class Server:
    """Answers from the newest forecasts.

    Attributes:
        application: Its routes.
    """

    def __init__(self, latest: Latest, output: Output, clock: Callable[[], float]) -> None:
        """Prepare.

        Args:
            latest: The newest messages.
            output: Settings.
            clock: Seconds since the epoch.
        """
        self._latest, self._seconds, self._clock = latest, output.forecast_seconds, clock
        self.application = web.Application()
        root = f"/apis/{metric.VERSION}"
        self.application.router.add_get(root, self._discover)
        self.application.router.add_get(f"{root}/namespaces/{{namespace}}/{{metric}}", self._values)

    async def _discover(self, _request: web.Request) -> web.Response:
        return _answer(200, metric.resources())

    async def _values(self, request: web.Request) -> web.Response:
        namespace, name, now = request.match_info["namespace"], request.match_info["metric"], self._clock()
        if not self._latest.current.is_set():
            return _answer(503, metric.status(503, "ServiceUnavailable", "forecasts have not been read yet"))
        try:
            matches = selector.matcher(request.query.get("labelSelector", ""))
        except ValueError as error:
            return _answer(400, metric.status(400, "BadRequest", str(error)))
        fresh = [
            each
            for (space, _, _), each in self._latest.forecasts.items()
            if space == namespace and abs(now - each.at_us / 1e6) <= self._seconds
        ]
        listed = metric.values(name, fresh, matches)
        if listed is None:
            names = ", ".join(metric.NAMES)
            return _answer(404, metric.status(404, "NotFound", f"there is no metric {name!r}; there are {names}"))
        return _answer(200, listed)


def _answer(status: int, content: dict[str, object]) -> web.Response:
    REQUESTS.labels(str(status)).inc()
    return web.json_response(content, status=status)


def files(output: Output) -> tls.Files:
    """Return the TLS files of the settings."""
    return tls.Files(
        "output external", output.external_tls_cert, output.external_tls_key, output.external_tls_client_ca
    )


@asynccontextmanager
async def serving(latest: Latest, output: Output, clock: Callable[[], float]) -> AsyncIterator[str]:
    """Serve for the length of a block, if the settings say so.

    Args:
        latest: The newest messages.
        output: Settings.
        clock: Seconds since the epoch.

    Yields:
        The address; empty: nothing is served.

    Raises:
        SettingsError: The server cannot listen there, or a TLS file is missing or cannot be used.
    """
    if not output.external:
        yield ""
        return
    if output.external_tls_cert is None or output.external_tls_client_ca is None:
        raise SettingsError(
            [
                "output external: the API server asks over HTTPS, and no other client may ask; name certificates with "
                "--output-external-tls-cert, --output-external-tls-key and --output-external-tls-client-ca"
            ]
        )
    identity = tls.Identity(files(output))
    runner = web.AppRunner(Server(latest, output, clock).application, shutdown_timeout=_CLOSE_SECONDS)
    await runner.setup()
    assert runner.server is not None
    interface = listener.Address("output external", output.external_host, output.external_port)
    try:
        async with listener.listen(runner.server, interface, Limits(), identity, _refused) as address:
            log.info("external.listening", extra={"address": address})
            yield address
    finally:
        await runner.cleanup()


def _refused(status: int) -> None:
    REQUESTS.labels(str(status)).inc()
