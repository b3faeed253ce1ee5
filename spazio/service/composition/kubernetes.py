"""`spazio sink kubernetes`: a missing kubeconfig ends it at once."""

import asyncio

from kube import api
from schemas.settings import Settings
from sinks.kubernetes import service as sink
from spazio.service import service


def run(settings: Settings) -> int:
    """Run the service.

    Raises:
        SettingsError: No API server is configured, or its settings cannot be used.
    """
    asyncio.run(api.address(settings.kube))
    return service.run("kubernetes", settings, lambda context: sink.run(context.client, context.live, context.health))
