"""The connection to the API server: which one, as whom, and answers as they come.

The client library brings credentials (files, tokens that expire, plugins) and TLS. Its typed models are left aside, for
plain JSON costs a fraction of them. So is its own watch: it begins again without saying where it stands, tries an
expired version twice, and waits for ever on a connection that has died.
"""

import asyncio
import hashlib
import json
import logging
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml  # type: ignore[import-untyped]
from kubernetes_asyncio import config as library
from kubernetes_asyncio.client.api_client import ApiClient
from kubernetes_asyncio.client.configuration import Configuration
from kubernetes_asyncio.config.kube_config import KUBE_CONFIG_DEFAULT_LOCATION

from kube import answer
from schemas.sections.measurement import Kube
from schemas.settings import SettingsError

log = logging.getLogger(__name__)

_CONNECT_SECONDS = 10
_LOAD_SECONDS = 20.0  # for the configuration, which a credential plugin may take part in
_LOADING = asyncio.Lock()  # one at a time, so that what a load has started can be ended
_HANGS = "the kubeconfig's credential plugin does not end; run it by hand, and see what it waits for"
_LARGEST_REFUSAL = 1 << 16
_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_HOST = "KUBERNETES_SERVICE_HOST"
_OUTDATED = (answer.Unknown, aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
_MISUSED = (library.ConfigException, yaml.YAMLError, ValueError, KeyError, TypeError, AttributeError, AssertionError)


def files(settings: Kube, environ: Mapping[str, str] = os.environ) -> str:
    """Return the kubeconfig to use, several with colons between; empty: the pod's service account.

    Raises:
        SettingsError: There is none.
    """
    if settings.config is not None:
        if not settings.config.is_file():
            raise SettingsError([f"kube config: {settings.config} is no file; name a kubeconfig with --kube-config"])
        return str(settings.config)
    if environ.get(_HOST) and "KUBECONFIG" not in environ:
        return ""
    paths = environ.get("KUBECONFIG") or KUBE_CONFIG_DEFAULT_LOCATION
    if not any(Path(path).expanduser().is_file() for path in paths.split(os.pathsep) if path):
        raise SettingsError(
            [f"kube config: no Kubernetes API is known: {paths} does not exist; name a kubeconfig with --kube-config"]
        )
    return paths


async def configuration(settings: Kube) -> Configuration:
    """Read who and where the API server is.

    Raises:
        SettingsError: What is there cannot be used.
    """
    file, result = files(settings), Configuration()
    try:
        if file:
            await library.load_kube_config(
                config_file=file,
                context=settings.context or None,
                client_configuration=result,
                persist_config=False,
            )
        else:
            library.load_incluster_config(client_configuration=result)  # type: ignore[no-untyped-call]
    except (*_MISUSED, OSError) as error:
        where = file or "the pod's service account"
        # The library puts whole entries into its messages, tokens and all.
        reason = str(error).partition("{")[0][:300].strip() or type(error).__name__
        raise SettingsError([f"kube config: {where} cannot be used: {reason}"]) from None
    return result


async def _at_start(settings: Kube) -> Configuration:
    try:
        return await _loaded(settings)
    except TimeoutError:
        raise SettingsError([f"kube config: {_HANGS}"]) from None


async def _loaded(settings: Kube) -> Configuration:
    """Read the configuration; raises TimeoutError if a plugin does not end, and ends it."""
    async with _LOADING:
        before = _children("self")
        try:
            async with asyncio.timeout(_LOAD_SECONDS):
                return await configuration(settings)
        except (TimeoutError, asyncio.CancelledError):
            # The library leaves its plugin behind, which would be one more process with each attempt.
            _end(_children("self") - before)
            raise


def _end(pids: set[int]) -> None:
    for pid in pids:
        _end(_children(f"{pid}"))
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _children(pid: str) -> set[int]:
    """Return the processes that one has started and that run; none where the kernel does not list them."""
    children = set[int]()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            children |= set(map(int, task.read_text().split()))
    return children


async def address(settings: Kube) -> str:
    """Return where the API server is.

    Raises:
        SettingsError: The kubeconfig or the service account cannot be used.
    """
    return str((await _at_start(settings)).host)


async def cluster(settings: Kube) -> str:
    """Return what tells a cluster from another that is at the same address: that, and a digest of its authority.

    Raises:
        SettingsError: The kubeconfig or the service account cannot be used.
    """
    loaded = await _at_start(settings)
    if not loaded.ssl_ca_cert:
        return str(loaded.host)
    try:
        authority = await asyncio.to_thread(Path(loaded.ssl_ca_cert).read_bytes)
    except OSError as error:
        raise SettingsError([f"kube config: {loaded.ssl_ca_cert} cannot be read: {error.strerror}"]) from None
    return f"{loaded.host} {hashlib.blake2b(authority.strip(), digest_size=8).hexdigest()}"


class Api:
    """A client that reads its configuration again when the server refuses its credentials or no connection is made."""

    def __init__(self, settings: Kube) -> None:
        self._settings = settings
        self._link: _Link | None = None
        self._opening = asyncio.Lock()

    async def close(self) -> None:
        """Close all connections."""
        if self._link is not None:
            link, self._link = self._link, None
            await link.client.close()

    @asynccontextmanager
    async def get(
        self, resource: str, query: Mapping[str, str], *, silence_seconds: float
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Ask for a resource of the whole cluster, and hold the answer open.

        Args:
            resource: `nodes` or `pods`; of another group than the core, `group/version/resource`.
            query: Parameters.
            silence_seconds: Give up when nothing has come for so long.

        Raises:
            Trouble: No answer, an answer other than 200, or one that breaks off.
        """
        verb = "watch" if "watch" in query else "list"
        group = resource.count("/") == 2
        path = f"/apis/{resource}" if group else f"/api/v1/{resource}"
        async with self._request("GET", path, None, query, "application/json", verb, silence_seconds) as response:
            yield response

    async def send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | list[Any] | None = None,
        *,
        query: Mapping[str, str] | None = None,
        kind: str = "application/json",
        timeout_seconds: float = 10,
    ) -> dict[str, Any]:
        """Ask for, make, change or delete one object.

        Args:
            method: GET, POST, PUT, PATCH or DELETE.
            path: Path of the object, or of the list that it is to be made in; names in it are quoted.
            body: What to send, as JSON.
            query: Parameters.
            kind: Content type of the body; a PATCH says by it what kind of patch it is.
            timeout_seconds: For the whole answer.

        Returns:
            The object as the API server has it then, or a `Status`.

        Raises:
            Trouble: No answer in time, or a refusal. Whether a request without an answer has been carried out is not
                known.
        """
        try:
            async with (
                asyncio.timeout(timeout_seconds),
                self._request(method, path, body, query or {}, kind, _VERBS[method], timeout_seconds) as response,
            ):
                content = json.loads(await response.read())
        except TimeoutError as error:
            raise answer.Away(f"{_VERBS[method]} {answer.resource_of(path)}: {answer.described(error)}") from error
        except (ValueError, RecursionError) as error:
            raise answer.Trouble(
                f"{_VERBS[method]} {answer.resource_of(path)}: the answer is no JSON: {error}"
            ) from error
        if not isinstance(content, dict):
            raise answer.Trouble(f"{_VERBS[method]} {answer.resource_of(path)}: the answer is no object")
        return content

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | list[Any] | None,
        query: Mapping[str, str],
        kind: str,
        verb: str,
        silence_seconds: float,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        resource = answer.resource_of(path)
        # Half, because `send` ends after `silence_seconds`: an address that drops packets would pass for a slow answer.
        connect_seconds = min(_CONNECT_SECONDS, silence_seconds / 2)
        try:
            async with self._linked() as client:
                response: aiohttp.ClientResponse = await client.call_api(
                    path,
                    method,
                    query_params=list(query.items()),
                    header_params={"Accept": "application/json", "Content-Type": kind},
                    body=body,
                    auth_settings=["BearerToken"],
                    _preload_content=False,
                    _request_timeout=aiohttp.ClientTimeout(sock_connect=connect_seconds, sock_read=silence_seconds),
                )
                async with response:
                    if not 200 <= response.status < 300:
                        refusal = await response.content.read(_LARGEST_REFUSAL)
                        raise answer.trouble(response.status, refusal, response.headers, verb, resource)
                    yield response
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise answer.Away(f"{verb} {resource}: {answer.described(error)}") from error

    @asynccontextmanager
    async def _linked(self) -> AsyncIterator[ApiClient]:
        """Lend a client; once it is refused or cannot connect it is not lent again, and closed after its last use."""
        link = await self._connected()
        link.users += 1
        try:
            yield link.client
        except _OUTDATED:  # the address or the authority may be another now
            link.retired = True
            if self._link is link:
                self._link = None
            raise
        finally:
            link.users -= 1
            if link.retired and not link.users:
                await link.client.close()

    async def _connected(self) -> "_Link":
        async with self._opening:
            if self._link is None:
                try:
                    loaded = await _loaded(self._settings)
                except TimeoutError as error:
                    raise answer.Away(_HANGS) from error
                except SettingsError as error:
                    raise answer.Trouble(str(error)) from error
                self._link = _Link(ApiClient(loaded))
                self._link.client.user_agent = "spazio"
            return self._link


@dataclass(slots=True, eq=False)
class _Link:
    """A client that has read its configuration, and how many requests use it."""

    client: ApiClient
    users: int = 0
    retired: bool = False
