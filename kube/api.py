"""The connection to the API server: which one, as whom, and answers as they come.

The client library brings credentials (files, tokens that expire, plugins) and TLS. Its typed models are left aside, for
plain JSON costs a fraction of them. So is its own watch: it begins again without saying where it stands, tries an
expired version twice, and waits for ever on a connection that has died.
"""

import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml  # type: ignore[import-untyped]
from kubernetes_asyncio import config as library
from kubernetes_asyncio.client.api_client import ApiClient
from kubernetes_asyncio.client.configuration import Configuration
from kubernetes_asyncio.config.kube_config import KUBE_CONFIG_DEFAULT_LOCATION

from kube import answer
from schemas.section import Kube
from schemas.settings import SettingsError

log = logging.getLogger(__name__)

_CONNECT_SECONDS = 10
_LARGEST_REFUSAL = 1 << 16
_HOST = "KUBERNETES_SERVICE_HOST"
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
    found, result = files(settings), Configuration()
    try:
        if found:
            await library.load_kube_config(
                config_file=found,
                context=settings.context or None,
                client_configuration=result,
                persist_config=False,
            )
        else:
            library.load_incluster_config(client_configuration=result)  # type: ignore[no-untyped-call]
    except (*_MISUSED, OSError) as error:
        where = found or "the pod's service account"
        # The library puts whole entries into its messages, tokens and all.
        reason = str(error).partition("{")[0][:300].strip() or type(error).__name__
        raise SettingsError([f"kube config: {where} cannot be used: {reason}"]) from None
    return result


async def address(settings: Kube) -> str:
    """Return where the API server is.

    Raises:
        SettingsError: What is said of it cannot be used.
    """
    return str((await configuration(settings)).host)


class Api:
    """A client that reads its credentials again when the server has stopped to accept them."""

    def __init__(self, settings: Kube) -> None:
        self._settings = settings
        self._client: ApiClient | None = None

    async def close(self) -> None:
        """Close all connections."""
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()

    @asynccontextmanager
    async def get(
        self, resource: str, query: Mapping[str, str], *, silence_seconds: float
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Ask for a resource of the whole cluster, and hold the answer open.

        Args:
            resource: `nodes` or `pods`.
            query: Parameters.
            silence_seconds: Give up when nothing has come for so long.

        Raises:
            Trouble: No answer, an answer other than 200, or one that breaks off.
        """
        verb = "watch" if "watch" in query else "list"
        try:
            client = await self._connected()
            response: aiohttp.ClientResponse = await client.call_api(
                f"/api/v1/{resource}",
                "GET",
                query_params=list(query.items()),
                header_params={"Accept": "application/json"},
                auth_settings=["BearerToken"],
                _preload_content=False,
                _request_timeout=aiohttp.ClientTimeout(sock_connect=_CONNECT_SECONDS, sock_read=silence_seconds),
            )
            async with response:
                if response.status != 200:
                    body = await response.content.read(_LARGEST_REFUSAL)
                    raise answer.trouble(response.status, body, response.headers, verb, resource)
                yield response
        except answer.Unknown:
            await self.close()
            raise
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise answer.Away(f"{verb} {resource}: {_described(error)}") from error

    async def _connected(self) -> ApiClient:
        if self._client is None:
            try:
                found = await configuration(self._settings)
            except SettingsError as error:
                raise answer.Trouble(str(error)) from error
            self._client = ApiClient(found)
            self._client.user_agent = "spazio"
        return self._client


def _described(error: Exception) -> Any:
    if isinstance(error, TimeoutError):
        return "nothing has come in time"
    return error if str(error) else repr(error)
