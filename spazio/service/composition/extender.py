"""`spazio sink extender`: it also writes its address beside the notes of services, for `spazio up` and scripts."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from schemas.settings import Settings
from sinks.extender import service as sink
from sinks.extender.trust import promotion
from sinks.extender.web import access
from spazio.service import addresses, service
from spazio.service.service import Context

_IN_CLUSTER = "KUBERNETES_SERVICE_HOST"


def run(settings: Settings) -> int:
    """Run the service; it ends at once if it needs the Kubernetes API and no API server is configured.

    Raises:
        SettingsError: The settings of the API server, or of certificates, cannot be used; other machines reach the
            extender, and no setting says who may ask; or namespaces are to be promoted in another mode than shadow.
    """
    access.check(settings.extender)
    promotion.check(settings.extender)
    requeues = wants_requeues(settings)
    needed = settings.extender.bind or requeues
    if needed:
        asyncio.run(_client_library().address(settings.kube))
    note = _note(settings)

    async def work(context: Context) -> None:
        listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        listening.add_done_callback(lambda done: None if done.cancelled() else service.announce(note, done.result()))
        client = _client_library().Api(settings.kube) if needed else None
        try:
            await sink.run(context.client, settings, context.health, client, listening, requeues=requeues)
        finally:
            note.unlink(missing_ok=True)

    return service.run("extender", settings, work)


def wants_requeues(settings: Settings, environ: Mapping[str, str] = os.environ) -> bool:
    """Tell whether rejected pods are to be tried again when room appears: as settings say, else where an API is named.

    A kubeconfig that merely lies in the home folder names nothing: no cluster is written to by chance.
    """
    if settings.extender.kick is not None:
        return settings.extender.kick
    return settings.kube.config is not None or _IN_CLUSTER in environ


def _client_library() -> ModuleType:
    from kube import api

    return api


def _note(settings: Settings) -> Path:
    return settings.data.dir / "run" / addresses.SCHEDULER
